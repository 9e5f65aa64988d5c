"""The test kit itself: its trackers, and that the conformance class finds faults."""

from __future__ import annotations

import json

import pytest

from trackway.errors import TrackwayWarning
from trackway.testing import (
    VALUES,
    FailingTracker,
    RecordingTracker,
    SlowTracker,
    TrackerConformance,
    capabilities,
    capability_table,
)
from trackway.tracker import (
    BackgroundTracker,
    CompositeTracker,
    FilteredTracker,
    FilterPolicy,
    NoopTracker,
    RequiredTracker,
    Tracker,
    leaves,
)
from trackway.values import flatten


def flat_rows(tracker):
    """The rows of the recording tracker behind *tracker*, under flat names."""
    [recording] = [leaf for leaf in leaves(tracker) if isinstance(leaf, RecordingTracker)]
    return [(step, flatten(row)) for step, row in recording.rows]


class Reading(TrackerConformance):
    """Reads back from a recording tracker."""

    __test__ = False

    def read(self, tracker, folder):
        """Return the recorded rows."""
        return flat_rows(tracker)


class TestRecording(Reading):
    """The recording tracker is a tracker like any other."""

    __test__ = True

    def make(self, folder):
        """Make one."""
        return RecordingTracker()


class TestNoop(TrackerConformance):
    """So is the one that keeps nothing."""

    keeps = False

    def make(self, folder):
        """Make one."""
        return NoopTracker()


class TestComposite(Reading):
    """A composite with a failing member."""

    __test__ = True

    def make(self, folder):
        """Make one."""
        return CompositeTracker([FailingTracker(), RecordingTracker()])


class TestBackground(Reading):
    """A tracker in the background."""

    __test__ = True

    def make(self, folder):
        """Make one."""
        return BackgroundTracker(RecordingTracker())


class TestFiltered(Reading):
    """A filter that renames nothing that the tests look at."""

    __test__ = True

    def make(self, folder):
        """Make one."""
        return FilteredTracker(RequiredTracker(RecordingTracker()), FilterPolicy(exclude=["nothing"]))


class Naive(Tracker):
    """A backend as a hurried author writes it."""

    name = "naive"

    def __init__(self, path):
        self._file = path.open("a")

    def log(self, metrics, *, step, commit=None):
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")

    def log_hyperparameters(self, hparams):
        self._file.write(json.dumps(hparams) + "\n")

    def log_summary(self, metrics): ...
    def log_artifact(self, artifact_path, *, name=None, type=None): ...

    def finish(self):
        self._file.close()


class NaiveConformance(TrackerConformance):
    """Not collected: its tests are called one by one below."""

    __test__ = False

    def make(self, folder):
        """Make one."""
        folder.mkdir(exist_ok=True, parents=True)
        return Naive(folder / "rows.jsonl")

    def read(self, tracker, folder):
        """Return the rows that have a step."""
        rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
        return [(row.pop("step"), row) for row in rows if "step" in row]


@pytest.mark.parametrize(
    "test",
    [
        "test_counts_on_without_a_step",
        "test_flattens_nested_metrics_with_a_slash",
        "test_stands_every_kind_of_value",
        "test_takes_any_hyperparameters_again_and_again",
        "test_calls_after_finish_do_nothing",
    ],
)
def test_conformance_finds_the_faults_of_a_naive_backend(test, tmp_path):
    """The usual mistakes of a first version are found."""
    with pytest.raises((AssertionError, TypeError, ValueError)):
        getattr(NaiveConformance(), test)(tmp_path)


def test_a_backend_that_keeps_rows_must_say_how_to_read_them(tmp_path):
    """A conformance class without `read` tells what to define."""

    class Unreadable(TrackerConformance):
        def make(self, folder):
            return RecordingTracker()

    with pytest.raises(NotImplementedError, match=r"read\(\)"):
        Unreadable().test_counts_on_without_a_step(tmp_path)


def test_values_can_be_made_again_and_again():
    """Every kind of value is made afresh at each call."""
    assert {kind for kind, make in VALUES.items() if make() is None} == {"None"}


def test_slow_tracker_waits_and_can_be_released():
    """The slow tracker delays each call until it is released."""
    inner = RecordingTracker()
    slow = SlowTracker(inner, seconds=None)
    slow.release()
    slow.log({"a": 1}, step=0)
    assert slow.calls == 1
    assert inner.rows == [(0, {"a": 1})]


def test_failing_tracker_fails_where_told():
    """The failing tracker raises its error from the methods named, and passes the others on."""
    inner = RecordingTracker()
    failing = FailingTracker(inner, error=OSError("quota"), methods=("log",))
    failing.log_summary({"best": 1})
    with pytest.raises(OSError, match="quota"):
        failing.log({"a": 1}, step=0)
    assert inner.summary == {"best": 1}


def test_recording_tracker_counts_a_missing_artifact():
    """A missing artifact is counted, not raised."""
    tracker = RecordingTracker()
    tracker.log_artifact("no/such/file")
    assert tracker.report().dropped == {"no such file or folder": 1}


def test_capabilities_are_found_by_logging():
    """The table says what the tracker's own counts say."""

    def make(folder):
        return RecordingTracker()

    found = capabilities(make)
    assert set(found.values()) <= {"native", "converted", "dropped"}
    assert found["bool"] == "native"
    table = capability_table({"recording": make})
    assert "| value | `recording` |" in table
    assert len(table.splitlines()) == len(found) + 2


def test_a_conformance_class_without_make_fails(tmp_path):
    """Forgetting `make` must not pass over all tests in silence."""

    class Empty(TrackerConformance): ...

    with pytest.raises(NotImplementedError, match=r"must define make\(folder\)"):
        Empty().test_has_the_whole_interface(tmp_path)


def test_what_is_left_out_counts_as_dropped_and_what_is_changed_as_converted():
    """The report tells values that are gone from those in another form."""
    tracker = RecordingTracker()
    with pytest.warns(TrackwayWarning):
        tracker.log({"_hidden": 1, "odd": object(), "fine": 1}, step=0)
    report = tracker.report()
    assert report.dropped == {"is ignored": 1}
    assert list(report.converted.values()) == [1]
