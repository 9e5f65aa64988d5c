"""Where the rows and records of a tracker go; it outlives a tracker that is dropped without `finish`."""

from __future__ import annotations

import time
from collections import deque
from contextlib import AbstractContextManager
from typing import Any, final

import orjson

from trackway.store._records import Records
from trackway.store._reopen import Tail
from trackway.store._writer import LineWriter
from trackway.tracker import Ledger, check_step
from trackway.values import Row

__all__ = ["Output"]

_CURE = "; training goes on"


@final
class Output:
    """Rows in the order of their steps, and what is kept beside them.

    A row that a signal handler logs while another is being written, on the same thread, follows that one.

    Attributes:
        rows: The file of rows.
        records: Summary, hyper-parameters, run.json; None for a tracker that is not the one to keep them.
        attempt: The number of the attempt, noted in every row where it is not 1.
        next_step: The step of a row that comes without one.
        accepted: Rows taken over.
        refused: Rows that came after the end and were not counted yet.
    """

    def __init__(self, lock: AbstractContextManager[Any], rows: LineWriter, ledger: Ledger) -> None:
        """Write to *rows*, around which the re-entrant *lock* is held; failures are counted in *ledger*."""
        self.rows = rows
        self.records: Records | None = None
        self.attempt = 1
        self.next_step = 0
        self.accepted = 0
        self.refused = 0
        self._lock = lock
        self._ledger = ledger
        self._highest: int | None = None
        self._begun = False
        self._queue: deque[tuple[int | None, bytes, Row]] = deque()
        self._writing = False

    def follow(self, tail: Tail) -> None:
        """Go on after the rows that end in *tail*."""
        if tail.last is not None:
            self.next_step = tail.last + 1
            self._highest = tail.highest

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
        head: dict[str, Any] = {"_step": number, "_time": time.time()}
        if self.attempt > 1:
            head["_attempt"] = self.attempt
        if self._highest is None or number > self._highest:
            self._highest = number
        else:
            head["_patch"] = True
        if not self.rows.append(orjson.dumps(head)[:-1] + body):
            self.refused += 1
            return
        self.accepted += 1
        if self.records is not None:
            self.records.update(row)

    def _begin(self, step: int) -> None:
        self._begun = True
        if self.records is not None:
            self.records.begin(step)

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
        if self.records is not None:
            self.records.save()

    def _sync(self) -> None:
        try:
            self.rows.sync()
        except OSError as error:
            self._ledger.fail("sync", error, _CURE)

    def tick(self) -> None:
        """Do what is done about once a second."""
        with self._lock:
            renewed = self.rows.renew()
            if self.rows.waiting:
                self.rows.drain_if_due()
        self.rows.said.tell()
        self._sync()
        if self.records is not None:
            self.records.save_due(anew=renewed)

    def close(self) -> int:
        """Close the file of rows; return how many rows were lost."""
        with self._lock:
            self.rows.close()
            return self.rows.lost
