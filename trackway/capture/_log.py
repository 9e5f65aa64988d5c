"""`log` in traced code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackway.capture import _delivery, _hooks
from trackway.capture import _jaxcompat as compat
from trackway.capture._logs import Logs
from trackway.capture._payload import at_step, group_of
from trackway.capture._primitive import bind
from trackway.tracker._verbs import check_reduce
from trackway.values import register_pytrees

__all__ = ["traced_log"]

assert _delivery  # says what happens to a log that nothing captures


def traced_log(metrics: Mapping[str, Any], *, step: Any, commit: bool | None, reduce: Any, weight: Any) -> None:
    """Log *metrics* at this point of the traced program.

    Raises:
        ValueError: if *commit* is True, *reduce* is unknown or *weight* is not one number.
        TypeError: if *metrics* is not a mapping.
        StepError: if *step* is not an integer.
    """
    if commit is True:
        raise ValueError(
            "log(..., commit=True) is not possible inside compiled code: when a row ends is decided on the host; "
            "leave `commit` out, or log outside the compiled function"
        )
    _hooks.install()
    if isinstance(metrics, Logs):
        check_reduce(reduce)
        if weight is not None:
            raise ValueError("log(logs, weight=...) is not possible: the samples of logs are reduced already")
        bind(*at_step(metrics.group, metrics.arrays, step))
        return
    register_pytrees()
    with compat.usual_promotion():
        bind(*group_of(metrics, step=step, reduce=reduce, weight=weight))
