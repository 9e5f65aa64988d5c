"""Handing committed rows on: one after the other, in the order in which they were committed."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, final

from trackway._locks import new_lock
from trackway.errors import FatalTrackerError
from trackway.run._rows import Committed
from trackway.run._signals import in_signal_handler
from trackway.values import Row

__all__ = ["Notifier", "Sink"]

_SOON = 0.001

Sink: TypeAlias = Callable[[Committed], None]
"""Takes a committed row; it isolates failures of its own, and lets out what is to reach the training loop."""


@final
class _Delivery:
    """A row on its way.

    Attributes:
        row: The row.
        sinks: Those that are still to get it; each is taken off before it is called.
        context: The context variables of the thread or task that committed it.
    """

    __slots__ = ("context", "row", "sinks")

    def __init__(self, row: Committed, sinks: Iterator[Sink]) -> None:
        self.row = row
        self.sinks = sinks
        self.context = contextvars.copy_context()


@final
class Notifier:
    """Calls every sink with every row, serially and in order of commit. Thread-safe; starts no thread.

    Whoever committed a row waits until it is delivered, be it by another thread that is at it. A sink that logs and
    commits has that row delivered before its own call goes on: first the sinks behind it get the row that it was
    called with, then all of them the new one.

    Attributes:
        sinks: Who gets the rows that are put from now on.
        puts: How many rows were put.
        latest: The values of the row that was last put for all sinks.
        depth: How many deliveries are under way, one in the midst of the other.
        busy: Tells whether the thread is in the midst of something that a delivery by another one may wait for; then
            what it put is left to that one.
    """

    def __init__(self) -> None:
        self.sinks: tuple[Sink, ...] = ()
        self.puts = 0
        self.latest: Row | None = None
        self.busy: Callable[[], bool] = bool
        self._queue: deque[_Delivery] = deque()
        self._turn = new_lock()
        self._deliverer: int | None = None
        self.depth = 0
        self._fatal: FatalTrackerError | None = None

    def put(self, row: Committed, sinks: Iterable[Sink] | None = None) -> None:
        """Line *row* up, for *sinks* or for all; the caller holds the lock under which rows are committed."""
        delivery = _Delivery(row, iter(self.sinks if sinks is None else sinks))
        latest = row.values if sinks is None else self.latest
        # nothing comes between these: Python looks for signals after the call
        self.puts += 1
        self.latest = latest
        self._queue.append(delivery)

    @property
    def inside(self) -> bool:
        """Whether this thread is in the midst of a delivery."""
        return self._deliverer == threading.get_ident()

    def deliver(self) -> None:
        """Deliver all that was put, by this thread or others, and return when it is done.

        In a signal handler that interrupted a delivery of its thread, or finds another one at it, it is left to that
        one: the sinks get rows in order, and the handler waits for nobody.

        Raises:
            FatalTrackerError: from a sink, after everything is delivered.
        """
        if self.inside:
            if in_signal_handler(_BOUND):
                return
            self._deliver()
            return
        if not self._turn.acquire(blocking=False) and not self._turn.acquire(timeout=_SOON):
            if in_signal_handler() or self.busy():
                return
            self._turn.acquire()
        while True:
            try:
                self._deliver()
            finally:
                with contextlib.suppress(RuntimeError):  # it is new, and free, in a child forked by a sink
                    self._turn.release()
            # a handler may have left a row to this thread since its last look
            if not self._queue or not self._turn.acquire(blocking=False):
                return

    def _deliver(self) -> None:
        outer, self._deliverer = self._deliverer, threading.get_ident()
        self.depth += 1
        try:
            while self._queue:
                head = self._queue[0]
                for sink in head.sinks:
                    try:
                        # a copy: a context cannot be entered twice, as it would be by a sink that logs
                        head.context.copy().run(sink, head.row)
                    except FatalTrackerError as error:
                        self._fatal = self._fatal or error
                if self._queue and self._queue[0] is head:  # a sink that logged has taken it off already
                    self._queue.popleft()
        finally:
            self._deliverer = outer
            self.depth -= 1
        if outer is None and self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            raise fatal

    def forget(self) -> None:
        """Give up what waits, in a forked child, also where a sink that is at work has forked it."""
        for delivery in self._queue:
            deque(delivery.sinks, maxlen=0)
        self._queue.clear()
        self._deliverer = None


_BOUND = Notifier._deliver.__code__  # noqa: SLF001 - what lies below it has nothing to do with the delivery
