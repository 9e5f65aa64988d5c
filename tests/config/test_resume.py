"""Which run a start goes on with, from which step, and what backends are told of it."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import trackway
from trackway.backends.local import LocalConfig
from trackway.backends.tensorboard import TensorboardConfig
from trackway.errors import ConfigError
from trackway.store import read_rows
from trackway.testing import RecordingTracker


@pytest.fixture(autouse=True)
def runs(monkeypatch, tmp_path):
    """The folder of run directories of the test."""
    monkeypatch.setenv("TRACKWAY_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def train(steps, **options):
    """Log `x` at each of *steps* in a run of its own; return what `state_dict` says at its end."""
    with trackway.start(**options) as run:
        for step in steps:
            trackway.log({"x": 100 * run.store._output.attempt + step}, step=step)
        run.flush(commit_open=True)
        return run.state_dict()


def kept(directory):
    """Step and value of each row that is not superseded, by the rule that the run directory is read by."""
    rows, steps = {}, read_rows(directory)
    first = {}
    for row in steps:
        first.setdefault(row.get("_attempt", 1), row["_step"])
    for row in steps:
        attempt = row.get("_attempt", 1)
        if not any(later > attempt and row["_step"] >= start for later, start in first.items()):
            rows[row["_step"]] = row["x"]
    return rows


def test_a_run_is_continued_by_its_id(runs):
    """The same id goes on in the same directory, after its last row, as a further attempt."""
    train(range(3), run_id="a")
    with trackway.start(run_id="a") as run:
        trackway.log({"x": 7})
        assert run.state_dict() == {"run_id": "a", "next_step": 4}
    assert [(row["_step"], row.get("_attempt", 1)) for row in read_rows(runs / "a")] == [(0, 1), (1, 1), (2, 1), (3, 2)]


def test_the_id_comes_from_the_argument_the_environment_the_state_or_is_new(monkeypatch):
    """In this order; an argument that contradicts the checkpoint is an error."""
    state = {"run_id": "from-state", "next_step": 0}
    with trackway.start(resume_state=state) as run:
        assert run.run_id == "from-state"
    with trackway.start(run_id="from-state", resume_state=state) as run:
        assert run.run_id == "from-state"
    monkeypatch.setenv("TRACKWAY_RUN_ID", "from-environment")
    with trackway.start() as run:
        assert run.run_id == "from-environment"
    with trackway.start(run_id="given") as run:
        assert run.run_id == "given"
    with pytest.raises(ConfigError, match="run_id is 'given', and that of resume_state 'from-state'; leave run_id out"):
        trackway.start(run_id="given", resume_state=state)


def test_the_environment_may_send_a_checkpoint_to_another_run(monkeypatch, runs, caplog):
    """A job with an id of its own goes on from the step of the checkpoint, and is told where the earlier rows are."""
    state = train(range(4), run_id="a")
    monkeypatch.setenv("TRACKWAY_RUN_ID", "b")
    with trackway.start(resume_state=state):
        trackway.log({"x": 1})
    assert "run b, as TRACKWAY_RUN_ID says, goes on from step 4 of run a" in caplog.text
    assert [row["_step"] for row in read_rows(runs / "b")] == [4]
    assert len(read_rows(runs / "a")) == 4


def test_must_and_never(runs):
    """`must` wants a run that is there, `never` one that is not, and each says how to get the other."""
    with pytest.raises(ConfigError, match=f"resume: must, but there is no run in {runs / 'a'}; check run_id and dir"):
        trackway.start(run_id="a", resume="must")
    assert not runs.exists()
    train(range(2), run_id="a", resume="never")
    before = (runs / "a" / "run.json").read_bytes()
    with pytest.raises(ConfigError, match=f"resume: never, but {runs / 'a'} holds a run; give another run_id"):
        trackway.start(run_id="a", resume="never")
    assert (runs / "a" / "run.json").read_bytes() == before
    train(range(2, 4), run_id="a", resume="must")
    assert list(kept(runs / "a")) == [0, 1, 2, 3]


@pytest.mark.parametrize(("name", "there"), [("run.json", True), ("metrics.jsonl", True), ("notes.txt", False)])
def test_a_run_is_there_where_its_files_are(runs, name, there):
    """A directory is a run if it holds run.json or metrics.jsonl; anything else in it is left alone."""
    (runs / "a").mkdir(parents=True)
    (runs / "a" / name).write_text("{}" if name == "run.json" else "")
    if there:
        with pytest.raises(ConfigError, match="holds a run"):
            trackway.start(run_id="a", resume="never")
    else:
        with trackway.start(run_id="a", resume="never"):
            pass
    assert (runs / "a" / name).exists()


def test_other_ranks_do_not_mistake_the_primary_for_an_earlier_run(monkeypatch, runs):
    """What the primary process has made just now is no earlier run to the others; a shard of their own is."""
    train(range(2), run_id="a")
    monkeypatch.setenv("RANK", "1")
    train(range(2), run_id="a", resume="never")
    with pytest.raises(ConfigError, match="holds a run"):
        trackway.start(run_id="a", resume="never")
    with trackway.start(run_id="b", resume="must"):  # the primary process finds out
        pass


def test_a_checkpoint_supersedes_what_came_after_it(runs):
    """Rows from the checkpoint's step on are logged anew, and the earlier ones are superseded, not deleted."""
    tracker = RecordingTracker()
    state = train(range(5), run_id="a")
    assert state == {"run_id": "a", "next_step": 5}
    train(range(5, 9), run_id="a")  # killed after these, say
    with trackway.start([tracker], resume_state=state) as run:
        trackway.log({"x": -5})
        trackway.log({"x": -6}, step=6)
        assert run.state_dict()["next_step"] == 7
    assert kept(runs / "a") == {0: 100, 1: 101, 2: 102, 3: 103, 4: 104, 5: -5, 6: -6}
    assert len(read_rows(runs / "a")) == 11
    assert tracker.rewinds == [(5, 0)]


def test_a_checkpoint_at_the_end_supersedes_nothing():
    """Where the run stopped at its checkpoint, nobody is told of a rewind."""
    tracker = RecordingTracker()
    state = train(range(5), run_id="a")
    with trackway.start([tracker], resume_state=state) as run:
        trackway.log({"x": 1})
    assert tracker.rewinds == []
    assert tracker.rows == [(5, {"x": 1})]
    assert run.report().rows == 1


@pytest.mark.parametrize("store", [False, True])
def test_a_checkpoint_without_its_run_goes_on_from_its_step(store):
    """Where the directory is gone, or none is kept, rows without a step are counted from the checkpoint's."""
    tracker = RecordingTracker()
    with trackway.start([tracker], resume_state={"run_id": "a", "next_step": 40}, store=store) as run:
        trackway.log({"x": 1})
        assert run.run_id == "a"
    assert tracker.rows == [(40, {"x": 1})]


def test_the_state_passes_through_a_checkpoint():
    """Integers of other libraries, as a checkpoint gives them back, and further keys are taken."""
    state = {"run_id": np.str_("a"), "next_step": np.asarray(7), "more": None}
    with trackway.start(resume_state=json.loads(json.dumps({"run_id": "a", "next_step": 3}))) as run:
        assert run.state_dict() == {"run_id": "a", "next_step": 3}
    with trackway.start(resume_state=state) as run:
        assert run.state_dict() == {"run_id": "a", "next_step": 7}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("a", r"resume_state: expected what `run\.state_dict\(\)` returned, .*, got 'a' \(str\)"),
        ({}, "run_id and next_step missing in {}"),
        ({"run_id": "a"}, "next_step missing"),
        ({"run_id": "../a", "next_step": 1}, r"resume_state: run_id '\.\./a' holds '/'"),
        ({"run_id": "a", "next_step": 1.5}, "resume_state: step must be an integer, got 1.5"),
        ({"run_id": "a", "next_step": None}, "next_step is null"),
    ],
)
def test_what_is_no_state_is_refused(runs, state, message):
    """The error says what is expected and what was got, and nothing is started."""
    with pytest.raises(ConfigError, match=message):
        trackway.start(resume_state=state)
    assert not runs.exists()


def contexts(recording, **options):
    """What a backend is told of a run started with *options*."""
    config = recording()
    with trackway.start([config], **options):
        pass
    return config.started[1]


def test_backends_are_told_what_is_resumed(recording, runs):
    """The context has id, directory, whether the run is resumed, its next step and the number of the attempt."""
    new = contexts(recording, run_id="a")
    assert (new.run_id, new.directory) == ("a", str(runs / "a"))
    assert (new.resumed, new.next_step, new.attempt) == (False, None, 1)
    train(range(3), run_id="a")
    again = contexts(recording, run_id="a")
    assert (again.resumed, again.next_step, again.attempt) == (True, 3, 3)
    back = contexts(recording, resume_state={"run_id": "a", "next_step": 1})
    assert (back.resumed, back.next_step, back.attempt) == (True, 1, 4)
    without = contexts(recording, resume_state={"run_id": "a", "next_step": 1}, store=False)
    assert (without.resumed, without.next_step, without.attempt) == (True, 1, 1)


def test_the_context_has_the_directory_of_the_run(recording, tmp_path):
    """`dir`, wherever it was given, is where backends are told that the run lies."""
    assert contexts(recording, run_id="a", dir=tmp_path / "x").directory == str(tmp_path / "x" / "a")
    config = recording()
    with trackway.start([config, LocalConfig(dir=str(tmp_path / "y"))], run_id="a"):
        pass
    assert config.started[1].directory == str(tmp_path / "y" / "a")


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("by_state", [False, True])
def test_tensorboard_shows_each_step_once(tmp_path, background, by_state):
    """Resumed from a checkpoint, or by an explicit earlier step, the curve has one point per step."""
    options = {"trackers": TensorboardConfig(str(tmp_path / "tb"), background=background), "run_id": "a"}
    train(range(6), **options)
    if by_state:
        options["resume_state"] = {"run_id": "a", "next_step": 3}
    train(range(3, 8), **options)
    train(range(8, 10), **{**options, "resume_state": None})
    reader = EventAccumulator(str(tmp_path / "tb" / "a"), size_guidance={"scalars": 0}).Reload()
    points = [(event.step, event.value) for event in reader.Scalars("x")]
    again = [(step, 200 + step) for step in range(3, 8)]
    assert points == [*((step, 100 + step) for step in range(3)), *again, (8, 308), (9, 309)]


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # the child makes no use of JAX, which others loaded
def test_a_run_started_in_a_forked_child_is_its_own(runs):
    """A child of a process with a run begins another one, and the parent's goes on unharmed."""
    with trackway.start(run_id="parent"):
        trackway.log({"x": 1}, step=0, commit=True)
        child = os.fork()
        if not child:
            code = 1
            try:
                with trackway.start(run_id="child"):
                    trackway.log({"x": 2}, step=0)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        trackway.log({"x": 3}, step=1)
    assert [row["x"] for row in read_rows(runs / "child")] == [2]
    assert [row["x"] for row in read_rows(runs / "parent")] == [1, 3]
