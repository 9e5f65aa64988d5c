"""Calls become rows: merging, committing, values, and who gets the row."""

from __future__ import annotations

import math
import threading
import time

import pytest
from stored import lines_of

import trackway
from trackway.errors import TrackwayWarning
from trackway.run import Run
from trackway.store import LocalTracker
from trackway.testing import RecordingTracker
from trackway.values import normalise


def stored(run):
    """Return the lines of the run's file: pairs of a step and values."""
    return [(row["_step"], _values(row)) for row in lines_of(run)]


def _values(row):
    return {name: value for name, value in row.items() if name[:1] != "_"}


def test_several_calls_for_one_step_become_one_line(run, recorder):
    """Rows of one step are merged, and written when the step advances."""
    run.log({"loss": 1.0}, step=5)
    run.log({"acc": 0.9}, step=5)
    assert (stored(run), recorder.rows) == ([], [])
    run.log({"loss": 0.9}, step=6)
    assert stored(run) == recorder.rows == [(5, {"loss": 1.0, "acc": 0.9})]
    assert run.open_step() == 6


@pytest.mark.parametrize(
    ("arguments", "committed", "open_step"),
    [
        ({}, [0], None),
        ({"commit": None}, [0], None),
        ({"commit": True}, [0], None),
        ({"commit": False}, [], 0),
        ({"step": 7}, [], 7),
        ({"step": 7, "commit": None}, [], 7),
        ({"step": 7, "commit": False}, [], 7),
        ({"step": 7, "commit": True}, [7], None),
    ],
)
def test_commit_defaults_to_yes_without_a_step_and_to_no_with_one(run, recorder, arguments, committed, open_step):
    """Each row of the table of commit semantics, on a fresh run."""
    run.log({"x": 1}, **arguments)
    assert [step for step, _ in recorder.rows] == committed
    assert run.open_step() == open_step


def test_calls_that_only_merge_are_committed_as_one_step(run, recorder):
    """Two calls with commit=False and one without commit all three as one step, and the next is the one after."""
    run.log({"train/loss": 1.0}, commit=False)
    run.log({"train/grad_norm": 2.0}, commit=False)
    run.log({"lr": 3e-4})
    run.log({"lr": 2e-4})
    assert recorder.rows == [(0, {"train/loss": 1.0, "train/grad_norm": 2.0, "lr": 3e-4}), (1, {"lr": 2e-4})]


def test_calls_without_a_step_reuse_an_open_explicit_one(run, recorder):
    """A call without a step goes to the open row and commits it; the next implicit step follows it."""
    run.log({"train/loss": 1.0}, step=100)
    run.log({"lr": 3e-4})
    run.log({"lr": 2e-4})
    assert recorder.rows == [(100, {"train/loss": 1.0, "lr": 3e-4}), (101, {"lr": 2e-4})]


def test_a_committed_row_is_everywhere_when_the_call_returns(run, recorder):
    """File, tracker, callback and summary have a row as soon as the call that commits it has returned."""
    seen = []
    run.on_commit(seen.append)
    run.log({"loss": 0.5}, step=3, commit=True)
    assert stored(run) == recorder.rows == [(3, {"loss": 0.5})]
    assert [(row["_step"], row["loss"]) for row in seen] == [(3, 0.5)]
    assert dict(run.summary) == {"loss": 0.5}


def test_nobody_sees_an_open_row(run, recorder):
    """Values that were merged and not committed are in no file, no tracker, no callback and no summary."""
    seen = []
    run.on_commit(seen.append)
    run.log({"loss": 0.5}, step=3)
    run.flush()
    assert (stored(run), recorder.rows, seen, dict(run.summary)) == ([], [], [], {})
    assert run.open_step() == 3


def leave_block(run):
    """End a block of *run*."""
    with run:
        pass


@pytest.mark.parametrize("end", [lambda run: run.flush(commit_open=True), Run.finish, leave_block])
def test_an_open_row_is_committed_by(tmp_path, recorder, end):
    """`flush(commit_open=True)`, `finish` and the end of a block commit the open row, once."""
    run = Run([recorder], LocalTracker(tmp_path / "run"))
    run.log({"loss": 0.5}, step=3)
    end(run)
    assert stored(run) == recorder.rows == [(3, {"loss": 0.5})]
    assert run.open_step() is None
    run.finish()
    assert len(recorder.rows) == 1


def test_an_open_row_is_not_committed_because_time_passes(tmp_path, recorder):
    """The thread that waits for the disk once in a while leaves the open row alone."""
    with Run([recorder], LocalTracker(tmp_path / "run", sync_interval=0.005)) as run:
        run.log({"loss": 0.5}, step=3)
        time.sleep(0.1)  # several of that thread's turns
        assert (run.open_step(), recorder.rows, stored(run)) == (3, [], [])


def test_no_values_make_no_row(run, recorder):
    """An empty payload begins no row, whatever it says of step and commit."""
    for arguments in ({}, {"commit": True}, {"commit": False}, {"step": 4}, {"step": 4, "commit": True}):
        run.log({}, **arguments)
        assert run.open_step() is None
    assert (recorder.rows, stored(run), run.report().rows) == ([], [], 0)


@pytest.mark.parametrize("arguments", [{"commit": True}, {"step": 4, "commit": True}, {}, {"step": 5}])
def test_no_values_commit_the_row_that_is_open(run, recorder, arguments):
    """An empty payload that commits, or advances the step, commits the open row and begins none."""
    run.log({"loss": 1.0}, step=4)
    run.log({}, **arguments)
    assert recorder.rows == [(4, {"loss": 1.0})]
    assert run.open_step() is None


@pytest.mark.parametrize("arguments", [{"commit": False}, {"step": 4}, {"step": 4, "commit": False}])
def test_no_values_leave_an_open_row_open(run, arguments):
    """An empty payload that does not commit changes nothing."""
    run.log({"loss": 1.0}, step=4)
    run.log({}, **arguments)
    assert run.open_step() == 4


def test_nested_mappings_are_merged_across_calls(run, recorder):
    """At every depth a later call adds its names to those of an earlier one, and the later value of a name wins."""
    run.log({"train": {"loss": 1.0, "by": {"layer0": 1}}}, step=0)
    run.log({"train": {"by": {"layer1": 2}}, "lr": 0.1}, step=0)
    run.log({"train": {"loss": 0.5}}, step=0)
    run.log({}, commit=True)
    tree = {"train": {"loss": 0.5, "by": {"layer0": 1, "layer1": 2}}, "lr": 0.1}
    assert recorder.rows == stored(run) == [(0, tree)]
    assert dict(run.summary) == tree


@pytest.mark.parametrize(
    ("first", "second", "row"),
    [
        ({"x": 1}, {"x": 2}, {"x": 2}),
        ({"x": 1}, {"x": {"a": 1}}, {"x": {"a": 1}}),
        ({"x": {"a": 1}}, {"x": 2}, {"x": 2}),
        ({"x": {"a": 1}}, {"x": {"a": {"b": 1}}}, {"x": {"a": {"b": 1}}}),
        ({"x": [1, 2]}, {"x": [3]}, {"x": [3]}),
        ({"x": 1}, {"x": None}, {"x": None}),
        ({"x": 1.5}, {"x": math.inf}, {"x": math.inf}),
    ],
)
def test_of_two_values_of_one_name_the_later_wins(run, recorder, first, second, row):
    """Whatever kinds of values they are."""
    run.log(first, step=0)
    run.log(second, step=0, commit=True)
    assert recorder.rows == stored(run) == [(0, row)]


def test_log_returns_nothing(run):
    """Neither a merge nor a commit returns anything."""
    assert run.log({"x": 1}, step=0) is None
    assert run.log({"x": 1}) is None


def test_the_callers_mapping_is_neither_kept_nor_changed(run, recorder):
    """Changing the payload after the call, at any depth, changes no row; merging into the row changes no payload."""
    payload = {"loss": 1.0, "nested": {"a": [1.0], "b": {"c": 1}}}
    run.log(payload, step=0)
    payload["loss"] = 99.0
    payload["nested"]["a"].append(2.0)
    payload["nested"]["b"]["c"] = 99
    run.log({"nested": {"b": {"d": 2}}, "more": 1}, step=0, commit=True)
    assert recorder.rows == [(0, {"loss": 1.0, "nested": {"a": [1.0], "b": {"c": 1, "d": 2}}, "more": 1})]
    assert payload == {"loss": 99.0, "nested": {"a": [1.0, 2.0], "b": {"c": 99}}}


def test_a_row_of_the_caller_is_not_changed(run, recorder):
    """A payload that is a `Row` already, which is taken as it is, keeps its values when more is merged into the row."""
    rows = [normalise({"x": 1}), normalise({"tree": {"a": 1}}), normalise({"tree": {"b": 2}, "x": 2})]
    copies = [row.copy() for row in rows]
    for row in rows:
        run.log(row, step=0)
    run.add(rows[0])
    run.log({"tree": {"c": 3}}, step=0, commit=True)
    assert rows == copies
    assert recorder.rows == [(0, {"x": 3, "tree": {"a": 1, "b": 2, "c": 3}})]


def test_one_payload_can_be_logged_again_and_again(run, recorder):
    """The same dict, or the same `Row`, at each of several steps."""
    row = normalise({"x": {"y": 1}})
    for step in range(3):
        run.log(row, step=step)
        run.log({"step": step, "x": {"z": step}}, step=step)
    run.finish()
    assert [values for _, values in recorder.rows] == [{"x": {"y": 1, "z": i}, "step": i} for i in range(3)]


def test_each_receiver_may_change_what_it_is_given(tmp_path):
    """A callback or a tracker that changes its row changes it for nobody else, nor in the summary."""

    def spoil(row):
        row["x"], row["tree"]["a"] = "spoilt", "spoilt"
        row["list"].append("spoilt")

    class Spoiler(trackway.Tracker):
        name = "spoiler"

        def log(self, metrics, *, step, commit=None):
            spoil(metrics)

        log_hyperparameters = log_summary = log_artifact = lambda self, *_, **__: None

        def finish(self):
            """Do nothing."""

    seen, recorder, row = [], RecordingTracker(), {"x": 1, "tree": {"a": 1}, "list": [1]}
    with Run([Spoiler(), recorder], LocalTracker(tmp_path)) as run:
        run.on_commit(spoil)
        run.on_commit(seen.append)
        run.log(row)
        assert _values(seen[0]) == recorder.rows[0][1] == dict(run.summary) == row


def test_a_value_is_read_once(run, recorder):
    """A generator is consumed once, for the file, the trackers, the callbacks and the summary together."""
    seen = []
    run.on_commit(seen.append)
    run.log({"x": (i * i for i in range(3)), "nested": {"y": iter([1])}})
    assert recorder.rows == stored(run) == [(0, {"x": [0, 1, 4], "nested": {"y": [1]}})]
    assert seen[0]["x"] == run.summary["x"] == [0, 1, 4]


def test_add_sums_into_the_open_row(run, recorder):
    """Numbers are added to those of the open row, other values take their place, and the row stays open."""
    run.log({"seconds": 1.0, "text": "a", "calls": 1}, step=2)
    run.add({"seconds": 0.5, "calls": 2})
    run.add({"text": "b", "new": 7})
    assert (run.open_step(), recorder.rows) == (2, [])
    run.log({}, commit=True)
    assert recorder.rows == [(2, {"seconds": 1.5, "text": "b", "calls": 3, "new": 7})]


def test_add_begins_a_row_and_leaves_it_open(run, recorder):
    """Where no row is open, the sums wait in the one that comes next."""
    run.log({"x": 1}, step=4, commit=True)
    run.add({"seconds": 0.5})
    run.add({})
    assert (run.open_step(), len(recorder.rows)) == (5, 1)
    run.log({"x": 2})
    assert recorder.rows[1] == (5, {"seconds": 0.5, "x": 2})


def test_reserved_names_are_ignored_with_a_warning(run, recorder):
    """`_step` and `_time` are the run's own: what is logged under them is left out, and the neighbours are kept."""
    with pytest.warns(TrackwayWarning) as warned:
        run.log({"_step": 99, "_time": 1, "loss": 0.5}, step=3, commit=True)
    assert sorted("_time" in str(one.message) for one in warned) == [False, True]
    (line,) = lines_of(run)
    assert (line["_step"], line["loss"]) == (3, 0.5)
    assert abs(line["_time"] - time.time()) < 60
    assert recorder.rows == [(3, {"loss": 0.5})]
    run.log({"_step": 99, "_time": 1, "loss": 0.5}, step=4)  # not said again


def test_a_payload_of_reserved_names_alone_is_no_row(run, recorder):
    """Nothing is left of it, so that there is nothing to make a row of."""
    with pytest.warns(TrackwayWarning):
        run.log({"_step": 1}, step=5, commit=True)
    assert (recorder.rows, run.open_step()) == ([], None)


def test_time_is_when_the_row_was_begun(run):
    """`_time` is in seconds since 1970; merging, committing, flushing later does not move it."""
    seen = []
    run.on_commit(seen.append)
    before = time.time()
    run.log({"a": 1}, step=0)
    begun = time.time()
    while time.time() == begun:
        pass
    run.log({"b": 1}, step=0)
    run.flush()
    run.flush(commit_open=True)
    run.flush()
    (line,) = lines_of(run)
    assert before <= line["_time"] <= begun
    assert seen[0]["_time"] == line["_time"]


def test_an_error_in_the_payload_leaves_the_open_row_as_it_was(run, recorder):
    """What is no mapping raises, and neither merges nor commits anything."""
    run.log({"a": 1}, step=0)
    for wrong in (3, "loss", None, [("a", 1)]):
        with pytest.raises(TypeError, match="must be a mapping"):
            run.log(wrong)
    assert (run.open_step(), recorder.rows) == (0, [])


def test_scope_puts_its_name_before_those_of_the_row(run, recorder):
    """Verbs in a `scope` merge into the same open row, under longer names."""
    trackway.log({"loss": 1.0}, step=3)
    with trackway.scope("eval"), trackway.scope("digits"):
        trackway.log({"loss": 2.0}, step=3)
    trackway.log({"lr": 0.1})
    assert recorder.rows == [(3, {"loss": 1.0, "eval/digits/loss": 2.0, "lr": 0.1})]


def test_mute_neither_merges_nor_commits(run, recorder):
    """Under `mute` the open row stays as it is, also at the end of an `at_step` inside."""
    trackway.log({"loss": 1.0}, step=3)
    with trackway.mute():
        trackway.log({"loss": 9.0})
        trackway.log({"loss": 9.0}, step=4, commit=True)
        with trackway.at_step(3):
            trackway.log({"loss": 9.0})
    assert (run.open_step(), recorder.rows) == (3, [])
    trackway.log({"lr": 0.1})
    assert recorder.rows == [(3, {"loss": 1.0, "lr": 0.1})]


def test_a_huge_row_is_one_line(run, recorder):
    """Tens of thousands of metrics and a text of a megabyte are one row, in the file and at a tracker."""
    row = {f"metric/{i}": i / 3 for i in range(20_000)} | {"tree": {str(i): i for i in range(5_000)}}
    run.log(row, step=0)
    run.log({"one": 1}, step=0, commit=True)
    assert stored(run) == recorder.rows == [(0, {**row, "one": 1})]


def test_threads_that_merge_into_one_row_lose_nothing(run, recorder):
    """Values that several threads log for one step are all in its row."""
    start = threading.Barrier(4)

    def work(number):
        start.wait(20)
        for i in range(50):
            run.log({f"{number}/{i}": i, "tree": {f"{number}/{i}": i}}, step=7)

    _in_threads(work, 4)
    run.log({}, commit=True)
    ((step, row),) = recorder.rows
    assert (step, len(row), len(row["tree"])) == (7, 201, 200)
    assert stored(run) == recorder.rows


def test_threads_that_commit_at_once_lose_nothing_and_agree_on_the_order(run, recorder):
    """Each row is committed once, with a step of its own, and everyone gets all of them in the same order."""
    seen, start = [], threading.Barrier(4)
    run.on_commit(seen.append)

    def work(number):
        start.wait(20)
        for i in range(50):
            run.log({"who": number, "i": i})

    _in_threads(work, 4)
    assert [step for step, _ in recorder.rows] == list(range(200))
    assert {(row["who"], row["i"]) for _, row in recorder.rows} == {(n, i) for n in range(4) for i in range(50)}
    assert [(row["_step"], _values(row)) for row in seen] == stored(run) == recorder.rows
    for number in range(4):
        assert [row["i"] for _, row in recorder.rows if row["who"] == number] == list(range(50))


def _in_threads(work, count):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_run_without_trackers_and_directory_still_makes_rows():
    """Summary, callbacks and report work with nothing behind them."""
    seen = []
    with Run() as run:
        run.on_commit(seen.append)
        trackway.log({"x": 1}, step=0)
        trackway.log({"x": 2}, step=1)
    assert [row["x"] for row in seen] == [1, 2]
    assert dict(run.summary) == {"x": 2}
    assert run.report().rows == 2
