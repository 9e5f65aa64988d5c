"""The bounded queue between a training loop and a tracker in the background."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from typing import final

from trackway._locks import new_lock
from trackway.tracker._dispatch import Call
from trackway.tracker._policy import BackgroundPolicy

__all__ = ["CallQueue"]

_POLL = 0.001
_ALWAYS = frozenset({"finish", "mark_failed", "flush", "rewind"})


@final
class CallQueue:
    """Calls in order. Rows beyond the policy's limit are dropped as it says; as many other calls are taken beside them.

    One consumer, any number of producers. Built on `queue.SimpleQueue`, whose `put` takes no Python lock: it costs a
    training step a fraction of a microsecond, and is safe in a signal handler.
    """

    def __init__(self, policy: BackgroundPolicy) -> None:
        self._policy = policy
        self._calls: queue.SimpleQueue[Call | threading.Event | None] = queue.SimpleQueue()
        self._ahead: deque[Call | threading.Event | None] = deque()  # passed over while looking for a row to drop
        self._others = 0
        self._lock = new_lock()

    def put(self, call: Call) -> Call | None:
        """Append *call*; return the call that had to be dropped for it, which may be itself."""
        if not call.is_row:
            return self._put_other(call)
        if self._rows() >= self._policy.queue_size:
            return self._put_when_full(call)
        self._calls.put(call)
        return None

    def _rows(self) -> int:
        return self._calls.qsize() - self._others

    def _put_other(self, call: Call) -> Call | None:
        with self._lock:
            if self._others >= self._policy.queue_size and call.method not in _ALWAYS:
                return call
            self._others += 1
        self._calls.put(call)
        return None

    def _put_when_full(self, call: Call) -> Call | None:
        if self._policy.on_full == "block":
            return None if self._put_when_room(call) else call
        if self._policy.on_full != "drop_oldest":
            return call
        dropped = self._take_oldest_row()
        self._calls.put(call)
        return dropped

    def _put_when_room(self, call: Call) -> bool:
        deadline = time.monotonic() + self._policy.block_timeout
        while self._rows() >= self._policy.queue_size:
            if time.monotonic() > deadline:
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

    def take(self) -> Call | threading.Event | None:
        """Wait for the next item: a call, a mark to set, or None at the end."""
        item = self._next()
        if not (isinstance(item, Call) and item.is_row):
            with self._lock:
                self._others -= 1
        return item

    def _next(self) -> Call | threading.Event | None:
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
        self._put(event)
        return event

    def close(self) -> None:
        """Append the end."""
        self._put(None)

    def _put(self, item: threading.Event | None) -> None:
        with self._lock:
            self._others += 1
        self._calls.put(item)
