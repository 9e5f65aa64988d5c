"""Fan-out: what one member does is no other member's business."""

from __future__ import annotations

import gc

import pytest

from trackway.errors import FatalTrackerError, TrackerFinishError, TrackwayWarning
from trackway.testing import FailingTracker, RecordingTracker, SlowTracker
from trackway.tracker import (
    BackgroundPolicy,
    BackgroundTracker,
    CompositeTracker,
    NoopTracker,
    RequiredTracker,
    Tracker,
    current_tracker,
    set_global_tracker,
)


class Greedy(Tracker):
    """A third-party tracker that changes and keeps what it is given."""

    name = "greedy"

    def __init__(self):
        self.kept = []

    def log(self, metrics, *, step, commit=None):
        metrics.pop("loss")
        metrics["nested"]["a"] = 99
        self.kept.append(metrics)

    def log_hyperparameters(self, hparams):
        hparams.clear()

    def log_summary(self, metrics): ...
    def log_artifact(self, artifact_path, *, name=None, type=None): ...
    def finish(self): ...


def test_members_do_not_share_the_mapping():
    """A member that changes the mapping changes neither the caller's nor its neighbour's."""
    neighbour = RecordingTracker()
    payload = {"loss": 1.0, "nested": {"a": 1}}
    composite = CompositeTracker([Greedy(), neighbour])
    composite.log(payload, step=0)
    composite.log_hyperparameters({"lr": 0.1})
    assert neighbour.rows == [(0, {"loss": 1.0, "nested": {"a": 1}})]
    assert neighbour.hparams == {"lr": 0.1}
    assert payload == {"loss": 1.0, "nested": {"a": 1}}


def test_a_generator_is_consumed_once_for_all():
    """A payload that can be read only once reaches every member whole."""
    members = [RecordingTracker("a"), RecordingTracker("b")]
    CompositeTracker(members).log({"xs": (i for i in range(3))}, step=0)
    assert [member.rows for member in members] == [[(0, {"xs": [0, 1, 2]})]] * 2


def test_failures_are_counted_per_member_and_method(caplog):
    """A member that raises is said once per method, counted every time, and keeps nothing from the others."""
    healthy = RecordingTracker()
    composite = CompositeTracker([FailingTracker(), healthy])
    for step in range(5):
        composite.log({"a": step}, step=step)
    composite.log_summary({"best": 1})
    composite.finish()
    assert len(healthy.rows) == 5
    assert healthy.finished
    failing, fine = composite.failures()
    assert failing.failed == {"log": 5, "log_summary": 1, "finish": 1}
    assert fine.failed == {}
    assert len(caplog.records) == 3


def test_a_required_member_stops_after_the_others_were_served():
    """A required member's failure is raised, and the members behind it have the row."""
    healthy = RecordingTracker()
    composite = CompositeTracker([RequiredTracker(FailingTracker()), healthy])
    with pytest.raises(FatalTrackerError):
        composite.log({"a": 1}, step=0)
    assert healthy.rows == [(0, {"a": 1})]


def test_finish_finishes_all_and_tells_of_required_members_only():
    """`finish` reaches every member and raises a group with the failures of the required ones."""
    healthy = RecordingTracker()
    composite = CompositeTracker([FailingTracker(), RequiredTracker(FailingTracker(error=OSError("disk"))), healthy])
    with pytest.raises(TrackerFinishError) as caught:
        composite.finish()
    assert healthy.finished
    [error] = caught.value.exceptions
    assert isinstance(error, FatalTrackerError)
    assert "disk" in str(error)


def test_the_reference_attributes():
    """`loggers` is the list given, `name` is composite, and an empty composite does nothing."""
    members = [NoopTracker()]
    composite = CompositeTracker(members)
    assert composite.loggers == members
    assert composite.name == "composite"
    CompositeTracker([]).log({"a": 1})


def test_open_step_is_the_first_members_that_has_one():
    """A composite answers with what its members answer."""

    class Rows(Greedy):
        def open_step(self):
            return 7

    assert CompositeTracker([NoopTracker(), Rows()]).open_step() == 7
    assert CompositeTracker([NoopTracker()]).open_step() is None


def test_a_base_exception_goes_through():
    """Ctrl+C while a member works is not swallowed."""
    composite = CompositeTracker([FailingTracker(error=KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        composite.log({"a": 1})


def test_ctrl_c_in_one_member_does_not_cost_the_others_the_row():
    """The members behind one that is interrupted get the row, and the interrupt goes on."""
    healthy = RecordingTracker()
    composite = CompositeTracker([FailingTracker(error=KeyboardInterrupt()), healthy])
    with pytest.raises(KeyboardInterrupt):
        composite.log({"a": 1}, step=0)
    assert healthy.rows == [(0, {"a": 1})]


def test_what_is_no_exception_is_contained_too(caplog):
    """A backend in another language may raise a BaseException of its own; it is a failure like any other."""

    class PanicException(BaseException): ...

    healthy = RecordingTracker()
    composite = CompositeTracker([FailingTracker(error=PanicException("panicked")), healthy])
    composite.log({"a": 1}, step=0)
    assert healthy.rows == [(0, {"a": 1})]
    assert "panicked" in caplog.text


def test_a_wrong_call_is_the_callers_fault():
    """Missing and unknown arguments are a TypeError, not a member's failure."""
    composite = CompositeTracker([RecordingTracker()])
    with pytest.raises(TypeError, match="metrics"):
        composite.log_summary()
    with pytest.raises(TypeError, match="unknown"):
        composite.log_artifact("a", unknown=1)


def test_a_configuration_is_no_tracker():
    """Giving a configuration where a tracker is meant says what to call."""
    from trackway.backends.noop import NoopConfig

    for use in (lambda c: CompositeTracker([c]), BackgroundTracker, current_tracker, set_global_tracker):
        with pytest.raises(TypeError, match=r"got NoopConfig; call `.build\(\)`"):
            use(NoopConfig())


def test_ledgers_of_members_go_with_them():
    """Failures are kept per member, and a member that is gone leaves nothing behind."""
    composite = CompositeTracker([])
    for _ in range(5):
        composite.loggers = [FailingTracker()]
        composite.log({"a": 1})
        assert [report.failed for report in composite.failures()] == [{"log": 1}]
        composite.loggers = []
        gc.collect()
    assert composite._isolation._ledgers == {}


def test_reports_say_what_became_of_the_rows_of_each_member():
    """One report per member, with everything that is behind it: queue, filter and backend."""
    slow = SlowTracker(RecordingTracker("slow"), seconds=None)
    members = [
        BackgroundTracker(slow, BackgroundPolicy(queue_size=2, finish_timeout=0.1)),
        FailingTracker(RecordingTracker("failing"), methods=("log",)),
        RecordingTracker("fine"),
    ]
    composite = CompositeTracker(members)
    for step in range(5):
        composite.log({"a": step}, step=step)
    composite.log_artifact("no/such/file")
    background, failing, fine = composite.reports()
    assert (background.name, background.accepted, background.delivered) == ("slow", 5, 0)
    assert background.pending + sum(background.dropped.values()) == 5
    assert failing.failed == {"log": 5}
    assert (fine.accepted, fine.delivered, fine.dropped) == (5, 5, {"no such file or folder": 1})
    slow.release()
    composite.finish()


def test_a_tuple_of_configurations_is_no_tracker_either():
    """Forgetting `.build()` on `Trackers` gets the same cure."""
    from trackway import Trackers

    with pytest.raises(TypeError, match=r"got Trackers; call `.build\(\)`"):
        current_tracker(Trackers([]))


def test_a_value_is_counted_once_whatever_stands_in_front():
    """A value that is left out or converted counts once in the report of a tracker behind a queue."""
    composite = CompositeTracker([BackgroundTracker(RecordingTracker())])
    with pytest.warns(TrackwayWarning):
        composite.log({"_hidden": 1, "odd": object()}, step=0)
    composite.flush()
    (report,) = composite.reports()
    assert (report.accepted, report.delivered, report.dropped) == (1, 1, {"is ignored": 1})
    assert sum(report.converted.values()) == 1
    composite.finish()
