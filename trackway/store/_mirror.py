"""Bringing a run directory to an object store, beside the training."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from trackway import _notices
from trackway.store._layout import MEDIA, metrics_name
from trackway.store._mirror_files import Files, RecordFiles
from trackway.store._remote import Remote
from trackway.store._remote_claim import Claim, Superseded
from trackway.store._segments import Segment, number_of, segment_name, segments_in
from trackway.tracker import Ledger

__all__ = ["INTERVAL", "Courier", "Rows"]

INTERVAL = 10.0
"""Seconds after which what is new is brought."""
SEGMENT = 4 << 20
"""Bytes of rows that are brought without waiting for that, and in one object."""
_POLL = 1.0
_PAUSE = 0.02
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 60.0
_LONGEST_DELAY_AT_END = 2.0
_BLOCK = 1 << 16
_TOO_LATE = "cannot schedule new futures after"  # what libraries meet in an interpreter that ends


@final
class Courier:
    """Calls *bring* every `INTERVAL` seconds on a daemon thread, and again after a pause where that fails.

    Attributes:
        complete: Whether everything was brought when the end was asked for.
        lost: The other process that has taken the run over; None for none.
        error: The last failure since bringing last worked; None where it works.
    """

    def __init__(self, name: str, url: str, bring: Callable[[], None], more: Callable[[], bool] = bool) -> None:
        """Serve the run of *url*; *more* tells whether there is enough to bring it without waiting."""
        self.complete = False
        self.lost: str | None = None
        self.error: Exception | None = None
        self._url = url
        self._bring = bring
        self._more = more
        self._ledger: Ledger | None = None
        self._wake = threading.Event()
        self._begun = 0  # how often bringing was begun
        self._passed = 0  # which of them was the last to end
        self._asked = False
        self._ending = False
        self._gone = False
        self._delay = 0.0
        self._not_before = 0.0
        self._after: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, ledger: Ledger) -> None:
        """Begin; failures are counted in *ledger*. Where no thread can be had, `end` says that nothing was brought."""
        self._ledger = ledger
        try:
            self._thread.start()
        except RuntimeError as error:
            self.error = error
            _notices.logger.warning("%s: no thread can be started: %s", self._thread.name, error)

    def ask(self) -> None:
        """Have what is new brought soon, unless the store is away."""
        self._asked = True
        self._wake.set()

    def bring_now(self, seconds: float) -> None:
        """Have what is there by now brought, and wait for that, but not longer, nor where the store is away."""
        deadline = time.monotonic() + seconds
        wanted = self._begun + 1
        self.ask()
        while self._passed < wanted and not self._delay and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(_PAUSE)

    def end(self, after: Callable[[], None] = lambda: None) -> None:
        """Have everything brought, and the thread end then, which calls *after* if it could."""
        self._after = after
        self._ending = True
        self._wake.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the thread has ended, but not longer; return whether everything was brought."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, seconds))
        return self.complete

    def give_up(self) -> None:
        """Have the thread end, whatever is left."""
        self._gone = True
        self._wake.set()

    def _run(self) -> None:
        while not self._gone and not self.complete and self.lost is None:
            self._pause()
            if not self._gone:
                self._begun += 1
                ending = self._ending  # asked before bringing: by then everything was there
                self._try()
                if ending and self.error is None and self.lost is None:
                    self._after()
                    self.complete = True
                self._passed = self._begun

    def _pause(self) -> None:
        due = time.monotonic() + (self._delay or INTERVAL)
        while not self._gone and (rest := due - time.monotonic()) > 0:
            if not self._delay and (self._asked or self._ending or self._more()):
                break
            if self._ending:
                rest = min(rest, _LONGEST_DELAY_AT_END)
                due = min(due, time.monotonic() + rest)
            self._wake.wait(min(rest, _POLL))
            self._wake.clear()
        self._asked = False

    def _try(self) -> None:
        try:
            self._bring()
        except Superseded as error:
            self.lost = str(error)
            _notices.logger.warning(
                "local: %s has taken over the run in %s; training goes on, but nothing more is brought there",
                error,
                self._url,
            )
        except Exception as error:
            self.error = error
            self._gone = self._gone or _TOO_LATE in str(error)
            self._delay = min(2 * self._delay or _FIRST_DELAY, _LONGEST_DELAY)
            if self._ledger is not None:
                self._ledger.fail(self._thread.name, error, f"; training goes on, {self._url} is tried again")
        else:
            if self.error is not None:
                _notices.logger.warning("local: %s is there again, and has all that waited", self._url)
            self.error, self._delay = None, 0.0


@final
class Rows:
    """What `bring` stores of a spool: rows, then what describes them. For one thread at a time."""

    def __init__(
        self, remote: Remote, spool: Path, rank: int, listing: Mapping[str, int], *, claim: Claim, brought: int
    ) -> None:
        """Bring *spool* to *remote*.

        Args:
            remote: The run.
            spool: Its directory on this machine.
            rank: The process's rank.
            listing: What is on the store already.
            claim: The right to write there.
            brought: How many bytes of the file of rows are on the store already.
        """
        self._remote = remote
        self._path = spool / metrics_name(rank)
        self._rank = rank
        self._claim = claim
        self._position = brought
        self._inode = 0
        self._number = max((number_of(segment) for segment in segments_in(listing, rank)), default=0) + 1
        self._tried: Segment | None = None  # what could not be stored, or may have been
        self._records = RecordFiles(spool, remote)
        self._media = Files(spool, remote, listing, MEDIA, claim.renew)

    def is_full(self) -> bool:
        """Whether there are rows for a whole segment."""
        try:
            return self._path.stat().st_size - self._position >= SEGMENT
        except OSError:
            return False

    def bring(self) -> None:
        """Store what is new: rows before the summary of them, media before rows that refer to them.

        Raises:
            Superseded: if another process has taken the run over.
            OSError: if the store or the spool cannot be used; what is missing will be brought the next time.
        """
        self._claim.renew()
        records = self._records.take()
        with self._path.open("rb", buffering=0) as file:
            end = self._end_of_lines(file)
            self._media.bring()
            while self._position < end:
                self._claim.renew()  # there may be much to bring
                self._bring_segment(file, end)
        self._records.store(records)

    def _end_of_lines(self, file: Any) -> int:
        status = os.fstat(file.fileno())
        if self._inode not in {0, status.st_ino} or status.st_size < self._position:
            _notices.logger.warning("local: %s was deleted or cut; its rows from now on are brought", self._path)
            self._position, self._tried = 0, None
        self._inode = status.st_ino
        return _after_newline(file.fileno(), self._position, status.st_size)

    def _bring_segment(self, file: Any, end: int) -> None:
        if self._tried is None:
            last = min(end, self._position + SEGMENT)
            size = _after_newline(file.fileno(), self._position, last) - self._position
            if size <= 0:  # a line that is longer than a segment
                size = _next_newline(file.fileno(), last, end) - self._position
            self._tried = Segment(segment_name(self._rank, self._number), size)
        name, size = self._tried
        data = os.pread(file.fileno(), size, self._position)
        try:
            self._remote.put(name, data, new=True)
        except FileExistsError:
            if self._remote.get(name) != data:
                self._claim.check()
                raise Superseded("another process, whose rows are there under the same number,") from None
        self._position += size
        self._number += 1
        self._tried = None


def _after_newline(fd: int, begin: int, end: int) -> int:
    """Return the offset after the last newline between *begin* and *end*; *begin* where there is none."""
    while end > begin:
        start = max(begin, end - _BLOCK)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return begin


def _next_newline(fd: int, begin: int, end: int) -> int:
    """Return the offset after the first newline from *begin* on; *end* where there is none."""
    while begin < end:
        found = os.pread(fd, min(_BLOCK, end - begin), begin).find(b"\n")
        if found >= 0:
            return begin + found + 1
        begin += _BLOCK
    return end
