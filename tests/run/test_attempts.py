"""Going back to an earlier step: `rewind`, and resuming from an earlier checkpoint."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import lines_of

import trackway
from trackway.errors import StepError, TrackwayWarning
from trackway.run import Run
from trackway.store import LocalTracker, merge, read_history, read_rows
from trackway.testing import RecordingTracker


@pytest.fixture
def reopen(tmp_path):
    """Return a function that goes on with the run as another process would, and gives the run and its tracker."""
    runs = []

    def start(policy="monotonic"):
        for run in runs:
            run.finish()
        recorder = RecordingTracker()
        runs.append(Run([recorder], LocalTracker(tmp_path / "run"), step_policy=policy))
        return runs[-1], recorder

    yield start
    for run in runs:
        run.finish()


def history(run):
    """Return the rows as read: pairs of a step and the value of x."""
    run.store.save()
    return [(row["_step"], row["x"]) for row in read_history(run.store.directory)]


def log_steps(run, steps, x):
    """Log a row at each step."""
    for step in steps:
        run.log({"x": x}, step=step)


def test_rewind_supersedes_later_rows_when_read(run, recorder):
    """Rows from the step on are superseded by those of the new attempt, stay in the file, and were delivered."""
    log_steps(run, range(5), "old")
    run.rewind(3)
    log_steps(run, [3], "new")
    run.finish()
    assert history(run) == [(0, "old"), (1, "old"), (2, "old"), (3, "new")]
    lines = lines_of(run)
    assert [(line["_step"], line.get("_attempt", 1)) for line in lines] == [*((i, 1) for i in range(5)), (3, 2)]
    assert recorder.rewinds == [(3, 5)]
    assert run.report().late == 0


def test_rewind_commits_the_open_row_to_the_attempt_that_ends(run, recorder):
    """It is delivered before the trackers hear of the new attempt."""
    run.log({"x": "old"}, step=7)
    run.rewind(3)
    assert (run.open_step(), recorder.rows, recorder.rewinds) == (None, [(7, {"x": "old"})], [(3, 1)])
    run.log({"x": "new"}, step=3, commit=True)
    assert history(run) == [(3, "new")]
    assert "_attempt" not in lines_of(run)[0]


def test_after_rewind_a_row_without_a_step_begins_there(run, recorder):
    """The counter is set back."""
    log_steps(run, range(5), "old")
    run.rewind(np.int64(2))
    assert run.state_dict()["next_step"] == 2
    run.log({"x": "new"})
    assert recorder.rows[-1] == (2, {"x": "new"})


def test_rewind_is_repeatable(run, recorder):
    """Once more without a row in between, and again and again with rows, as a preempted job does."""
    for attempt in range(1, 5):
        run.rewind(10)
        run.rewind(10)
        log_steps(run, [10, 11], attempt)
    run.finish()
    assert history(run) == [(10, 4), (11, 4)]
    lines = lines_of(run)
    assert [line.get("_attempt", 1) for line in lines] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert not any("_patch" in line for line in lines)
    assert len(recorder.rewinds) == 8


def test_an_attempt_begins_where_its_first_row_is(run):
    """Not where `rewind` said: rows that nothing takes the place of are kept."""
    log_steps(run, range(5), "old")
    run.rewind(1)
    log_steps(run, [4], "new")
    run.finish()
    assert history(run) == [*((i, "old") for i in range(4)), (4, "new")]


def test_rewind_beyond_the_last_row_supersedes_nothing(run):
    """The new attempt adds to what there is."""
    log_steps(run, range(3), "old")
    run.rewind(100)
    log_steps(run, [100], "new")
    run.finish()
    assert history(run) == [(0, "old"), (1, "old"), (2, "old"), (100, "new")]


def test_late_rows_are_dropped_inside_one_attempt_only(run):
    """After going back, what lies behind the new rows is late again, and what lies behind the old ones is not."""
    log_steps(run, range(5), "old")
    run.rewind(1)
    log_steps(run, [1, 3], "new")
    with pytest.warns(TrackwayWarning, match="step 2 came after step 3"):
        log_steps(run, [2], "late")
    run.finish()
    assert history(run) == [(0, "old"), (1, "new"), (3, "new")]
    assert run.report().late == 1


def test_late_rows_of_a_new_attempt_are_patches(tmp_path):
    """Under "allow" a row below the first one of its attempt is a patch, which does not supersede what lies between."""
    with Run([], LocalTracker(tmp_path), step_policy="allow") as run:
        log_steps(run, range(4), "old")
        run.rewind(3)
        run.log({"x": "new"}, step=3, commit=True)
        run.log({"y": 1}, step=1)
    assert [line.get("_patch") for line in read_rows(tmp_path)] == [None] * 5 + [True]
    rows = [(row["_step"], row["x"], row.get("y")) for row in read_history(tmp_path)]
    assert rows == [(0, "old", None), (1, "old", 1), (2, "old", None), (3, "new", None)]


@pytest.mark.parametrize("step", [None, 1.0, "1", True, 2**63])
def test_rewind_refuses_what_is_no_step(run, recorder, step):
    """Nothing is committed by the attempt to."""
    run.log({"x": 1}, step=5)
    with pytest.raises(StepError):
        run.rewind(step)
    assert (run.open_step(), recorder.rewinds) == (5, [])


def test_rewind_under_the_policy_error(reopen):
    """Going back on purpose is no error; a late row afterwards is."""
    run, recorder = reopen("error")
    log_steps(run, range(5), "old")
    run.rewind(2)
    log_steps(run, [2, 4], "new")
    with pytest.raises(StepError, match="step 3 lies behind step 4"):
        log_steps(run, [3], "late")
    assert [step for step, _ in recorder.rows] == [0, 1, 2, 3, 4, 2]


def test_rewind_without_a_directory_and_without_trackers():
    """Steps begin anew all the same."""
    with Run() as run:
        log_steps(run, range(5), "old")
        run.rewind(2)
        log_steps(run, [2, 3], "new")
        assert run.report().late == 0
        assert run.open_step() == 3


def test_rewind_after_finish_does_nothing(run, recorder):
    """It is counted like any call after the end."""
    run.log({"x": 1}, step=5)
    run.finish()
    run.rewind(1)
    assert recorder.rewinds == []
    assert run.report().run.dropped == {"called after finish": 1}


def test_a_callback_sees_rewinds_in_their_place(run):
    """It may rewind itself: rows before it are of the old attempt, rows after it of the new one."""
    seen = []

    def back(row):
        seen.append(row["_step"])
        if row["_step"] == 3 and len(seen) == 4:
            run.rewind(1)

    run.on_commit(back)
    for _ in range(6):
        run.log({"x": len(seen)})
    assert seen == [0, 1, 2, 3, 1, 2]
    assert history(run) == [(0, 0), (1, 4), (2, 5)]


def test_a_resumed_run_goes_on_after_the_last_step(reopen):
    """A row without a step follows the last one, and no row is superseded."""
    run, _ = reopen()
    log_steps(run, range(3), "first")
    run, recorder = reopen()
    assert run.state_dict()["next_step"] == 3
    run.log({"x": "second"})
    run.log({"x": "second"}, step=8, commit=True)
    assert history(run) == [(0, "first"), (1, "first"), (2, "first"), (3, "second"), (8, "second")]
    assert recorder.rewinds == []
    assert [line.get("_attempt", 1) for line in lines_of(run)] == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("first", [2, 1, 0, -1])
def test_the_first_step_after_resuming_that_is_not_above_the_last_opens_an_attempt_there(reopen, first):
    """The run goes on from an earlier checkpoint: later rows are superseded, trackers are told, nothing is late."""
    run, _ = reopen()
    log_steps(run, range(3), "first")
    run, recorder = reopen()
    log_steps(run, range(first, 4), "second")
    run.finish()
    assert recorder.rewinds == [(first, 0)]
    assert history(run) == [*((i, "first") for i in range(first)), *((i, "second") for i in range(first, 4))]
    assert run.report().late == 0


def test_only_the_first_step_after_resuming_goes_back(reopen):
    """Afterwards late rows are late, in this attempt, as in any other run."""
    run, _ = reopen()
    log_steps(run, range(6), "first")
    run, recorder = reopen()
    log_steps(run, [3, 5], "second")
    with pytest.warns(TrackwayWarning, match="step 4 came after step 5"):
        log_steps(run, [4], "late")
    assert recorder.rewinds == [(3, 0)]


def test_at_step_goes_back_after_resuming(reopen):
    """A block of an earlier step is an explicit step too."""
    run, _ = reopen()
    log_steps(run, range(6), "first")
    run, recorder = reopen()
    with trackway.current_tracker(run), trackway.at_step(2):
        trackway.log({"x": "second"})
    assert (recorder.rewinds, recorder.rows) == ([(2, 0)], [(2, {"x": "second"})])


def test_resuming_again_and_again_from_one_checkpoint(reopen):
    """A preempted job that starts four times from step 2 leaves one row for each step."""
    for attempt in range(4):
        run, _ = reopen()
        log_steps(run, range(2 if attempt else 0, 5), attempt)
    run.finish()
    assert history(run) == [(0, 0), (1, 0), (2, 3), (3, 3), (4, 3)]


STEPS = st.integers(0, 6)
ACTIONS = st.one_of(
    st.tuples(st.just("log"), STEPS, st.booleans()),
    st.tuples(st.just("rewind"), STEPS),
    st.tuples(st.just("reopen")),
)


def _expected(lines):
    """Apply the reading rule to *lines* in the plainest way."""
    first = {}
    for line in lines:
        first.setdefault(line.get("_attempt", 1), line["_step"])
    rows = {}
    for line in lines:
        own = line.get("_attempt", 1)
        if any(attempt > own and line["_step"] >= step for attempt, step in first.items()):
            continue
        values = {name: value for name, value in line.items() if name[:1] != "_"}
        merge(rows.setdefault(line["_step"], {}), values)
    return [rows[step] for step in sorted(rows)]


def _patches_are_right(lines):
    highest = {}
    for line in lines:
        attempt, step = line.get("_attempt", 1), line["_step"]
        assert line.get("_patch", False) is (attempt in highest and step <= highest[attempt])
        highest[attempt] = max(step, highest.get(attempt, step))
    return True


@pytest.mark.parametrize("policy", ["monotonic", "allow"])
@settings(max_examples=15, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=12))
def test_any_history_of_attempts_reads_as_the_rule_says(policy, actions):
    """Whatever was logged, rewound and reopened: patches are marked, and earlier attempts superseded."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of late rows
        path = Path(folder) / "run"
        run = Run([], LocalTracker(path), step_policy=policy)
        for number, (action, *arguments) in enumerate(actions):
            if action == "log":
                run.log({f"x{number % 3}": number}, step=arguments[0], commit=arguments[1])
            elif action == "rewind":
                run.rewind(*arguments)
            else:
                run.finish()
                run = Run([], LocalTracker(path), step_policy=policy)
        run.finish()
        lines = read_rows(path)
        assert read_history(path, include_meta=False) == _expected(lines)
        assert _patches_are_right(lines)
