"""From the verbs to the tracker: at once, or in order behind rows whose values are still on a device.

A tracker has a `Fifo` once a row had to wait for it. What is called on the tracker itself goes ahead of what waits
there, save for `flush` and `finish`, which deliver it first.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.errors import FatalTrackerError
from trackway.tracker._ambient import ambient
from trackway.tracker._background import BackgroundTracker
from trackway.tracker._callbacks import DEFERRED, raise_deferred, wait_for_callbacks
from trackway.tracker._dispatch import Call, takes_pending, walk
from trackway.tracker._fifo import Fifo, Item, LateRows
from trackway.tracker._interface import Tracker
from trackway.tracker._isolation import Isolation
from trackway.tracker._steps import PendingStep

__all__ = [
    "adopt",
    "commit_open",
    "deliver_late",
    "deliver_waiting",
    "join",
    "keeps_rows_open",
    "put",
    "send",
    "settle",
]

_isolation = Isolation()
_fifos: dict[int, Fifo] = {}  # by identity: a tracker need not be hashable
_alive: dict[int, weakref.ref[Tracker]] = {}
_wakers: dict[int, Callable[[], None]] = {}
_lock = new_lock()
_workers_seen = 0  # how many threads of background trackers had been started at the last registration for the exit


def send(call: Call, tracker: Tracker) -> None:
    """Make *call* on *tracker*, keeping its failure from the caller; after what waits for it, if anything does.

    Raises:
        FatalTrackerError: from a tracker that is required, for this call or one before.
    """
    if tracker.self_contained:
        _isolation.call(call, tracker)
        return
    fifo = _fifos.get(id(tracker))
    if not fifo and not (call.pending and _has_to_wait(call, tracker)):
        _isolation.call(call, tracker)
    elif call.method == "log_artifact":  # its file may be gone once the caller goes on
        deliver_waiting(tracker)
        _isolation.call(call, tracker)
    else:
        put(call, tracker)


def adopt(tracker: Tracker, fifo: Fifo, wake: Callable[[], None]) -> None:
    """Use *fifo*, which the tracker has itself, for what waits for it; *wake* is called whenever something does."""
    key = id(tracker)
    with _lock:
        _alive[key], _fifos[key] = weakref.ref(tracker, lambda _: _forget(key)), fifo
        _wakers[key] = wake


def _has_to_wait(call: Call, tracker: Tracker) -> bool:
    return type(call.kwargs.get("step")) is PendingStep or not takes_pending(tracker)


def deliver_late(rows: LateRows, tracker: Tracker) -> None:
    """Have *rows* delivered to *tracker* when they are ready, in order with all that is logged before and after.

    Under `mute` nothing happens.

    Raises:
        FatalTrackerError: from a tracker that is required, for rows that were ready.
    """
    if not ambient().muted:
        join(rows, tracker)


def join(rows: LateRows, tracker: Tracker) -> None:
    """Do so, under `mute` too, in as little time as possible.

    Raises:
        FatalTrackerError: from a tracker that is required, for rows that were ready.
    """
    if DEFERRED:
        raise_deferred()
    fifo = _fifos.get(id(tracker))
    if fifo is None or not fifo.join(rows):
        put(rows, tracker, lazily=True)


def deliver_waiting(tracker: Tracker) -> None:
    """Wait for everything that waits for *tracker* and deliver it.

    Raises:
        FatalTrackerError: from a tracker that is required, after everything is delivered.
    """
    fifo = _fifos.get(id(tracker))
    if fifo:
        wait_for_callbacks()  # their rows line up behind
        fifo.drain(block=True)


def settle(tracker: Tracker) -> None:
    """At the end of a block of *tracker*: wait for all that was logged in it, also by compiled functions.

    Raises:
        FatalTrackerError: from a tracker that is required, after everything is delivered.
    """
    wait_for_callbacks()
    deliver_waiting(tracker)


def commit_open(step: int, tracker: Tracker) -> None:
    """Close the row of *step* at *tracker* if it is open once all that waits is delivered; raises what `send` does."""
    end = _Commit(step, tracker)
    if _fifos.get(id(tracker)):
        put(end, tracker)
    else:
        for call in end.calls():
            send(call, tracker)


@final
class _Commit:
    """Late rows because only then it is known whether the row is open."""

    def __init__(self, step: int, tracker: Tracker) -> None:
        self.names = (f"the end of step {step}",)
        self.small = True
        self.parts = ()
        self._step = step
        self._tracker = tracker

    def calls(self) -> Sequence[Call]:
        if _isolation.call(Call("open_step"), self._tracker) != self._step:
            return ()
        return (Call("log", ({},), {"step": self._step, "commit": True}),)


def put(item: Item, tracker: Tracker, *, lazily: bool = False) -> None:
    """Have *item* delivered behind what waits for *tracker*; *lazily* as for `Fifo.put`."""
    global _workers_seen  # noqa: PLW0603 - a note for this function alone
    fifo = _fifos.get(id(tracker))
    if fifo is None:
        fifo = _fifo_of(tracker)
    nothing_waited = not fifo
    try:
        fifo.put(item, keep=tracker, lazily=lazily)
    finally:
        if fifo and (nothing_waited or _workers_seen != BackgroundTracker.workers):
            # last in, first called: before the trackers behind close at exit, and JAX its devices
            _workers_seen = BackgroundTracker.workers
            atexit.unregister(_deliver_all)
            atexit.register(_deliver_all)
        if fifo and (wake := _wakers.get(id(tracker))) is not None:
            wake()


@functools.lru_cache(maxsize=64)
def keeps_rows_open(kind: type[Tracker]) -> bool:
    """Tell whether a tracker of this *kind* may have a row open that a later row without a step joins.

    Then what a row of compiled code becomes is known once all before it are delivered, and not earlier.
    """
    return kind.open_step is not Tracker.open_step


def _fifo_of(tracker: Tracker) -> Fifo:
    key = id(tracker)
    with _lock:
        if key not in _fifos:
            alive = weakref.ref(tracker, lambda _: _forget(key))

            def deliver(call: Call) -> Any:
                target = alive()
                assert target is not None  # what waits keeps it
                return _isolation.call(call, target)

            def deliver_rows(calls: deque[Call]) -> None:
                target = alive()
                assert target is not None
                with contextlib.suppress(Exception):  # what is left is made one by one, where failures are counted
                    target.take_rows(calls)  # type: ignore[attr-defined]

            takes_rows = hasattr(tracker, "take_rows") and not keeps_rows_open(type(tracker))
            _alive[key], _fifos[key] = alive, Fifo(deliver, deliver_rows if takes_rows else None)
        return _fifos[key]


def _forget(key: int) -> None:
    tables: tuple[MutableMapping[int, Any], ...] = (_fifos, _alive, _wakers)
    for table in tables:
        table.pop(key, None)


def _deliver_all() -> None:
    """At exit: deliver what waits for any tracker."""
    wait_for_callbacks()
    waiting = [
        (fifo, tracker) for key, fifo in tuple(_fifos.items()) if fifo and (tracker := _alive[key]()) is not None
    ]
    for fifo, _ in waiting:
        try:
            fifo.drain(block=True)
        except FatalTrackerError as error:
            _notices.logger.warning("%s", error)
    behind = {id(part): part for _, tracker in waiting for part in walk(tracker) if isinstance(part, BackgroundTracker)}
    _end(behind.values())


def _end(trackers: Iterable[BackgroundTracker]) -> None:
    """Finish trackers whose thread may have been started just now: what it registers for the exit comes too late."""
    trackers = tuple(trackers)
    for tracker in trackers:
        tracker.start_finish()  # all at once, so that their bounds do not add up
    for tracker in trackers:
        try:
            tracker.finish()
        except FatalTrackerError as error:
            _notices.logger.warning("%s", error)
