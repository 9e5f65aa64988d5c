"""When the row was begun that a tracker is being given late: from a store, after an outage or in a replay."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackway.tracker._dispatch import Call
    from trackway.tracker._interface import Tracker

__all__ = ["begun_at", "call_at_its_time", "row_time"]

_time: ContextVar[float | None] = ContextVar("trackway_row_time", default=None)


def row_time() -> float | None:
    """Return when the row, or event, was begun that is being handed over on this thread, in seconds since 1970.

    None where that is not known, as for a row that is logged at this moment.
    """
    return _time.get()


def begun_at() -> float:
    """Return `row_time`, or where that is not known the present time: what a backend notes as the time of a row."""
    known = _time.get()
    return time.time() if known is None else known


def call_at_its_time(call: Call, tracker: Tracker, begun: float | None) -> Any:
    """Make *call* on *tracker*, to which `row_time` says *begun* meanwhile."""
    token = _time.set(begun)
    try:
        return call.on(tracker)
    finally:
        _time.reset(token)
