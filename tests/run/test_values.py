"""What you can log, through a run into the file, a tracker and a callback."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import numpy as np
import pydantic
import pytest
from stored import lines_of

from trackway.errors import TrackwayWarning
from trackway.run import Run
from trackway.store import LocalTracker, read_rows
from trackway.testing import RecordingTracker
from trackway.values import Histogram, Text, normalise


class Model(pydantic.BaseModel):
    """A configuration."""

    depth: int = 3


@dataclasses.dataclass
class Point:
    """Two numbers."""

    x: int = 1
    y: float = 2.0


class Stage(Enum):
    """A phase of training."""

    TRAIN = "train"


class Unprintable:
    """Has no form at all."""

    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(2**62), 2**62),
        (np.bool_(True), True),
        (np.array([1.0, 2.0]), [1.0, 2.0]),
        (np.array([[1], [2]]), [[1], [2]]),
        (np.array(7), 7),
        (Model(), {"depth": 3}),
        (Point(), {"x": 1, "y": 2.0}),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (Path("ckpt.pt"), "ckpt.pt"),
        (Stage.TRAIN, "train"),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        (None, None),
        (True, True),
        ("text", "text"),
        ("ünïcode 🙂", "ünïcode 🙂"),
        (10**400, 10**400),
        (2**64, 2**64),
        (-0.0, -0.0),
        ({}, {}),
    ],
)
def test_values_arrive_in_their_plain_form(run, recorder, value, kept):
    """The file, a tracker, a callback and the summary have the same plain value, and its neighbours."""
    seen = []
    run.on_commit(seen.append)
    run.log({"before": 1, "value": value, "after": 2})
    (line,) = lines_of(run)
    for row in (line, recorder.rows[0][1], seen[0], dict(run.summary)):
        assert (row["before"], row["value"], row["after"]) == (1, kept, 2)
        assert type(row["value"]) is type(kept)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float32("nan")])
@pytest.mark.parametrize("strict", [False, True])
def test_nan_and_infinity_are_preserved(tmp_path, number, strict):
    """They come back from the file as they were, strict JSON or not, and reach trackers and callbacks."""
    recorder, seen = RecordingTracker(), []
    with Run([recorder], LocalTracker(tmp_path, strict_json=strict)) as run:
        run.on_commit(seen.append)
        run.log({"loss": number, "ok": 1})
    (line,) = read_rows(tmp_path)
    for row in (line, recorder.rows[0][1], seen[0]):
        assert (repr(row["loss"]), row["ok"]) == (repr(float(number)), 1)


@pytest.mark.parametrize("value", [object(), Unprintable()], ids=["object", "unprintable"])
def test_a_value_that_has_no_plain_form_becomes_text_with_one_warning(run, recorder, value):
    """It costs its neighbours nothing at any depth, is said once per name, and is counted every time."""
    with pytest.warns(TrackwayWarning, match="metric 'tree/bad'") as warned:
        for step in range(3):
            run.log({"tree": {"bad": value, "good": step}, "loss": 0.5}, step=step)
    assert len(warned) == 1
    run.flush(commit_open=True)
    lines = lines_of(run)
    for step, line in enumerate(lines):
        assert isinstance(line["tree"]["bad"], str)
        assert (line["tree"]["good"], line["loss"]) == (step, 0.5)
        assert recorder.rows[step][1] == {"tree": line["tree"], "loss": 0.5}
    report = run.report().run
    assert sum(report.converted.values()) + sum(report.dropped.values()) == 3


def test_a_surrogate_costs_no_neighbour_and_ordinary_unicode_stays_readable(run):
    """Names of files may hold what is no text; it comes back, and the file is UTF-8 in which "ü" is "ü"."""
    run.log({"path": "weights-\udcff.bin", "name": "Prüfung", "x": 1})
    data = (run.store.directory / "metrics.jsonl").read_bytes()
    assert "Prüfung" in data.decode("utf-8")
    (line,) = lines_of(run)
    assert (line["path"], line["name"], line["x"]) == ("weights-\udcff.bin", "Prüfung", 1)


@pytest.mark.parametrize("name", ["train/loss", "train.loss", "a b", "", "ü", "=1+1", "\x1b[31m", "x" * 500, "/"])
def test_metric_names_are_free_form(run, recorder, name):
    """Any text is a name."""
    run.log({name: 1.5})
    (line,) = lines_of(run)
    assert (line[name], recorder.rows[0][1][name], run.summary[name]) == (1.5, 1.5, 1.5)


def test_keys_that_are_no_text_become_text(run, recorder):
    """Integers and the like name metrics too."""
    run.log({1: "a", None: "b", Stage.TRAIN: "c"})
    assert list(recorder.rows[0][1].values()) == ["a", "b", "c"]
    assert all(isinstance(name, str) for name in recorder.rows[0][1])


def test_media_and_histograms_reach_everyone(run, recorder):
    """A tracker gets the object itself, the file refers to what is under `media/`; merged rows included."""
    histogram = Histogram.from_array(np.arange(10.0))
    run.log({"weights": histogram}, step=1)
    run.log({"note": Text("hello"), "tree": {"weights": histogram}}, step=1)
    run.log({"loss": 0.5}, step=1, commit=True)
    (line,) = lines_of(run)
    assert (run.store.directory / line["note"]["path"]).read_text() == "hello"
    assert line["loss"] == 0.5
    assert line["weights"] == line["tree"]["weights"] != {}
    ((_, row),) = recorder.rows
    assert type(row["note"]) is Text
    assert type(row["weights"]) is type(row["tree"]["weights"]) is Histogram


def test_a_row_that_the_caller_changes_after_the_call_is_kept_as_it_was(run, recorder):
    """A `Row` is like any other mapping: neither kept nor changed, also where its step stays open."""
    row = normalise({"x": 1, "nested": {"y": 2}})
    run.log(row, step=0)
    row["x"] = row["nested"]["y"] = -1
    run.log({"z": 3}, step=0, commit=True)
    assert row == {"x": -1, "nested": {"y": -1}}
    assert recorder.rows == [(0, {"x": 1, "nested": {"y": 2}, "z": 3})]
    assert run.history(include_meta=False) == [{"x": 1, "nested": {"y": 2}, "z": 3}]
