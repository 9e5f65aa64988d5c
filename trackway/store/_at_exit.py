"""What becomes of trackers that nobody finishes."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING

from trackway import _notices
from trackway.store import _output
from trackway.store._output import Output
from trackway.store._ticker import Ticker
from trackway.tracker import Lifecycle

if TYPE_CHECKING:
    from trackway.store._local import LocalTracker
    from trackway.store._remote_store import RemoteStore

__all__ = ["let_go", "open_trackers"]

_PATIENCE = 10.0
_hooked = False

open_trackers: weakref.WeakSet[LocalTracker] = weakref.WeakSet()
"""Those that were not finished."""


def let_go(output: Output, ticker: Ticker, life: Lifecycle, remote: RemoteStore | None) -> None:
    """Leave what a tracker that nobody holds any more has where it belongs, and neither thread nor open file behind."""
    _output.let_go(output, ticker, life)
    if remote is not None and not life.foreign:
        remote.leave()


def keep_all() -> None:
    """A program that ends without `finish` keeps its summary; the state stays "running", as for a killed one.

    Registered at import, so that it runs after those who hand over their last rows at exit.
    """
    for tracker in tuple(open_trackers):
        if not tracker._life.foreign and not tracker._life.finished:  # noqa: SLF001 - of this package
            tracker._output.write_all()  # noqa: SLF001
            for left in () if tracker._remote is None else tracker._remote.close():  # noqa: SLF001
                _notices.logger.warning("%s", left)


def bring_before_exit() -> None:
    """From now on, have what trackers bring to object stores there before the process takes that possibility away.

    The executors of Python end before hooks of `atexit` are called; without them no connection can be opened. What
    comes later goes over those that are open by then, or stays in the spool.
    """
    global _hooked  # noqa: PLW0603 - one process, one hook
    import concurrent.futures.thread  # noqa: F401 - has its hook in place first: the last one is called first

    register = getattr(threading, "_register_atexit", None)
    if register is not None and not _hooked:
        _hooked = True
        with contextlib.suppress(RuntimeError):  # the end has begun
            register(_bring_all)


def _bring_all() -> None:
    for tracker in tuple(open_trackers):
        remote = tracker._remote  # noqa: SLF001 - of this package
        if remote is not None and not tracker._life.foreign:  # noqa: SLF001
            tracker._output.write_all()  # noqa: SLF001
            remote.bring_now(_PATIENCE)


def _shut_all() -> None:
    """In a forked child every tracker of the parent is shut; asking for the process id at each row costs more.

    Its copy of the open file goes too, or a child that outlives the parent would hold the lock on the run.
    """
    for tracker in tuple(open_trackers):
        tracker._shut = True  # noqa: SLF001 - of this package
        tracker._output.forget()  # noqa: SLF001


atexit.register(keep_all)
os.register_at_fork(after_in_child=_shut_all)
