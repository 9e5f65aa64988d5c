"""The way from the verbs to the capture layer; imports JAX only once a program has."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

from trackway import _notices
from trackway.tracker._verbs import log

__all__ = ["jit_log", "trace_active", "traced_log"]


@functools.cache
def _compat() -> Any:
    """Return the module that knows JAX, or None where it cannot work with the version that is installed."""
    try:
        from trackway.capture import _jaxcompat
    except ImportError as error:
        _notices.log_once("jax", f"logging inside compiled code does nothing: {error}", error)
        return None
    return _jaxcompat


def trace_active() -> bool:
    """Return whether a JAX transformation is tracing on this thread; False while JAX is not loaded."""
    if "jax" not in sys.modules:
        return False
    compat = _compat()
    return compat is not None and compat.tracing()


def traced_log(metrics: Mapping[str, Any], *, step: Any, commit: bool | None, reduce: Any, weight: Any) -> None:
    """Log in traced code, see `trackway.capture._log`."""
    from trackway.capture._log import traced_log as implementation

    implementation(metrics, step=step, commit=commit, reduce=reduce, weight=weight)


def jit_log(metrics: Mapping[str, Any], *, step: Any = None, reduce: Any = "mean", weight: Any = None) -> None:
    """Log metrics from inside a function that JAX compiles; the same as `trackway.log` there, and outside.

    Args:
        metrics: Names to values: traced or concrete arrays of any shape, numbers, text, `Histogram`s, nested mappings
            and lists of them. Values that are not traced are those of the time of tracing.
        step: The training step, a traced or concrete integer. One that varies in a loop gives each iteration a row.
        reduce: How the samples of one name that belong to one row become one value: `mean`, `sum`, `max`, `min`,
            `last`, `std`, `stack`, `rows`, a `Hist` or a `Ring`; or a mapping from names to these.
        weight: The weight of this sample in a mean, standard deviation or sum; elsewhere a sample of weight 0 is
            ignored. One number.

    Raises:
        ValueError: if *reduce* is unknown or *weight* is not one number.
        TypeError: if *metrics* is not a mapping.
        StepError: if *step* is not an integer, as far as can be known when tracing: its type and shape.
    """
    if trace_active():
        traced_log(metrics, step=step, commit=None, reduce=reduce, weight=weight)
    else:
        log(metrics, step=step, reduce=reduce, weight=weight)
