"""Steps: what counts as one, late rows under each policy, the numbering of rows without one, `at_step`."""

from __future__ import annotations

import enum
import threading

import jax.numpy as jnp
import numpy as np
import pytest
from stored import lines_of

import trackway
from trackway.errors import ConfigError, StepError, TrackwayWarning
from trackway.run import Run
from trackway.store import LocalTracker, read_history
from trackway.testing import RecordingTracker

LARGEST, SMALLEST = 2**63 - 1, -(2**63)


class Epoch(enum.IntEnum):
    """A step with a name."""

    THIRD = 3


@pytest.fixture
def seen(run):
    """What a callback of the run got."""
    rows = []
    run.on_commit(rows.append)
    return rows


@pytest.fixture
def make(tmp_path, recorder):
    """Return a function that starts a run of a policy in one and the same directory."""
    runs = []

    def start(policy="monotonic"):
        runs.append(Run([recorder], LocalTracker(tmp_path / "run"), step_policy=policy))
        return runs[-1]

    yield start
    for run in runs:
        run.finish()


@pytest.mark.parametrize("step", [3, np.int64(3), np.uint8(3), np.array(3), jnp.int32(3), jnp.asarray(3), Epoch.THIRD])
def test_steps_of_any_integer_type_become_plain_integers(run, recorder, seen, step):
    """Whatever has an index is a step; file, tracker and callback get an int."""
    run.log({"x": 1}, step=step)
    run.log({"y": 1}, step=step, commit=True)
    run.flush()
    (line,) = lines_of(run)
    assert recorder.rows == [(3, {"x": 1, "y": 1})]
    assert [type(one) for one in (line["_step"], recorder.rows[0][0], seen[0]["_step"])] == [int] * 3


WRONG_STEPS = {
    "text": "3",
    "bytes": b"3",
    "float": 3.0,
    "fraction": 3.5,
    "nan": float("nan"),
    "bool": True,
    "numpy bool": np.bool_(True),
    "numpy float": np.float32(3),
    "list": [3],
    "too large": LARGEST + 1,
    "too small": SMALLEST - 1,
    "huge": 10**400,
    "numpy uint64": np.uint64(2**63),
    "two": np.array([1, 2]),
    "jax float": jnp.float32(3),
    "jax two": jnp.array([1, 2]),
    "object": object(),
}


@pytest.mark.parametrize("step", WRONG_STEPS.values(), ids=WRONG_STEPS)
def test_a_wrong_step_leaves_payload_and_open_row_alone(run, recorder, step):
    """It raises before the payload is read, and the open row takes further values as if nothing had been."""
    values = iter([1, 2])
    run.log({"x": 1}, step=5)
    with pytest.raises(StepError):
        run.log({"values": values}, step=step)
    with pytest.raises(StepError):
        trackway.log({"values": values}, step=step)
    assert (list(values), run.open_step(), recorder.rows) == ([1, 2], 5, [])
    run.log({"y": 2})
    assert recorder.rows == [(5, {"x": 1, "y": 2})]


@pytest.mark.parametrize("step", WRONG_STEPS.values(), ids=WRONG_STEPS)
def test_a_wrong_step_in_a_scope_leaves_the_payload_alone(run, step):
    """The same where names are put together first."""
    values = iter([1, 2])
    with pytest.raises(StepError), trackway.scope("a"):
        trackway.log({"values": values}, step=step)
    assert (list(values), run.open_step()) == ([1, 2], None)


def test_a_late_row_reaches_no_sink(run, recorder, seen, capsys):
    """Not the file, not the summary, not a tracker, not a callback; one warning, and a count."""
    run.log({"loss": 1.0}, step=10, commit=True)
    with pytest.warns(TrackwayWarning, match=r"step 3 came after step 10.*step_policy='allow'") as warned:
        run.log({"loss": 2.0}, step=3)
        run.log({"loss": 2.0}, step=9, commit=True)
        run.log({"loss": 2.0}, step=-1)
    assert len(warned) == 1
    assert recorder.rows == [(10, {"loss": 1.0})]
    assert [row["_step"] for row in seen] == [row["_step"] for row in lines_of(run)] == [10]
    assert dict(run.summary) == {"loss": 1.0}
    assert (run.report().late, run.report().rows) == (3, 1)
    assert "3 late ones dropped" in str(run.report())


@pytest.mark.filterwarnings("ignore:.*came after step")
def test_a_late_row_leaves_the_open_one_open(run, recorder):
    """It neither commits the open row nor adds to it, and the next implicit call goes on with that."""
    run.log({"loss": 1.0}, step=10)
    run.log({"late": 2.0}, step=3, commit=True)
    run.log({}, step=3)
    assert (run.open_step(), recorder.rows) == (10, [])
    run.log({"acc": 0.5})
    run.log({"acc": 0.6})
    assert recorder.rows == [(10, {"loss": 1.0, "acc": 0.5}), (11, {"acc": 0.6})]
    assert run.report().late == 1


def test_the_last_committed_step_is_not_late(run, recorder):
    """More values for it are a line of their own, and one row with the first one's time when read."""
    run.log({"loss": 1.0, "tree": {"a": 1}}, step=5, commit=True)
    run.log({"loss": 0.5, "tree": {"b": 2}}, step=5, commit=True)
    run.log({"x": 1}, step=6)
    run.log({"acc": 0.9}, step=5)  # although 6 is open
    assert run.open_step() == 6
    run.log({}, commit=True)
    lines = lines_of(run)
    assert [(line["_step"], line.get("_patch")) for line in lines] == [(5, None), (5, True), (5, True), (6, None)]
    assert [step for step, _ in recorder.rows] == [5, 5, 5, 6]
    first, second = read_history(run.store.directory)
    merged = {"_step": 5, "_time": lines[0]["_time"], "loss": 0.5, "tree": {"a": 1, "b": 2}, "acc": 0.9}
    assert (first, second["_step"]) == (merged, 6)
    assert run.report().late == 0


def test_the_policy_allow_keeps_late_rows(make, recorder):
    """They are lines of their own at once, everyone gets them, and the reader merges them into their steps."""
    run = make("allow")
    run.log({"a": 1}, step=5, commit=True)
    run.log({"b": 1}, step=7)
    run.log({"c": 1}, step=5)
    run.log({"d": 1}, step=6)
    run.log({"e": 1}, step=6, commit=True)
    assert run.open_step() == 7
    run.finish()
    steps = [(5, {"a": 1}), (5, {"c": 1}), (6, {"d": 1}), (6, {"e": 1}), (7, {"b": 1})]
    assert recorder.rows == steps
    rows = run.history(include_meta=False)
    assert rows == [{"a": 1, "c": 1}, {"d": 1, "e": 1}, {"b": 1}]
    assert run.report().late == 0


def test_an_implicit_step_follows_the_highest_under_allow(make, recorder):
    """Late rows do not set the counter back."""
    run = make("allow")
    run.log({"x": 1}, step=9, commit=True)
    run.log({"x": 2}, step=2, commit=True)
    run.log({"x": 3})
    run.log({}, step=2)
    run.log({"x": 4})
    assert [step for step, _ in recorder.rows] == [9, 2, 10, 11]


def test_the_policy_error_raises_and_keeps_the_open_row(make, recorder):
    """A late row raises whatever it says of commit; the row of the last step itself does not."""
    run = make("error")
    run.log({"x": 1}, step=5, commit=True)
    run.log({"x": 2}, step=7)
    for step, commit in ((6, None), (6, True), (4, False), (-1, True)):
        with pytest.raises(StepError, match=f"step {step} lies behind step 7.*'allow'"):
            run.log({"late": 1}, step=step, commit=commit)
    run.log({"y": 1}, step=5)
    assert run.open_step() == 7
    run.log({"z": 1})
    assert recorder.rows == [(5, {"x": 1}), (5, {"y": 1}), (7, {"x": 2, "z": 1})]
    assert run.report().late == 0


@pytest.mark.parametrize("policy", ["Monotonic", "", None, "drop", 3])
def test_an_unknown_policy_is_refused(policy):
    """The message names those that there are."""
    with pytest.raises(ConfigError, match="monotonic, allow, error"):
        Run(step_policy=policy)


@pytest.mark.parametrize("policy", ["monotonic", "allow", "error"])
def test_negative_steps_are_steps(make, recorder, policy):
    """They rise to zero and beyond like others."""
    run = make(policy)
    run.log({"x": 1}, step=-3)
    run.log({"x": 2}, step=-2, commit=True)
    for value in (3, 4, 5):
        run.log({"x": value})
    assert recorder.rows == [(-3, {"x": 1}), (-2, {"x": 2}), (-1, {"x": 3}), (0, {"x": 4}), (1, {"x": 5})]
    assert [row["_step"] for row in run.history()] == [-3, -2, -1, 0, 1]


def test_steps_at_the_limits_of_64_bits(run, recorder):
    """The smallest and the largest are steps; what would follow the largest is an error, and costs nothing else."""
    run.log({"x": 1}, step=SMALLEST)
    run.log({"x": 2}, step=LARGEST, commit=True)
    for method in (lambda: run.log({"x": 3}), lambda: run.log({"x": 3}, commit=False), lambda: run.add({"x": 3})):
        with pytest.raises(StepError, match="64 bits"):
            method()
    assert run.open_step() is None
    run.log({"y": 4}, step=LARGEST, commit=True)
    run.finish()
    assert recorder.rows == [(SMALLEST, {"x": 1}), (LARGEST, {"x": 2}), (LARGEST, {"y": 4})]
    assert [(row["_step"], row["x"]) for row in read_history(run.store.directory)] == [(SMALLEST, 1), (LARGEST, 2)]


def test_an_empty_row_of_a_step_sets_the_counter(run, recorder):
    """A call with a step and no values makes no row, and the next row without a step has that one."""
    run.log({}, step=7)
    run.log({"x": 1})
    assert recorder.rows == [(7, {"x": 1})]


def test_at_step_makes_one_row_of_everything_inside(run, recorder):
    """Calls without a step are parts of its row, which is committed at the end of the block and not before."""
    with trackway.at_step(np.int64(4)):
        trackway.log({"a": 1})
        trackway.log({"b": 2})
        assert (run.open_step(), recorder.rows) == (4, [])
    assert (run.open_step(), recorder.rows) == (None, [(4, {"a": 1, "b": 2})])


def test_at_step_commits_a_row_that_was_open_already(run, recorder):
    """A block of the open step adds to that row."""
    run.log({"a": 1}, step=4)
    with trackway.at_step(4):
        trackway.log({"b": 2})
    assert recorder.rows == [(4, {"a": 1, "b": 2})]


def test_at_step_without_a_call_commits_nothing(run, recorder):
    """An empty block makes no row, and leaves a row of another step open."""
    run.log({"a": 1}, step=4)
    with trackway.at_step(5):
        pass
    assert (run.open_step(), recorder.rows) == (4, [])


def test_at_step_that_is_left_by_an_error_keeps_what_was_logged(run, recorder):
    """The row is committed all the same, and the error is the block's own."""
    with pytest.raises(KeyError, match="mine"), trackway.at_step(4):  # noqa: PT012
        trackway.log({"a": 1})
        raise KeyError("mine")
    trackway.log({"b": 1})
    assert recorder.rows == [(4, {"a": 1}), (5, {"b": 1})]


def test_at_step_nested(run, recorder):
    """The inner block's row is committed at its end; the outer one's values after it come late."""
    with trackway.at_step(1):
        trackway.log({"a": 1})
        with trackway.at_step(2):
            trackway.log({"b": 1})
        trackway.log({"c": 1}, step=3)
        with pytest.warns(TrackwayWarning, match="step 1 came after step 3"):
            trackway.log({"d": 1})
    assert (recorder.rows, run.open_step()) == ([(1, {"a": 1}), (2, {"b": 1})], 3)


@pytest.mark.parametrize("commit", [True, False])
def test_at_step_obeys_commit_of_the_calls_inside(run, recorder, commit):
    """commit=True ends the row at once, and what follows in the block is added to it as another line."""
    with trackway.at_step(1):
        trackway.log({"a": 1}, commit=commit)
        trackway.log({"b": 1})
    rows = [(1, {"a": 1}), (1, {"b": 1})] if commit else [(1, {"a": 1, "b": 1})]
    assert recorder.rows == rows
    assert run.history(include_meta=False) == [{"a": 1, "b": 1}]


def test_at_step_holds_for_its_own_thread():
    """A thread that logs beside the block has its calls placed by the open row, not by the block."""
    recorder = RecordingTracker()
    with Run([recorder]) as run, trackway.at_step(7):
        trackway.log({"a": 1})
        thread = threading.Thread(target=lambda: run.log({"b": 1}, commit=False))
        thread.start()
        thread.join(20)
    assert recorder.rows == [(7, {"a": 1, "b": 1})]
