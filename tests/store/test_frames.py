"""Rows as arrays and data frames."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest

from trackway.errors import ConfigError
from trackway.store import read_history
from trackway.values import encode

IMAGE = {"_type": "image", "path": "media/a.png"}
ROWS = [
    {
        "_step": 0,
        "_time": 0.5,
        "loss": 1.5,
        "n": 1,
        "ok": True,
        "text": "a",
        "train": {"x": 1},
        "big": 2**70,
        "v": [1, 2],
    },
    {"_step": 1, "_time": 1.5, "loss": math.nan, "n": 2, "ok": False, "text": "ü", "train": {"x": 2.5}, "image": IMAGE},
    {"_step": 2, "_time": 2.5, "loss": 2, "n": 3, "ok": True, "none": None, "part": 7, "maybe": True, "v": [3]},
]


@pytest.fixture
def path(tmp_path):
    """A file of rows of all kinds."""
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b"".join(encode(row) + b"\n" for row in ROWS))
    return file


def test_numbers_are_arrays_of_numbers(path):
    """Floats and mixtures are float64, integers int64, booleans bool; nested names are joined by `/`."""
    arrays = read_history(path, output="numpy")
    assert {name: arrays[name].dtype for name in ("loss", "n", "ok", "train/x", "_step", "_time")} == {
        "loss": np.float64, "n": np.int64, "ok": np.bool_, "train/x": np.float64,
        "_step": np.int64, "_time": np.float64,
    }  # fmt: skip
    assert arrays["n"].tolist() == [1, 2, 3]
    assert str(arrays["train/x"].tolist()) == "[1.0, 2.5, nan]"
    assert list(arrays)[:4] == ["_step", "_time", "loss", "n"]


def test_what_is_missing_is_nan_among_numbers_and_none_among_others(path):
    """A missing value and a None are alike."""
    arrays = read_history(path, output="numpy")
    assert str(arrays["part"].tolist()) == "[nan, nan, 7.0]"
    assert str(arrays["none"].tolist()) == "[nan, nan, nan]"
    assert arrays["maybe"].tolist() == [None, None, True]
    assert arrays["text"].tolist() == ["a", "ü", None]
    assert arrays["big"].tolist() == [2**70, None, None]
    assert arrays["image"].tolist() == [None, IMAGE, None]
    assert arrays["v"].tolist() == [[1, 2], None, [3]]


def test_arrays_belong_to_the_caller(tmp_path):
    """They can be changed, however they came about."""
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b"".join(b'{"_step":%d,"_time":0.5,"a":%d.5}\n' % (n, n) for n in range(9)))
    arrays = read_history(file, output="numpy")
    arrays["a"] += 1
    assert arrays["a"].tolist() == [n + 1.5 for n in range(9)]


def test_the_attempt_is_a_column_where_there_are_several(tmp_path):
    """Rows of the first attempt have 1 there; a run of one attempt has no such column."""
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"_step":0,"_time":0.5,"a":1}\n')
    assert list(read_history(file, output="numpy")) == ["_step", "_time", "a"]
    file.write_text('{"_step":0,"_time":0.5,"a":1}\n{"_step":1,"_time":0.5,"_attempt":3,"a":1}\n')
    for n in (None, 5):
        assert read_history(file, n, output="numpy")["_attempt"].tolist() == [1, 3]


def test_a_history_without_rows_has_its_reserved_columns(path):
    """Code that asks for the steps of nothing gets no steps."""
    arrays = read_history(path, 0, output="numpy")
    assert {name: (array.dtype, len(array)) for name, array in arrays.items()} == {
        "_step": (np.int64, 0), "_time": (np.float64, 0),
    }  # fmt: skip
    assert read_history(path, 0, output="numpy", include_meta=False) == {}


def test_asked_for_names_are_the_only_columns(path):
    """As for rows; a name that no row has is a column only if it is to be filled in."""
    assert list(read_history(path, metrics=["n", "nope"], output="numpy")) == ["_step", "_time", "n"]
    arrays = read_history(path, metrics=["n", "nope"], output="numpy", fill_missing=True, include_meta=False)
    assert str(arrays["nope"].tolist()) == "[nan, nan, nan]"


def test_pandas_frame(path):
    """Columns as in NumPy, over a plain index."""
    pandas = pytest.importorskip("pandas")
    frame = read_history(path, output="pandas")
    assert isinstance(frame, pandas.DataFrame)
    assert frame["n"].tolist() == [1, 2, 3]
    assert (str(frame["loss"].dtype), str(frame["ok"].dtype), list(frame.index)) == ("float64", "bool", [0, 1, 2])
    assert frame["image"][1] == IMAGE
    assert len(read_history(path, output="pandas", include_meta=False, metrics="n").columns) == 1
    assert list(read_history(path, 0, output="pandas").columns) == ["_step", "_time"]


def test_polars_frame(path):
    """A missing value is null and a NaN is NaN; integers stay integers; other objects are JSON text."""
    polars = pytest.importorskip("polars")
    frame = read_history(path, output="polars")
    assert frame["loss"].null_count() == 0
    assert math.isnan(frame["loss"][1])
    assert (frame["part"].to_list(), frame["part"].dtype) == ([None, None, 7], polars.Int64)
    assert (frame["maybe"].to_list(), frame["text"].to_list()) == ([None, None, True], ["a", "ü", None])
    assert (frame["none"].null_count(), frame["v"].to_list()) == (3, [[1, 2], None, [3]])
    assert json.loads(frame["image"][1]) == IMAGE
    assert frame["big"][0] == str(2**70)


def test_arrow_table(path):
    """As for Polars."""
    arrow = pytest.importorskip("pyarrow")
    table = read_history(path, output="arrow")
    assert table.num_rows == 3
    assert table["part"].to_pylist() == [None, None, 7]
    assert (table["part"].type, table["v"].type) == (arrow.int64(), arrow.list_(arrow.int64()))
    assert table["loss"].null_count == 0
    assert table["maybe"].to_pylist() == [None, None, True]
    assert json.loads(table["image"][1].as_py()) == IMAGE


@pytest.mark.parametrize("output", ["polars", "arrow"])
@pytest.mark.parametrize(
    "values", [["a", 1], [[1], [2.5]], [[1, 2.5]], [[[1]]], [["x"]], [[2**64]], [{}, None], ["\udc80"]]
)
def test_any_values_make_a_frame(tmp_path, output, values):
    """Kinds that are mixed in one column, or that a library has no type for, are text and not an error."""
    pytest.importorskip({"polars": "polars", "arrow": "pyarrow"}[output])
    file = tmp_path / "metrics.jsonl"
    rows = [{"_step": step, "_time": 0.5, "a": value} for step, value in enumerate(values)]
    file.write_bytes(b"".join(encode(row) + b"\n" for row in rows))
    column = read_history(file, output=output)["a"]
    column = column.to_list() if output == "polars" else column.to_pylist()
    if not all(type(value) is str for value in values):
        texts = [None if value is None else json.dumps(value, separators=(",", ":")) for value in values]
    else:
        texts = [value.encode("utf-8", "replace").decode() for value in values]
    assert column in (texts, values)


@pytest.mark.parametrize(("output", "library"), [("pandas", "pandas"), ("polars", "polars"), ("arrow", "pyarrow")])
def test_a_library_that_is_missing_is_named_with_the_cure(path, monkeypatch, output, library):
    """The error says what to install, before anything is read."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=rf'{library}, which cannot be imported .*; pip install "trackway\[frames\]"'):
        read_history(path, output=output)


def test_numpy_needs_none_of_them(path, monkeypatch):
    """Without any of these libraries the columns are the same."""
    before = read_history(path, output="numpy")
    for library in ("pandas", "polars", "pyarrow"):
        monkeypatch.setitem(sys.modules, library, None)
    assert str(read_history(path, output="numpy")) == str(before)
