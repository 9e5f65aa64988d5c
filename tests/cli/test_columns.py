"""What commands show unasked, and what they say there is to ask for."""

from __future__ import annotations

import dataclasses
import json

import pytest
from run_files import write_run

from trackway.cli._columns import TRACKING, metrics_in, of_tracking
from trackway.config import TrackingConfig
from trackway.store import StoredRun


def test_the_fields_of_tracking_are_known():
    """The commands have them by heart, because the class takes long to load."""
    assert {field.name for field in dataclasses.fields(TrackingConfig)} == TRACKING


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["lr", "trainer/tracking/step_policy", "trainer/tracking/run_id", "trainer/lr"], "trainer/tracking/"),
        (["tracking/run_id", "tracking/dir", "tracking/events/level", "lr"], "tracking/"),
        (["log/trackers", "log/run_id", "lr"], "log/"),
        (["log/trackers/wandb/project", "log/dir", "lr"], "log/"),
        (["logging/run_id", "logging/strict_json", "logging/verbose"], ("logging/run_id", "logging/strict_json")),
        (["step_policy", "run_id", "lr"], ("step_policy", "run_id")),
        (["tracking/agree_timeout", "tracking/hooks", "tracking/alerts/rules"], "tracking/"),
        (["dir", "resume", "lr"], ()),
        (["data/dir", "data/store", "data/resume"], ()),
        (["tracking/speed", "tracking/dir"], ()),
        (["step_policy", "lr"], ()),
        (["a//b", "", "/"], ()),
    ],
)
def test_what_belongs_to_tracking_is_recognised(names, expected):
    """By its fields, wherever they stand and whichever of them are there; names that merely look like one are left."""
    found = of_tracking(names)
    assert found == {name for name in names if expected and name.startswith(expected)}


@pytest.mark.parametrize("command", [["runs"], ["best", "-m", "loss"]])
def test_how_runs_are_tracked_is_not_shown_unasked(call, tmp_path, command):
    """The columns are those of the training; what is asked for is shown all the same."""
    for number in range(2):
        tracking = {"step_policy": "allow", "run_id": f"r{number}", "dir": f"d{number}"}
        config = {"trainer": {"tracking": tracking}, "zeta": number}
        write_run(tmp_path, f"r{number}", [(0, {"loss": 1.0})], config)
    (first, *_) = json.loads(call(*command, "--dir", tmp_path, "--json").out)
    assert list(first["config"]) == ["zeta"]
    asked = call(*command, tmp_path, "--config", "trainer/tracking/dir", "--json")
    assert list(json.loads(asked.out)[0]["config"]) == ["trainer/tracking/dir"]


def test_metrics_to_choose_from_are_those_of_rows(call, tmp_path):
    """Values that were set by hand can be neither ranked nor plotted, and are not proposed; rare metrics are."""
    rows = [(step, {"loss": 1.0} if step else {"val": {"a[b]": 1.0}, "note": "x"}) for step in range(150)]
    folder = write_run(tmp_path, "run", rows, summary={"final": 0.5, "val": {"best": 2.0}})
    assert metrics_in([StoredRun(folder)]) == ["loss", "val/a[b]"]
    for arguments in (["best", tmp_path, "-m", "final"], ["best", tmp_path], ["plot", folder, "-m", "final"]):
        said = call(*arguments)
        assert said.code != 0
        assert said.err.rstrip().endswith("; there are loss, val/a[b]")


def test_runs_whose_rows_cannot_be_read_propose_nothing(tmp_path):
    """A message about a mistake does not turn into another error."""
    folder = write_run(tmp_path, "run", [(0, {"loss": 1.0})])
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").mkdir()
    assert metrics_in([StoredRun(folder)]) == []


@pytest.mark.parametrize("command", [["runs"], ["best", "-m", "val/loss"]])
def test_the_folder_is_an_argument_or_an_option(call, ten, tmp_path, command):
    """Both mean the same; two different ones are a mistake."""
    expected = call(*command, ten, "--json").out
    assert call(*command, "--dir", ten, "--json").out == expected
    assert call(*command, ten, "--dir", ten, "--json").out == expected
    said = call(*command, ten, "--dir", tmp_path)
    assert said.code == 2
    assert f"--dir is {str(tmp_path)!r}; give one folder" in said.err
