"""`scope` and `mute`: on the host by what surrounds a call, in traced code by the names around an equation.

The names of equations are the only thing that is right for a compiled function which JAX traced once and calls from
several places: what surrounds the tracing would stick to the first of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

from trackway.capture._door import trace_active
from trackway.tracker import _ambient

__all__ = ["MUTE", "SCOPE", "mute", "prefix_from", "scope"]

SCOPE = "trackway:"
"""What the name of a `jax.named_scope` begins with if it is a scope of metrics."""
MUTE = "trackway-mute"
"""The name of a scope in which nothing is logged."""


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Put `name/` before the names of all metrics that are logged in the block, here and in compiled code.

    Scopes in one another add up. In traced code the block covers what is traced in it, also inside of functions that
    were compiled before; outside it covers the calls of this thread or task.

    Raises:
        ValueError: if *name* is no text, or has nothing beside slashes.
    """
    with _ambient.scope(name):  # checks the name
        if not trace_active():
            yield
            return
    with _named(f"{SCOPE}{quote(name.strip('/'), safe='')}"):
        yield


def prefix_from(names: Iterable[str]) -> str | None:
    """Return what `jax.named_scope`s of these *names* put before a metric, those of `scope` alone; None if muted."""
    prefix = ""
    for name in names:
        if name == MUTE:
            return None
        if name.startswith(SCOPE):
            prefix += f"{unquote(name.removeprefix(SCOPE))}/"
    return prefix


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Name what is traced in the block; inner compiled functions hand on what they log, to be named as well."""
    import jax

    from trackway.capture import _hooks

    _hooks.install()
    with jax.named_scope(name), _hooks.calls_too():
        yield


@contextlib.contextmanager
def mute() -> Iterator[None]:
    """Log nothing in the block: for `model.init`, an evaluation of instrumented code, a test.

    In traced code the block covers what is traced in it, also inside of functions that were compiled before; outside
    it covers the calls of this thread or task.
    """
    with _named(MUTE) if trace_active() else _ambient.mute():
        yield
