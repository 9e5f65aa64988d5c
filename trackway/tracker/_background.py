"""A tracker served by a thread of its own."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from typing import ClassVar, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.errors import FatalTrackerError
from trackway.tracker._backlog import Backlog
from trackway.tracker._callbacks import wait_for_callbacks
from trackway.tracker._dispatch import Call, ForwardingTracker
from trackway.tracker._interface import Tracker, check_tracker, name_of
from trackway.tracker._ledger import Ledger, Lifecycle, Report
from trackway.tracker._policy import BackgroundPolicy
from trackway.tracker._queue import CallQueue
from trackway.tracker._staging import Staging
from trackway.tracker._worker import Worker

__all__ = ["BackgroundTracker"]

_MAX_ON_DEVICE = 8  # rows in the queue whose values may still lie on a device


@final
class BackgroundTracker(ForwardingTracker):
    """Calls *tracker* on a thread of its own, in order, so that a slow, failing or hanging one cannot hurt training.

    Values are normalised and artifacts copied before a call returns; everything else happens on the worker.
    Thread-safe. In a forked child every method does nothing and is counted. A program that ends without `finish`
    still delivers what is queued, within `policy.finish_timeout`.

    A tracker of a run with a run directory loses no row by being slow or out of reach: what the queue does not hold is
    read from the directory, and what is not delivered when the process ends is when the run is continued.

    Attributes:
        tracker: The tracker behind; only its worker thread calls it.
        policy: The limits, see `BackgroundPolicy`.
    """

    takes_pending: ClassVar[bool] = True

    workers: ClassVar[int] = 0
    """Threads started in this process so far."""

    def __init__(
        self,
        tracker: Tracker,
        policy: BackgroundPolicy | None = None,
        *,
        required: bool = False,
        backlog: Backlog | None = None,
    ) -> None:
        """Serve *tracker*; the thread starts with the first call.

        Args:
            tracker: The tracker to call in the background.
            policy: Queue limit, what happens when it is full, and time-outs; None takes the defaults.
            required: Whether a failure of *tracker* is raised, as `FatalTrackerError`, from the next call.
            backlog: The rows that a store has for it; `trackway.start` gives it that of the run directory.
        """
        self.tracker = check_tracker(tracker, "BackgroundTracker")
        self.name = name_of(tracker)
        self.policy = policy or BackgroundPolicy()
        self._required = required
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._queue = CallQueue(self.policy, spills=backlog is not None)
        self._on_device: deque[Call] = deque()
        self._staging = Staging()
        self._worker = Worker(
            tracker,
            self.policy,
            self._queue,
            ledger=self._ledger,
            staging=self._staging,
            backlog=backlog,
            required=required,
        )
        self._keeps_rows = backlog is not None
        self._dropped = 0
        self._lock = new_lock()
        self._finished: threading.Event | None = None
        self._deadline = 0.0

    def members(self) -> tuple[Tracker, ...]:
        """Return the one tracker behind."""
        return (self.tracker,)

    def report(self) -> Report:
        """Return what became of the rows so far."""
        return self._ledger.report(pending=self._pending())

    def open_step(self) -> int | None:
        """Return the tracker's open step; answered by the tracker itself, ahead of what is queued."""
        return self.tracker.open_step()

    def first_missing_step(self) -> int | None:
        """Return what the tracker itself says, ahead of what is queued."""
        return self.tracker.first_missing_step()

    def make_good(self) -> None:
        """Have the rows of the run delivered, ahead of others, that an earlier process kept and could not deliver."""
        if self._keeps_rows:
            self._enqueue(Call("first_missing_step"))

    def flush(self) -> None:
        """Wait until everything queued is delivered and flushed, at most `policy.finish_timeout` seconds.

        A tracker that fails and whose rows wait in the run directory is not waited for.
        """
        wait_for_callbacks()
        if self._life.accepts("flush"):
            self._enqueue(Call("flush"))
            if not self._worker.out:
                self._wait("flush", self._queue.mark(), self.policy.finish_timeout)

    def start_finish(self) -> None:
        """Take nothing further and begin to finish, without waiting; `finish` then waits for the rest of its bound."""
        if self._life.end():
            self._deadline = time.monotonic() + self.policy.finish_timeout
            self._worker.end_by(self._deadline)
            self._enqueue(Call("finish"))
            self._finished = self._queue.mark()
            self._queue.close()

    def finish(self) -> None:
        """Deliver what is queued and finish the tracker, in at most `policy.finish_timeout` seconds.

        A tracker that does not end in time is left behind on its daemon thread, and a warning says what it owes.
        Compiled functions that still run are waited for before that.

        Raises:
            FatalTrackerError: if the tracker is required and failed or did not end in time.
        """
        wait_for_callbacks()
        self.start_finish()
        finished, self._finished = self._finished, None
        if finished is None:
            return
        atexit.unregister(self.finish)
        thread = self._worker.thread
        if self._wait("finish", finished, self._deadline - time.monotonic()):
            if thread is not None and thread is not threading.current_thread():
                thread.join(1.0)
            self._staging.clear()
            self._say_left()
        if self._worker.fatal is not None:
            raise self._worker.fatal

    def _say_left(self) -> None:
        left = self._pending()
        if left > 0:
            _notices.logger.warning(
                "%s: %d rows could not be delivered in %g s; they are in the run directory, and it gets them when the "
                "run is continued",
                self.name,
                left,
                self.policy.finish_timeout,
            )

    def _forward(self, call: Call) -> None:
        if self._worker.fatal is not None:
            raise self._worker.fatal
        if not self._life.accepts(call.method):
            return
        if call.is_row and call.payload is not None:
            self._ledger.accept()  # what is converted or left out in it is the tracker's own to count
            if call.payload.pending:
                self._limit_device_values(call)
        self._enqueue(self._staged(call) if call.method == "log_artifact" else call)

    def _limit_device_values(self, call: Call) -> None:
        """Fetch the values of the oldest rows once there are several: a queue must not fill an accelerator's memory."""
        self._on_device.append(call)
        while len(self._on_device) > _MAX_ON_DEVICE:
            self._on_device.popleft().resolved()

    def _staged(self, call: Call) -> Call:
        try:
            return self._staging.staged(call)
        except OSError as error:  # a full disk, say: the tracker may still get at the original
            self._ledger.fail("log_artifact", error, "; the original is used, keep it until `flush`")
            return call

    def _enqueue(self, call: Call) -> None:
        if not self._start_once():
            self._worker.take(call)
            return
        dropped = self._queue.put(call)
        if dropped is not None:
            with self._lock:
                self._dropped += dropped.is_row
            self._staging.release(dropped)
            self._ledger.drop(dropped.method, f"queue of {self.policy.queue_size} rows full")

    def _start_once(self) -> bool:
        """Return whether the worker runs; an interpreter that is shutting down starts no more threads."""
        if self._worker.thread is not None:
            return True
        with self._lock:
            if self._worker.thread is None:
                try:
                    self._worker.start()
                except RuntimeError:
                    return False
                atexit.register(self.finish)
                BackgroundTracker.workers += 1
        return True

    def _wait(self, method: str, mark: threading.Event, seconds: float) -> bool:
        thread = self._worker.thread
        if thread is None or thread is threading.current_thread():
            return True  # the callers deliver themselves, or the tracker calls its own wrapper
        if mark.wait(max(0.0, seconds)):
            return True
        message = (
            f"{self.name}: {method} did not end within {self.policy.finish_timeout:g} s; "
            f"{self._pending()} rows are still queued. {self.report()}"
        )
        _notices.logger.warning("%s", message)
        if self._required and self._worker.fatal is None:
            self._worker.fatal = FatalTrackerError(message)
        return False

    def _pending(self) -> int:
        return self._ledger.report().accepted - self._dropped - self._worker.dealt_with
