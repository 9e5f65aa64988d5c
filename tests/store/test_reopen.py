"""Continuing a directory that an earlier process left."""

from __future__ import annotations

import json
import logging

import pytest

from trackway.store import LocalTracker, read_rows


def _left_behind(folder, tail):
    """A run of three rows whose file then got *tail*."""
    with LocalTracker(folder) as tracker:
        for step in range(3):
            tracker.log({"loss": 1.0 - step}, step=step)
    path = folder / "metrics.jsonl"
    with path.open("ab") as file:
        file.write(tail)
    return path


@pytest.mark.parametrize(
    "tail", [b'{"_step":3,"_ti', b"\0\0\0\0", b"x" * 200_000, b'{"_step":3}garbage', b"[1]", b"\xff\xfe"]
)
def test_torn_last_line_is_moved_out(tmp_path, tail, caplog):
    """A fragment at the end is kept beside the file, cut off it, and said; the next row is whole."""
    path = _left_behind(tmp_path, tail)
    with caplog.at_level(logging.WARNING, "trackway"), LocalTracker(tmp_path) as tracker:
        tracker.log({"loss": -2.0})
    assert [row["_step"] for row in read_rows(path)] == [0, 1, 2, 3]
    assert (tmp_path / "metrics.torn").read_bytes() == tail + b"\n"
    assert f"its {len(tail)} bytes were moved to metrics.torn" in caplog.text


def test_fragments_of_several_crashes_are_all_kept(tmp_path):
    """A second torn line does not replace the first one."""
    for tail in (b'{"a', b'{"b'):
        _left_behind(tmp_path, tail)
    LocalTracker(tmp_path).finish()
    assert (tmp_path / "metrics.torn").read_bytes() == b'{"a\n{"b\n'


def test_complete_line_without_newline_is_kept(tmp_path):
    """A last row that lacks only its newline gets it, and counts for the next step."""
    path = _left_behind(tmp_path, b'{"_step":7,"_time":1.0,"loss":NaN}')
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"loss": 0.0})
    assert [row["_step"] for row in read_rows(path)] == [0, 1, 2, 7, 8]
    assert not (tmp_path / "metrics.torn").exists()


def test_step_counter_goes_on_after_a_line_longer_than_a_block(tmp_path):
    """The last step is found also where the last row alone is longer than what is read at first."""
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"text": "x" * 1_000_000}, step=41)
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"loss": 0.5})
    assert [row["_step"] for row in read_rows(tmp_path)] == [41, 42]


def test_damaged_last_line_does_not_hide_the_step(tmp_path):
    """A damaged line that ends in a newline stays, and the step comes from the row before it."""
    path = _left_behind(tmp_path, b"damage\n")
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"loss": 0.5})
    assert path.read_bytes().count(b"damage\n") == 1
    assert read_rows(path)[-1]["_step"] == 3


def test_summary_config_and_artifacts_go_on(tmp_path):
    """What an earlier attempt set stays, with the difference between set by hand and last value."""
    with LocalTracker(tmp_path, run_id="first") as tracker:
        tracker.log({"acc": 0.9, "train": {"loss": 1.0}}, step=0)
        tracker.log_summary({"acc": 0.95, "test": {"acc": 0.8}})
        tracker.log_hyperparameters({"lr": 0.1, "model": {"width": 8}})
    with LocalTracker(tmp_path, run_id="first") as tracker:
        tracker.log({"acc": 0.1, "train": {"loss": 0.5}, "test": {"n": 3}})
        tracker.log_hyperparameters({"lr": 0.2, "model": {"width": 8, "depth": 2}})
    assert json.loads((tmp_path / "summary.json").read_bytes()) == {
        "acc": 0.95,
        "train": {"loss": 0.5},
        "test": {"n": 3, "acc": 0.8},
    }
    run = json.loads((tmp_path / "run.json").read_bytes())
    assert [attempt["first_step"] for attempt in run["attempts"]] == [0, 1]
    assert [(c["name"], c["old"], c["new"]) for c in run["config_changes"]] == [("lr", 0.1, 0.2)]
    assert (tmp_path / "config.yaml").read_text() == "lr: 0.2\nmodel:\n  width: 8\n  depth: 2\n"


def test_rows_that_the_summary_missed_are_taken_from_the_file(tmp_path):
    """A process killed before its summary was written loses none of it."""
    _left_behind(tmp_path, b'{"_step":3,"_time":1.0,"loss":-9.0,"late":1}\n')
    LocalTracker(tmp_path).finish()
    assert json.loads((tmp_path / "summary.json").read_bytes()) == {"loss": -9.0, "late": 1}


@pytest.mark.parametrize("name", ["run.json", "summary.json", "config.yaml"])
@pytest.mark.parametrize("content", [b"{torn", b"[]", b"\xff\xfe", b"- 1\n- 2\n"])
def test_damaged_small_file_is_set_aside(tmp_path, name, content, caplog):
    """A file that cannot be read is kept under another name, said, and made anew."""
    (tmp_path / name).write_bytes(content)
    with caplog.at_level(logging.WARNING, "trackway"), LocalTracker(tmp_path) as tracker:
        tracker.log_hyperparameters({"lr": 0.1})
    assert (tmp_path / f"{name}.damaged-1").read_bytes() == content
    assert name in caplog.text
    assert json.loads((tmp_path / "run.json").read_bytes())["state"] == "finished"


@pytest.mark.parametrize("keys", ['"loss"', "[1]", '[["a", {}]]', "{}"])
def test_manifest_of_another_shape_is_set_aside(tmp_path, keys):
    """A run.json that is JSON but not of this format does not keep the run from going on."""
    (tmp_path / "run.json").write_text(f'{{"format": 1, "id": "x", "summary_keys": {keys}}}')
    LocalTracker(tmp_path).finish()
    assert (tmp_path / "run.json.damaged-1").exists()


def test_run_keeps_its_id(tmp_path, caplog):
    """A directory opened under another id goes on under its own, and says so."""
    LocalTracker(tmp_path, run_id="first").finish()
    with caplog.at_level(logging.WARNING, "trackway"):
        tracker = LocalTracker(tmp_path, run_id="second")
    tracker.finish()
    assert tracker.run_id == "first"
    assert "second" in caplog.text


def test_nothing_existing_is_truncated(tmp_path):
    """The bytes of earlier rows are still the beginning of the file after three more attempts."""
    path = _left_behind(tmp_path, b"")
    before = path.read_bytes()
    for _ in range(3):
        with LocalTracker(tmp_path) as tracker:
            tracker.log({"loss": 0.0})
    assert path.read_bytes().startswith(before)
