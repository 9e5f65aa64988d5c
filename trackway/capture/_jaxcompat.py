"""Every JAX name that is not public, and nothing else, so that a new JAX release has one place to break."""

from __future__ import annotations

import sys
from collections.abc import Callable

__all__ = ["trace_active"]


def _find() -> Callable[[], bool] | None:
    core = sys.modules.get("jax._src.core")
    clean = getattr(core, "trace_state_clean", None)
    return clean if callable(clean) else None


_clean: Callable[[], bool] | None = None


def trace_active() -> bool:
    """Return whether a JAX transformation is tracing on this thread; False while JAX is not loaded.

    `jax.core.trace_state_clean` was public until it was deprecated without a successor; the private one is the same
    function. Where it is missing, a trace is recognised by what `jax.numpy` makes of a constant.
    """
    global _clean  # noqa: PLW0603 - found once, when JAX has finished loading
    if _clean is None:
        _clean = _find()
        if _clean is None:
            return _trace_seen_from_outside()
    return not _clean()


def _trace_seen_from_outside() -> bool:
    jax = sys.modules.get("jax")
    tracer = getattr(getattr(jax, "core", None), "Tracer", None)
    if jax is None or tracer is None:
        return False
    return isinstance(jax.numpy.zeros(()), tracer)
