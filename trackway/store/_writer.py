"""Appending lines to a file so that none is torn, doubled or lost while there is any way to keep it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, final

from trackway.store._diagnostics import Diagnostics
from trackway.store._lease import Lock
from trackway.store._reopen import Tail, look, mend

__all__ = ["LineWriter"]

_MAX_ROWS = 100_000
_MAX_BYTES = 64 << 20
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0

_File: TypeAlias = tuple[int, int]  # device and inode
_open_files: set[_File] = set()  # by writers of this process


@final
class LineWriter:
    """Writes each line with one call to the operating system; lines that it refuses wait in memory, in order.

    Its owner holds one re-entrant lock around every method but `sync`. A signal handler or finaliser that appends
    while an append is under way on the same thread is served after it. Ctrl+C in the midst of an append loses no line
    and doubles none: the lines are the writer's from the moment on at which `offset` moves.

    Attributes:
        shared: Whether another process, or another writer of this one, had the file open before.
        delivered: Lines that are in the file.
        offset: Where the next line will begin in the file, as long as no line was lost.
        lost: Lines that had to be given up because too many waited.
        said: Messages for the owner to tell, see `Diagnostics`.
    """

    def __init__(self, path: Path, torn: Path, *, max_rows: int = _MAX_ROWS, max_bytes: int = _MAX_BYTES) -> None:
        self._path = path
        self._torn = torn
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._fd = -1
        self.offset = 0
        self._file: _File | None = None
        self._rest = b""  # what is still to write of a line of which the file has the beginning
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._busy = False
        self._closed = False
        self._indirect = True  # whether a line may not go straight to the file: something waits, or no file is open
        self._unsynced = False
        self._delay = _FIRST_DELAY
        self._retry_at = 0.0
        self.shared = False
        self.delivered = 0
        self.lost = 0
        self.said = Diagnostics()

    @property
    def waiting(self) -> int:
        """Number of lines in memory."""
        return len(self._backlog) + bool(self._rest)

    def end(self) -> int:
        """Return where the file ends, in bytes; 0 where that cannot be told."""
        try:
            return (os.fstat(self._fd) if self._fd >= 0 else self._path.stat()).st_size
        except OSError:
            return 0

    def open(self, claim: Callable[[Lock], None] | None = None) -> Tail:
        """Open the file, mend its end if nobody else has it open, and return what its end says.

        Args:
            claim: Is told whether the file could be locked before it is touched, and may raise to leave it alone.

        Raises:
            OSError: if the file cannot be opened.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        try:
            lock = self._lock(fd)
            if claim is not None:
                claim(lock)
            self.shared = lock == "taken"
            tail = look(fd) if self.shared else mend(fd, self._torn)
        except BaseException:
            os.close(fd)
            raise
        if self.shared:
            self.said.note(
                f"local: {self._path} is being written by someone else too, and will hold the rows of both. Summary, "
                "hyper-parameters and artifacts are kept for the first one alone. Give each run an id of its own"
            )
        if tail.moved:
            self.said.note(
                f"local: the last line of {self._path} was torn; its {tail.moved} bytes were moved to {self._torn.name}"
            )
        self._fd = fd
        self._file = _file_of(fd)
        _open_files.add(self._file)
        self._indirect = bool(self.waiting)
        if not self._indirect:
            self.offset = os.fstat(fd).st_size
        return tail

    def _lock(self, fd: int) -> Lock:
        """Take the advisory lock; whoever holds it owns the end of the file."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "taken"
        except OSError:  # a file system without locks
            return "taken" if _file_of(fd) in _open_files else "unknown"
        return "ours"

    def append(self, line: bytes) -> bool:
        """Write *line*, which ends in a newline, or keep it for later; return False once the writer is closed."""
        return self.append_all((line,))

    def append_all(self, lines: Sequence[bytes]) -> bool:
        """Do so with several *lines*, at least one, by one call to the operating system."""
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        size = len(data)
        if self._indirect or self._busy:
            return self._append_waiting(lines, size)
        self.offset += size
        self._busy = True
        try:
            written = os.write(self._fd, data)
            self._unsynced = True
            if written == size:
                self.delivered += len(lines)
            else:
                self._indirect = True
                self._keep_rest(lines, written)
        except OSError as error:
            self._keep(lines)
            self._failed(error)
        except BaseException:  # Ctrl+C
            self._find_out(lines, data)
            raise
        finally:
            self._busy = False
        if self._indirect:
            self.drain_if_due()
        return True

    def _find_out(self, lines: Sequence[bytes], data: bytes) -> None:
        """See whether the file has *lines*, of which nothing is known but that they were to be written."""
        if self._indirect:
            return  # that is known
        if self._ends_with(data):
            self.delivered += len(lines)
            self._unsynced = True
        else:
            self._keep(lines)

    def _ends_with(self, data: bytes) -> bool:
        try:
            return os.pread(self._fd, len(data), max(self.end() - len(data), 0)) == data
        except OSError:
            return False

    def _keep_rest(self, lines: Sequence[bytes], written: int) -> None:
        """Keep what is left of *lines* after their first *written* bytes."""
        for number, line in enumerate(lines):
            if written < len(line):
                self._rest = line[written:] if written else b""
                self._keep(lines[number + bool(written) :])
                return
            self.delivered += 1
            written -= len(line)

    def _append_waiting(self, lines: Sequence[bytes], size: int) -> bool:
        if self._closed:
            self.offset += size
            return False
        # nothing comes between these: they call nothing after which Python would look for signals
        self._indirect = True
        self.offset += size
        self._backlog += lines
        self._limit(lines)
        self.drain_if_due()
        return True

    def _keep(self, lines: Sequence[bytes]) -> None:
        self._indirect = True
        self._backlog += lines
        self._limit(lines)

    def _limit(self, lines: Sequence[bytes]) -> None:
        """Count *lines*, which are kept now, and give up the oldest where too many are."""
        self._backlog_bytes += sum(map(len, lines))
        while len(self._backlog) > 1 and (len(self._backlog) > self._max_rows or self._backlog_bytes > self._max_bytes):
            self._backlog_bytes -= len(self._backlog.popleft())
            self.lost += 1

    def pending(self) -> tuple[int, list[bytes]]:
        """Return the size of the file, and what is still to be appended to it, in order."""
        return self.end(), [piece for piece in (self._rest, *self._backlog) if piece]

    def drain_if_due(self) -> None:
        """Try to write what waits, unless that failed a moment ago."""
        if time.monotonic() >= self._retry_at:
            self.drain()

    def drain(self) -> bool:
        """Try to write what waits; return whether nothing does any more."""
        if self._busy or self._closed:
            return not self.waiting
        self._busy = True
        try:
            if self._fd < 0:
                self.open()
            self._write_waiting()
        except OSError as error:
            self._failed(error)
            return False
        except BaseException:  # Ctrl+C
            if self._rest and self._ends_with(self._rest):
                self._rest = b""
                self.delivered += 1
            raise
        finally:
            self._busy = False
        self._delay, self._retry_at = _FIRST_DELAY, 0.0
        self._indirect = False
        self.said.well(f"local: {self._path} can be written again, and has all that waited{self._losses()}")
        return True

    def _write_waiting(self) -> None:
        while self._rest or self._backlog:
            if not self._rest:
                self._rest = self._backlog.popleft()
                self._backlog_bytes -= len(self._rest)
            written = os.write(self._fd, self._rest)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._unsynced = True
            self._rest = self._rest[written:]
            if not self._rest:
                self.delivered += 1

    def _failed(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        if error.errno in {errno.ESTALE, errno.EBADF}:
            self._release()
        self.said.trouble(
            f"local: {self._path} cannot be written: {error.strerror or error}; training goes on, {self.waiting} rows "
            f"wait in memory (at most {self._max_rows} rows or {self._max_bytes >> 20} MiB) and are written once it "
            f"can be{self._losses()}"
        )

    def _losses(self) -> str:
        return f"; {self.lost} rows had to be given up" if self.lost else ""

    def renew(self) -> bool:
        """Have the file made anew where it was deleted under the writer; return whether it was."""
        if self._fd < 0 or self._busy or not _is_deleted(self._fd):
            return False
        self.said.note(f"local: {self._path} was deleted while it was being written; later rows go to a new one")
        self._release()
        return self.drain()

    def sync(self) -> None:
        """Wait until the disk has what was written. Needs no lock: appending goes on meanwhile.

        Raises:
            OSError: if the disk reports an error.
        """
        fd = self._fd
        if not self._unsynced or fd < 0:
            return
        self._unsynced = False
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EBADF}:  # not a file on a disk; closed meanwhile
                raise

    def close(self) -> None:
        """Close the file; lines that still wait are lost."""
        self._closed = True
        self.lost += self.waiting
        self._backlog.clear()
        self._rest = b""
        self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        self._indirect = True
        if self._file is not None and not self.shared:
            _open_files.discard(self._file)
        self._file = None
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def _file_of(fd: int) -> _File:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _is_deleted(fd: int) -> bool:
    try:
        return os.fstat(fd).st_nlink == 0
    except OSError:  # the file system is gone: writing will tell
        return False
