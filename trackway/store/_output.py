"""Where the rows and records of a tracker go; it outlives a tracker that is dropped without `finish`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, final

import orjson

from trackway.store._atomic import RecordFile
from trackway.store._index import Index, IndexWriter, index_path
from trackway.store._journals import Journals
from trackway.store._lease import HEARTBEAT
from trackway.store._media import MediaFolder
from trackway.store._records import Records
from trackway.store._reopen import Tail
from trackway.store._ticker import Ticker
from trackway.store._writer import LineWriter
from trackway.tracker import Ledger, Lifecycle, check_step
from trackway.tracker._row_time import begun_at
from trackway.values import Row

__all__ = ["TICK", "Output", "let_go"]

_CURE = "; training goes on"
TICK = 0.2
"""Seconds for which a row may wait for company, at most."""
_BATCH = 5  # rows that are written with one call
_AT_ONCE = 0.05  # seconds since the last write after which a row is written at once
_MIN_INDEXED = 1 << 20
_MAX_INDEXED = 1 << 24


@final
class Output:
    """Rows in the order of their steps, and what is kept beside them.

    A row that a signal handler logs while another is being written, on the same thread, follows that one.

    Attributes:
        rows: The file of rows.
        media: Where images and the like go.
        encode: Makes the line of a row.
        interval: Seconds between two waits for the disk.
        records: Summary, hyper-parameters, run.json; None for a tracker that is not the one to keep them.
        journals: Events and spans; None for a tracker that is not the one to keep them.
        attempt: The number of the attempt, noted in every row where it is not 1.
        next_step: The step of a row that comes without one.
        last_step: The highest step of the attempt before, as the file was opened; None for a file without rows.
        accepted: Rows taken over.
        latest: The row that was taken last.
        refused: Rows that came after the end and were not counted yet.
    """

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        rows: LineWriter,
        ledger: Ledger,
        *,
        media: MediaFolder,
        encode: Callable[[dict[str, Any]], bytes],
        interval: float,
    ) -> None:
        """Write to *rows*, around which the re-entrant *lock* is held; failures are counted in *ledger*."""
        self.interval = interval
        self.media = media
        self.encode = encode
        self.rows = rows
        self.records: Records | None = None
        self.journals: Journals | None = None
        self.attempt = 1
        self.next_step = 0
        self.last_step: int | None = None
        self.accepted = 0
        self.latest: Row | None = None
        self.refused = 0
        self._lock = lock
        self._ledger = ledger
        self._highest: int | None = None
        self._begun = False
        self._queue: deque[tuple[int | None, bytes, Row]] = deque()
        self._writing = False
        self._index = IndexWriter()
        self._index_file: RecordFile | None = None
        self._index_covers = 0  # bytes of the file
        self._lines = 0  # in the file when it was opened
        self._batch: list[tuple[int, float, Row]] = []
        self._made: list[bytes] = []  # lines that are not written yet
        self._made_bytes = 0  # their length
        self._written = 0.0  # when lines were last written
        self._next_tick = 0.0

    def keep_index(self, path: Path) -> None:
        """Keep an index of the file of rows *path*, which nobody else writes to; where that cannot be done, keep none.

        Without one, reading a run takes longer.
        """
        try:
            index = IndexWriter.following(path, at_most=_MAX_INDEXED)
        except OSError as error:
            self._ledger.fail("index", error, _CURE)
            return
        if index is not None:
            self._lines = index.rows
            self._index = index
            self._index_file = RecordFile(index_path(path), self._render_index, HEARTBEAT)
            self._index_covers = self.rows.offset

    def _render_index(self) -> bytes:
        with self._lock:  # what waits in memory is not in the file
            self._index_covers = self.rows.offset
            self._index.rows = self._lines + self.rows.delivered
            return self._index.render(self.rows.end())

    def known(self) -> Index | None:
        """Return what is known of the file, where it is what this process has written; the caller holds the lock."""
        if self._index_file is None or self.rows.lost or self.rows.waiting:
            return None
        return self._index.index(self.rows.offset)

    def _save_index(self, grown: int) -> None:
        """Write the index if the file has grown by so many bytes; a small file is searched quickly without."""
        if self._index_file is None or self.rows.lost or self.rows.waiting or self.rows.offset < _MIN_INDEXED:
            return
        if self.rows.offset - self._index_covers < grown:
            return
        try:
            self._index_file.save()
        except OSError as error:
            self._ledger.fail("index", error, _CURE)

    def follow(self, tail: Tail) -> None:
        """Go on after the rows that end in *tail*."""
        if tail.highest is not None:
            self.next_step = tail.highest + 1  # below that it would supersede rows
            self._highest = self.last_step = tail.highest

    def append(self, step: int, begun: float, row: Row) -> bool:
        """Take one row that a run has committed; see `LocalTracker.append`.

        It is written at once where rows are rare, and a few at a time where they follow one another quickly: then the
        call to the operating system would be a third of what a row costs.
        """
        self.take(step, begun, row)
        now = time.monotonic()
        if len(self._batch) < _BATCH and now < self._written + _AT_ONCE:
            return False
        self._written = now
        self.write_batch()
        return bool(self.refused) or self.rows.said.waiting

    def take(self, step: int, begun: float, row: Row) -> None:
        """Take one row that is not empty, to be written by `write_batch`, or a fifth of a second later.

        Where Ctrl+C comes in the midst of it, the row is taken if it is `latest`.
        """
        kept = self.media.store(row, step) if row.has_media else row
        if not self._begun:
            self._begin(step)
        # nothing comes between these: Python looks for signals after the call
        self.accepted += 1
        self.next_step = step + 1
        self.latest = row
        self._batch.append((step, begun, kept))

    def take_all(self, rows: list[tuple[int, float, Row]], *, following: int) -> bool:
        """Take several rows with numbers only likewise, at least one: steps, times and values.

        Returns:
            False if `next_step` is not *following*, from which their steps were made: a signal handler has logged a
            row since. Then none is taken.
        """
        if not self._begun:
            self._begin(rows[0][0])
        count, (last_step, _, latest) = len(rows), rows[-1]
        # nothing comes between these: they call nothing after which Python would look for signals
        if self.next_step != following:
            return False
        self.accepted += count
        self.next_step = last_step + 1
        self.latest = latest
        self._batch += rows
        return True

    def write_batch(self) -> None:
        """Write the rows that were taken; the caller holds the lock."""
        if self._writing:  # by this very thread: a signal handler's call
            return
        self._writing = True
        try:
            if self._batch:
                self._make_lines()
            if self._made:
                self._write_made()
        finally:
            self._writing = False

    def _write_made(self) -> None:
        lines, offset = self._made, self.rows.offset
        try:
            kept = self.rows.append_all(lines)
        finally:
            if self.rows.offset != offset:  # they are its own now, also where Ctrl+C came meanwhile
                self._made, self._made_bytes = [], 0
        if not kept:
            self.accepted -= len(lines)
            self.refused += len(lines)

    def _make_lines(self) -> None:
        """Encode the rows that were taken; a row that cannot be is counted as failed.

        Ctrl+C in the midst of it leaves all as it was, and it is done again.
        """
        encode, index, highest = self.encode, self._index, self._highest
        batch = self._batch.copy()
        made, taken = [], []
        begin = offset = self.rows.offset + self._made_bytes
        for step, begun, row in batch:
            is_patch = highest is not None and step <= highest
            if not is_patch:
                highest = step
            try:
                line = self._head(step, begun, is_patch=is_patch) + (b"," + encode(row)[1:] if row else b"}") + b"\n"
            except Exception as error:
                self._ledger.fail("log", error, _CURE)
                continue
            made.append(line)
            taken.append(row)
            if is_patch or offset >= index.next:
                index.add(offset, step, is_patch, self.attempt)
            offset += len(line)
        if taken and self.records is not None:
            self.records.update_all(taken)
        count = len(batch)
        # nothing comes between these: they call nothing after which Python would look for signals
        self._highest = highest
        self._made_bytes += offset - begin
        self._made += made
        del self._batch[:count]

    def rewind(self) -> None:
        """Begin another attempt, unless this one has no row yet."""
        self.write_batch()
        self._highest = None
        if not self._begun:
            return
        self._begun = False
        self.attempt += 1
        if self.records is not None:
            self.attempt = self.records.next_attempt(self.attempt)

    def put(self, step: int | None, body: bytes, row: Row) -> None:
        """Write one row; the caller holds the lock.

        Args:
            step: Its step; None takes the last one + 1.
            body: Its line without the opening brace and what belongs before the first metric.
            row: Its values.

        Raises:
            StepError: if *step* is None and the last one was the greatest that there is.
        """
        self._queue.append((step, body, row))
        if not self._writing:
            self._write_queue()

    def _write_queue(self) -> None:
        self.write_batch()
        while self._queue:
            self._writing = True
            try:
                while self._queue:
                    self._write(*self._queue.popleft())
            finally:
                self._writing = False

    def _write(self, step: int | None, body: bytes, row: Row) -> None:
        number = check_step(self.next_step) or 0 if step is None else step
        self.next_step = number + 1
        if not self._begun:
            self._begin(number)
        is_patch = self._highest is not None and number <= self._highest
        if not is_patch:
            self._highest = number
        offset = self.rows.offset
        if not self.rows.append(self._head(number, begun_at(), is_patch=is_patch) + body):
            self.refused += 1
            return
        if offset >= self._index.next or is_patch:
            self._index.add(offset, number, is_patch, self.attempt)
        self.accepted += 1
        if self.records is not None:
            self.records.update(row)

    def _head(self, step: int, begun: float, *, is_patch: bool) -> bytes:
        """Return the line of a row up to what belongs before the first metric."""
        attempt = b',"_attempt":%d' % self.attempt if self.attempt > 1 else b""
        patch = b',"_patch":true' if is_patch else b""
        return b'{"_step":%d,"_time":%b%b%b' % (step, orjson.dumps(begun), attempt, patch)

    def _begin(self, step: int) -> None:
        self._index.expect()
        if self.records is not None:
            self.records.begin(step)
        self._begun = True

    def write_rows(self) -> None:
        """Write the rows that wait, and wait for the disk."""
        with self._lock:
            if not self._writing:
                self._write_queue()
            self.rows.drain()
        self.rows.said.tell()
        self._sync()

    def write_all(self) -> None:
        """Write everything that waits, and wait for the disk."""
        self.write_rows()
        if self.journals is not None:
            self.journals.sync()
        if self.records is not None:
            self.records.save()

    def _sync(self) -> None:
        try:
            self.rows.sync()
        except OSError as error:
            self._ledger.fail("sync", error, _CURE)

    def write_now(self) -> bool:
        """Write the rows that were taken; return whether some still wait, because the file takes none."""
        with self._lock:
            self.write_batch()
            self.rows.drain_if_due()
            return bool(self.rows.waiting)

    def tick(self) -> None:
        """Do what is done beside the training: write rows that wait for company, and about once a second the rest."""
        with self._lock:
            self.write_batch()
        if self.journals is not None:
            self.journals.write()
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + self.interval - TICK / 2
        with self._lock:
            renewed = self.rows.renew()
            if self.rows.waiting:
                self.rows.drain_if_due()
        self.rows.said.tell()
        self._sync()
        if renewed:
            self._index_file = None
        self._save_index(_MIN_INDEXED)
        if self.records is not None:
            self.records.save_due(anew=renewed)

    def forget(self) -> None:
        """Have no row, as in a forked child, whose parent writes them."""
        self._batch.clear()
        self._made = []
        if self.journals is not None:
            self.journals.forget()
        self.rows.close()

    def close(self) -> int:
        """Close the file of rows; return how many rows were lost."""
        with self._lock:
            self.write_batch()
        if self.journals is not None:
            self.journals.close()
        self._save_index(1)
        with self._lock:
            self.rows.close()
            return self.rows.lost


def let_go(output: Output, ticker: Ticker, life: Lifecycle) -> None:
    """Leave what a tracker that nobody holds any more has on disk, and neither thread nor open file behind."""
    if not life.foreign:
        ticker.stop(wait=False)  # this may be called in the midst of anything
        output.write_all()
        output.close()
