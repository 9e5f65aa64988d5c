"""Rows as arrays and data frames."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from trackway.errors import ConfigError
from trackway.store._columns import Column
from trackway.store._query import META
from trackway.values import encode

__all__ = ["FRAMES", "check_installed", "to_frame"]


def check_installed(output: str) -> None:
    """Raise `ConfigError` where the library that makes *output* is not installed."""
    library = _LIBRARIES.get(output)
    if library is not None:
        _library(library, output)


def _library(name: str, output: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"history: output={output!r} needs {name}, which cannot be imported ({error}); pip install "
            '"trackway[frames]", or ask for "rows" or "numpy"'
        ) from error


def to_frame(columns: dict[str, Column], output: str, *, include_meta: bool) -> Any:
    """Return *columns*, all of one length, as what *output* names: "numpy", "pandas", "polars" or "arrow".

    Reserved columns come first, or not at all without *include_meta*. Raises `ConfigError` where the library is not
    installed.
    """
    if not columns:
        columns = {"_step": Column("int", np.zeros(0, np.int64)), "_time": Column("float", np.zeros(0))}
    count = len(columns["_step"].values)
    meta = [name for name in META if name in columns]
    if "_attempt" in meta:
        columns["_attempt"] = _from_one(columns["_attempt"])
    names = [*(meta if include_meta else ()), *(name for name in columns if name[:1] != "_")]
    return FRAMES[output]({name: columns[name] for name in names}, count)


def _from_one(column: Column) -> Column:
    """Rows of the first attempt bear no number."""
    if column.missing is None:
        return column
    return Column("int", np.where(column.missing, 1, column.as_kind("int").values))


def _numpy(columns: dict[str, Column], _: int) -> dict[str, Any]:
    return {name: _own(column.numpy()) for name, column in columns.items()}


def _own(array: Any) -> Any:
    return array if array.flags.writeable else array.copy()


def _pandas(columns: dict[str, Column], count: int) -> Any:
    pandas = _library("pandas", "pandas")
    data = {name: column.numpy() for name, column in columns.items()}
    return pandas.DataFrame(data, index=pandas.RangeIndex(count), copy=True)


def _polars(columns: dict[str, Column], _: int) -> Any:
    polars = _library("polars", "polars")
    return polars.DataFrame([_series(polars, name, column) for name, column in columns.items()])


def _series(polars: Any, name: str, column: Column) -> Any:
    if column.kind == "none":
        return polars.Series(name, [None] * len(column.values), dtype=polars.Null)
    if column.kind == "object":
        values, is_text = _plain_objects(column)
        if not is_text:
            return polars.Series(name, values)
        return polars.Series(name, values, dtype=polars.String)
    series = polars.Series(name, column.values)
    return series if column.missing is None else series.scatter(np.flatnonzero(column.missing), None)


def _arrow(columns: dict[str, Column], _: int) -> Any:
    arrow = _library("pyarrow", "arrow")
    return arrow.table({name: _array(arrow, column) for name, column in columns.items()})


def _array(arrow: Any, column: Column) -> Any:
    if column.kind == "none":
        return arrow.nulls(len(column.values))
    if column.kind == "object":
        values, is_text = _plain_objects(column)
        return arrow.array(values, arrow.string() if is_text else None)
    return arrow.array(column.values, mask=column.missing, from_pandas=False)


def _plain_objects(column: Column) -> tuple[list[Any], bool]:
    """Return the values in a form that all libraries take, and whether that is text.

    Texts, and lists of numbers of one type, stay what they are; anything else becomes its JSON text.
    """
    values = column.list()
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {list} and {type(item) for value in values if value for item in value} in ({int}, {float}):
        small = all(abs(item) < 2**63 for value in values if value for item in value)
        if small or not any(type(item) is int for value in values if value for item in value):
            return values, False
    if kinds != {str}:
        values = [None if value is None else _json(value) for value in values]
    return [None if value is None else value.encode("utf-8", "replace").decode() for value in values], True


def _json(value: Any) -> str:
    line = encode({"": value})
    return line[line.index(b'"":') + 3 : -1].decode("utf-8", "replace")


FRAMES: dict[str, Callable[[dict[str, Column], int], Any]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "polars": _polars,
    "arrow": _arrow,
}
"""What makes each output; it raises `ConfigError` where its library is not installed."""

_LIBRARIES = {"pandas": "pandas", "polars": "polars", "arrow": "pyarrow"}
