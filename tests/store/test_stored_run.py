"""A run on disk, as others look at it."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

import pytest

from trackway.store import LocalTracker, StoredRun
from trackway.store._lease import HEARTBEAT


def _manifest(folder, **content):
    (folder / "run.json").write_text(json.dumps({"format": 1, "id": "x", **content}))
    return StoredRun(folder)


def test_a_finished_run_is_there_with_all_it_kept(tmp_path):
    """What a tracker wrote is found under the names of what it was."""
    (tmp_path / "weights.txt").write_text("0.5")
    folder = tmp_path / "run"
    with LocalTracker(folder, run_id="first") as tracker:
        tracker.log_hyperparameters({"lr": 0.1, "model": {"width": 64}})
        for step in range(60):
            tracker.log({"loss": 1.0 / (step + 1)}, step=step)
        tracker.log_summary({"best": 0.25})
        tracker.log_artifact(tmp_path / "weights.txt", type="model")
    run = StoredRun(folder)
    assert (run.id, run.state, run.error, run.path) == ("first", "finished", None, folder)
    assert run.config == {"lr": 0.1, "model": {"width": 64}}
    assert run.summary == {"loss": 1 / 60, "best": 0.25}
    assert [(entry["name"], entry["type"]) for entry in run.artifacts] == [("weights.txt", "model")]
    assert [(entry["number"], entry["first_step"]) for entry in run.attempts] == [(1, 0)]
    assert 0 <= time.time() - run.heartbeat < 60
    assert [row["_step"] for row in run.history()] == list(range(10, 60))
    assert len(run.history(-1, include_open=True, output="numpy")["loss"]) == 60
    assert repr(run) == f"StoredRun({str(folder)!r})"


def test_a_run_that_is_being_written_is_running(tmp_path):
    """Its rows are there too, and a relative path is made absolute once."""
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"loss": 0.5}, step=3)
        run = StoredRun(os.path.relpath(tmp_path))
        assert run.state == "running"
        assert run.path.is_absolute()
        assert [row["loss"] for row in run.history()] == [0.5]


@pytest.mark.parametrize(("age", "state"), [(0, "running"), (2.5, "running"), (3.5, "crashed"), (-100, "running")])
def test_a_running_run_without_a_sign_of_life_has_crashed(tmp_path, age, state):
    """Three heartbeats may be missed; a clock that is ahead is no death."""
    assert _manifest(tmp_path, state="running", heartbeat=time.time() - age * HEARTBEAT).state == state


@pytest.mark.parametrize("heartbeat", [None, "now", True, [], 1e300, float("nan"), -(10**400)])
def test_a_heartbeat_that_is_no_time_is_none(tmp_path, heartbeat):
    """A running run without a heartbeat has crashed."""
    run = _manifest(tmp_path, state="running", heartbeat=heartbeat)
    assert (run.heartbeat, run.state) == (None, "crashed")


@pytest.mark.parametrize("state", ["finished", "failed", "interrupted", "preempted"])
def test_an_ended_run_stays_as_it_ended(tmp_path, state):
    """However old the heartbeat is."""
    assert _manifest(tmp_path, state=state, heartbeat=0.0).state == state


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"- 1\n- 2\n", b"[" * 500, b'{"a":' * 100_000])
@pytest.mark.parametrize("name", ["run.json", "summary.json", "config.yaml"])
def test_a_damaged_file_is_empty_and_said_once(tmp_path, name, content, caplog):
    """The others are read all the same."""
    LocalTracker(tmp_path).finish()
    (tmp_path / name).write_bytes(content)
    run = StoredRun(tmp_path)
    with caplog.at_level(logging.WARNING, "trackway"):
        for _ in range(2):
            seen = (run.id, run.state, run.config, run.summary, run.attempts, run.artifacts, run.error, run.heartbeat)
    damaged = not (name == "config.yaml" and content == b"")  # an empty document is a run without hyper-parameters
    assert [name in record.getMessage() for record in caplog.records] == [True] * damaged
    if name == "run.json":
        assert seen == (tmp_path.name, "unknown", {}, {}, [], [], None, None)
    else:
        assert seen[1:4] == ("finished", {}, {})


def test_a_directory_without_a_run_is_empty(tmp_path, caplog):
    """That there is no run.json is said; runs without hyper-parameters or rows are nothing to speak of."""
    run = StoredRun(tmp_path)
    with caplog.at_level(logging.WARNING, "trackway"):
        assert (run.id, run.state, run.config, run.summary) == (tmp_path.name, "unknown", {}, {})
        assert (run.history(), run.history(None, output="numpy", include_meta=False)) == ([], {})
    assert [("run.json" in record.getMessage(), "is missing" in record.getMessage()) for record in caplog.records] == [
        (True, True)
    ]


@pytest.mark.parametrize("name", ["none", "file"])
def test_what_is_no_directory_is_no_run(tmp_path, name):
    """The error names the path."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=name):
        StoredRun(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("id", 5, None), ("id", "", None), ("state", ["finished"], "unknown"), ("state", "\x1b[31m", "unknown"),
        ("attempts", {"number": 1}, []), ("attempts", [1, None, {"number": 1}], [{"number": 1}]),
        ("artifacts", "all", []), ("error", "died", None), ("error", {"type": "E"}, {"type": "E"}),
    ],
)  # fmt: skip
def test_entries_of_another_shape_are_left_out(tmp_path, name, value, expected):
    """A run.json that someone else wrote gives values of the documented types, whatever it holds."""
    run = _manifest(tmp_path, **{name: value})
    assert getattr(run, name) == (tmp_path.name if name == "id" else expected)


def test_hyperparameters_cannot_run_code(tmp_path, caplog):
    """YAML that asks for objects is damage."""
    _manifest(tmp_path)
    target = tmp_path / "made"
    (tmp_path / "config.yaml").write_text(f"!!python/object/apply:os.mkdir ['{target}']\n")
    with caplog.at_level(logging.ERROR, "trackway"):
        assert StoredRun(tmp_path).config == {}
    assert not target.exists()


def test_links_and_pipes_of_a_stranger_are_not_read(tmp_path, caplog):
    """A small file that is something else is left alone, and nothing waits for it."""
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": "x"}')
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "summary.json").symlink_to(secret)
    (folder / "config.yaml").symlink_to(secret)
    os.mkfifo(folder / "run.json")
    run = StoredRun(folder)
    with caplog.at_level(logging.WARNING, "trackway"):
        assert (run.summary, run.config, run.state) == ({}, {}, "unknown")
    assert caplog.text.count("cannot be read") == 3


def test_a_file_beyond_all_bounds_is_not_read(tmp_path, caplog):
    """Its size is looked at before its content."""
    _manifest(tmp_path)
    with (tmp_path / "summary.json").open("wb") as file:
        file.truncate(1 << 34)
    with caplog.at_level(logging.WARNING, "trackway"):
        assert StoredRun(tmp_path).summary == {}
    assert "more than 16 MiB" in caplog.text


def test_a_run_stands_where_it_was_when_the_directory_changes(tmp_path, monkeypatch):
    """A relative path is taken from the directory of the moment."""
    _manifest(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    run = StoredRun(tmp_path.name)
    monkeypatch.chdir(Path("/"))
    assert run.id == "x"
