"""Small files that are replaced as a whole: a reader sees the old content or the new one, never a mixture."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import final

from trackway._locks import new_lock

__all__ = ["RecordFile", "clear", "replace_file", "set_aside"]

_numbers = itertools.count()
_SHARE = 20  # writing on a timer takes at most a twentieth of one core, however large the file is


_TEMPORARY = re.compile(r"\..+\.\d+-\d+\.tmp")


def replace_file(path: Path, data: bytes) -> None:
    """Put *data*, once it is on the disk, in the place of *path*; where that fails, the earlier file stays.

    Raises:
        OSError: if it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def clear(directory: Path) -> None:
    """Remove temporary files that a killed process left; to be called while nobody else writes to *directory*."""
    for path in directory.glob(".*.tmp"):
        if _TEMPORARY.fullmatch(path.name):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Rename the damaged *path* to a free name beside it, and return that."""
    for number in itertools.count(1):
        target = path.with_name(f"{path.name}.damaged-{number}")
        if not target.exists():
            break
    return path.rename(target)


@final
class RecordFile:
    """One such file: knows whether it is behind, and how often it may be written without being asked. Thread-safe."""

    def __init__(
        self, path: Path, render: Callable[[], bytes], interval: float, saved: Callable[[], None] | None = None
    ) -> None:
        """Write what *render* returns to *path*, unasked every *interval* seconds at most; then call *saved*."""
        self._path = path
        self._render = render
        self._saved = saved
        self._interval = interval
        self._lock = new_lock()
        self._not_before = 0.0
        self.dirty = False

    def save(self) -> None:
        """Write the file; raises `OSError`, and stays dirty, where that fails."""
        with self._lock:
            started = time.monotonic()
            self.dirty = False  # before rendering: what changes meanwhile counts as not written
            try:
                replace_file(self._path, self._render())
                if self._saved is not None:
                    self._saved()
            except OSError:
                self.dirty = True
                raise
            finally:
                now = time.monotonic()
                self._not_before = now + max(self._interval, _SHARE * (now - started))

    @property
    def due(self) -> bool:
        """Whether the file is behind and may be written again."""
        return self.dirty and time.monotonic() >= self._not_before
