"""Columns straight from the lines, without making a row of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import lt
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import orjson

from trackway.store._assembly import combine
from trackway.store._columns import Column, Columns, Kind, columns_of, join
from trackway.store._query import Names
from trackway.store._scan import BLOCK, Source, attempt_of, count_alike

__all__ = ["Chunk", "read_columns"]

_MIN_STEP = -(2**63)
_BEYOND = 2.0**63
_LARGE_BLOCK = 1 << 22  # enough work for the threads of Polars, and memory that is used again
_FOR_POLARS = 1 << 23  # bytes of rows from which on importing it pays
_MARKS = frozenset({"_step", "_time", "_attempt"})
_TO_LIST = bytes.maketrans(b"{:}\n", b" ,, ")


@final
class Chunk(NamedTuple):
    """The columns of consecutive rows whose steps rise and which are of one attempt."""

    columns: Columns
    length: int
    attempt: int

    @property
    def steps(self) -> npt.NDArray[Any]:
        """The step of each row."""
        return self.columns["_step"].values

    def only(self, names: Names | None) -> Columns | None:
        """Return the columns of *names* and the reserved ones; None where that leaves rows without any value."""
        if names is None:
            return self.columns
        kept = {name: column for name, column in self.columns.items() if name[:1] != "_" and name in names}
        if not any(column.missing is None for column in kept.values()):
            return None
        return {**{name: column for name, column in self.columns.items() if name[:1] == "_"}, **kept}


def read_columns(source: Source, names: Names | None) -> Columns | None:
    """Return the columns of all rows of *source* without making rows; None where that is not simple.

    It is simple where no line adds to an earlier one or takes its place, and every row has one of *names*.
    """
    with_polars = polars_parser() if source.size >= _FOR_POLARS else None
    parts: list[Columns] = []
    lengths: list[int] = []
    last, attempt = _MIN_STEP - 1, 1
    for chunk in _chunks(source, with_polars):
        if chunk is not None and not chunk.length:
            continue
        if chunk is None or int(chunk.steps[0]) <= last or chunk.attempt < attempt:
            return None
        columns = chunk.only(names)
        if columns is None:
            return None
        last, attempt = int(chunk.steps[-1]), chunk.attempt
        parts.append(columns)
        lengths.append(chunk.length)
    return join(parts, lengths)


def _chunks(source: Source, with_polars: Callable[[bytes], Chunk | None] | None) -> Iterator[Chunk | None]:
    if with_polars is None:
        yield from (_small_chunk(source, block) for block in source.blocks())
        return
    for block in source.blocks(_LARGE_BLOCK):
        chunk = with_polars(block)
        if chunk is not None:
            yield chunk
            continue
        begin = 0
        while begin < len(block):
            end = block.find(b"\n", begin + BLOCK) + 1 or len(block)
            yield _small_chunk(source, block[begin:end])
            begin = end


def _small_chunk(source: Source, block: bytes) -> Chunk | None:
    return _flat_chunk(block) or _rows_chunk(source, block)


def _rows_chunk(source: Source, block: bytes) -> Chunk | None:
    lines = source.parse(block)
    rows, attempt = lines.rows, lines.attempt
    if not lines.plain:
        attempts = set(map(attempt_of, rows)) or {1}
        attempt = attempts.pop()
        if attempts or not all(map(lt, lines.steps, lines.steps[1:])):
            return None
        rows = [combine((row,)) for row in rows]
    return Chunk(columns_of(rows), len(rows), attempt)


def polars_parser() -> Callable[[bytes], Chunk | None] | None:
    """Return what makes a chunk of a block by Polars; None where that is not installed."""
    try:
        import polars as pl
    except ImportError:
        return None
    return partial(_polars_chunk, pl)


def _polars_chunk(polars: Any, block: bytes) -> Chunk | None:
    """Return what `_rows_chunk` does, quicker, if all lines have the same metrics, all of them numbers; else None.

    Polars is told the types, and raises for values of others. It keeps silent about names that it was not told of,
    about names given twice and about empty lines; counting colons and rows finds those.
    """
    first = block[: block.find(b"\n") + 1]
    row = _numbers(first)
    if row is None or b"\\" in block:
        return None
    data = np.frombuffer(block, np.uint8)
    count = int(np.count_nonzero(data == ord("\n")))
    if np.count_nonzero(data == ord(":")) != first.count(b":") * count:
        return None
    types = {int: polars.Int64, float: polars.Float64}
    try:
        frame = polars.read_ndjson(block, schema={name: types[type(value)] for name, value in row.items()})
    except Exception:  # Polars has many; the slower way knows what to make of the block
        return None
    if frame.height != count or any(frame[name].null_count() for name in row):
        return None
    return _checked({name: frame[name].to_numpy() for name in row}, count)


def _flat_chunk(block: bytes) -> Chunk | None:
    """Return what `_polars_chunk` does, without Polars and not quite as quickly.

    Without the characters of numbers, all lines have to be equal; so they have the same names in the same order, and
    no values but numbers. Read as one long list, each has its names, to be compared, and its values at the same places.
    """
    first = block[: block.find(b"\n") + 1]
    row = _numbers(first)
    if row is None:
        return None
    count = count_alike(first, block)
    if not count:
        return None
    text = block.translate(_TO_LIST)
    try:
        items = orjson.loads(b"".join((b"[", text[:-2], b"]"))) if text.endswith(b", ") else []
    except ValueError:
        return None
    stride = 2 * len(row)
    if len(items) != stride * count or any(items[2 * at :: stride] != [name] * count for at, name in enumerate(row)):
        return None
    return _checked({name: np.array(items[2 * at + 1 :: stride]) for at, name in enumerate(row)}, count)


def _numbers(line: bytes) -> dict[str, Any] | None:
    """Return the row in *line* if it has nothing but numbers, and no other marks than plain lines have."""
    try:
        row = orjson.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not {type(value) for value in row.values()} <= {int, float}:
        return None
    marks = {name for name in row if name[:1] == "_"}
    return row if {"_step", "_time"} <= marks <= _MARKS else None


def _checked(arrays: dict[str, npt.NDArray[Any]], count: int) -> Chunk | None:
    """Return the chunk of *arrays*, None where they are not what those of plain lines are."""
    kinds: dict[np.dtype[Any], Kind] = {np.dtype(np.int64): "int", np.dtype(np.float64): "float"}
    columns = {}
    for name, values in arrays.items():
        kind = kinds.get(values.dtype)
        # a float may have been an integer of more than 64 bits, which is not to become one
        if kind is None or (kind == "float" and np.abs(values).max() >= _BEYOND):
            return None
        columns[name] = Column(kind, values)
    attempts = columns["_attempt"] if "_attempt" in columns else Column("int", np.ones(1, np.int64))
    attempt = int(attempts.values[0])
    if columns["_step"].kind != "int" or attempts.kind != "int" or (attempts.values != attempt).any():
        return None
    if (np.diff(columns["_step"].values) <= 0).any() or attempt < len(columns.keys() & _MARKS) - 1:
        return None
    return Chunk(columns, count, attempt)
