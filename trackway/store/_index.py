"""metrics.index.json: where the lines of some steps begin.

It is a hint: without it, or where it is wrong, files are scanned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, final

import orjson

from trackway import _notices
from trackway.store._assembly import Row
from trackway.store._layout import FORMAT
from trackway.store._scan import Source, attempt_of, parse_row

__all__ = ["Index", "IndexWriter", "Misleading", "index_path", "load_index", "mistrust"]

_MAX_BYTES = 1 << 20  # of an index; a larger file is none
_MAX_PATCHES = 1000
_MAX_ATTEMPTS = 1000
_MAX_OFFSETS = 1000
_SPACING = 1 << 16
_READ = 1 << 14
_NEVER = 1 << 63


class Misleading(Exception):  # noqa: N818 - not an error of the caller's
    """A line that the index speaks of is not where, or not what, it should be."""


def index_path(rows: Path) -> Path:
    """Return where the index of the file *rows* is kept: `metrics.index.json` beside `metrics.jsonl`."""
    return rows.with_name(f"{rows.name.removesuffix('.jsonl')}.index.json")


@final
class Index(NamedTuple):
    """What an index says about the first *bytes* bytes of a file.

    Attributes:
        bytes: How much of the file it covers, up to the end of a line.
        rows: Number of lines there.
        patches: Offsets of all lines marked as patches; None where they are too many to list.
        attempts: Number, offset of the first line and its step, of each attempt; None where they are too many.
        offsets: Offset and step of some lines that are no patches, in the order of the file.
    """

    bytes: int
    rows: int
    patches: list[int] | None
    attempts: list[list[int]] | None
    offsets: list[list[int]]

    def lines_of(self, source: Source, step: int, before: int) -> list[Row] | None:
        """Return the lines of *step* that begin before the byte *before* and were not replaced there, oldest first.

        None where the index does not know them.

        Raises:
            Misleading: if a line turns out to be another than the index says.
        """
        if self.patches is None or self.attempts is None or before > self.bytes:
            return None
        begun = [attempt for attempt in self.attempts if attempt[1] < before]
        position = next((at for at in reversed(range(len(begun))) if begun[at][2] <= step), None)
        lines = [] if position is None else self._first_line(source, step, position, before)
        oldest = 1 if position is None else begun[position][0]
        for offset in self.patches:
            if offset < before:
                row = _verified(source, offset)
                if row.get("_patch") is not True:
                    raise Misleading
                if row["_step"] == step and attempt_of(row) >= oldest:
                    lines.append(row)
        return lines

    def _first_line(self, source: Source, step: int, position: int, before: int) -> list[Row]:
        """The line of *step* that is no patch, in the attempt at *position* of the list, if there is one."""
        number, begin, first = (self.attempts or [])[position]
        row = _verified(source, begin)
        if row["_step"] != first or attempt_of(row) != number:
            raise Misleading
        following = (self.attempts or [])[position + 1 : position + 2]
        end = min([before, *(attempt[1] for attempt in following)])
        upper = bisect_right(self.offsets, [end])
        known = self.offsets[bisect_right(self.offsets, [begin, _NEVER]) : upper]
        at = bisect_right(known, step, key=lambda entry: entry[1])
        if at:
            begin, first = known[at - 1]
            row = _verified(source, begin)
            if row["_step"] != first or first > step or row.get("_patch") is True or attempt_of(row) != number:
                raise Misleading
        for row in _rows_from(source, begin, end):
            if row.get("_patch") is not True and row["_step"] >= step:
                return [row] if row["_step"] == step else []
        return []


def _verified(source: Source, offset: int) -> Row:
    row, _ = source.row_at(offset)
    if row is None:
        raise Misleading
    return row


def _rows_from(source: Source, begin: int, end: int) -> Iterator[Row]:
    for block in source.blocks(_READ, begin):
        yield from source.parse(block).rows
        begin += len(block)
        if begin >= end:
            break


def load_index(path: Path, size: Callable[[], int]) -> Index | None:
    """Return the index in the file *path*; None where there is none.

    A damaged one counts as none and is warned about, once, on the `trackway` logger.

    Args:
        path: The index, see `index_path`.
        size: Tells how many bytes the file of rows has; asked once the index has been read, for both may be growing.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(path, f"cannot be read: {error.strerror or error}")
        return None
    try:
        index = _checked(orjson.loads(data)) if len(data) <= _MAX_BYTES else None
    except (ValueError, KeyError, TypeError):
        index = None
    if index is None or index.bytes > size():
        _warn(path, "is damaged" if index is None else "speaks of more rows than there are")
        return None
    return index


def mistrust(path: Path) -> None:
    """Say, once, that the index *path* was found wrong."""
    _warn(path, "does not belong to the rows beside it")


def _warn(path: Path, what: str) -> None:
    _notices.log_once(
        ("index", str(path)),
        f"{str(path)!a} {what}; rows are searched without it. It is only a hint: delete it to be rid of this",
    )


def _checked(content: Any) -> Index | None:
    if content["format"] != FORMAT:
        return None
    patches, attempts, offsets = content["patches"], content["attempts"], content["offsets"]
    sound = (
        _are_counts([content["bytes"], content["rows"]])
        and (patches is None or (_are_counts(patches) and _rises(patches)))
        and (attempts is None or (_are_tuples(attempts, 3) and _rises([entry[1] for entry in attempts])))
        and _are_tuples(offsets, 2)
        and _rises([entry[0] for entry in offsets])
    )
    return Index(content["bytes"], content["rows"], patches, attempts, offsets) if sound else None


def _are_counts(values: Any) -> bool:
    return type(values) is list and all(type(value) is int and value >= 0 for value in values)


def _are_tuples(values: Any, length: int) -> bool:
    return type(values) is list and all(
        type(entry) is list and len(entry) == length and all(type(value) is int for value in entry) for entry in values
    )


def _rises(values: list[int]) -> bool:
    return values == sorted(set(values))


@final
class IndexWriter:
    """Collects an index while the lines are written. Not thread-safe: its owner holds a lock.

    Attributes:
        rows: Number of lines taken.
        next: Offset from which on the next line is noted; of those before it only patches need to be taken.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._patches: list[int] | None = []
        self._attempts: list[list[int]] | None = []
        self._offsets: list[list[int]] = []
        self._attempt = 0
        self._spacing = _SPACING
        self.next = 0

    def add(self, offset: int, step: int, is_patch: bool, attempt: int) -> None:
        """Take the line that begins at the byte *offset*, in the order of the file; the last one may come again."""
        self.rows += 1
        if is_patch or offset >= self.next or attempt != self._attempt:
            self._note(offset, step, is_patch, attempt)

    def _note(self, offset: int, step: int, is_patch: bool, attempt: int) -> None:
        if attempt > self._attempt:
            self._attempt = attempt
            if self._attempts is not None:
                self._attempts.append([attempt, offset, step])
                self._attempts = self._attempts if len(self._attempts) <= _MAX_ATTEMPTS else None
        elif attempt < self._attempt:  # another process goes on beside a later one
            self._attempts = None
        if is_patch:
            if self._patches is not None and self._patches[-1:] != [offset]:
                self._patches.append(offset)
                self._patches = self._patches if len(self._patches) <= _MAX_PATCHES else None
            return
        if self._offsets[-1:] != [[offset, step]]:
            self._offsets.append([offset, step])
        if len(self._offsets) > _MAX_OFFSETS:
            del self._offsets[1::2]
            self._spacing *= 2
        self.next = offset + self._spacing

    def expect(self) -> None:
        """Have the next line noted, because it begins an attempt."""
        self.next = 0

    def index(self, size: int) -> Index:
        """Return the index, where the lines taken are the first *size* bytes of the file."""
        patches = None if self._patches is None else self._patches.copy()
        attempts = None if self._attempts is None else self._attempts.copy()
        return Index(size, self.rows, patches, attempts, self._offsets.copy())

    def render(self, size: int) -> bytes:
        """Return the content of the index, where the lines taken are the first *size* bytes of the file."""
        content = {
            "format": FORMAT,
            "bytes": size,
            "rows": self.rows,
            "patches": self._patches,
            "attempts": self._attempts,
            "offsets": self._offsets,
        }
        return orjson.dumps(content) + b"\n"

    @classmethod
    def following(cls, rows: Path, *, at_most: int = 1 << 26) -> IndexWriter | None:
        """Return a writer that has taken all lines of the file *rows*, which ends with a newline and nobody writes to.

        What the index of an earlier process covers is taken from it, the lines behind are read.

        Args:
            rows: The file; missing is empty.
            at_most: Bytes to read; None is returned where it takes more.

        Raises:
            OSError: if the file cannot be read.
        """
        writer = cls()
        if not rows.exists():
            return writer
        with Source(rows) as source:
            index = load_index(index_path(rows), source.present_size)
            begin = 0 if index is None else index.bytes
            if source.size - begin > at_most:
                return None
            if index is not None:
                writer._resume(index)
            offset = begin
            for block in source.blocks(begin=begin):
                for line in block.split(b"\n")[:-1]:
                    writer._take(offset, line)
                    offset += len(line) + 1
        return writer

    def _resume(self, index: Index) -> None:
        self.rows, self._patches, self._attempts, self._offsets = index.rows, *index[2:]
        self._attempt = max((entry[0] for entry in index.attempts or ()), default=0)
        if index.offsets:
            self._spacing = max(_SPACING, index.bytes // _MAX_OFFSETS)
            self.next = index.offsets[-1][0] + self._spacing

    def _take(self, offset: int, line: bytes) -> None:
        row = parse_row(line)
        if row is not None:
            self.add(offset, row["_step"], row.get("_patch") is True, attempt_of(row))
