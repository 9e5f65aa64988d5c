"""Runs in Python: `read_run`, `runs`, and what a stored run says of itself."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import pytest
from run_files import stranger, write_run

from trackway.store import LocalTracker
from trackway.store._curves import joined, sampled
from trackway.store._runs import read_run, runs


def test_a_run_is_read_by_its_directory_or_its_file_of_rows(ten):
    """Both give the same run."""
    for path in (ten / "digits-3", ten / "digits-3" / "metrics.jsonl"):
        run = read_run(path)
        assert (run.id, run.state, run.last_step, run.config["lr"]) == ("digits-3", "finished", 90, 1e-3)
        assert [row["_step"] for row in run.history(2)] == [80, 90]


def test_a_file_of_rows_that_stands_alone_has_a_history(tmp_path, ten, caplog):
    """Nothing beside it is taken for a part of it, and nothing is said to be missing."""
    write_run(tmp_path, "other", [(0, {"loss": 1.0})])
    lonely = tmp_path / "other" / "download.jsonl"
    lonely.write_bytes((ten / "digits-3" / "metrics.jsonl").read_bytes())
    run = read_run(lonely)
    assert (run.id, run.state, run.config, run.summary, run.last_step) == ("download", "unknown", {}, {}, 90)
    assert len(run.history(None)) == 10
    assert caplog.records == []


def test_what_is_not_there_is_an_error_that_names_it(tmp_path):
    """So is a folder of runs."""
    with pytest.raises(FileNotFoundError, match=r"no such run.*nowhere"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        runs(tmp_path / "nowhere")


def test_runs_are_the_directories_that_hold_one(tmp_path):
    """Other files and folders are passed over, and the order is that of the names."""
    for name in ("b", "a"):
        write_run(tmp_path, name, [(0, {"loss": 1.0})])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes.txt").touch()
    assert [run.id for run in runs(tmp_path)] == ["a", "b"]


def test_runs_are_looked_for_where_the_environment_says(tmp_path, monkeypatch):
    """Without an argument it is TRACKWAY_DIR."""
    write_run(tmp_path, "a", [(0, {"loss": 1.0})])
    monkeypatch.setenv("TRACKWAY_DIR", str(tmp_path))
    assert [run.path for run in runs()] == [tmp_path / "a"]


@pytest.mark.parametrize(("mode", "step"), [("min", 2), ("max", 1)])
def test_at_best_is_the_row_of_the_first_best_step(tmp_path, mode, step):
    """NaN, infinities, texts and integers beyond floats are never best; nested names are joined."""
    values = [math.nan, 9, -9, -9, 9, math.inf, "-100", 10**400, -math.inf]
    rows = [(at, {"val": {"loss": value}, "test/acc": at / 10}) for at, value in enumerate(values)]
    run = read_run(write_run(tmp_path, "a", rows))
    best = run.at_best("val/loss", mode)
    assert (best["_step"], best["val/loss"], best["test/acc"]) == (step, values[step], step / 10)


def test_at_best_takes_names_for_what_they_are(tmp_path):
    """A bracket or an asterisk in a name is no glob."""
    run = read_run(write_run(tmp_path, "a", [(0, {"loss[0]*": 2.0, "loss0": 1.0}), (1, {"loss[0]*": 1.0})]))
    assert run.at_best("loss[0]*") == {**run.at_best("loss[0]*"), "_step": 1, "loss[0]*": 1.0}


def test_at_best_counts_only_what_no_later_attempt_wrote_again(tmp_path):
    """A superseded row is not the best one."""
    rows = [{"_step": step, "_time": 1.0, "loss": loss} for step, loss in enumerate([3.0, 2.0, 0.1])]
    rows += [{"_step": step, "_time": 2.0, "_attempt": 2, "loss": loss} for step, loss in ((2, 1.0), (3, 1.5))]
    run = read_run(stranger(tmp_path / "a", rows=rows))
    assert (run.at_best("loss")["loss"], run.last_step) == (1.0, 3)


def test_at_best_says_what_is_wrong(ten):
    """An unknown metric, and another mode."""
    run = read_run(ten / "digits-3")
    with pytest.raises(ValueError, match="no finite value of 'val/los'"):
        run.at_best("val/los")
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', got 'best'"):
        run.at_best("val/loss", "best")


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        ([], None),
        ([{"_step": 7}], 7),
        ([{"_step": 7}, {"_step": 3, "_patch": True}], 7),
        ([{"_step": 900}, {"_step": 400, "_attempt": 2}], 400),
        ([{"_step": 5}, {"_step": 9, "_patch": True, "_attempt": 2}], 9),
        ([{"_step": 5}, "{torn"], 5),
    ],
)
def test_the_last_step_is_that_of_the_newest_attempt(tmp_path, lines, last):
    """Late rows do not lower it, and a rewound run is where it stands now."""
    folder = stranger(tmp_path / "a")
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "metrics.jsonl").write_text("\n".join(texts) + ("\n" if texts and texts[-1][-1] == "}" else ""))
    assert read_run(folder).last_step == last


def test_a_run_shows_itself_with_a_curve_for_each_metric(ten):
    """The piece of HTML is well-formed and holds state, last values and lines."""
    picture = read_run(ten / "digits-3")._repr_html_()
    root = ET.fromstring(picture)
    assert [element.text for element in root.iter("b")] == ["digits-3"]
    assert "finished" in picture
    cells = ["".join(row.itertext()) for row in root.iter("tr")]
    assert [re.match(r"[a-z/]+", text)[0] for text in cells] == ["test/acc", "train/loss", "val/loss"]
    points = [line.get("points").split() for line in root.iter("polyline")]
    assert [len(spots) for spots in points] == [10, 10, 10]


def test_hostile_names_and_texts_are_escaped_in_html(tmp_path):
    """Neither markup nor characters that turn the writing around get through."""
    bad = "<script>alert(1)</script>\u202e\x1b[31m"
    error = {"type": bad, "message": "x" * 10**6}
    rows = [{"_step": step, "_time": 1.0, bad: step} for step in range(3)]
    content = {"id": bad, "state": "failed", "error": error}
    picture = read_run(stranger(tmp_path / "a", manifest=content, summary={bad: bad}, rows=rows))._repr_html_()
    assert "<script" not in picture
    assert not {"\u202e", "\x1b"} & set(picture)
    assert len(picture) < 10_000
    assert len(list(ET.fromstring(picture).iter("polyline"))) == 1


def test_a_large_run_is_sampled_over_its_whole_length(tmp_path):
    """Some two hundred rows of it, the first and the last among them, and none that was superseded."""
    rows = [{"_step": step, "_time": 1.0, "loss": step / 2, "text": "x" * 50} for step in range(20_000)]
    rows += [{"_step": step, "_time": 2.0, "_attempt": 2, "loss": 0.0, "text": ""} for step in range(10_000, 15_000)]
    found = sampled(stranger(tmp_path / "a", rows=rows) / "metrics.jsonl")
    steps = [row["_step"] for row in found]
    assert 100 < len(found) < 300
    assert steps == sorted(set(steps))
    assert steps[0] == 0
    assert steps[-1] > 14_800
    assert all(row.get("_attempt", 1) == 2 for row in found if row["_step"] >= 10_000)


def test_a_sample_gives_way_to_the_latest_rows():
    """Which know better what became of their steps; without any, the sample is all there is."""
    sample = [{"_step": step, "x": 0} for step in (0, 40, 80)]
    latest = [{"_step": step, "x": 1} for step in (50, 51)]
    assert [row["_step"] for row in joined(sample, latest)] == [0, 40, 50, 51]
    assert joined(sample, []) == sample


def test_a_run_without_rows_shows_itself_too(tmp_path):
    """It has a name and a state, and nothing else."""
    LocalTracker(tmp_path / "a").finish()
    assert "finished" in read_run(tmp_path / "a")._repr_html_()
