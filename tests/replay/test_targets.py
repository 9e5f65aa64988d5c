"""What a target may be, what tells it from others, and what it is asked."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

import trackway
from trackway.backends.tensorboard import TensorboardConfig
from trackway.config import TrackerConfig
from trackway.errors import ConfigError
from trackway.replay import ReplayError, replay
from trackway.store import read_run
from trackway.testing import RecordingTracker
from trackway.tracker import Tracker
from trackway.tracker._row_time import row_time


class Knowing(RecordingTracker):
    """Knows which steps it has, and notes rows, rewinds and times in the order in which they come."""

    def __init__(self, *had):
        super().__init__()
        self.steps, self.seen, self.times = list(had), [], []

    def first_missing_step(self):
        """Return the step after the highest."""
        return max(self.steps, default=-1) + 1

    def log(self, metrics, *, step=None, commit=None):
        """Take a row."""
        self.steps.append(step)
        self.seen.append((step, metrics.get("loss")))
        self.times.append(row_time())

    def rewind(self, step):
        """Note it."""
        self.seen.append(f"rewind {step}")


def test_the_module_is_the_function(long):
    """`trackway.replay(...)` works whether or not the package was imported before, and has the function's signature."""
    tracker = RecordingTracker()
    report = trackway.replay(long(3), to=tracker)
    assert (report.rows, report.run_id) == (3, "long")
    assert inspect.signature(trackway.replay) == inspect.signature(replay)


@pytest.mark.parametrize("form", ["path", "text", "run", "file"])
def test_a_run_is_a_path_or_a_stored_run(long, form):
    """A directory, as path or text, a stored run and a file of rows are all taken."""
    folder = long(3)
    run = {"path": folder, "text": str(folder), "run": read_run(folder), "file": folder / "metrics.jsonl"}[form]
    assert replay(run, to=RecordingTracker()).rows == 3


def test_targets_in_several_forms(long, tmp_path):
    """A config, a mapping, a type name and a started tracker may stand in one list."""
    config = TensorboardConfig(str(tmp_path / "tb"), label="board")
    report = replay(long(3), to=[config, {"type": "local", "dir": str(tmp_path / "c")}, "noop", RecordingTracker()])
    assert [target.target for target in report.targets] == ["board", "local", "noop", "recording"]
    assert (report.rows, report.complete) == (12, True)


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ({"type": "tensorbord"}, "did you mean tensorboard"),
        ({"type": "tensorboard", "logdirr": "x"}, r"to\.logdirr: unknown field of tensorboard; did you mean logdir"),
        ([], "name at least one target"),
        ([{"type": "noop"}, 3], r"to\[1\]: expected a mapping"),
        ([{"type": "noop"}, {"type": "noop", "label": "other"}], "is there twice"),
    ],
    ids=["type", "field", "none", "number", "twice"],
)
def test_what_is_no_target_is_said_with_its_path(long, to, message):
    """The error names what is wrong and where."""
    with pytest.raises(ConfigError, match=message):
        replay(long(1), to=to)


def test_no_run_is_an_error(tmp_path):
    """Where there is no run the system's own error says so."""
    with pytest.raises(FileNotFoundError, match="no such run"):
        replay(tmp_path / "nothing", to="noop")


def test_a_hostile_run_id_reaches_no_target(long, tmp_path):
    """A run of a stranger whose id leads elsewhere is refused before anything is started."""
    folder = long(3)
    (folder / "run.json").write_text((folder / "run.json").read_text().replace('"long"', '"../../up"'))
    with pytest.raises(ReplayError, match="cannot be delivered under its id"):
        replay(folder, to={"type": "tensorboard", "logdir": str(tmp_path / "tb")})
    assert not (tmp_path / "tb").exists()


def test_references_that_lead_out_of_the_run_are_not_followed(long, tmp_path):
    """Media and artifacts of a stranger's run that name files elsewhere stay what they are, and cost nothing else."""
    folder = long(1)
    (tmp_path / "secret.txt").write_text("secret")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"_step": 1, "_time": 1.5, "t": {"_type": "text", "path": "../../secret.txt"}}\n')
    entries = '[{"name": "a", "path": "../../secret.txt"}, {"name": "b", "path": "artifacts/gone"}, {"name": "c"}]'
    text = (folder / "run.json").read_text().replace('"artifacts": []', f'"artifacts": {entries}')
    (folder / "run.json").write_text(text)
    report = replay(folder, to={"type": "local", "dir": str(tmp_path / "copies")})
    assert (report.rows, report.artifacts, report.failed) == (2, 0, 3)
    assert "secret" not in "".join(p.read_text() for p in (tmp_path / "copies").rglob("*.txt"))


def test_a_relative_folder_is_the_same_target_from_elsewhere(long, tmp_path, monkeypatch):
    """What a target has got is told by the place, not by how it was written, nor by options that do not matter."""
    folder = long(3)
    monkeypatch.chdir(tmp_path)
    replay(folder, to={"type": "tensorboard", "logdir": "tb"})
    to = {"type": "tensorboard", "logdir": str(tmp_path / "tb"), "flush_secs": 5, "label": "x", "background": False}
    assert replay(folder, to=to).rows == 0
    assert replay(folder, to={**to, "logdir": "other"}).rows == 3


def test_the_order_of_what_a_target_gets(digits):
    """Rows come as they were committed, with a rewind where the second attempt begins, and with their times."""
    tracker = Knowing()
    report = replay(digits, to=tracker)
    assert tracker.seen == [
        *((step, 1 / (step + 1)) for step in range(10)),
        "rewind 6",
        *((step, 100.0 + step) for step in range(6, 10)),
    ]
    assert tracker.times == [row["_time"] for row in trackway.store.read_rows(digits)]
    assert tracker.events == [("checkpoint", {"path": "model.pt"}, 4)]
    assert (tracker.hparams["lr"], tracker.summary, report.events) == (0.1, {"best": 0.25}, 1)
    assert [name for name, _, _ in tracker.artifacts] == ["config.yaml", "weights", "folder", "weights"]
    assert (type(tracker.error).__name__, str(tracker.error), tracker.finished) == ("ValueError", "boom", True)


def test_a_target_that_got_rows_by_another_way_gets_the_others(digits):
    """One that says what it has is not given that again, nor what was superseded."""
    tracker = Knowing(*range(8))
    report = replay(digits, to=tracker)
    assert tracker.seen == [(8, 108.0), (9, 109.0)]
    assert (report.rows, report.skipped) == (2, 12)


@pytest.fixture
def service(monkeypatch):
    """Register the type `service`, a place that keeps its steps from replay to replay."""
    place = Knowing()

    @dataclass
    class ServiceConfig(TrackerConfig):
        """Gives the one place."""

        def init(self, run_id) -> Tracker:
            """Return it, fresh, with what it had."""
            again = Knowing(*place.steps)
            again.steps, again.seen = place.steps, place.seen
            return again

    monkeypatch.setitem(TrackerConfig._choice_registry, "service", ServiceConfig)
    return place


def note(folder, change):
    """Set the note of how far the target is back, as after a kill."""
    (path,) = (folder / "replay").glob("service-*.json")
    path.write_text(change(path.read_text()))


def test_rows_that_arrived_after_the_last_note_do_not_come_again(long, service):
    """After a kill the target itself says how far it came."""
    folder = long(10)
    replay(folder, to="service")
    offset = len(b"".join((folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:4]))
    (path,) = (folder / "replay").glob("service-*.json")
    path.write_text(f'{{"format":1,"offset":{offset},"attempt":1,"last":3,"highest":3,"rows":4,"state":""}}')
    del service.steps[7:], service.seen[7:]
    report = replay(folder, to="service")
    assert [step for step, _ in service.seen] == list(range(10))
    assert (report.rows, report.skipped) == (3, 7)


def test_rows_that_were_taken_and_never_arrived_come_again(long, service):
    """A target that has less than it took, and was not finished, gets what it lacks."""
    folder = long(10)
    replay(folder, to="service")
    note(folder, lambda text: text.replace('"finished"', '""'))
    del service.steps[6:], service.seen[6:]
    report = replay(folder, to="service")
    assert [step for step, _ in service.seen] == list(range(10))
    assert (report.rows, report.skipped) == (4, 6)


def test_a_note_that_is_damaged_is_no_reason_to_deliver_twice(long, service):
    """The error names the file; nothing is delivered."""
    folder = long(3)
    replay(folder, to="service")
    note(folder, lambda _: "{")
    with pytest.raises(ReplayError, match=r"replay/service-[0-9a-f]+\.json.*cannot be read"):
        replay(folder, to="service")
    assert len(service.seen) == 3


def test_a_run_that_was_replaced_is_told(long, service):
    """A file of rows that is shorter than what was delivered of it is of another run."""
    folder = long(10)
    replay(folder, to="service")
    (folder / "metrics.jsonl").write_text('{"_step": 0, "_time": 1.0, "loss": 1}\n')
    with pytest.raises(ReplayError, match="it is another run"):
        replay(folder, to="service")


def test_a_tracker_that_is_off_is_an_error(long, monkeypatch):
    """Where nothing would be delivered, nothing counts as delivered."""
    monkeypatch.setenv("TRACKWAY_MODE", "disabled")
    with pytest.raises(ReplayError, match="TRACKWAY_MODE=disabled"):
        replay(long(3), to="console")


def test_a_dry_run_writes_nothing(digits, tmp_path):
    """Neither at the target nor in the run directory; the report says what would be."""
    before = {path: path.stat().st_mtime_ns for path in digits.rglob("*")}
    report = replay(digits, to={"type": "tensorboard", "logdir": str(tmp_path / "tb")}, dry_run=True)
    assert (report.rows, report.events, report.artifacts, report.complete) == (14, 1, 4, False)
    assert {path: path.stat().st_mtime_ns for path in digits.rglob("*")} == before
    assert not (tmp_path / "tb").exists()


def test_a_run_on_an_object_store_is_replayed_from_there(digits, tmp_path):
    """Rows, media and artifacts are fetched, and the note of how far it came is kept there."""
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    fs.put(str(digits), "/replayed/digits", recursive=True)
    to = {"type": "local", "dir": str(tmp_path / "copies")}
    try:
        report = replay("memory://replayed/digits", to=to)
        assert (report.rows, report.events, report.artifacts, report.failed) == (14, 1, 4, 0)
        assert (tmp_path / "copies/digits/artifacts/folder/inner/file.txt").read_text() == "text"
        assert len(list((tmp_path / "copies/digits/media").rglob("*.*"))) == 5
        assert replay("memory://replayed/digits", to=to).rows == 0
        assert fs.glob("/replayed/digits/replay/local-*.json")
    finally:
        fs.rm("/replayed", recursive=True)
