"""Host callbacks of compiled functions that are still under way.

The capture layer, which knows JAX, lies above this one; it says here how to wait, once it has bound a callback.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from trackway import _notices
from trackway.errors import FatalTrackerError

__all__ = ["DEFERRED", "defer", "forget_deferred", "raise_deferred", "set_barrier", "wait_for_callbacks"]

_barrier: tuple[Callable[[], None], int] | None = None
DEFERRED: list[FatalTrackerError] = []
"""The failure that `raise_deferred` is to raise, if any: looking here first spares the call."""


def set_barrier(barrier: Callable[[], None]) -> None:
    """Have `wait_for_callbacks` call *barrier*; said by the capture layer when it binds a callback."""
    global _barrier  # noqa: PLW0603 - one process, one JAX runtime
    _barrier = (barrier, os.getpid())


def wait_for_callbacks() -> None:
    """Block until every row that compiled functions of this thread are still to deliver has arrived. Never raises.

    Returns at once in a forked child: what was under way belongs to the parent.
    """
    if _barrier is None or _barrier[1] != os.getpid():
        return
    try:
        _barrier[0]()
    except Exception as error:
        _notices.log_once("barrier", f"waiting for values logged in compiled code failed: {error}", error)


def defer(error: FatalTrackerError) -> None:
    """Keep the failure of a required tracker, met where nothing may be raised, for the next call on the host."""
    if not DEFERRED:
        DEFERRED.append(error)


def forget_deferred() -> None:
    """Forget a failure that was kept, because the run ends with another."""
    DEFERRED.clear()


def raise_deferred() -> None:
    """Raise a failure that was kept."""
    if DEFERRED:
        raise DEFERRED.pop()
