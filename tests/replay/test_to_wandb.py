"""A run delivered to an offline run of W&B, read back from its record file."""

from __future__ import annotations

import math

import pytest
from wandb_records import read_records, record_files

from trackway.replay import ReplayError, replay

TO = {"type": "wandb", "project": "p", "mode": "offline", "save_code": False}


@pytest.fixture(autouse=True)
def wandb_folders(tmp_path, monkeypatch):
    """W&B keeps everything below the test's folder, and tells nobody of anything."""
    for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        folder = tmp_path / "wandb-home" / name
        folder.mkdir(parents=True)
        monkeypatch.setenv(f"WANDB_{name}", str(folder))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_CONSOLE", "off")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_the_record_file_holds_the_run(digits):
    """Rows, hyper-parameters, summary, artifacts and exit code are those of the run, which keeps the offline run."""
    report = replay(digits, to=TO)
    (path,) = record_files(digits)
    found = read_records(path)
    assert (report.rows, report.artifacts, report.failed) == (14, 4, 0)
    first, again = found.rows[:10], found.rows[10:]
    assert first[4]["checkpoint/path"] == "model.pt"
    assert [(row["_step"], row["loss"], row["train/acc"]) for row in first] == [
        (step, 1 / (step + 1), step / 10) for step in range(10)
    ]
    assert {"image", "sound", "table", "note", "page", "weights"} <= first[9].keys()
    # W&B takes no step twice: the attempt that goes over steps again has names of its own
    assert [(row["attempt_2/step"], row["attempt_2/loss"]) for row in again] == [(s, 100.0 + s) for s in range(6, 10)]
    assert all(math.isnan(row["attempt_2/odd"]) or row["attempt_2/odd"] == "NaN" for row in again)
    assert (found.config["lr"], found.config["model"]) == (0.1, {"width": [1, 2]})
    assert found.summary["best"] == 0.25
    assert [artifact.name for artifact in found.artifacts].count("weights") == 2
    assert (found.code, found.run.run_id) == (1, "digits")


def test_a_second_time_makes_no_run(digits):
    """Nothing is started at W&B where nothing is to be delivered."""
    replay(digits, to=TO)
    assert replay(digits, to=TO).rows == 0
    assert len(record_files(digits)) == 1


def test_a_stand_in_is_refused(digits, caplog):
    """Without a key an offline run would count as delivered: that is an error, and a later replay can deliver."""
    with pytest.raises(ReplayError, match="there is no key"):
        replay(digits, to={**TO, "mode": None})
    assert not [file for file in (digits / "replay").glob("*.json") if "finished" in file.read_text()]
    assert "OFFLINE" in caplog.text
