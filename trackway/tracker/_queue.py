"""The bounded queue between a training loop and a tracker in the background."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from typing import TypeAlias, final

from trackway._locks import new_lock
from trackway.tracker._backlog import Gap
from trackway.tracker._dispatch import Call
from trackway.tracker._policy import BackgroundPolicy

__all__ = ["CallQueue", "Item"]

_POLL = 0.001
_MAX_MEDIA = 64  # rows with pictures and the like, which the store has in files
_ALWAYS = frozenset({"finish", "mark_failed", "flush", "rewind", "first_missing_step"})

Item: TypeAlias = Call | Gap | threading.Event | None
"""A call, rows that are to be had from the store, a mark to set, or the end."""


@final
class CallQueue:
    """Calls in order. Rows beyond the policy's limit are dropped as it says; as many other calls are taken beside them.

    Under "spill" a row that a store has leaves nothing here but its place: all that follow one another make one `Gap`.
    Rows with media do so earlier, for they are large.

    One consumer, any number of producers. Built on `queue.SimpleQueue`, whose `put` takes no Python lock: it costs a
    training step a fraction of a microsecond, and is safe in a signal handler.
    """

    def __init__(self, policy: BackgroundPolicy, *, spills: bool = False) -> None:
        """Hold calls as *policy* says; *spills* says whether the consumer can read rows from a store."""
        self._policy = policy
        self._spills = spills and policy.on_full == "spill"
        self._calls: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._ahead: deque[Item] = deque()  # passed over while looking for a row to drop
        self._gap: Gap | None = None  # the newest item, as long as rows may be added to it
        self._others = 0
        self._media = 0
        self._taken = 0
        self._stuck_at: int | None = None  # how many were taken when a producer waited in vain
        self._lock = new_lock()

    def put(self, call: Call) -> Call | None:
        """Append *call*; return the call that had to be dropped for it, which may be itself."""
        if not call.is_row:
            return self._put_other(call)
        media = call.payload is not None and call.payload.has_media
        if self._spills and call.origin is not None:
            full = self._rows() >= self._policy.queue_size or (media and self._media >= _MAX_MEDIA)
            if (full or self._gap is not None) and self._spill(call, full=full):
                return None
        elif self._rows() >= self._policy.queue_size:
            return self._put_when_full(call)
        if media and self._spills:
            with self._lock:
                self._media += 1
        self._calls.put(call)
        return None

    def _spill(self, call: Call, *, full: bool) -> bool:
        """Leave a row to the store if the queue is *full*, or if the one before it was and is still to be read."""
        assert call.origin is not None
        with self._lock:
            if self._gap is not None:
                self._gap.extend(call.origin)
            elif full:
                self._gap = Gap(call.origin)
                self._others += 1
                self._calls.put(self._gap)
            return self._gap is not None

    def _rows(self) -> int:
        return self._calls.qsize() - self._others

    def _put_other(self, call: Call) -> Call | None:
        with self._lock:
            if self._others >= self._policy.queue_size and call.method not in _ALWAYS:
                return call
            self._append(call)
        return None

    def _append(self, item: Item) -> None:
        self._others += 1
        self._gap = None  # rows that follow come behind the item
        self._calls.put(item)

    def _put_when_full(self, call: Call) -> Call | None:
        if self._policy.on_full == "block":
            return None if self._put_when_room(call) else call
        if self._policy.on_full != "drop_oldest":
            return call
        dropped = self._take_oldest_row()
        self._calls.put(call)
        return dropped

    def _put_when_room(self, call: Call) -> bool:
        """Wait for room; not once more for a consumer that has taken nothing since that was in vain."""
        if self._stuck_at == self._taken:
            return False
        deadline = time.monotonic() + self._policy.block_timeout
        while self._rows() >= self._policy.queue_size:
            if time.monotonic() > deadline:
                self._stuck_at = self._taken
                return False
            time.sleep(_POLL)
        self._calls.put(call)
        return True

    def _take_oldest_row(self) -> Call | None:
        with self._lock:
            while True:
                try:
                    item = self._calls.get_nowait()
                except queue.Empty:
                    return None
                if isinstance(item, Call) and item.is_row:
                    return item
                self._ahead.append(item)  # the consumer takes these first, so the order stays
                self._others -= 1

    def take(self) -> Item:
        """Wait for the next item; a gap that is taken grows no more."""
        item = self._next()
        self._taken += 1
        if not (isinstance(item, Call) and item.is_row):
            with self._lock:
                self._others -= 1
                if item is self._gap:
                    self._gap = None
        elif self._spills and item.payload is not None and item.payload.has_media:
            with self._lock:
                self._media -= 1
        return item

    def _next(self) -> Item:
        with self._lock:
            if self._ahead:
                self._others += 1  # it was no longer counted in the queue
                return self._ahead.popleft()
            with contextlib.suppress(queue.Empty):
                return self._calls.get_nowait()
        return self._calls.get()

    def mark(self) -> threading.Event:
        """Append a mark and return it: the consumer sets it when it has dealt with everything before."""
        event = threading.Event()
        with self._lock:
            self._append(event)
        return event

    def close(self) -> None:
        """Append the end."""
        with self._lock:
            self._append(None)
