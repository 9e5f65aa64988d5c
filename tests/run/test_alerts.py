"""Alerts of a run: rules look at each committed row before anyone else has it, and people are told."""

from __future__ import annotations

import json
import logging
import threading

import pytest

import trackway
from trackway.errors import AlertSyntaxError, ConfigError, LifecycleError
from trackway.run import Run
from trackway.store import LocalTracker
from trackway.testing import RecordingTracker


@pytest.fixture(autouse=True)
def _logged(caplog):
    """Alerts that are errors go to the log; it is not shown."""
    caplog.set_level(logging.INFO, "trackway")


def events(folder):
    """The events of a run directory."""
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def alerting(tmp_path, alerts, recorder=None, **options):
    """A run with rules."""
    recorder = RecordingTracker() if recorder is None else recorder
    return Run([recorder], LocalTracker(tmp_path / "run"), alerts=alerts, **options)


def test_a_rule_that_holds_is_told_to_the_log_the_trackers_and_the_directory(tmp_path, recorder, caplog):
    """Once, as long as it holds."""
    with alerting(tmp_path, ["loss > 5 => error: loss spike"], recorder) as run:
        for step, loss in enumerate((1.0, 6.0, 7.0)):
            run.log({"loss": loss}, step=step)
    ((level, title, text),) = recorder.alerts
    assert ("loss spike" in title, level) == (True, "error")
    assert "loss = 6" in text
    (line,) = events(tmp_path / "run")
    assert (line["event"], line["_step"], line["level"], line["state"]) == ("alert", 1, "error", "firing")
    assert line["values"] == {"loss": 6.0}
    assert [record.levelname for record in caplog.records if "loss spike" in record.message] == ["ERROR"]


def test_a_shorthand_name_reads_a_metric_with_a_slash(tmp_path, recorder):
    """Nested or not."""
    with alerting(tmp_path, ["train.loss > 5"], recorder) as run:
        run.log({"train/loss": 6.0}, step=0)
        run.log({"train": {"loss": 1.0}}, step=1)
        run.log({"train": {"loss": 8.0}}, step=2)
    assert len(recorder.alerts) == 2


def test_a_row_is_looked_at_once_it_is_committed(tmp_path, recorder):
    """And with all that was merged into it."""
    with alerting(tmp_path, ["loss > 5 and accuracy < 0.5"], recorder) as run:
        run.log({"loss": 6.0}, step=0)
        assert recorder.alerts == []
        run.log({"accuracy": 0.1}, step=0)
        run.log({"loss": 1.0}, step=1)
        assert len(recorder.alerts) == 1


def test_who_is_alerted_has_the_alert_before_the_row(tmp_path):
    """Alerts come first."""
    seen = []

    class Noting(RecordingTracker):
        def log(self, metrics, *, step, commit=None):
            seen.append("row")

        def alert(self, title, text="", *, level="warning"):
            seen.append("alert")

    with alerting(tmp_path, ["loss > 5"], Noting()) as run:
        run.log({"loss": 6.0}, step=0, commit=True)
        assert seen == ["alert", "row"]


def test_late_and_rejected_rows_reach_no_rule(tmp_path, recorder):
    """As they reach no other sink."""
    with alerting(tmp_path, ["loss > 5"], recorder) as run:
        run.log({"loss": 1.0}, step=10, commit=True)
        with pytest.warns(trackway.TrackwayWarning, match="dropped"):
            run.log({"loss": 9.0}, step=3)
    assert recorder.alerts == []


def test_a_recursive_row_of_a_callback_advances_the_rules(tmp_path, recorder):
    """It is a row like any other."""
    with alerting(tmp_path, ["count(loss) >= 2"], recorder) as run:
        run.on_commit(lambda row: row["_step"] == 0 and run.log({"loss": 2.0}, step=1, commit=True))
        run.log({"loss": 1.0}, step=0, commit=True)
        assert len(recorder.alerts) == 1


def test_a_callable_is_a_channel(tmp_path):
    """It gets the alert."""
    told = threading.Event()
    found = []

    def tell(alert):
        found.append((alert.name, alert.step))
        told.set()

    config = {"rules": ["loss > 5 => warning: high"], "channels": [tell]}
    with trackway.start(dir=tmp_path, alerts=config) as run:
        run.log({"loss": 6.0}, step=3, commit=True)
        assert told.wait(20)
    assert found == [("loss > 5", 3)]


def test_a_run_can_be_neither_finished_nor_started_from_a_channel(tmp_path):
    """It would wait for itself."""
    errors, told = [], threading.Event()

    def tell(_alert):
        for forbidden in (trackway.finish, run.finish, lambda: trackway.start(dir=tmp_path)):
            try:
                forbidden()
            except LifecycleError as error:
                errors.append(error)
        told.set()

    with trackway.start(dir=tmp_path, alerts={"rules": ["loss > 5"], "channels": [tell]}) as run:
        run.log({"loss": 6.0}, step=0, commit=True)
        assert told.wait(20)
    assert len(errors) == 3


def test_a_continued_run_has_the_windows_of_the_earlier_one(tmp_path):
    """A rule that fired does not fire again, and a window that was filled is filled."""
    rules = ["mean(loss[5]) > 3"]
    first, second = RecordingTracker(), RecordingTracker()
    with trackway.start([first], dir=tmp_path, run_id="a", alerts=rules) as run:
        for step in range(4):
            run.log({"loss": 4.0}, step=step)
    with trackway.start([second], dir=tmp_path, run_id="a", alerts=rules) as run:
        run.log({"loss": 4.0}, step=4)
        run.log({"loss": 4.0}, step=5)
    assert (len(first.alerts), len(second.alerts)) == (0, 1)


def test_superseded_rows_leave_the_windows(tmp_path):
    """Of a run that goes on from an earlier checkpoint, also where the first step says so."""
    recorder = RecordingTracker()
    with alerting(tmp_path, ["max(loss[3]) > 5"], recorder) as run:
        for step, loss in enumerate((1.0, 1.0, 1.0, 9.0)):
            run.log({"loss": loss}, step=step)
        run.rewind(3)
        assert len(recorder.alerts) == 1
        run.log({"loss": 1.0}, step=3)
        run.log({"loss": 9.0}, step=4)
    assert len(recorder.alerts) == 2


def test_a_training_that_hangs_is_seen(tmp_path):
    """No row is needed for that."""
    told = threading.Event()

    class Noting(RecordingTracker):
        def alert(self, title, text="", *, level="warning"):
            told.set()

    with alerting(tmp_path, {"rules": ["no_data(0.2s) => error: hangs"], "interval": 0.05}, Noting()) as run:
        run.log({"loss": 1.0}, step=0, commit=True)
        assert told.wait(20)
    assert [line["rule"] for line in events(tmp_path / "run")] != []


def test_the_report_tells_of_alerts(tmp_path, recorder):
    """How many channels were told."""
    with alerting(tmp_path, ["loss > 5"], recorder) as run:
        run.log({"loss": 6.0}, step=0, commit=True)
        assert run.report().alerts.delivered == 2
    with Run([recorder]) as run:
        assert run.report().alerts is None


def test_a_wrong_rule_is_refused_when_the_run_starts_and_when_it_is_configured(tmp_path):
    """And nothing is left behind."""
    with pytest.raises(AlertSyntaxError, match=r"los\* >"):
        trackway.start(dir=tmp_path, alerts=["los* > 5"])
    with pytest.raises(AlertSyntaxError):
        trackway.TrackingConfig(alerts=["los* > 5"])
    with pytest.raises(ConfigError, match="channels"):
        trackway.TrackingConfig(alerts={"rules": ["loss > 5"], "channels": ["pigeon"]})
    assert list(tmp_path.iterdir()) == []


def test_no_rules_are_no_alerts(tmp_path):
    """An empty list costs nothing."""
    with trackway.start(dir=tmp_path, alerts=[]) as run:
        assert run.report().alerts is None


def test_rows_that_cannot_be_read_cost_windows_and_nothing_else(tmp_path, monkeypatch):
    """A disk that fails at a rewind is counted; the attempt begins all the same."""
    with alerting(tmp_path, ["loss > 5"]) as run:
        for step in range(4):
            run.log({"loss": 1.0}, step=step)
        with monkeypatch.context() as broken:
            broken.setattr(LocalTracker, "history", lambda *_: (_ for _ in ()).throw(OSError(5, "no")))
            run.rewind(2)
        run.log({"loss": 2.0}, step=2)
        assert [row["loss"] for row in run.history(include_meta=False)] == [1.0, 1.0, 2.0]
        assert run.report().run.failed == {"alerts": 1}


def test_hooks_and_files_are_told_of_alerts(tmp_path):
    """An alert is an event like others."""
    seen = []
    with alerting(tmp_path, ["loss > 5 => error: high"]) as run:
        run.hooks.append(lambda event, payload: seen.append((event, payload["level"], payload["step"])))
        run.log({"loss": 6.0}, step=3, commit=True)
    assert seen == [("alert", "error", 3)]


def test_threads_that_log_at_once_leave_no_alert_untold(tmp_path):
    """A row of a run with rules is left to no other thread, which might hand on nothing any more."""
    with Run([], LocalTracker(tmp_path / "run"), alerts=["x > 0"]) as run:
        assert not run._core._is_left(("log", {"x": 1}, None, None))
