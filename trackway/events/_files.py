"""Files that get a line per event."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import final

from trackway._locks import new_lock

__all__ = ["LineFile"]

_MODE = 0o666
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


@final
class LineFile:
    """A file that whole lines are added to, each with one write, so that none is lost when the process dies.

    It is opened, and its folder made, at the first line; after a failure it is opened again at the next one, which
    begins on a line of its own whatever part of the failed one is there. Thread-safe.
    """

    def __init__(self, path: str) -> None:
        """Write to the end of *path*, an absolute one."""
        self.path = path
        self._fd: int | None = None
        self._closer: weakref.finalize[[int], LineFile] | None = None
        self._torn = False
        self._lock = new_lock()

    def write(self, line: bytes) -> None:
        """Add *line*, which has no newline at its end.

        Raises:
            OSError: if that cannot be done.
        """
        with self._lock:
            fd = self._open()
            try:
                _write_all(fd, b"\n" + line + b"\n" if self._torn else line + b"\n")
            except OSError:
                self.close()
                raise
            self._torn = False

    def _open(self) -> int:
        if self._fd is None:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, _FLAGS, _MODE)
            self._fd, self._closer = fd, weakref.finalize(self, os.close, fd)
            self._closer.atexit = False  # threads may still write then
            self._torn = _is_torn(fd)
        return self._fd

    def close(self) -> None:
        """Close the file; a line that follows opens it again."""
        with self._lock:
            if self._closer is not None:
                self._fd, closer, self._closer = None, self._closer, None
                closer()


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _is_torn(fd: int) -> bool:
    """Whether the file ends within a line."""
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        return size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    except OSError:  # a pipe or a device has no end
        return False
