"""Bringing a run directory to an object store, beside the training."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from trackway import _notices
from trackway.store import _lease
from trackway.store._layout import EVENTS, MEDIA, METRICS, SPANS, lines_name
from trackway.store._mirror_files import Files, RecordFiles
from trackway.store._remote import Remote
from trackway.store._remote_claim import Claim, Superseded
from trackway.store._segments import Segment, number_of, segment_name, segments_in
from trackway.tracker import Ledger

__all__ = ["Courier", "Rows"]

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
    """Calls *bring* every *interval* seconds on a daemon thread, and again after a pause where that fails.

    Where that is rare, *beat* is called every `HEARTBEAT` seconds between.

    Attributes:
        complete: Whether everything was brought when the end was asked for.
        lost: The other process that has taken the run over; None for none.
        error: The last failure since bringing last worked; None where it works.
    """

    def __init__(
        self,
        name: str,
        url: str,
        interval: float,
        bring: Callable[[], None],
        *,
        beat: Callable[[], None] = lambda: None,
        more: Callable[[], bool] = bool,
    ) -> None:
        """Serve the run of *url*; *more* tells whether there is enough to bring it without waiting."""
        self.complete = False
        self.lost: str | None = None
        self.error: Exception | None = None
        self._url = url
        self._interval = max(interval, _PAUSE)
        self._bring = bring
        self._beat = beat
        self._more = more
        self._ledger: Ledger | None = None
        self._wake = threading.Event()
        self._begun = 0  # how often bringing was begun
        self._passed = 0  # which of them was the last to end
        self._asked = False
        self._ending = False
        self._gone = False
        self._delay = 0.0
        self._last = time.monotonic()  # when bringing ended last
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
            if not self._pause():
                self._try(self._beat)
            elif not self._gone:
                self._begun += 1
                ending = self._ending  # asked before bringing: by then everything was there
                self._try(self._bring)
                if ending and self.error is None and self.lost is None:
                    self._after()
                    self.complete = True
                self._passed, self._last = self._begun, time.monotonic()

    def _pause(self) -> bool:
        """Return True once there is something to bring, or it is time to, and False for a sign of life between."""
        beat = time.monotonic() + _lease.HEARTBEAT
        due = self._last + (self._delay or self._interval)
        while not self._gone and (rest := due - time.monotonic()) > 0:
            if not self._delay and (self._asked or self._ending or self._more()):
                break
            if not self._delay and time.monotonic() >= beat:
                return False
            if self._ending:
                rest = min(rest, _LONGEST_DELAY_AT_END)
                due = min(due, time.monotonic() + rest)
            self._wake.wait(min(rest, _POLL))
            self._wake.clear()
        self._asked = False
        return True

    def _try(self, what: Callable[[], None]) -> None:
        try:
            what()
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
        self,
        remote: Remote,
        spool: Path,
        rank: int,
        listing: Mapping[str, int],
        *,
        claim: Claim,
        brought: Mapping[str, int],
    ) -> None:
        """Bring *spool* to *remote*.

        Args:
            remote: The run.
            spool: Its directory on this machine.
            rank: The process's rank.
            listing: What is on the store already.
            claim: The right to write there.
            brought: How many bytes of the file of each kind of lines are on the store already.
        """
        self._claim = claim
        self._lines, *self._journals = (
            _Lines(
                remote,
                spool,
                rank,
                kind,
                stored=segments_in(listing, rank, kind),
                claim=claim,
                brought=brought[kind],
            )
            for kind in (METRICS, EVENTS, SPANS)
        )
        self._records = RecordFiles(spool, remote)
        self._media = Files(spool, remote, listing, MEDIA, claim.renew)

    def is_full(self) -> bool:
        """Whether there are rows for a whole segment."""
        return self._lines.is_full()

    def bring(self) -> None:
        """Store what is new: rows before the summary of them, media before rows that refer to them.

        Raises:
            Superseded: if another process has taken the run over.
            OSError: if the store or the spool cannot be used; what is missing will be brought the next time.
        """
        self._claim.renew()
        records = self._records.take()
        with self._lines.open() as file:
            end = self._lines.end(file)
            self._media.bring()
            self._lines.bring(file, end)
        for journal in self._journals:
            if journal.exists():
                with journal.open() as file:
                    journal.bring(file, journal.end(file))
        self._records.store(records)

    def beat(self) -> None:
        """Show that the run lives, and store nothing else; raises as `bring` does."""
        self._claim.renew()
        self._records.beat()


@final
class _Lines:
    """One file of lines, of which each part is stored as a segment."""

    def __init__(
        self,
        remote: Remote,
        spool: Path,
        rank: int,
        kind: str,
        *,
        stored: list[Segment],
        claim: Claim,
        brought: int,
    ) -> None:
        self._remote = remote
        self._path = spool / lines_name(kind, rank)
        self._rank = rank
        self._kind = kind
        self._claim = claim
        self._position = brought
        self._inode = 0
        self._number = max(map(number_of, stored), default=0) + 1
        self._tried: Segment | None = None  # what could not be stored, or may have been

    def is_full(self) -> bool:
        try:
            return self._path.stat().st_size - self._position >= SEGMENT
        except OSError:
            return False

    def exists(self) -> bool:
        return self._path.exists()

    def open(self) -> Any:
        return self._path.open("rb", buffering=0)

    def end(self, file: Any) -> int:
        """Return where the last whole line of *file* ends."""
        status = os.fstat(file.fileno())
        if self._inode not in {0, status.st_ino} or status.st_size < self._position:
            _notices.logger.warning("local: %s was deleted or cut; its lines from now on are brought", self._path)
            self._position, self._tried = 0, None
        self._inode = status.st_ino
        return _after_newline(file.fileno(), self._position, status.st_size)

    def bring(self, file: Any, end: int) -> None:
        """Store what *file* has up to *end*."""
        while self._position < end:
            self._claim.renew()  # there may be much to bring
            self._bring_segment(file, end)

    def _bring_segment(self, file: Any, end: int) -> None:
        if self._tried is None:
            last = min(end, self._position + SEGMENT)
            size = _after_newline(file.fileno(), self._position, last) - self._position
            if size <= 0:  # a line that is longer than a segment
                size = _next_newline(file.fileno(), last, end) - self._position
            self._tried = Segment(segment_name(self._rank, self._number, self._kind), size)
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
