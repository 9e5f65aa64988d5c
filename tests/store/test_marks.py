"""What the lines of a run say of themselves, and names that must not be taken for it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from trackway.errors import StepError
from trackway.store import LocalTracker, read_rows
from trackway.store._reopen import look
from trackway.values import Image, decode


def _marks(folder, name="metrics.jsonl"):
    """Step, attempt and whether it is a patch, of each row."""
    rows = read_rows(folder / name)
    assert all(row.get("_patch", True) is True for row in rows)
    return [(row["_step"], row.get("_attempt", 1), "_patch" in row) for row in rows]


def test_lines_out_of_order_are_marked(tmp_path):
    """A step that is not above all earlier ones of its attempt is a patch; an attempt goes on after the highest."""
    with LocalTracker(tmp_path) as tracker:
        for step in (5, 5, 2, 6, None, -1):
            tracker.log({"x": 1}, step=step)
    assert _marks(tmp_path) == [(5, 1, False), (5, 1, True), (2, 1, True), (6, 1, False), (7, 1, False), (-1, 1, True)]
    for _ in range(2):
        with LocalTracker(tmp_path) as tracker:
            for step in (None, 7, 8):
                tracker.log({"x": 1}, step=step)
    assert _marks(tmp_path)[6:] == [
        (8, 2, False), (7, 2, True), (8, 2, True),
        (9, 3, False), (7, 3, True), (8, 3, True),
    ]  # fmt: skip
    assert [attempt["number"] for attempt in json.loads((tmp_path / "run.json").read_bytes())["attempts"]] == [1, 2, 3]


@pytest.mark.parametrize("strict", [True, False])
def test_reserved_names_come_first_and_in_order(tmp_path, strict):
    """A reader finds the marks at the beginning of the line, whatever else is in it."""
    for _ in range(2):
        with LocalTracker(tmp_path, strict_json=strict) as tracker:
            for _ in range(2):
                tracker.log({"x": math.nan, "big": 2**70}, step=3)
    line = (tmp_path / "metrics.jsonl").read_text().splitlines()[-1]
    names = [name for name in json.loads(line) if name.startswith("_")]
    expected = ["_step", "_time", "_attempt", "_patch", "_nonfinite", "_bigint"]
    assert names == (expected if strict else [name for name in expected if name != "_nonfinite"])
    assert list(json.loads(line))[: len(names)] == names
    row = read_rows(tmp_path)[-1]
    assert (row["big"], math.isnan(row["x"])) == (2**70, True)


def test_highest_step_is_found_behind_many_patches(tmp_path):
    """However many lines of one step end the file, the next one knows the highest, and reads no more than them."""
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"x": 1}, step=1)
        tracker.log({"text": "x" * 300_000}, step=1000)
        for n in range(3000):
            tracker.log({"x": n, "text": "y" * 50}, step=7)
    with (tmp_path / "metrics.jsonl").open("rb") as file:
        assert look(file.fileno())[:3] == (7, 1000, 1)
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"x": 1}, step=1000)
        tracker.log({"x": 1}, step=1001)
    assert _marks(tmp_path)[-2:] == [(1000, 2, False), (1001, 2, False)]


def test_rows_that_are_all_patches_or_negative_have_a_highest_step(tmp_path):
    """Steps below zero, and a file whose beginning is gone, are like others."""
    (tmp_path / "metrics.jsonl").write_text('{"_step":-9,"_patch":true}\n{"_step":-3,"_patch":true}\n{"_step":-5}\n')
    with (tmp_path / "metrics.jsonl").open("rb") as file:
        assert look(file.fileno())[:2] == (-5, -5)
    (tmp_path / "metrics.jsonl").write_text('{"_step":-9,"_patch":true}\n{"_step":-3,"_patch":true}\n')
    with (tmp_path / "metrics.jsonl").open("rb") as file:
        assert look(file.fileno())[:2] == (-3, -3)


def test_other_ranks_mark_their_lines(tmp_path):
    """A process of another rank counts the attempts of its own file."""
    for _ in range(2):
        with LocalTracker(tmp_path, rank=1) as tracker:
            tracker.log({"x": 1}, step=1)
            tracker.log({"x": 1}, step=0)
    assert _marks(tmp_path, "metrics.rank1.jsonl") == [(1, 1, False), (0, 1, True), (1, 2, False), (0, 2, True)]


def test_attempt_is_counted_from_the_rows_where_run_json_is_lost(tmp_path):
    """A damaged run.json does not give two attempts one number."""
    for _ in range(3):
        with LocalTracker(tmp_path) as tracker:
            tracker.log({"x": 1})
        (tmp_path / "run.json").write_text("{")
    assert _marks(tmp_path) == [(0, 1, False), (1, 2, False), (2, 3, False)]


def test_counter_that_is_used_up_is_an_error(tmp_path):
    """After the greatest step there is no next one; an explicit one still goes, and the run ends well."""
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"x": 1}, step=2**63 - 1)
        with pytest.raises(StepError, match="64 bits"):
            tracker.log({"x": 2})
        tracker.log({"x": 3}, step=0)
    assert [row["x"] for row in read_rows(tmp_path)] == [1, 3]


def test_mapping_of_the_user_is_told_from_a_reference(tmp_path):
    """What looks like a reference to a picture, in a row, summary or configuration, is kept under another name."""
    mine = {"_type": "image", "path": "/etc/passwd"}
    with LocalTracker(tmp_path) as tracker, pytest.warns(UserWarning, match="'a/_type' is a reserved name"):
        tracker.log({"a": mine, "b": Image(np.zeros((2, 2)))}, step=0)
        tracker.log_summary({"a": mine})
        tracker.log_hyperparameters({"a": mine})
        assert sum(tracker.report().converted.values()) == 3
    kept = {"_type_": "image", "path": "/etc/passwd"}
    (row,) = read_rows(tmp_path)
    assert (row["a"], row["b"]["_type"]) == (kept, "image")
    assert json.loads((tmp_path / "summary.json").read_bytes())["a"] == kept
    assert "_type_: image" in (tmp_path / "config.yaml").read_text()


@pytest.mark.parametrize("strict", [True, False])
def test_summary_with_names_of_the_encoder_reads_back(tmp_path, strict):
    """Values named like the encoder's marks are kept, and change no other value, also over another attempt."""
    given = {"_bigint": 5, "_nonfinite": {"loss": "nan"}, "loss": None, "x": math.inf, "big": 2**70}
    with (
        LocalTracker(tmp_path, strict_json=strict) as tracker,
        pytest.warns(UserWarning, match="is a reserved name"),
    ):
        tracker.log_summary(given)
        tracker.log_hyperparameters(given)
    LocalTracker(tmp_path, strict_json=strict).finish()
    expected = {"_bigint_": 5, "_nonfinite_": {"loss": "nan"}, "loss": None, "x": math.inf, "big": 2**70}
    assert decode((tmp_path / "summary.json").read_bytes()) == expected


def test_line_with_an_endless_integer_counts_as_damaged(tmp_path, caplog):
    """A number of a million digits, which no tracker writes, costs its line and no time."""
    (tmp_path / "metrics.jsonl").write_bytes(b'{"_step":0,"_bigint":true,"n":' + b"9" * 1_000_000 + b'}\n{"_step":1}\n')
    assert read_rows(tmp_path) == [{"_step": 1}]
    assert "1 damaged lines" in caplog.text
