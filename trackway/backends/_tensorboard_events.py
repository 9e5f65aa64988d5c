"""The writer of one event file, in place of tensorboardX's own, whose queue and thread can block for ever."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, final

from trackway._locks import new_lock
from trackway.backends._tensorboard_files import EventFile
from trackway.backends._tensorboard_records import frame
from trackway.tracker import Ledger

__all__ = ["EventWriter"]

_BACKLOG = 64 * 1024 * 1024
_UPLOAD_EARLY = 8 * 1024 * 1024
_VISIBLE_AFTER = 1.0
_CLOSE_WAIT = 5.0
_LONGEST_PAUSE = 30.0
_FULL = "64 MiB of events wait to be written"
_CURE = "; events wait in memory, up to 64 MiB, and writing is tried again. Make room or mend the connection"


@final
class EventWriter:
    """Has the methods that tensorboardX calls on its `EventFileWriter`, and none of them raises or waits for a queue.

    Thread-safe; in a forked child every method does nothing. What could not be written waits in memory, bounded, and
    is written in order once that is possible again. A file that is deleted meanwhile is followed by another one.

    Attributes:
        ledger: Where failures, lost events and rows that reached the file are counted.
        trouble: Why the latest attempt to write failed; None if it did not.
        upkeep: Called every second (False), and before a flush and the end (True), to append what was held back.
    """

    def __init__(self, logdir: str, file: EventFile, header: bytes, *, max_queue: int, flush_secs: float) -> None:
        self.ledger = Ledger("tensorboard")
        self.trouble: Exception | None = None
        self.upkeep: Callable[[bool], object] = bool  # which does nothing
        self._logdir = logdir
        self._file = file
        self._max_queue = max(1, max_queue)
        self._flush_secs = max(0.05, flush_secs)
        self._pid = os.getpid()
        self._lock = new_lock()  # guards what waits; never held during a write
        self._writing = new_lock()
        self._busy = False
        self._opening = header  # what every further file begins with
        self._waiting: deque[tuple[bytes, int]] = deque([(header, 0)] if file.empty else [])  # records, rows in them
        self._size = len(header)
        self._written = 0  # bytes of the first one that the file has
        self._unsynced = file.empty
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trackway-tensorboard-flush", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def waiting_rows(self) -> int:
        """Number of rows that are in memory only."""
        with self._lock:
            return sum(rows for _, rows in tuple(self._waiting))

    def get_logdir(self) -> str:
        """Return the folder of the event file."""
        return self._logdir

    def add_event(self, event: Any) -> None:
        """Append *event*, an `Event` protocol buffer; it is with the operating system after `max_queue` events."""
        self.append(event.SerializeToString())

    def append(self, data: bytes, *, rows: int = 0, lasting: bool = False) -> None:
        """Append the serialised event *data*; one that finds no room is counted as dropped.

        Args:
            data: The event.
            rows: How many rows to count as delivered once the file has it.
            lasting: Repeat it in the next file if this one is deleted.
        """
        if os.getpid() != self._pid:
            return
        record = frame(data)
        with self._lock:
            lost = "writer closed" if self._closed else _FULL if self._size > _BACKLOG else ""
            if not lost:
                self._waiting.append((record, rows))
                self._size += len(record)
                self._opening += record if lasting else b""
            due = len(self._waiting) >= self._max_queue
        if lost:
            self.ledger.drop("events", lost)
        elif due and not self._file.remote and time.monotonic() >= self._retry_at:
            self._push()

    def flush(self) -> None:
        """Write everything out and bring it to stable storage; `trouble` says whether that failed."""
        if os.getpid() == self._pid:
            self._keep_up(everything=True)
            self._push(sync=True)

    def reopen(self) -> None:
        """Do nothing: a closed writer stays closed; tensorboardX makes a new one."""

    def close(self) -> None:
        """Flush, end the thread and close the file; waits 5 seconds at most for a write that hangs."""
        if os.getpid() != self._pid or self._closed:
            return
        self._keep_up(everything=True)
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._end()

    def _end(self) -> None:
        atexit.unregister(self.close)
        self._ending.set()
        self._thread.join(_CLOSE_WAIT)
        self._push(sync=True)
        with self._lock:
            lost = len(self._waiting)
            self._waiting.clear()
        if lost:
            self.ledger.drop("events", "not written before the end", lost)
        if not self._thread.is_alive():
            self._file.close()

    def _run(self) -> None:
        synced = time.monotonic()
        while not self._ending.wait(min(_VISIBLE_AFTER, self._flush_secs)):
            self._keep_up(everything=False)
            now = time.monotonic()
            if now < self._retry_at:
                continue
            sync = now - synced >= self._flush_secs
            synced = now if sync else synced
            early = bool(self._waiting) and (not self._file.remote or self._size > _UPLOAD_EARLY)
            if early or (sync and (self._waiting or self._unsynced)):
                self._push(sync=sync)

    def _keep_up(self, *, everything: bool) -> None:
        try:
            self.upkeep(everything)
        except Exception as error:  # of values; events that are there must be written all the same
            self.ledger.fail("log_hyperparameters", error)

    def _push(self, *, sync: bool = False) -> None:
        """Write what waits; a second thread, or a signal handler, leaves it to the one that is at it."""
        if not self._writing.acquire(timeout=_CLOSE_WAIT if sync else 0):
            if sync:
                self.trouble = TimeoutError(f"an earlier write has not come back for {_CLOSE_WAIT:g} s")
            return
        try:
            if not self._busy:  # else this interrupted a write of the same thread, which goes on afterwards
                self._try_to_write(sync=sync)
        finally:
            self._writing.release()

    def _try_to_write(self, *, sync: bool) -> None:
        self._busy = True
        try:
            self._write_out()
            if sync and self._unsynced:
                self._file.sync()
                self._unsynced = False
        except Exception as error:
            self._failures += 1
            self._retry_at = time.monotonic() + min(_LONGEST_PAUSE, 0.5 * 2 ** min(self._failures, 10))
            self.trouble = error
            self.ledger.fail("write", error, _CURE)
        else:
            self._failures, self._retry_at, self.trouble = 0, 0.0, None
        finally:
            self._busy = False

    def _write_out(self) -> None:
        if self._waiting and self._file.renew():
            with self._lock:
                self._waiting.appendleft((self._opening, 0))
                self._written = 0  # the beginning of a record went with the file
        while data := self._unwritten():
            self._took(self._file.write(data))

    def _unwritten(self) -> bytes:
        with self._lock:
            if not self._waiting:
                return b""
            return b"".join([record for record, _ in tuple(self._waiting)])[self._written :]

    def _took(self, amount: int) -> None:
        rows = 0
        with self._lock:
            self._unsynced = True
            waiting, left = self._waiting, self._written + amount
            before = left
            while waiting and left >= (length := len(waiting[0][0])):
                rows += waiting.popleft()[1]
                left -= length
            self._written = left
            self._size = self._size - (before - left) if waiting else 0
        if rows:
            self.ledger.deliver(rows)
