"""What surrounds a call of `log`: steps, prefixes, silence, collectors."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trackway.errors import FatalTrackerError, StepError, TracerError, TrackwayWarning
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import (
    Call,
    CompositeTracker,
    RequiredTracker,
    Tracker,
    at_step,
    current_tracker,
    log,
    log_artifact,
    log_configuration,
    log_hyperparameters,
    log_summary,
)
from trackway.tracker._ambient import NOTHING, ambient, change, mute, scope
from trackway.tracker._delivery import deliver_late


class RowTracker(Tracker):
    """Merges calls into rows, as a run does."""

    name = "rows"

    def __init__(self):
        self.calls = []
        self.rows = []
        self._open = None

    def log(self, metrics, *, step, commit=None):
        self.calls.append((dict(metrics), step, commit))
        if self._open is None or step != self._open[0]:
            self._open = (step, {})
        self._open[1].update(metrics)
        if commit is not False:
            self.rows.append(self._open)
            self._open = None

    def open_step(self):
        return None if self._open is None else self._open[0]

    def log_hyperparameters(self, hparams):
        """Ignore them."""

    def log_summary(self, metrics):
        """Ignore it."""

    def log_artifact(self, artifact_path, *, name=None, type=None):
        """Ignore it."""

    def finish(self): ...


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


@pytest.fixture
def rows():
    """A tracker of rows that is current."""
    with current_tracker(RowTracker()) as tracker:
        yield tracker


def test_at_step_makes_one_row(rows):
    """Calls without a step get that of the block, the row stays open in it and is committed at its end."""
    with at_step(3):
        log({"a": 1})
        log({"b": 2})
        assert (rows.rows, rows.open_step()) == ([], 3)
    assert rows.rows == [(3, {"a": 1, "b": 2})]
    assert rows.calls == [({"a": 1}, 3, False), ({"b": 2}, 3, False), ({}, 3, True)]
    log({"c": 3}, step=4)
    assert rows.rows[-1] == (4, {"c": 3})


def test_a_step_and_a_commit_of_the_call_win(rows):
    """What the call says itself is not replaced; a row that is closed is not closed again."""
    with at_step(3):
        log({"a": 1}, step=7)
        log({"b": 2}, commit=True)
    assert rows.calls == [({"a": 1}, 7, None), ({"b": 2}, 3, True)]


def test_at_step_commits_nothing_where_nothing_is_open(rows, tracker):
    """A block in which nothing was logged makes no row; nor do trackers without open rows get an empty one."""
    with at_step(3):
        log({"a": 1})
    assert tracker.rows == [(3, {"a": 1})]
    with current_tracker(rows), at_step(4):
        pass
    assert rows.calls == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_at_step_commits_what_there_is_after_an_exception(rows, error):
    """A block that raises leaves no row open, and its error goes on."""

    def block():
        with at_step(3):
            log({"a": 1})
            raise error

    with pytest.raises(error):
        block()
    assert rows.rows == [(3, {"a": 1})]
    assert ambient() is NOTHING


def test_a_fatal_commit_does_not_mask_the_blocks_error():
    """A required tracker that fails at the end of the block is heard only where the block was good."""

    def make():
        return RequiredTracker(FailingTracker(Open(), methods=("log",)))

    class Open(RowTracker):
        def open_step(self):
            return 3

    with current_tracker(make()), pytest.raises(FatalTrackerError), at_step(3):
        pass
    with current_tracker(make()), pytest.raises(ZeroDivisionError), at_step(3):
        raise ZeroDivisionError


def test_at_step_commits_after_rows_that_wait(rows, late):
    """Parts of the row that wait for a device belong to it: the end of the block keeps its place behind them."""
    array = late(1)
    with at_step(3):
        log({"a": array})
        log({"b": 2})
    with at_step(4):
        log({"c": 3})
    assert rows.calls == []
    array.arrive()
    rows.flush()
    assert rows.rows == [(3, {"a": 1.0, "b": 2}), (4, {"c": 3})]


def test_steps_nest_and_end(rows):
    """The innermost step holds, and the outer one again after it."""
    with at_step(1):
        with at_step(2):
            log({"a": 1})
        log({"b": 2})
    log({"c": 3}, step=9)
    assert rows.rows == [(2, {"a": 1}), (1, {"b": 2}), (9, {"c": 3})]


@pytest.mark.parametrize("step", [True, 1.5, "3", None, 2**63, np.float32(1)])
def test_at_step_takes_integers_only(step):
    """A wrong step raises before the block is entered."""
    with pytest.raises(StepError, match="step"), at_step(step):
        raise AssertionError


@pytest.mark.parametrize("step", [np.int8(5), jnp.int32(5)])
def test_at_step_takes_integers_of_every_type(tracker, step):
    """NumPy's and JAX's integers do."""
    with at_step(step):
        log({"a": 1})
    assert tracker.rows == [(5, {"a": 1})]
    assert type(tracker.rows[0][0]) is int


def test_at_step_in_a_trace_says_what_to_do():
    """Inside a compiled function the step belongs to the call."""

    @jax.jit
    def step_fn(x):
        with at_step(3):
            return x

    with pytest.raises(TracerError, match=r"Give the step to the call, as in `trackway.log\(metrics, step=step\)`"):
        step_fn(1.0)


def test_what_surrounds_a_call_is_that_of_its_thread_and_task(tracker):
    """Neither another thread nor another task sees the block."""

    async def task(step):
        """Log in a block, after the other task has entered its own."""
        with at_step(step):
            await asyncio.sleep(0)
            log({"of": step})

    async def tasks():
        """Run two at once."""
        await asyncio.gather(task(10), task(20))

    with at_step(1), mute():
        thread = threading.Thread(target=lambda: log({"thread": 1}, step=5))
        thread.start()
        thread.join(20)
    asyncio.run(tasks())
    assert tracker.rows == [(5, {"thread": 1}), (10, {"of": 10}), (20, {"of": 20})]


def test_scopes_prefix_the_names_of_metrics(tracker):
    """Names at the top get the prefix, those nested in them and other kinds of values do not."""
    with scope("train"):
        log({"loss": 1, "grad": {"norm": 2}}, step=0)
        with scope("/head/"):
            log({"loss": 3}, step=1)
        log_summary({"best": 1})
        log_hyperparameters({"lr": 2})
    log({"loss": 4}, step=2)
    assert tracker.rows == [
        (0, {"train/loss": 1, "train/grad": {"norm": 2}}),
        (1, {"train/head/loss": 3}),
        (2, {"loss": 4}),
    ]
    assert (tracker.summary, tracker.hparams) == ({"best": 1}, {"lr": 2})


@dataclasses.dataclass
class Stats:
    """A payload that is no mapping."""

    loss: float = 0.5


def test_scopes_prefix_every_kind_of_payload(tracker, late):
    """Objects with fields, and values on a device, are prefixed too; reserved names stay reserved."""
    array = late(1)
    with scope("a"):
        log(Stats(), step=0)
        with pytest.warns(TrackwayWarning, match="reserved"):
            log({"x": array, "_y": 1}, step=1)
    array.arrive()
    tracker.flush()
    assert tracker.rows == [(0, {"a/loss": 0.5}), (1, {"a/x": 1.0})]


@pytest.mark.parametrize("name", ["", "/", 3, None])
def test_a_scope_needs_a_name(name):
    """An empty prefix, or one that is no text, is a mistake."""
    with pytest.raises(ValueError, match="scope takes the text"):
        scope(name)


def test_mute_silences_every_verb(tracker, tmp_path):
    """Under `mute` nothing reaches the tracker, and no generator is used up; `finish` works."""
    values = (i for i in range(3))
    with mute():
        log({"values": values}, step=0)
        log_summary({"a": 1})
        log_hyperparameters({"a": 1})
        log_configuration({"a": 1})
        log_artifact(tmp_path)
        with scope("a"), at_step(3):
            log({"a": 1})
        tracker.finish()
    assert (tracker.rows, tracker.summary, tracker.hparams, tracker.artifacts) == ([], {}, {}, [])
    assert list(values) == [0, 1, 2]
    assert tracker.finished


def test_mute_ends_with_its_block(tracker):
    """After the block everything is logged again."""
    with mute():
        pass
    log({"a": 1}, step=0)
    assert tracker.rows == [(0, {"a": 1})]


def test_mute_without_a_tracker_warns_of_nothing():
    """Silence is no sign of a forgotten tracker; with warnings as errors this would raise."""
    with mute():
        log({"a": 1})
        log_summary({"a": 1})
    assert ambient() is NOTHING


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"step": 1.5}, StepError), ({"reduce": "median"}, ValueError), ({"metrics": 3}, TypeError)],
)
@pytest.mark.parametrize("block", [mute, lambda: change(collector={}), lambda: scope("a")])
def test_mistakes_are_told_in_every_block(block, arguments, error):
    """A wrong call raises, whatever would become of it."""
    with block(), pytest.raises(error):
        log(**{"metrics": {"a": 1}, **arguments})


def test_late_rows_under_mute_are_dropped(tracker):
    """Rows handed over under `mute` are not even asked for."""

    class Rows:
        names = ("a",)
        small = False

        def calls(self):
            """Fail the test."""
            raise AssertionError

        parts = property(calls)

    with mute():
        deliver_late(Rows(), tracker)
    assert tracker.rows == []


def test_rows_that_wait_are_delivered_under_mute(tracker, late):
    """What was logged before the block is not lost by it."""
    array = late(1)
    log({"a": array}, step=0)
    array.arrive()
    with mute():
        tracker.flush()
    assert tracker.rows == [(0, {"a": 1.0})]


def test_a_collector_gets_the_values_as_they_are():
    """With a collector no tracker is called or missed, and values keep their types, under their full names."""
    collected, value = {}, np.arange(2)
    with change(collector=collected):
        log({"a": value, 3: "x"}, step=4)
        with scope("s"):
            log(Stats())
            log({"a": {"b": value}})
    assert collected == {"a": value, "3": "x", "s/loss": 0.5, "s/a": {"b": value}}
    assert collected["a"] is value


def test_other_verbs_pass_a_collector(tracker):
    """Only metrics are collected."""
    with change(collector={}) as state, at_step(3):
        log_summary({"best": 1})
        log({"a": 1})
    assert tracker.summary == {"best": 1}
    assert (tracker.rows, state.collector) == ([], {"a": 1})


def test_blocks_restore_what_held_before():
    """Each block changes its own field and puts everything back, also after an exception."""

    def block():
        with scope("b"), at_step(1):
            assert dataclasses.astuple(ambient()) == (1, "a/b/", True, None)
            raise ZeroDivisionError

    with mute(), scope("a"):
        with pytest.raises(ZeroDivisionError):
            block()
        assert dataclasses.astuple(ambient()) == (None, "a/", True, None)
    assert ambient() is NOTHING


def test_composites_answer_with_the_row_of_their_member(rows):
    """The open row may be that of any member."""
    recording = RecordingTracker()
    with current_tracker(CompositeTracker([recording, rows])), at_step(3):
        log({"a": 1})
    assert rows.rows == [(3, {"a": 1})]
    assert recording.rows == [(3, {"a": 1}), (3, {})]


def test_calls_made_by_hand_are_not_changed(tracker):
    """What is called on the tracker itself knows nothing of blocks."""
    with mute(), scope("a"), at_step(3):
        current_tracker().log({"b": 1}, step=9)
        Call("log", ({"c": 1},), {"step": 10}).on(tracker)
    assert tracker.rows == [(9, {"b": 1}), (10, {"c": 1})]
