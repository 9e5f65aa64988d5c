"""The lines of a file of rows: a pinned prefix of it, read in blocks from either end."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from operator import contains, itemgetter, lt
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, final

import numpy as np
import orjson

from trackway.store._reopen import parse

if TYPE_CHECKING:
    from trackway.store._segments import Segments

__all__ = ["BLOCK", "NUMBER", "Lines", "Source", "attempt_of", "count_alike", "parse_block", "parse_row"]

BLOCK = 1 << 18  # what stays in the processor's cache while it is parsed
_TAIL_BLOCK = 1 << 14
_MIN_STEP, _MAX_STEP = -(2**63), 2**63 - 1

_HEAD = b'{"_step":'
_TO_COMMA = bytes.maketrans(b"\n", b",")
NUMBER = b"0123456789+-.eE"
"""The characters of numbers."""
_PLAIN_MARKS = (2, 3)  # step and time, and where it is not the first one the attempt
_STEP = itemgetter("_step")
_ATTEMPT = itemgetter("_attempt")


@final
class Lines(NamedTuple):
    """What a block of lines holds.

    Attributes:
        rows: The rows, in the order of the file, decoded; reserved keys still stand in them.
        steps: The step of each row.
        plain: Whether the steps rise strictly, all rows are of one attempt and none is marked in any other way.
        attempt: That attempt; 1 where the block is not plain.
        damaged: How many lines held no row.
    """

    rows: list[dict[str, Any]]
    steps: list[int]
    plain: bool = False
    attempt: int = 1
    damaged: int = 0


def attempt_of(row: dict[str, Any]) -> int:
    """Return the number of the attempt that wrote *row*; whatever is no such number counts as 1."""
    attempt = row.get("_attempt", 1)
    return attempt if type(attempt) is int and attempt > 1 else 1


def parse_row(line: bytes) -> dict[str, Any] | None:
    """Return the row in *line*, or None where it holds none or has no step of 64 bits."""
    row = parse(line)
    if row is None:
        return None
    step = row.get("_step")
    return row if type(step) is int and _MIN_STEP <= step <= _MAX_STEP else None


def parse_block(block: bytes) -> Lines:
    """Return the rows in *block*, of which every line ends with a newline."""
    return _parse_plain(block) or parse_each(block)


def parse_each(block: bytes) -> Lines:
    """Return the rows in *block* by parsing line after line: what `parse_block` returns, without its short cut."""
    lines = block.split(b"\n")
    lines.pop()
    rows = [row for row in map(parse_row, lines) if row is not None]
    return Lines(rows, list(map(_STEP, rows)), damaged=len(lines) - len(rows))


def _parse_plain(block: bytes) -> Lines | None:
    """Parse *block* in one go if all its lines are alike: reserved keys, then metrics without names beginning with `_`.

    The lines are joined to one JSON array, which has as many objects as there are lines.
    """
    first = block[: block.find(b"\n") + 1]
    marks = first.count(b'"_')
    if marks not in _PLAIN_MARKS or not block.startswith(_HEAD):
        return None
    count = count_alike(first, block) or _count_objects(block, marks)
    if not count:
        return None
    try:
        rows = orjson.loads(b"".join((b"[", block.translate(_TO_COMMA)[:-1], b"]")))
        steps = list(map(_STEP, rows))
        attempts = set(map(_ATTEMPT, rows)) if marks in _PLAIN_MARKS[1:] else {1}
    except (ValueError, KeyError, TypeError):
        return None
    if len(rows) != count or not all(map(contains, rows, repeat("_time"))):
        return None
    if len(attempts) > 1 or set(map(type, steps)) != {int} or not all(map(lt, steps, islice(steps, 1, None))):
        return None
    attempt = attempts.pop()
    if steps[-1] > _MAX_STEP or type(attempt) is not int or attempt != max(attempt, marks - 1):
        return None
    return Lines(rows, steps, plain=True, attempt=attempt)


def count_alike(first: bytes, block: bytes) -> int:
    """Return the number of lines of *block* if they differ from the *first* one in the characters of numbers only.

    Else 0. Lines that are alike open and close the same brackets and texts, so each is an object if one is; nothing
    but a number can stand in them where the first one has none, and that no parser takes.
    """
    shape = first.translate(None, NUMBER)
    if b"\\" in block:  # an escape may have digits that mean another character
        return 0
    shapes = block.translate(None, NUMBER)
    count, rest = divmod(len(shapes), len(shape))
    return count if not rest and shapes == shape * count else 0


def _count_objects(block: bytes, marks: int) -> int:
    """Return the number of lines of *block* if that many objects can only be the lines, and have no other marks; or 0.

    Every object has a step, and `"_step"` stands nowhere but at the beginning of a line. An escape could spell that
    name in another way, so blocks with one are left to others.
    """
    if b"\\" in block and b"\\u" in block:
        return 0
    count = int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))
    alike = block.count(b'"_') == marks * count and block.count(b"\n" + _HEAD) == count - 1
    return count if alike else 0


@final
class Source:
    """The bytes of a file of rows as they were when it was opened, and those that its writer has yet to write.

    Reading takes no lock and never waits for the writer. Use it as a context manager. Not thread-safe.

    Attributes:
        path: The file.
        shown: The file, as messages name it.
        stored: What stands for the file on an object store; None where it is a file.
        others: Where it does not lie in a directory of this machine: finds the files of all processes, by their ranks.
        size: Number of bytes, both together.
        damaged: Lines met so far that hold no row.
    """

    def __init__(
        self,
        path: Path,
        *,
        size: int | None = None,
        extra: Iterable[bytes] = (),
        follow: bool = True,
        missing_ok: bool = False,
        stored: Segments | None = None,
        others: Callable[[], Mapping[int, Callable[[], Source]]] | None = None,
    ) -> None:
        """Open *path*.

        Args:
            path: The file.
            size: How many bytes of it to read; None for as many as it has.
            extra: What comes after them: whole lines, but the first may continue the last line of the file.
            follow: Whether *path* may be a symbolic link.
            missing_ok: Whether a missing file is an empty one.
            stored: What to read in the place of a file, of which *path* is the name only.
            others: See the attribute.

        Raises:
            FileNotFoundError: if there is no such file.
            OSError: if it cannot be read, is a link though *follow* is False, or is no regular file.
        """
        self.path = path
        self.shown = str(path) if stored is None else f"{stored.url}/{path}"
        self.stored = stored
        self.others = others
        self.damaged = 0
        self._extra = b"".join(extra)
        self._fd = -1
        self._stored = 0 if stored is None else stored.size
        try:
            if stored is None:
                self._open(size, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
        except FileNotFoundError:
            if not missing_ok:
                raise
        self.size = self._stored + len(self._extra)

    def _open(self, size: int | None, flags: int) -> None:
        self._fd = os.open(self.path, flags)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "rows are read from regular files only, and this is none", str(self.path))
        self._stored = status.st_size if size is None else min(size, status.st_size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def present_size(self) -> int:
        """Return how many bytes the file has by now."""
        if self.stored is not None:
            return self._stored
        return os.fstat(self._fd).st_size if self._fd >= 0 else 0

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes from *begin* up to *end*; fewer where the file was cut meanwhile."""
        parts: list[bytes] = []
        if self.stored is not None:
            return self.stored.read(begin, min(end, self._stored))
        while begin < min(end, self._stored):
            part = os.pread(self._fd, min(end, self._stored) - begin, begin)
            if not part:
                return b"".join(parts)
            parts.append(part)
            begin += len(part)
        if end > self._stored:
            parts.append(self._extra[begin - self._stored : end - self._stored])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def blocks(self, length: int = BLOCK, begin: int = 0) -> Iterator[bytes]:
        """Yield all lines from *begin* on in blocks of about *length* bytes; only the last may lack its newline."""
        rest: list[bytes] = []
        while begin < self.size:
            block = self.read(begin, begin + length)
            if not block:
                break
            begin += len(block)
            end = block.rfind(b"\n") + 1
            if end:
                yield b"".join((*rest, block[:end]))
                rest = [block[end:]]
            else:
                rest.append(block)
        if any(rest):
            yield b"".join(rest)

    def forwards(self) -> Iterator[Lines]:
        """Yield all rows, block by block; a torn last line is left out without a word."""
        for block in self.blocks():
            yield self.parse(block)

    def backwards(self) -> Iterator[tuple[int, Lines]]:
        """Yield the offset and the rows of each block, the last block first; the rows of a block are in file order."""
        end, length, rest = self.size, _TAIL_BLOCK, b""
        while end > 0:
            begin = max(0, end - length)
            block = self.read(begin, end) + rest
            start = block.find(b"\n") + 1 if begin else 0
            if begin and not start:
                rest, end, length = block, begin, 2 * length
                continue
            if start < len(block):
                yield begin + start, self.parse(block[start:])
            rest, end, length = block[:start], begin, min(2 * length, BLOCK)

    def parse(self, block: bytes) -> Lines:
        """Return the rows in *block* and count the damaged lines in it; one without a newline may be torn."""
        if block.endswith(b"\n"):
            lines = parse_block(block)
            self.damaged += lines.damaged
            return lines
        whole = block.rfind(b"\n") + 1
        lines = self.parse(block[:whole]) if whole else Lines([], [])
        row = parse_row(block[whole:])
        return lines if row is None else Lines([*lines.rows, row], [*lines.steps, row["_step"]])

    def row_at(self, offset: int) -> tuple[dict[str, Any] | None, int]:
        """Return the row of the line that begins at *offset*, None where none does, and where the line ends."""
        if offset < 0 or offset >= self.size or (offset and self.read(offset - 1, offset) != b"\n"):
            return None, offset
        line, length = b"", 1 << 12
        while b"\n" not in line and offset + len(line) < self.size:
            more = self.read(offset + len(line), offset + len(line) + length)
            if not more:
                break
            line, length = line + more, 2 * length
        end = line.find(b"\n")
        line = line if end < 0 else line[:end]
        return parse_row(line), offset + len(line) + 1
