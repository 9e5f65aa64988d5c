"""W&B runs that are kept offline, read back from their record files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from wandb_records import offline_config, read_records, record_files, records_of

import trackway
from trackway.backends._wandb_steps import Steps
from trackway.backends.wandb import WandbTracker
from trackway.errors import StepError, TrackwayWarning
from trackway.testing import TrackerConformance
from trackway.values import Audio, Histogram, Html, Image, Table, Text

pytestmark = pytest.mark.usefixtures("wandb_folders")


class TestWandb(TrackerConformance):
    """Offline runs, read from their record files."""

    def make(self, folder):
        """Start one."""
        folder.mkdir(parents=True, exist_ok=True)
        return offline_config(dir=str(folder)).init("run")

    def read(self, tracker, folder):
        """Read the newest record file; rows that W&B numbers otherwise say their step, and are the rows they are."""
        return [_as_logged(row) for row in read_records(record_files(folder)[-1]).rows]


def _as_logged(row):
    """Return step and metrics of a row as they were logged."""
    at = row.pop("_step")
    highest = row.pop("trackway/step", at)
    step = row.pop("late/step", highest)
    return step, {name.removeprefix("late/"): value for name, value in row.items()}


def test_a_run_is_read_back_as_it_was_logged(tmp_path):
    """Rows with their steps, nested names, config that changes, summary, exit code: all of it stands in the file."""
    with trackway.start([offline_config(tags=["a", "b"], group="g", name="shown")], dir=tmp_path, run_id="r.1") as run:
        trackway.log_hyperparameters({"lr": 0.1, "model": {"width": [1, 2]}})
        for step in range(20):
            trackway.log({"loss": 1 / (step + 1), "train": {"acc": step}}, step=step)
        trackway.log_hyperparameters({"lr": 0.2})
        trackway.log_summary({"best": 0.5})
    found = records_of(tmp_path)
    assert found.rows == [{"_step": step, "loss": 1 / (step + 1), "train/acc": step} for step in range(20)]
    assert (found.config["lr"], found.config["model"]) == (0.2, {"width": [1, 2]})
    assert found.summary["best"] == 0.5
    assert (found.run.run_id, found.run.display_name, list(found.run.tags), found.run.run_group) == (
        "r.1",
        "shown",
        ["a", "b"],
        "g",
    )
    assert found.code == 0
    report = run.report().trackers[0]
    assert (report.accepted, report.delivered, report.converted, report.dropped) == (20, 20, {}, {})


def test_the_clients_own_reader_agrees(tmp_path):
    """`wandb leet inspect` finds the same summary and config."""
    with trackway.start([offline_config()], dir=tmp_path, run_id="seen"):
        trackway.log_hyperparameters({"lr": 0.1})
        trackway.log({"loss": 0.25}, step=0)
    (path,) = record_files(tmp_path)
    words = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["summary"]["loss"] == 0.25
    assert told["config"]["lr"] == 0.1


def test_values_of_every_kind(tmp_path):
    """Histograms and media are W&B's own; what it has no form for is converted, counted and kept."""
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    with trackway.start([offline_config()], dir=tmp_path, run_id="kinds") as run:
        trackway.log(
            {
                "histogram": Histogram.from_array(np.array([0.0, 1, 2, np.nan, np.inf]), num_bins=2),
                "picture": Image(picture, caption="c"),
                "sound": Audio(np.arange(100, dtype=np.int16), 8000),
                "table": Table(["a"], [[1], ["x"], [None]]),
                "page": Html("<b>x</b>"),
                "text": Text("<two>\nlines"),
                "nan": float("nan"),
                "inf": float("-inf"),
                "huge": 2**70,
                "list": [1, 2.5, "x"],
                "none": None,
                "note": "words",
                "flag": True,
            },
            step=0,
        )
        picture[:] = 0
        trackway.log_summary({"final": Histogram.from_array(np.arange(4.0)), "why": "done"})
    found = records_of(tmp_path)
    (row,) = found.rows
    assert row["histogram"] == {"_type": "histogram", "values": [1, 2], "bins": [0, 1, 2]}
    assert (row["histogram/nan"], row["histogram/posinf"]) == (1, 1)
    assert (row["picture"]["_type"], row["picture"]["width"], row["picture"]["caption"]) == ("image-file", 4, "c")
    assert (row["sound"]["_type"], row["table"]["_type"], row["table"]["nrows"]) == ("audio-file", "table-file", 3)
    assert row["page"]["_type"] == row["text"]["_type"] == "html-file"
    assert np.isnan(row["nan"])
    assert (row["inf"], row["huge"], row["list"]) == (float("-inf"), float(2**70), [1, 2.5, "x"])
    assert (row["none"], row["note"], row["flag"]) == (None, "words", True)
    (folder,) = {path.parent for path in record_files(tmp_path)}
    import PIL.Image

    assert np.array(PIL.Image.open(folder / "files" / row["picture"]["path"])).sum() == sum(range(48))
    assert "&lt;two&gt;\nlines" in (folder / "files" / row["text"]["path"]).read_text()
    assert found.summary["why"] == "done"
    report = run.report().trackers[0]
    assert report.dropped == {}
    assert report.converted == {
        "histogram: counts of non-finite values are the metric <name>/nan": 1,
        "histogram: counts of non-finite values are the metric <name>/posinf": 1,
        "integers beyond 64 bits become floats": 1,
        "text is shown as a page, since W&B has no panel for texts": 1,
    }


def test_late_rows_and_attempts_have_axes_of_their_own(tmp_path):
    """What W&B would drop for its step is there under names of its own, with the step it had."""
    with trackway.start([offline_config()], dir=tmp_path, run_id="late", step_policy="allow") as run:
        for step in range(3):
            trackway.log({"loss": step}, step=step, commit=True)
        trackway.log({"evaluation": 7}, step=1, commit=True)
        trackway.log({"loss": 3}, step=3, commit=True)
        run.rewind(2)
        for step in range(2, 6):
            trackway.log({"loss": -step}, step=step, commit=True)
    found = records_of(tmp_path)
    assert found.rows == [
        {"_step": 0, "loss": 0},
        {"_step": 1, "loss": 1},
        {"_step": 2, "loss": 2},
        {"_step": 3, "late/evaluation": 7, "late/step": 1, "trackway/step": 2},
        {"_step": 4, "loss": 3, "trackway/step": 3},
        {"_step": 5, "attempt_2/loss": -2, "attempt_2/step": 2, "trackway/step": 3},
        {"_step": 6, "attempt_2/loss": -3, "attempt_2/step": 3, "trackway/step": 3},
        {"_step": 7, "loss": -4, "trackway/step": 4},
        {"_step": 8, "loss": -5, "trackway/step": 5},
    ]
    axes = {metric.glob_name: metric.step_metric for metric in found.metrics if metric.glob_name}
    assert axes == {"late/*": "late/step", "attempt_2/*": "attempt_2/step"}
    assert run.report().trackers[0].dropped == {}


def test_calls_for_one_step_are_one_row_until_it_is_closed(tmp_path):
    """A tracker alone merges what comes for one step; what comes after `commit=True` is kept as late."""
    tracker = offline_config(dir=str(tmp_path)).init("merged")
    tracker.log({"a": 1}, step=5)
    tracker.log({"b": 2}, step=5, commit=True)
    tracker.log({"c": 3}, step=5)
    tracker.log({"d": 4}, step=None)
    tracker.log({"e": 5}, step=-3)
    tracker.finish()
    assert records_of(tmp_path).rows == [
        {"_step": 5, "a": 1, "b": 2},
        {"_step": 6, "late/c": 3, "late/step": 5, "trackway/step": 5},
        {"_step": 7, "d": 4, "trackway/step": 6},
        {"_step": 8, "late/e": 5, "late/step": -3, "trackway/step": 6},
    ]


def test_a_continued_run_goes_over_steps_in_an_attempt_of_its_own():
    """Where W&B has rows beyond the checkpoint, those that take their place are told apart from them."""
    steps = Steps(10, 9, attempt=3, begins=8)
    placed = [steps.place(step, closed=True) for step in (8, 9, 10)]
    assert placed == [
        (10, "attempt_3/", "attempt_3/step", 9),
        (11, "attempt_3/", "attempt_3/step", 9),
        (12, "", "trackway/step", 10),
    ]
    assert Steps(10, 9, attempt=2, begins=10).place(10, closed=True) == (10, "", None, None)


def test_a_huge_step_leaves_room_for_those_that_follow(tmp_path):
    """It is not W&B's own number, beyond which there would be none."""
    tracker = offline_config(dir=str(tmp_path)).init("huge")
    for step in (2**63 - 1, 2**63 - 1, 7):
        tracker.log({"a": 1}, step=step, commit=True)
    tracker.finish()
    assert records_of(tmp_path).rows == [
        {"_step": 0, "a": 1, "trackway/step": 2**63 - 1},
        {"_step": 1, "late/a": 1, "late/step": 2**63 - 1, "trackway/step": 2**63 - 1},
        {"_step": 2, "late/a": 1, "late/step": 7, "trackway/step": 2**63 - 1},
    ]


def test_a_step_that_is_none_is_refused(tmp_path):
    """A fraction is no step, and nothing to rewind to."""
    tracker = offline_config(dir=str(tmp_path)).init("steps")
    with pytest.raises(StepError):
        tracker.log({"a": 1}, step=0.5)
    with pytest.raises(StepError, match="wandb: rewind takes the step"):
        tracker.rewind(None)
    tracker.finish()


def test_the_summary_that_was_set_wins(tmp_path):
    """Rows that follow do not change a value that `log_summary` set."""
    with trackway.start([offline_config()], dir=tmp_path, run_id="summary"):
        trackway.log({"loss": 1.0}, step=0, commit=True)
        trackway.log_summary({"loss": 0.25})
        trackway.log({"loss": 2.0, "other": 3}, step=1, commit=True)
    found = records_of(tmp_path)
    assert (found.summary["loss"], found.summary["other"]) == (0.25, 3)


def test_a_summary_value_without_a_name_costs_no_other(tmp_path):
    """W&B takes no metric of an empty name; the values beside it are kept."""
    tracker = offline_config(dir=str(tmp_path)).init("nameless")
    tracker.log_summary({"": 5, "best": 0.25})
    tracker.finish()
    assert records_of(tmp_path).summary["best"] == 0.25


def test_artifacts(tmp_path):
    """Files and folders outlive their originals; odd names are mapped, missing ones counted."""
    (tmp_path / "weights.bin").write_bytes(b"one")
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    (tmp_path / "folder" / "sub" / "x.txt").write_text("x")
    with trackway.start([offline_config()], dir=tmp_path / "runs", run_id="artifacts") as run:
        trackway.log_artifact(tmp_path / "weights.bin", type="model")
        (tmp_path / "weights.bin").write_bytes(b"two")
        trackway.log_artifact(tmp_path / "weights.bin", name="weights.bin", type="model")
        (tmp_path / "weights.bin").unlink()
        trackway.log_artifact(tmp_path / "folder", name="ein Ordner: ä" + "x" * 200, type="run")
        trackway.log_artifact(tmp_path / "gone")
    found = records_of(tmp_path)
    names = [(artifact.name, artifact.type) for artifact in found.artifacts]
    assert names[:2] == [("weights.bin", "model")] * 2
    assert (len(names[2][0]), names[2][1]) == (128, "x-run")
    contents = [Path(artifact.manifest.contents[0].local_path).read_bytes() for artifact in found.artifacts]
    assert contents == [b"one", b"two", b"x"]
    assert found.artifacts[2].manifest.contents[0].path == "sub/x.txt"
    report = run.report().trackers[0]
    assert report.dropped == {"there is no such file or folder": 1}
    assert sum(report.converted.values()) == 2


@pytest.mark.parametrize(
    ("error", "code"), [(ValueError("x"), 1), (SystemExit(7), 7), (None, 0), (SystemExit("text"), 1)]
)
def test_how_the_run_ended(tmp_path, error, code):
    """A run that failed has exit code 1, or that of the program."""
    tracker = offline_config(dir=str(tmp_path)).init("end")
    tracker.log({"a": 1}, step=0)
    if error is not None:
        tracker.mark_failed(error)
    tracker.finish()
    assert records_of(tmp_path).code == code


def test_alerts(tmp_path):
    """A title alone is enough, and the level is W&B's."""
    tracker = offline_config(dir=str(tmp_path)).init("alerts")
    tracker.alert("diverged", "loss is NaN", level="error")
    tracker.alert("slow")
    tracker.finish()
    alerts = [(alert.title, alert.text, alert.level) for alert in records_of(tmp_path).alerts]
    assert alerts == [("diverged", "loss is NaN", "ERROR"), ("slow", "slow", "WARN")]


def test_a_forked_child_leaves_the_run_to_the_parent(tmp_path):
    """Ending it in the child would lose what the parent logs afterwards."""
    tracker = offline_config(dir=str(tmp_path)).init("fork")
    tracker.log({"a": 1}, step=0)
    child = os.fork()
    if not child:
        tracker.log({"a": 2}, step=1)
        tracker.finish()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    tracker.log({"a": 3}, step=2)
    tracker.finish()
    found = records_of(tmp_path)
    assert ([row["_step"] for row in found.rows], found.code) == ([0, 2], 0)


def test_two_runs_of_one_process(tmp_path):
    """Starting a second one neither ends nor returns the first one."""
    first = offline_config(dir=str(tmp_path)).init("first")
    second = offline_config(dir=str(tmp_path)).init("second")
    first.log({"a": 1}, step=0)
    second.log({"a": 2}, step=0)
    second.finish()
    first.log({"a": 3}, step=1)
    first.finish()
    rows = {read_records(path).run.run_id: read_records(path).rows for path in record_files(tmp_path)}
    assert {name: [row["a"] for row in found] for name, found in rows.items()} == {"first": [1, 3], "second": [2]}


def test_a_run_that_is_active_is_adopted(tmp_path, monkeypatch):
    """`WandbTracker()` logs to `wandb.run` behind what was logged there, and starts one, with a warning, without it."""
    import wandb

    run = wandb.init(id="mine", mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True))
    run.log({"before": 1})
    tracker = WandbTracker()
    assert tracker.run is run
    tracker.log({"after": 2}, step=None)
    tracker.finish()
    assert [row["_step"] for row in records_of(tmp_path).rows] == [0, 1]
    with pytest.warns(TrackwayWarning, match="so one was started by `wandb.init"):
        started = WandbTracker()
    started.log({"a": 1}, step=0)
    started.finish()
