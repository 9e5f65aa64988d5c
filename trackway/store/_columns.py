"""Columns: the values of one metric over all rows, as an array that says what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt

from trackway.store._assembly import Row
from trackway.store._summary import leaves

__all__ = ["Column", "Columns", "Kind", "columns_of", "join"]

_MIN, _MAX = -(2**63), 2**63 - 1

Kind = Literal["none", "bool", "int", "float", "object"]
Columns = dict[str, "Column"]

_ABSENT = object()
_KINDS: dict[frozenset[type], Kind] = {
    frozenset(): "none",
    frozenset({bool}): "bool",
    frozenset({int}): "int",
    frozenset({float}): "float",
    frozenset({int, float}): "float",
}
_GAPS = frozenset({type(None), object})
_DTYPES: dict[Kind, Any] = {
    "none": np.float64,
    "bool": np.bool_,
    "int": np.int64,
    "float": np.float64,
    "object": object,
}


@final
class Column(NamedTuple):
    """The values of one metric.

    Attributes:
        kind: What they are; integers beyond 64 bits and everything but numbers make it "object".
        values: An array of that kind, with anything where a value is missing; for "none", nothing but missing ones.
        missing: Where a value is missing or None; None where none is.
    """

    kind: Kind
    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_] | None = None

    def as_kind(self, kind: Kind) -> Column:
        """Return the column with values of *kind*, which can hold them."""
        if kind == self.kind:
            return self
        if self.kind == "none":
            values: npt.NDArray[Any] = np.zeros(len(self.values), _DTYPES[kind])
        elif kind == "object":
            values = np.fromiter(self.values.tolist(), object, len(self.values))
        else:
            values = self.values.astype(_DTYPES[kind])
        return Column(kind, values, self.missing)

    def numpy(self) -> npt.NDArray[Any]:
        """Return the plain array: NaN for missing numbers, None for missing values of other kinds."""
        if self.missing is None:
            return self.values
        kind: Kind = "float" if self.kind in {"none", "int", "float"} else "object"
        values = self.as_kind(kind).values.copy()
        values[self.missing] = np.nan if kind == "float" else None
        return values

    def list(self) -> list[Any]:
        """Return the values as Python objects, None where one is missing."""
        values: list[Any] = self.as_kind("object").values.tolist()
        if self.missing is not None:
            for at in np.flatnonzero(self.missing):
                values[at] = None
        return values


def _column(values: Sequence[Any]) -> Column:
    """Return the column of *values*; None and `_ABSENT` are missing."""
    types = frozenset(map(type, values))
    missing = None
    if not types.isdisjoint(_GAPS):
        types -= _GAPS
        gaps = [value is None or value is _ABSENT for value in values]
        missing = np.array(gaps, np.bool_)
        values = [0 if gap else value for value, gap in zip(values, gaps, strict=True)]
    kind = _KINDS.get(types, "object")
    if kind == "object" or (int in types and not _fit(values)):
        return Column("object", np.fromiter(values, object, len(values)), missing)
    return Column(kind, np.array(values, _DTYPES[kind]), missing)


def _fit(numbers: Sequence[Any]) -> bool:
    """Whether all integers among *numbers* have 64 bits."""
    low, high = min(numbers), max(numbers)
    if low >= _MIN and high <= _MAX:
        return True
    return all(type(number) is float or _MIN <= number <= _MAX for number in numbers)  # NaN compares with nothing


def columns_of(rows: Sequence[Row]) -> Columns:
    """Return the columns of *rows*, flattened, in the order in which their names come up."""
    if not rows:
        return {}
    columns = {name: _column(values) for name, values in _transposed(rows).items()}
    if any(column.kind == "object" and _has_group(column) for column in columns.values()):
        flat = [{"/".join(path): value for path, value in leaves(row)} for row in rows]
        columns = {name: _column(values) for name, values in _transposed(flat).items()}
    return columns


def _has_group(column: Column) -> bool:
    return any(type(value) is dict and value and "_type" not in value for value in column.values)


def _transposed(rows: Sequence[Row]) -> dict[str, Sequence[Any]]:
    names = list(rows[0])
    if set(map(len, rows)) == {len(names)}:
        try:
            return {name: list(map(itemgetter(name), rows)) for name in names}
        except KeyError:
            pass
    names = list(dict.fromkeys(chain.from_iterable(dict.fromkeys(map(tuple, rows)))))
    return {name: [row.get(name, _ABSENT) for row in rows] for name in names}


def join(chunks: list[Columns], lengths: list[int]) -> Columns:
    """Put the columns of consecutive chunks end to end."""
    names = dict.fromkeys(name for chunk in chunks for name in chunk)
    return {name: _join_column([chunk.get(name) for chunk in chunks], lengths) for name in names}


def _join_column(parts: list[Column | None], lengths: list[int]) -> Column:
    columns = [
        Column("none", np.zeros(length), np.ones(length, np.bool_)) if part is None else part
        for part, length in zip(parts, lengths, strict=True)
    ]
    if len(columns) == 1:
        return columns[0]
    kinds = {column.kind for column in columns} - {"none"}
    kind: Kind = "none" if not kinds else kinds.pop() if len(kinds) == 1 else _common(kinds)
    values = np.concatenate([column.as_kind(kind).values for column in columns])
    missing = None
    if any(column.missing is not None for column in columns):
        missing = np.concatenate(
            [np.zeros(len(column.values), np.bool_) if column.missing is None else column.missing for column in columns]
        )
    return Column(kind, values, missing)


def _common(kinds: set[Kind]) -> Kind:
    return "float" if kinds == {"int", "float"} else "object"
