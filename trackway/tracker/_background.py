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
from trackway.tracker._callbacks import wait_for_callbacks
from trackway.tracker._dispatch import Call, ForwardingTracker
from trackway.tracker._interface import Tracker, check_tracker, name_of
from trackway.tracker._isolation import fatal
from trackway.tracker._ledger import Ledger, Lifecycle, Report
from trackway.tracker._policy import BackgroundPolicy
from trackway.tracker._queue import CallQueue
from trackway.tracker._staging import Staging

__all__ = ["BackgroundTracker"]

_MAX_ON_DEVICE = 8  # rows in the queue whose values may still lie on a device


@final
class BackgroundTracker(ForwardingTracker):
    """Calls *tracker* on a thread of its own, in order, so that a slow, failing or hanging one cannot hurt training.

    Values are normalised and artifacts copied before a call returns; everything else happens on the worker.
    Thread-safe. In a forked child every method does nothing and is counted. A program that ends without `finish`
    still delivers what is queued, within `policy.finish_timeout`.

    Attributes:
        tracker: The tracker behind; only its worker thread calls it.
        policy: The limits, see `BackgroundPolicy`.
    """

    takes_pending: ClassVar[bool] = True

    workers: ClassVar[int] = 0
    """Threads started in this process so far."""

    def __init__(self, tracker: Tracker, policy: BackgroundPolicy | None = None, *, required: bool = False) -> None:
        """Serve *tracker*; the thread starts with the first call.

        Args:
            tracker: The tracker to call in the background.
            policy: Queue limit, what happens when it is full, and time-outs; None takes the defaults.
            required: Whether a failure of *tracker* is raised, as `FatalTrackerError`, from the next call.
        """
        self.tracker = check_tracker(tracker, "BackgroundTracker")
        self.name = name_of(tracker)
        self.policy = policy or BackgroundPolicy()
        self._required = required
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._queue = CallQueue(self.policy)
        self._on_device: deque[Call] = deque()
        self._staging = Staging()
        self._dropped = 0
        self._dealt_with = 0
        self._failed_in_a_row = 0
        self._fatal: FatalTrackerError | None = None
        self._worker: threading.Thread | None = None
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

    def flush(self) -> None:
        """Wait until everything queued is delivered and flushed, at most `policy.finish_timeout` seconds."""
        wait_for_callbacks()
        if self._life.accepts("flush"):
            self._enqueue(Call("flush"))
            self._wait("flush", self._queue.mark(), self.policy.finish_timeout)

    def start_finish(self) -> None:
        """Take nothing further and begin to finish, without waiting; `finish` then waits for the rest of its bound."""
        if self._life.end():
            self._deadline = time.monotonic() + self.policy.finish_timeout
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
        if self._wait("finish", finished, self._deadline - time.monotonic()):
            if self._worker is not None and self._worker is not threading.current_thread():
                self._worker.join(1.0)
            self._staging.clear()
        if self._fatal is not None:
            raise self._fatal

    def _forward(self, call: Call) -> None:
        if self._fatal is not None:
            raise self._fatal
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
            self._deliver(call)
            return
        dropped = self._queue.put(call)
        if dropped is not None:
            with self._lock:
                self._dropped += dropped.is_row
            self._staging.release(dropped)
            self._ledger.drop(dropped.method, f"queue of {self.policy.queue_size} rows full")

    def _start_once(self) -> bool:
        """Return whether the worker runs; an interpreter that is shutting down starts no more threads."""
        if self._worker is not None:
            return True
        with self._lock:
            if self._worker is None:
                worker = threading.Thread(target=self._work, name=f"trackway-{self.name}", daemon=True)
                self._worker = worker  # before the start: a signal handler that logs must not start a second one
                try:
                    worker.start()
                except RuntimeError:
                    self._worker = None
                    return False
                atexit.register(self.finish)
                BackgroundTracker.workers += 1
        return True

    def _work(self) -> None:
        while (item := self._queue.take()) is not None:
            if isinstance(item, Call):
                self._deliver(item)
                self._dealt_with += item.is_row
            else:
                item.set()

    def _deliver(self, call: Call) -> None:
        if self._failed_in_a_row >= self.policy.disable_after and call.method != "finish":
            self._staging.release(call)
            self._ledger.drop(call.method, f"given up after {self._failed_in_a_row} failed calls in a row")
            return
        try:
            call.on(self.tracker)
        except BaseException as error:  # the worker must outlive even a backend that calls sys.exit
            self._failed_in_a_row += 1
            self._ledger.fail(call.method, error, "; training goes on")
            self._note_fatal(call, error)
            return
        finally:
            self._staging.release(call)
        self._failed_in_a_row = 0
        if call.is_row:
            self._ledger.deliver()

    def _note_fatal(self, call: Call, error: BaseException) -> None:
        if self._fatal is not None:
            return
        if isinstance(error, FatalTrackerError):  # of a required member behind
            self._fatal = error
        elif self._required:
            self._fatal = fatal(self.name, call.method, error)

    def _wait(self, method: str, mark: threading.Event, seconds: float) -> bool:
        if self._worker is None or self._worker is threading.current_thread():
            return True  # the callers deliver themselves, or the tracker calls its own wrapper
        if mark.wait(max(0.0, seconds)):
            return True
        message = (
            f"{self.name}: {method} did not end within {self.policy.finish_timeout:g} s; "
            f"{self._pending()} rows are still queued. {self.report()}"
        )
        _notices.logger.warning("%s", message)
        if self._required and self._fatal is None:
            self._fatal = FatalTrackerError(message)
        return False

    def _pending(self) -> int:
        return self._ledger.report().accepted - self._dropped - self._dealt_with
