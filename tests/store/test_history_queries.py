"""What can be asked of a history: how many rows, which steps, which metrics, in which form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trackway.store import read_history
from trackway.values import encode

ROWS = [
    {"_step": 0, "_time": 0.5, "train": {"loss": 3.0, "acc": 0.1}, "lr": 0.1},
    {"_step": 1, "_time": 1.5, "train": {"loss": 2.0, "acc": None}},
    {"_step": 2, "_time": 2.5, "eval/loss": 2.5},
    {"_step": 3, "_time": 3.5, "train": {"loss": math.nan, "acc": 0.3}, "lr": 0.2},
]


@pytest.fixture
def path(tmp_path):
    """A file of four rows."""
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b"".join(encode(row) + b"\n" for row in ROWS))
    return file


def _steps(rows):
    return [row["_step"] for row in rows]


@pytest.mark.parametrize(
    ("n", "steps"), [(None, [0, 1, 2, 3]), (-1, [0, 1, 2, 3]), (0, []), (1, [3]), (9, [0, 1, 2, 3])]
)
def test_n_is_the_number_of_rows(path, n, steps):
    """None and -1 mean all, 0 none; more than there are is all; any integer type will do."""
    assert _steps(read_history(path, n)) == steps
    assert _steps(read_history(path, None if n is None else np.int32(n))) == steps


@pytest.mark.parametrize("n", [-2, -100])
def test_another_negative_n_is_refused(path, n):
    """The message says what is allowed."""
    with pytest.raises(ValueError, match=rf"0 for none, -1 or None for all; got {n}"):
        read_history(path, n)


@pytest.mark.parametrize("n", [1.0, "3", True])
def test_n_of_another_type_is_refused(path, n):
    """Only integers count rows."""
    with pytest.raises(TypeError, match=r"n must be the number of rows"):
        read_history(path, n)


@pytest.mark.parametrize(
    ("bounds", "steps"),
    [
        ((1, 3), [1, 2]),
        ((None, 2), [0, 1]),
        ((2, None), [2, 3]),
        ((None, None), [0, 1, 2, 3]),
        ((3, 1), []),
        ([1, 2], [1]),
    ],
)
@pytest.mark.parametrize("n", [None, 50])
def test_a_range_holds_its_first_step_and_not_its_last(path, bounds, steps, n):
    """Either end may be open."""
    assert _steps(read_history(path, n, step_range=bounds)) == steps


@pytest.mark.parametrize("bounds", [(1,), (1, 2, 3), 5, "12"])
def test_a_range_that_is_no_pair_is_refused(path, bounds):
    """The message says what a range is."""
    with pytest.raises(ValueError, match="the first one and the one after the last"):
        read_history(path, step_range=bounds)


def test_a_bound_that_is_no_step_is_refused(path):
    """Steps are integers."""
    with pytest.raises(TypeError, match="step_range must be two steps"):
        read_history(path, step_range=(0, 1.5))


@pytest.mark.parametrize(
    ("metrics", "steps"), [("lr", [0, 3]), (["train/acc"], [0, 1, 3]), (["lr", "eval/loss"], [0, 2, 3])]
)
def test_metrics_are_named_as_they_are_flattened(path, metrics, steps):
    """One name or several; rows that have none of them are left out, those with a None are not."""
    assert _steps(read_history(path, metrics=metrics)) == steps


def test_rows_keep_their_nesting(path):
    """A nested metric stands in its groups, without its neighbours."""
    assert read_history(path, metrics="train/loss")[0] == {"_step": 0, "_time": 0.5, "train": {"loss": 3.0}}
    assert read_history(path, metrics="eval/loss") == [{"_step": 2, "_time": 2.5, "eval/loss": 2.5}]


def test_globs_choose_metrics(path):
    """`*` matches across `/`."""
    assert _steps(read_history(path, metrics="*/loss")) == [0, 1, 2, 3]
    assert read_history(path, metrics=["train/a*"], include_meta=False)[0] == {"train": {"acc": 0.1}}


def test_unknown_names_give_nothing(path):
    """A name that no row has takes no row away, and alone it gives none."""
    assert read_history(path, metrics=["lr", "nope"]) == read_history(path, metrics="lr")
    assert read_history(path, metrics="nope") == []
    assert read_history(path, metrics=[]) == []


def test_n_counts_rows_that_have_the_metrics(path):
    """The last two values of a metric are had by asking for two."""
    assert _steps(read_history(path, 2, metrics="lr")) == [0, 3]
    assert _steps(read_history(path, 1, metrics="train/acc", step_range=(None, 3))) == [1]


def test_names_that_are_no_text_are_refused(path):
    """The message names what was given."""
    with pytest.raises(TypeError, match=r"got \['lr', 3\]"):
        read_history(path, metrics=["lr", 3])


def test_without_meta_no_reserved_key_is_left(path):
    """Rows and columns then have metrics only."""
    path.write_bytes(path.read_bytes() + b'{"_step":4,"_time":4.5,"_attempt":2,"lr":1.0}\n')
    assert read_history(path, 1, include_meta=False) == [{"lr": 1.0}]
    for n in (1, None):
        assert not any(name.startswith("_") for name in read_history(path, n, include_meta=False, output="numpy"))


def test_missing_values_can_be_filled_in(path):
    """Every row then has all names that a chosen row has, in the same groups, and those that were spelt out."""
    rows = read_history(path, fill_missing=True)
    assert rows[2] == {"_step": 2, "_time": 2.5, "train": {"loss": None, "acc": None}, "lr": None, "eval/loss": 2.5}
    assert [row["eval/loss"] for row in rows] == [None, None, 2.5, None]
    assert read_history(path, 1, metrics=["lr", "nope"], fill_missing=True, include_meta=False) == [
        {"lr": 0.2, "nope": None}
    ]


def test_a_group_in_one_row_and_a_value_in_another_can_be_filled_in(tmp_path):
    """Where the group's name holds a value, the missing metric stands under its whole name; no value is lost."""
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"_step":0,"_time":0.5,"a":{"b":1}}\n{"_step":1,"_time":0.5,"a":2}\n')
    assert read_history(file, fill_missing=True, include_meta=False) == [{"a": {"b": 1}}, {"a": 2, "a/b": None}]


def test_incomplete_rows_can_be_dropped(path):
    """A row goes that lacks one of the names asked for, or in which it is None or NaN."""
    assert _steps(read_history(path, metrics=["train/loss", "lr"], dropna=True)) == [0]
    assert _steps(read_history(path, metrics="train/acc", dropna=True)) == [0, 3]
    assert read_history(path, metrics=["lr", "nope"], dropna=True) == []
    assert _steps(read_history(path, step_range=(0, 1), dropna=True)) == [0]
    assert read_history(path, metrics=["train/loss", "lr"], dropna=True, output="numpy")["_step"].tolist() == [0]


@pytest.mark.parametrize("name", ["output", "ranks"])
def test_a_value_that_is_not_offered_is_refused(path, name):
    """The message lists what is."""
    with pytest.raises(ValueError, match=rf"{name} must be .*(rows, numpy|'primary').*got 'x'"):
        read_history(path, **{name: "x"})


def test_rows_of_all_ranks_are_ordered_by_step_then_rank(path):
    """Each rank has a file of its own; n counts for each; whose a row is stands in it."""
    for rank in (1, 2, 10):
        row = {"_step": rank % 4, "_time": 9.5, "busy": rank}
        path.with_name(f"metrics.rank{rank}.jsonl").write_bytes(encode(row) + b"\n")
    path.with_name("metrics.rank01.jsonl").write_text("no rank has this name")
    rows = read_history(path, ranks="all")
    assert [(row["_step"], row["_rank"]) for row in rows] == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 2), (2, 10), (3, 0)]
    assert list(rows[2])[:3] == ["_step", "_time", "_rank"]
    assert [(row["_step"], row["_rank"]) for row in read_history(path, 1, ranks="all")] == [
        (1, 1),
        (2, 2),
        (2, 10),
        (3, 0),
    ]
    assert read_history(path, ranks="all", output="numpy", metrics="busy")["_rank"].tolist() == [1, 2, 10]
    assert all("_rank" not in row for row in read_history(path, ranks="all", include_meta=False))
    assert _steps(read_history(path.with_name("metrics.rank1.jsonl"))) == [1]
