"""Replays that were cut short, by a kill, by a failing target or by impatience, are completed by a further one."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import pytest
from programs import wait_for
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import trackway
from trackway.config import TrackerConfig
from trackway.replay import ReplayError, replay
from trackway.store import StoredRun, read_history, read_rows
from trackway.testing import RecordingTracker


def test_after_a_kill_tensorboard_shows_each_row_once(long, killed, tmp_path):
    """What was delivered after the last note is delivered again, and hidden where it stood first."""
    folder = long(8000)
    killed(folder, {"type": "tensorboard", "logdir": str(tmp_path)})
    second = int(time.time())
    wait_for(lambda: int(time.time()) > second)  # TensorBoard reads files in the order of the seconds in their names
    report = replay(folder, to={"type": "tensorboard", "logdir": str(tmp_path)})
    assert 0 < report.rows < 8000
    assert report.rows + report.skipped == 8000
    reader = EventAccumulator(str(tmp_path / "long"), size_guidance={"scalars": 0}).Reload()
    assert [(event.step, event.value) for event in reader.Scalars("n")] == [(step, float(step)) for step in range(8000)]


def test_after_a_kill_a_copy_has_each_row_once(long, killed, tmp_path):
    """A run directory as the target reads as the run does, whatever was written after the last note."""
    folder = long(8000)
    killed(folder, {"type": "local", "dir": str(tmp_path / "copies")})
    with (tmp_path / "copies/long/metrics.jsonl").open("ab") as file:  # what was on its way
        file.write(b'{"_step":7000,"_time":1.0,"loss":1,"n":7000}\n{"_step":7001,"_ti')
    replay(folder, to={"type": "local", "dir": str(tmp_path / "copies")})
    copy = [(row["_step"], row["n"], row["_time"]) for row in read_history(tmp_path / "copies/long")]
    assert copy == [(row["_step"], row["n"], row["_time"]) for row in read_history(folder)]
    assert StoredRun(tmp_path / "copies/long").state == "finished"


class Moody(RecordingTracker):
    """Fails from the given call of `log` on, until it is told not to."""

    def __init__(self, after, failure=None):
        super().__init__()
        self.left, self.failure, self.steps = after, failure or ConnectionError("it is gone"), []

    def log(self, metrics, *, step=None, commit=None):
        """Take a row or fail."""
        if self.left <= 0:
            raise self.failure
        self.left -= 1
        self.steps.append(step)
        super().log(metrics, step=step, commit=commit)


@pytest.fixture
def moody(monkeypatch):
    """Register the type `moody`, which gives the tracker that was made last."""

    class Moodies(list):
        def make(self, *words):
            self.append(Moody(*words))
            return self[-1]

    made = Moodies()

    @dataclass
    class MoodyConfig(TrackerConfig):
        """Gives what the test has made."""

        place: str = "here"

        def init(self, run_id):
            """Return the last one."""
            return made[-1]

    monkeypatch.setitem(TrackerConfig._choice_registry, "moody", MoodyConfig)
    return made


def test_a_target_that_goes_away_gets_the_rest_later(long, moody):
    """The error is said in one line, the cursor stands where the target failed, and no row comes twice."""
    folder = long(100)
    first = moody.make(40)
    with pytest.raises(ReplayError, match=r"^run long: moody: ConnectionError: it is gone$") as caught:
        replay(folder, to="moody")
    assert (caught.value.report.rows, caught.value.report.complete) == (40, False)
    second = moody.make(1000)
    report = replay(folder, to="moody")
    assert (report.rows, report.skipped) == (60, 40)
    assert first.steps + second.steps == list(range(100))


def test_a_row_that_is_refused_costs_no_other(long, moody):
    """What a target refuses for its values is counted and left out."""
    folder = long(30)

    class Picky(Moody):
        def log(self, metrics, *, step=None, commit=None):
            if step == 7:
                raise ValueError("seven")
            super().log(metrics, step=step, commit=commit)

    moody.append(Picky(100))
    report = replay(folder, to="moody")
    assert (report.rows, report.failed, report.complete) == (29, 1, True)
    assert replay(folder, to="moody").rows == 0


def test_a_target_that_refuses_everything_is_left(long, moody):
    """After twenty refusals in a row nothing of that is taken for delivered."""
    folder = long(100)
    moody.make(10, ValueError("no"))
    with pytest.raises(ReplayError, match="20 calls in a row failed, at last log: ValueError: no"):
        replay(folder, to="moody")
    moody.make(1000)
    assert replay(folder, to="moody").rows == 90


def test_one_target_fails_alone(long, moody, tmp_path):
    """The others get everything."""
    folder = long(50)
    moody.make(10)
    with pytest.raises(ReplayError) as caught:
        replay(folder, to=["moody", {"type": "local", "dir": str(tmp_path / "copies")}])
    assert [(target.rows, target.complete) for target in caught.value.report.targets] == [(10, False), (50, True)]
    assert len(read_rows(tmp_path / "copies/long")) == 50


def test_two_processes_do_not_replay_to_one_target(long, moody):
    """The second one is told so, and does nothing."""
    folder = long(10)
    tracker = moody.make(100)
    found = []

    def again(_progress):
        with pytest.raises(ReplayError, match="another process replays the run to moody"):
            replay(folder, to="moody")
        found.append(True)

    replay(folder, to="moody", on_progress=again)
    assert found
    assert tracker.steps == list(range(10))


def test_a_running_run_is_followed_to_its_end(tmp_path):
    """Rows arrive while the run goes on, each once, and so does its end."""
    run = trackway.start(dir=tmp_path / "runs", run_id="live", config={"lr": 0.1})
    trackway.log({"loss": 1.0}, step=0)
    run.flush(commit_open=True)
    reports = []
    to = {"type": "local", "dir": str(tmp_path / "copies")}
    words = {"to": to, "follow": True, "interval": 0.02}
    thread = threading.Thread(target=lambda: reports.append(replay(tmp_path / "runs/live", **words)))
    thread.start()
    copy = tmp_path / "copies/live"
    assert wait_for(lambda: (copy / "metrics.jsonl").exists() and len(read_rows(copy)) == 1)
    for step in range(1, 50):
        trackway.log({"loss": 1.0 / step}, step=step)
    trackway.log_summary({"best": 0.5})
    run.flush(commit_open=True)
    assert wait_for(lambda: len(read_rows(copy)) > 40)
    assert not reports
    run.finish()
    thread.join(20)
    assert repr(read_rows(copy)) == repr(read_rows(tmp_path / "runs/live"))
    assert (StoredRun(copy).state, StoredRun(copy).summary["best"]) == ("finished", 0.5)
    assert (reports[0].rows, reports[0].state) == (50, "finished")


def test_a_replay_of_a_running_run_is_completed_later(tmp_path):
    """What a run has by now is delivered, and the rest, and its end, by a later replay."""
    run = trackway.start(dir=tmp_path / "runs", run_id="live")
    to = {"type": "local", "dir": str(tmp_path / "copies")}
    trackway.log({"loss": 1.0}, step=0)
    run.flush(commit_open=True)
    assert replay(tmp_path / "runs/live", to=to).state == "running"
    trackway.log({"loss": 2.0}, step=1)
    run.mark_failed(ValueError("boom"))
    run.finish()
    report = replay(tmp_path / "runs/live", to=to)
    assert (report.rows, report.skipped, report.state) == (1, 1, "failed")
    assert [row["loss"] for row in read_history(tmp_path / "copies/live")] == [1.0, 2.0]
    assert StoredRun(tmp_path / "copies/live").error == {"type": "ValueError", "message": "boom"}


def test_interrupting_leaves_the_cursor_where_it_stands(long, tmp_path):
    """Ctrl+C comes through, and a further replay delivers what was left."""
    folder = long(200)
    to = {"type": "local", "dir": str(tmp_path / "copies")}
    calls = []

    def interrupt(progress):
        calls.append(progress)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(folder, to=to, on_progress=interrupt)
    report = replay(folder, to=to)
    assert report.rows + report.skipped == 200
    assert [row["n"] for row in read_history(tmp_path / "copies/long")] == list(range(200))
    assert calls
