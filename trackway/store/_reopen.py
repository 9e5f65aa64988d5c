"""Looking at the end of a file of lines, and mending what a killed process left there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trackway.values import decode

__all__ = ["Tail", "look", "mend", "parse", "rows_after"]

_BLOCK = 1 << 16
_LARGE_BLOCK = 1 << 24
_MAX_REPLAY = 1 << 28


class Tail(NamedTuple):
    """The end of a file of rows.

    Attributes:
        last: The step of the last row; None where there is no row.
        highest: The highest step of all rows.
        attempt: The attempt that wrote the last row.
        moved: Bytes of a torn line that were moved out of the file.
    """

    last: int | None = None
    highest: int | None = None
    attempt: int = 1
    moved: int = 0


def mend(fd: int, torn: Path) -> Tail:
    """Make the file end with a newline and return what its end says.

    A last line that lacks only its newline gets one. A torn one is appended to the file *torn*, then cut off.

    Args:
        fd: The file, open for reading and appending.
        torn: Where a fragment is kept.

    Raises:
        OSError: if the file cannot be read or the fragment cannot be kept; the file is then as it was.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return Tail()
    size = os.fstat(fd).st_size
    start = _line_start(fd, size)
    moved = 0
    if start < size:
        moved = _mend_fragment(fd, start, size, torn)
    return look(fd)._replace(moved=moved)


def look(fd: int) -> Tail:
    """Return what the end of the file says, and change nothing.

    The highest step is that of the last row that is not marked as a patch; only those behind it are read.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return Tail()
    tail = Tail()
    for line in _lines_backwards(fd, os.fstat(fd).st_size):
        row = parse(line) if line else None
        step = None if row is None else row.get("_step")
        if row is None or type(step) is not int:
            continue
        if tail.last is None:
            attempt = row.get("_attempt", 1)
            tail = Tail(step, step, attempt if type(attempt) is int else 1)
        tail = tail._replace(highest=max(step, tail.highest or step))
        if not row.get("_patch"):
            break
    return tail


def _lines_backwards(fd: int, size: int) -> Iterator[bytes]:
    """The lines of the file, the last one first."""
    rest, end, length = b"", size, _BLOCK
    while end > 0:
        begin = max(0, end - length)
        rest, *lines = (_read(fd, begin, end) + rest).split(b"\n")
        yield from reversed(lines)
        end, length = begin, _BLOCK if lines else 2 * length  # so that a long line is not copied at every block
    yield rest


def _line_start(fd: int, end: int) -> int:
    """Offset after the last newline before *end*."""
    while end > 0:
        begin = max(0, end - _BLOCK)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _mend_fragment(fd: int, start: int, size: int, torn: Path) -> int:
    if _is_row(_read(fd, start, size)):
        os.write(fd, b"\n")
        return 0
    with torn.open("ab") as file:
        for offset in range(start, size, _BLOCK):
            file.write(os.pread(fd, min(_BLOCK, size - offset), offset))
        file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.ftruncate(fd, start)
    return size - start


def _read(fd: int, start: int, end: int) -> bytes:
    blocks = []
    while start < end:
        block = os.pread(fd, min(end - start, _LARGE_BLOCK), start)
        if not block:
            break
        blocks.append(block)
        start += len(block)
    return b"".join(blocks)


def _is_row(line: bytes) -> bool:
    return parse(line) is not None


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the row in *line*, or None where it holds none."""
    try:
        row = decode(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def rows_after(path: Path, offset: int) -> tuple[Iterator[dict[str, Any]], int]:
    """Return the rows of *path* from the line on in which byte *offset* lies, and how many bytes were left out.

    Of more than 256 MiB the last are read.
    """
    if not path.is_file():
        return iter(()), 0
    size = path.stat().st_size
    start = max(min(offset, size), size - _MAX_REPLAY)
    return _rows_from(path, start), max(0, start - min(offset, size))


def _rows_from(path: Path, start: int) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        file.seek(_line_start(file.fileno(), start))
        for line in file:
            row = parse(line)
            if row is not None:
                yield row
