"""A run is a tracker: all of the interface, alone, among others, and with wrappers around its backends."""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading

import pytest

import trackway
from trackway.errors import FatalTrackerError, NoTrackerError, TrackerFinishError
from trackway.run import Run
from trackway.store import LocalTracker, read_history
from trackway.testing import FailingTracker, RecordingTracker, SlowTracker, TrackerConformance
from trackway.tracker import (
    INTERFACE,
    BackgroundTracker,
    CompositeTracker,
    FilteredTracker,
    FilterPolicy,
    ForwardingTracker,
    RequiredTracker,
    Tracker,
    current_tracker,
    get_tracker,
)
from trackway.values import flatten


class _Quiet(TrackerConformance):
    """The messages about downgrades are not the subject here."""

    @pytest.fixture(autouse=True)
    def _quiet(self, caplog):
        caplog.set_level(logging.ERROR, "trackway")

    def test_counts_on_without_a_step(self, tmp_path):
        """An open row takes values that come without a step; the row after it has the next one."""

        def use(tracker):
            tracker.log({"loss": 1.0}, step=None)
            tracker.log({"loss": 2.0}, step=7)
            tracker.log({"accuracy": 0.5}, step=None)
            tracker.log({"loss": 3.0}, step=None)

        kept = self._run(tmp_path, use)
        for step, name, value in ((0, "loss", 1.0), (7, "loss", 2.0), (7, "accuracy", 0.5), (8, "loss", 3.0)):
            self._assert_kept(kept, step, name, value)


class TestRun(_Quiet):
    """A run in a directory."""

    def make(self, folder):
        """Make one; threads log steps in any order."""
        return Run([RecordingTracker()], LocalTracker(folder / "run"), step_policy="allow")

    def read(self, tracker, folder):
        """Read the rows back from the directory."""
        return [(row.pop("_step"), flatten(row)) for row in read_history(folder / "run")]


class TestRunWithoutDirectory(_Quiet):
    """What reaches a run's tracker."""

    def make(self, folder):
        """Make one."""
        return Run([RecordingTracker()], step_policy="allow")

    def read(self, tracker, folder):
        """Read what the tracker got."""
        return [(step, flatten(row)) for step, row in tracker.backends.loggers[0].rows]


class Noting(ForwardingTracker):
    """Notes every call with its arguments."""

    name = "noting"

    def __init__(self):
        """Start with nothing."""
        self.calls = []

    def members(self):
        """Return nothing: it is the last one."""
        return ()

    def _forward(self, call):
        self.calls.append((call.method, call.args, call.kwargs))


ARGUMENTS = {
    "metrics": {"x": 1},
    "hparams": {"lr": 0.1},
    "payload": {"path": "a"},
    "artifact_path": __file__,
    "event": "checkpoint",
    "step": 3,
    "title": "title",
    "error": ValueError("bad"),
    "commit": True,
    "name": "given",
    "type": "kind",
    "text": "text",
    "level": "error",
}


def arguments_of(method):
    """Return a value for each parameter of an interface method."""
    return {name: ARGUMENTS[name] for name in inspect.signature(getattr(Tracker, method)).parameters if name != "self"}


OTHERS = {"add", "first_missing_step", "log_span", "open_step"}


@pytest.mark.parametrize("method", [name for name in INTERFACE if name not in OTHERS])
def test_every_method_of_the_interface_reaches_the_trackers(method):
    """Once, on each, with all of its arguments; a method added to the interface is tested by this, too."""
    first, second = Noting(), Noting()
    run = Run([first, second])
    getattr(run, method)(**arguments_of(method))
    for tracker in (first, second):
        calls = [call for call in tracker.calls if call[0] == method]
        assert len(calls) == 1
        bound = inspect.signature(getattr(Tracker, method)).bind(None, *calls[0][1], **calls[0][2]).arguments
        assert {name: value for name, value in bound.items() if name != "self"} == arguments_of(method)
    run.finish()


def test_every_method_of_the_interface_reaches_the_directory(run, tmp_path):
    """Hyper-parameters, summary, artifacts and rows are kept."""
    run.log_hyperparameters({"lr": 0.1})
    run.log({"x": 1})
    run.log_summary({"best": 1})
    run.log_artifact(__file__, name="code")
    run.flush()
    folder = run.store.directory
    assert "lr: 0.1" in (folder / "config.yaml").read_text()
    assert [row["x"] for row in read_history(folder)] == [1]
    assert '"best":1' in (folder / "summary.json").read_text()
    assert [path.name for path in (folder / "artifacts").iterdir()] != []


def test_verbs_reach_all_of_a_run(run, recorder, tmp_path):
    """Each verb does what the method does."""
    trackway.log_hyperparameters({"lr": 0.1})
    trackway.log({"x": 1}, step=3)
    trackway.log_summary({"best": 1})
    trackway.log_artifact(__file__, name="code", type="py")
    trackway.log({}, commit=True)
    assert (recorder.hparams, recorder.rows, recorder.summary) == ({"lr": 0.1}, [(3, {"x": 1})], {"best": 1})
    assert [(name, kind) for name, kind, _ in recorder.artifacts] == [("code", "py")]


def test_trackers_are_found_by_name(run, recorder):
    """The run itself, its directory and every tracker in it, behind wrappers as well."""
    inner = RecordingTracker("inner")
    assert get_tracker("run") is run
    assert get_tracker("local") is run.store
    assert get_tracker("recording") is recorder
    with Run([CompositeTracker([BackgroundTracker(inner)])]) as other:
        assert get_tracker("run") is other
        assert get_tracker("inner") is not None
        with pytest.raises(KeyError, match="inner"):
            get_tracker("recording")
    assert get_tracker("run") is run


def test_a_block_makes_the_run_current_and_its_end_takes_it_off(recorder):
    """Also where `finish` was called within, from then on."""
    with current_tracker(recorder):
        with Run() as run:
            assert current_tracker() is run
            run.finish()
            assert current_tracker() is recorder
        assert current_tracker() is recorder
    with pytest.raises(NoTrackerError):
        current_tracker()


def test_two_runs_share_nothing(tmp_path):
    """Steps, open rows, summaries, callbacks: each run has its own."""
    seen, first, second = [], RecordingTracker("first"), RecordingTracker("second")
    with Run([first], LocalTracker(tmp_path / "1")) as one, Run([second], LocalTracker(tmp_path / "2")) as two:
        one.on_commit(lambda row: seen.append(("one", row["_step"])))
        two.on_commit(lambda row: seen.append(("two", row["_step"])))
        one.log({"x": 1}, step=5)
        two.log({"x": 2})
        two.log({"x": 3})
        one.log({"y": 4})
        assert (dict(one.summary), dict(two.summary)) == ({"x": 1, "y": 4}, {"x": 3})
    assert (first.rows, second.rows) == ([(5, {"x": 1, "y": 4})], [(0, {"x": 2}), (1, {"x": 3})])
    assert seen == [("two", 0), ("two", 1), ("one", 5)]


def test_a_run_in_a_run(tmp_path):
    """The outer one makes the rows, the inner one gets them committed."""
    recorder = RecordingTracker()
    with Run([Run([recorder], LocalTracker(tmp_path / "in"))], LocalTracker(tmp_path / "out")) as run:
        run.log({"a": 1}, step=4)
        run.log({"b": 1}, step=4)
        run.log({"c": 1}, step=5)
        run.rewind(2)
        run.log({"d": 1})
    assert recorder.rows == [(4, {"a": 1, "b": 1}), (5, {"c": 1}), (2, {"d": 1})]
    outer, inner = (read_history(tmp_path / name, include_meta=False) for name in ("out", "in"))
    assert outer == inner == [{"d": 1}]


def test_a_run_in_a_composite_keeps_its_rows_from_its_neighbours(recorder, tmp_path):
    """Merging into its open row changes no payload of theirs."""
    beside = RecordingTracker("beside")
    with CompositeTracker([beside, Run([recorder], LocalTracker(tmp_path))]) as composite:
        trackway.log({"tree": {"a": 1}}, step=1)
        assert composite.open_step() == 1
        trackway.log({"tree": {"b": 1}}, step=1)
        trackway.log({"x": 1})
    assert beside.rows == [(1, {"tree": {"a": 1}}), (1, {"tree": {"b": 1}}), (2, {"x": 1})]
    assert recorder.rows == [(1, {"tree": {"a": 1, "b": 1}, "x": 1})]


def test_a_filter_around_a_backend_sees_committed_rows():
    """It chooses among rows that are complete, with their steps."""
    recorder = RecordingTracker()
    with Run([FilteredTracker(recorder, FilterPolicy(every_steps=2, include=("train/*",), prefix="p/"))]) as run:
        for step in range(4):
            run.log({"train/a": step}, step=step)
            run.log({"eval/b": step, "train/c": step}, step=step)
    assert recorder.rows == [(step, {"p/train/a": step, "p/train/c": step}) for step in (0, 2)]


def test_a_slow_backend_in_the_background_holds_nobody_up(tmp_path):
    """`log` returns while the backend hangs; `flush` and `finish` wait until it has all rows, in order."""
    recorder = RecordingTracker()
    slow = SlowTracker(recorder, seconds=None)
    run = Run([BackgroundTracker(slow)], LocalTracker(tmp_path))
    for step in range(20):
        run.log({"x": step}, step=step)
    assert recorder.rows == []
    assert run.report().rows == 19
    flushed = threading.Event()
    thread = threading.Thread(target=lambda: (run.flush(), flushed.set()))
    thread.start()
    assert not flushed.wait(0.05)
    slow.release()
    assert flushed.wait(20)
    thread.join(20)
    assert len(recorder.rows) == 19
    run.finish()
    assert recorder.rows == [(step, {"x": step}) for step in range(20)]


@pytest.mark.parametrize("background", [False, True])
def test_a_required_tracker_that_fails_stops_the_loop_after_everyone_has_the_row(tmp_path, background):
    """Other trackers, the directory and callbacks are not the worse for it, and the run can still be finished."""
    before, after, seen = RecordingTracker("before"), RecordingTracker("after"), []
    failing = FailingTracker(methods=("log",))
    required = BackgroundTracker(failing, required=True) if background else RequiredTracker(failing)
    run = Run([before, required, after], LocalTracker(tmp_path))
    run.on_commit(seen.append)
    if background:  # which is told with the next call
        run.log({"x": 0}, step=0, commit=True)
        run.flush()
    with pytest.raises(FatalTrackerError, match="required: true"):
        run.log({"x": 1}, step=1, commit=True)
    with pytest.raises(TrackerFinishError) if background else contextlib.nullcontext():
        run.finish()
    expected = [(0, {"x": 0}), (1, {"x": 1})] if background else [(1, {"x": 1})]
    assert before.rows == after.rows == expected
    assert read_history(tmp_path, include_meta=False) == [row for _, row in expected]
    assert [row["_step"] for row in seen] == [step for step, _ in expected]
    assert (before.finished, after.finished) == (True, True)


def test_a_required_tracker_that_fails_to_finish_is_told_after_all_are_finished(tmp_path):
    """`finish` raises it, and the state on disk says that the rows are all there."""
    after = RecordingTracker()
    run = Run([RequiredTracker(FailingTracker(methods=("finish",))), after], LocalTracker(tmp_path))
    run.log({"x": 1})
    with pytest.raises(TrackerFinishError) as info:
        run.finish()
    assert any("required: true" in str(error) for error in info.value.exceptions)
    assert after.finished
    assert [row["x"] for row in read_history(tmp_path)] == [1]
