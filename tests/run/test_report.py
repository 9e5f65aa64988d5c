"""What became of the rows: counted for the run, its directory and each tracker."""

from __future__ import annotations

import logging

import pytest

from trackway.errors import TrackwayWarning
from trackway.run import Run, RunReport
from trackway.store import LocalTracker
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import BackgroundTracker, CompositeTracker


def test_a_new_run_has_counted_nothing(tmp_path, recorder):
    """Everything is zero, and the parts are named."""
    with Run([recorder, FailingTracker()], LocalTracker(tmp_path / "mine")) as run:
        report = run.report()
        assert type(report) is RunReport
        assert (report.run_id, report.state, report.rows, report.late, report.pending) == ("mine", "running", 0, 0, 0)
        assert [part.name for part in (report.run, report.store, *report.trackers)] == [
            "run",
            "local",
            "recording",
            "failing",
        ]


def test_rows_are_counted_where_they_arrive(run, recorder):
    """Committed rows, not calls; by the run, by the directory and by each tracker."""
    for step in (1, 1, 2, 3):
        run.log({"x": 1}, step=step)
    report = run.report()
    assert (report.rows, report.store.accepted, report.store.delivered) == (2, 2, 2)
    assert (report.trackers[0].accepted, report.trackers[0].delivered) == (2, 2)
    run.flush(commit_open=True)
    assert run.report().rows == run.report().store.delivered == len(recorder.rows) == 3


def test_it_is_a_picture_of_one_moment(run):
    """What happens later does not change it, and it cannot be changed."""
    run.log({"x": 1})
    report = run.report()
    run.log({"x": 2})
    assert (report.rows, run.report().rows) == (1, 2)
    with pytest.raises(AttributeError):
        report.rows = 5


def test_a_tracker_that_fails_is_counted_and_keeps_rows_from_nobody(tmp_path, recorder, caplog):
    """The training loop goes on; it is said once per method."""
    with Run([FailingTracker(), recorder], LocalTracker(tmp_path)) as run:
        for _ in range(3):
            run.log({"x": 1})
        run.log_summary({"best": 1})
        report = run.report()
        assert report.trackers[0].failed == {"log": 3, "log_summary": 1}
        assert report.trackers[1].failed == report.run.failed == report.store.failed == {}
        assert (report.store.delivered, len(recorder.rows)) == (3, 3)
    assert sum("failing.log failed" in record.message for record in caplog.records) == 1


def test_a_converted_value_is_counted_once_by_the_run(run, recorder):
    """However many trackers there are, and also where the row was merged of several calls."""
    with pytest.warns(TrackwayWarning):
        run.log({"a": object()}, step=0)
    with pytest.warns(TrackwayWarning):
        run.log({"b": object(), "c": 1}, step=0, commit=True)
    report = run.report()
    assert sum(report.run.converted.values()) == 2
    assert report.store.converted == {}


@pytest.mark.filterwarnings("ignore:.*came after step")
def test_late_rows_and_dropped_calls_are_in_the_text(run):
    """One line for the run, one for each part that took rows or lost something."""
    run.log({"x": 1}, step=5, commit=True)
    run.log({"x": 1}, step=3)
    text = str(run.report())
    assert text.splitlines()[0] == "run run, running: 1 rows, 1 late ones dropped"
    assert [line.strip().partition(":")[0] for line in text.splitlines()[1:]] == ["local", "recording"]
    run.finish()
    run.log({"x": 1})
    assert "called after finish x1" in str(run.report())


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.log({"x": 1}),
        lambda run: run.log({"x": 1}, step=5, commit=True),
        lambda run: run.add({"x": 1}),
        lambda run: run.log_summary({"x": 1}),
        lambda run: run.log_hyperparameters({"x": 1}),
        lambda run: run.log_artifact(__file__),
        lambda run: run.log_event("e", {}),
        lambda run: run.alert("a"),
        lambda run: run.flush(),
        lambda run: run.flush(commit_open=True),
        lambda run: run.rewind(0),
        lambda run: run.mark_failed(ValueError()),
    ],
    ids=["log", "step", "add", "summary", "hparams", "artifact", "event", "alert", "flush", "open", "rewind", "failed"],
)
def test_calls_after_finish_are_counted_and_reach_nobody(run, recorder, call):
    """Each does nothing and raises nothing."""
    run.finish()
    call(run)
    got = [recorder.rows, recorder.summary, recorder.hparams, recorder.artifacts, recorder.events, recorder.alerts]
    assert not any(got)
    assert (recorder.rewinds, recorder.error) == ([], None)
    assert run.report().run.dropped == {"called after finish": 1}
    assert (run.report().state, run.report().rows) == ("finished", 0)


def test_the_count_of_a_background_tracker_says_what_is_under_way(tmp_path):
    """After `flush` all rows are through, and accepted, delivered and pending agree."""
    with Run([BackgroundTracker(RecordingTracker())], LocalTracker(tmp_path)) as run:
        for _ in range(5):
            run.log({"x": 1})
        run.flush()
        (report,) = run.report().trackers
    assert (report.accepted, report.delivered, report.pending) == (5, 5, 0)


@pytest.mark.parametrize("wrap", [CompositeTracker, lambda runs: CompositeTracker([BackgroundTracker(runs[0])])])
def test_a_composite_counts_what_became_of_the_rows_of_a_run_in_it(recorder, wrap):
    """The run's own report has another form, and does not keep the composite from counting."""
    with wrap([Run([recorder])]) as composite:
        composite.log({"x": 1}, step=0, commit=True)
        composite.flush()
        (report,) = composite.reports()
    assert (report.accepted, report.delivered, report.failed) == (1, 1, {})


def test_a_run_without_a_directory_has_no_report_of_one(recorder):
    """The part is None, and the text has no line for it."""
    with Run([recorder], run_id="mine") as run:
        run.log({"x": 1})
        assert run.report().store is None
        assert str(run.report()) == ("run mine, running: 1 rows\n  recording: 1 accepted, 1 delivered, 0 pending")


def test_the_end_of_a_run_says_what_became_of_its_rows(run, caplog):
    """`finish` writes the report to the log, with the number of late rows."""
    run.log({"x": 1}, step=5, commit=True)
    with pytest.warns(TrackwayWarning):
        run.log({"x": 1}, step=3)
    with caplog.at_level(logging.INFO, "trackway"):
        run.finish()
    assert any("1 rows, 1 late ones dropped" in record.message for record in caplog.records)


def test_late_rows_are_told_at_the_end_where_only_warnings_are_shown(run, caplog):
    """How many rows were dropped is not for the reader of debug logs alone."""
    run.log({"x": 1}, step=5, commit=True)
    with pytest.warns(TrackwayWarning):
        run.log({"x": 1}, step=3)
    run.log({"x": 1}, step=2)
    caplog.clear()
    run.finish()
    warned = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert any("2 late" in message for message in warned)
