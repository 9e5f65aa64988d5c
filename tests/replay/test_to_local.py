"""A run delivered to another run directory is the same run there."""

from __future__ import annotations

import pytest

import trackway
from trackway.replay import ReplayError, replay
from trackway.store import StoredRun, read_history, read_rows


@pytest.fixture
def copied(digits, tmp_path):
    """Return the run, a copy of it made by replay, and the report."""
    report = replay(digits, to={"type": "local", "dir": str(tmp_path / "copies")})
    return StoredRun(digits), StoredRun(tmp_path / "copies" / "digits"), report


def test_every_line_is_there(copied):
    """Rows, those of the superseded attempt included, have the same steps, times, attempts and values."""
    source, copy, report = copied
    assert repr(read_rows(copy.path)) == repr(read_rows(source.path))  # NaN is not equal to itself
    assert repr(read_history(copy.path)) == repr(read_history(source.path))
    assert (report.rows, report.skipped, report.failed, report.complete) == (14, 0, 0, True)


def test_media_files_are_the_same_bytes(copied):
    """The files that rows refer to are there, byte for byte."""
    source, copy, _ = copied
    names = sorted(path.relative_to(source.path) for path in source.path.glob("media/**/*") if path.is_file())
    assert len(names) == 5
    for name in names:
        assert (copy.path / name).read_bytes() == (source.path / name).read_bytes()


def test_records_are_the_same(copied):
    """Hyper-parameters, summary, artifacts in all versions, state and error are those of the run."""
    source, copy, _ = copied
    assert copy.id == source.id
    assert copy.config == source.config
    assert repr(copy.summary) == repr(source.summary)
    assert copy._manifest["summary_keys"] == source._manifest["summary_keys"] == [["best"]]
    assert (copy.state, copy.error) == ("failed", {"type": "ValueError", "message": "boom"})
    wanted = [(one["name"], one["type"], one["path"]) for one in source.artifacts]
    assert [(one["name"], one["type"], one["path"]) for one in copy.artifacts] == wanted
    assert ("weights", "model", "artifacts/weights.v2") in wanted
    assert (copy.path / "artifacts" / "weights.v2").read_bytes() == b"second"
    assert (copy.path / "artifacts" / "folder" / "inner" / "file.txt").read_text() == "text"


def test_events_are_there(copied):
    """Events have their names, steps and payloads."""
    _, copy, report = copied
    assert report.events == 1
    (line,) = (copy.path / "events.jsonl").read_text().splitlines()
    assert '"event":"checkpoint"' in line
    assert '"_step":4' in line
    assert '"path":"model.pt"' in line


def test_a_second_time_adds_nothing(copied, digits, tmp_path):
    """Nothing in the target changes, and the report says that it had everything."""
    _, copy, _ = copied
    before = {path: path.stat().st_mtime_ns for path in copy.path.rglob("*")}
    report = replay(digits, to={"type": "local", "dir": str(tmp_path / "copies")})
    assert {path: path.stat().st_mtime_ns for path in copy.path.rglob("*")} == before
    assert (report.rows, report.events, report.artifacts, report.skipped) == (0, 0, 0, 14)
    assert report.complete


@pytest.mark.parametrize(
    ("error", "state"), [(None, "finished"), (KeyboardInterrupt(), "interrupted"), (SystemExit(3), "failed")]
)
def test_the_state_of_the_run_is_that_of_the_copy(tmp_path, error, state):
    """A run that finished, was interrupted or exited with a code has done so in the copy too."""
    run = trackway.start(dir=tmp_path / "runs", run_id="r")
    trackway.log({"loss": 1.0}, step=0)
    if error is not None:
        run.mark_failed(error)
    run.finish()
    replay(tmp_path / "runs" / "r", to={"type": "local", "dir": str(tmp_path / "copies")})
    copy, source = StoredRun(tmp_path / "copies" / "r"), StoredRun(tmp_path / "runs" / "r")
    assert (copy.state, copy.error) == (source.state, source.error)
    assert copy.state == state


def test_a_run_without_a_sign_of_life_has_failed(long, tmp_path):
    """A run that crashed is failed at the target, which is told since when nothing was heard."""
    folder = long(3)
    manifest = (folder / "run.json").read_text()
    (folder / "run.json").write_text(manifest.replace('"finished"', '"running", "heartbeat": 1700000000'))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"_step": 3, "_time": 1.0, "loss": 7}')  # only the newline is missing
    report = replay(folder, to={"type": "local", "dir": str(tmp_path / "copies")})
    copy = StoredRun(tmp_path / "copies" / "long")
    assert (report.state, report.rows) == ("crashed", 4)
    assert copy.state == "failed"
    assert copy.error == {
        "type": "Crashed",
        "message": "the run has shown no sign of life since 2023-11-14T22:13:20+00:00",
    }
    assert replay(folder, to={"type": "local", "dir": str(tmp_path / "copies")}).rows == 0


def test_the_run_itself_is_no_target(digits, monkeypatch):
    """A target that is the very run, by whatever path, is refused before anything is written."""
    before = (digits / "metrics.jsonl").read_bytes()
    monkeypatch.chdir(digits.parent.parent)
    for to in ({"type": "local", "dir": str(digits.parent)}, {"type": "local", "dir": "source"}):
        with pytest.raises(ReplayError, match="is the run itself"):
            replay(digits, to=to)
    with pytest.raises(ReplayError, match="say where to"):
        replay(digits, to="local")
    assert (digits / "metrics.jsonl").read_bytes() == before


def test_lines_of_one_step_are_one_row(tmp_path):
    """Lines of one step that follow one another reach the target as the row that a reader sees."""
    with trackway.store.LocalTracker(tmp_path / "bare") as tracker:
        tracker.log({"a": 1, "n": {"x": 1}}, step=0)
        tracker.log({"b": 2, "n": {"y": 2}}, step=0)
        tracker.log({"a": 3}, step=1)
    replay(tmp_path / "bare", to={"type": "local", "dir": str(tmp_path / "copies")})
    rows = [{k: v for k, v in row.items() if k[0] != "_"} for row in read_rows(tmp_path / "copies" / "bare")]
    assert rows == [{"a": 1, "n": {"x": 1, "y": 2}, "b": 2}, {"a": 3}]
