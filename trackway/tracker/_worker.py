"""The thread that serves a tracker in the background, through failures and outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import final

from trackway import _notices
from trackway.errors import FatalTrackerError
from trackway.tracker._backlog import Backlog, Gap
from trackway.tracker._dispatch import Call
from trackway.tracker._interface import Tracker, name_of
from trackway.tracker._isolation import fatal
from trackway.tracker._ledger import Ledger
from trackway.tracker._policy import BackgroundPolicy
from trackway.tracker._queue import CallQueue
from trackway.tracker._row_time import call_at_its_time
from trackway.tracker._staging import Staging

__all__ = ["Worker"]

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_END = 0.2  # of the time for the end, what is kept for the tracker's own
_LONGEST_END = 5.0
_LAST = frozenset({"mark_failed", "finish"})


@final
class Worker:
    """Makes the calls of *queue* on *tracker*, in order.

    With a *backlog*, rows that are not in the queue are read from there, and so are those that the tracker failed to
    take when it works again: it is tried now and then. Without one it is given up after so many failures in a row.

    Attributes:
        fatal: What the next call is to raise, of a tracker that is required.
        thread: The thread; None before the first call, and where none can be started.
        dealt_with: Rows that are done with, whatever became of them.
        out: Whether the tracker is failing, and its rows wait in the store.
    """

    def __init__(
        self,
        tracker: Tracker,
        policy: BackgroundPolicy,
        queue: CallQueue,
        *,
        ledger: Ledger,
        staging: Staging,
        backlog: Backlog | None,
        required: bool,
    ) -> None:
        self.fatal: FatalTrackerError | None = None
        self.thread: threading.Thread | None = None
        self.dealt_with = 0
        self.out = False
        self._tracker = tracker
        self._name = name_of(tracker)
        self._policy = policy
        self._queue = queue
        self._ledger = ledger
        self._staging = staging
        self._backlog = backlog
        self._required = required
        self._failed_in_a_row = 0
        self._failed: Gap | None = None  # the rows that those calls brought
        self._ending = threading.Event()
        self._rows_until: float | None = None
        self._left = False  # whether the rows that are left are for another process to deliver
        self._broken = False  # whether it still failed at the end

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: where the interpreter starts none any more.
        """
        thread = threading.Thread(target=self._work, name=f"trackway-{self._name}", daemon=True)
        self.thread = thread  # before the start: a signal handler that logs must not start a second one
        try:
            thread.start()
        except RuntimeError:
            self.thread = None
            raise

    def end_by(self, deadline: float) -> None:
        """Have rows that a backlog has be left there in time for the tracker to end by *deadline*, as far as it can."""
        seconds = deadline - time.monotonic()
        self._rows_until = deadline - min(_LONGEST_END, _END * seconds)
        self._ending.set()

    def _work(self) -> None:
        self._save()
        while (item := self._queue.take()) is not None:
            if isinstance(item, Gap):
                self._catch_up(item)
            elif isinstance(item, threading.Event):
                item.set()
            elif item.method == "first_missing_step":
                self._make_good()
            else:
                self.take(item)
        self._save()

    def take(self, call: Call) -> None:
        """Make *call*, unless the tracker is given up, and deal with what comes of it."""
        if call.is_row and self._is_late():
            return
        if call.method == "finish" and self._failed is not None:
            self._sit_out(self._failed)  # too few to have been tried again so far
        if self._given_up and call.method not in _LAST:
            self._staging.release(call)
            self._ledger.drop(call.method, f"given up after {self._failed_in_a_row} failed calls in a row")
        elif self._make(call):
            self._failed_in_a_row = 0
            if call.is_row or call.method == "rewind":  # it works; it was the rows, or they are superseded
                self._failed = None
            self._note(call)
        else:
            self._count_failure(call)
        self.dealt_with += call.is_row
        if self._failed is not None and self._failed_in_a_row >= self._policy.disable_after:
            self._sit_out(self._failed)

    @property
    def _given_up(self) -> bool:
        return self._broken or (self._backlog is None and self._failed_in_a_row >= self._policy.disable_after)

    def _make(self, call: Call) -> bool:
        try:
            call_at_its_time(call, self._tracker, None if call.origin is None else call.origin.time)
        except BaseException as error:  # the thread must outlive even a backend that calls sys.exit
            self._ledger.fail(call.method, error, "; training goes on")
            self._note_fatal(call, error)
            return False
        finally:
            self._staging.release(call)
        if call.is_row:
            self._ledger.deliver()
        return True

    def _note_fatal(self, call: Call, error: BaseException) -> None:
        if self.fatal is not None:
            return
        if isinstance(error, FatalTrackerError):  # of a required member behind
            self.fatal = error
        elif self._required:
            self.fatal = fatal(self._name, call.method, error)

    def _count_failure(self, call: Call) -> None:
        self._failed_in_a_row += 1
        if self._backlog is None or call.origin is None:
            return
        if self._failed is None:
            self._failed = Gap(call.origin)
        else:
            self._failed.extend(call.origin)

    # --- from the store ---

    def _is_late(self) -> bool:
        """Whether the rows that are left stay in the store, for the next process."""
        if self._backlog is not None and self._rows_until is not None and time.monotonic() > self._rows_until:
            self._left = True
        return self._left

    def _catch_up(self, gap: Gap) -> None:
        """Deliver the rows of *gap*, which the queue had no room for."""
        assert self._backlog is not None
        found = 0
        for call in self._backlog.calls(gap, self._is_late):
            if self._is_late():
                return
            found += 1
            self.take(call)
        if not self._is_late():
            self._count_lost(gap.count - found)

    def _make_good(self) -> None:
        """Deliver what the tracker did not get before this process began."""
        assert self._backlog is not None
        rows = 0
        try:
            for call in self._backlog.missing(self._tracker.first_missing_step()):
                if self._is_late():
                    break
                if call.is_row:
                    rows += 1
                    self._ledger.accept()
                self.take(call)
        except Exception as error:
            self._ledger.fail("first_missing_step", error, "; rows of earlier processes may be missing there")
        if rows:
            _notices.logger.info("%s: got %d rows that it had missed before", self._name, rows)

    def _sit_out(self, failed: Gap) -> None:
        """Wait until the tracker works again, and deliver what it failed to take; all later calls wait behind that."""
        self._failed = None
        self.dealt_with -= failed.count
        self.out = True
        if not self._ending.is_set():
            _notices.logger.warning(
                "%s: %d calls in a row failed; its rows wait in the run directory, and it is tried again now and then",
                self._name,
                self._failed_in_a_row,
            )
        delay = _FIRST_DELAY
        while True:
            ends = self._ending.wait(delay)
            if self._is_late():
                break
            if self._retry(failed):
                _notices.logger.warning("%s: works again", self._name)
                self.out, self._failed_in_a_row = False, 0
                return
            if ends:
                break
            delay = min(2 * delay, _LONGEST_DELAY)
        self._left = self._broken = True
        self.out = False

    def _retry(self, failed: Gap) -> bool:
        """Deliver the rows of *failed*, which then has those that are left; return whether none are."""
        for call in self._rows_of(failed):
            if self._is_late():
                return False
            if not self._make(call):
                assert call.origin is not None
                failed.first = call.origin
                return False
            self._note(call)
            failed.count -= 1
            self.dealt_with += 1
        self._count_lost(failed.count)
        return True

    def _count_lost(self, rows: int) -> None:
        """Count rows that the store did not have any more."""
        if rows > 0:
            self._ledger.drop("log", "lost by the store before they could be delivered", rows)
            self.dealt_with += rows

    def _rows_of(self, gap: Gap) -> Iterator[Call]:
        assert self._backlog is not None
        return self._backlog.calls(gap, self._is_late)

    def _note(self, call: Call) -> None:
        if self._backlog is not None and call.origin is not None:
            self._backlog.note(call.origin)
        elif call.method == "flush":
            self._save()

    def _save(self) -> None:
        if self._backlog is None:
            return
        try:
            self._backlog.save()
        except OSError as error:
            self._ledger.fail("save", error, "; the next start may deliver rows again")
