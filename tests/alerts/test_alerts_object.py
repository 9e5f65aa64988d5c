"""Rules and channels together: what is told, what is held back, and what a failed delivery does to a rule."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading

import pytest
from alert_receiver import receiving
from alert_rows import HIGH, WAIT, Rows

from trackway.alerts import Alerts, AlertsConfig
from trackway.alerts._limits import OVER_LIMIT
from trackway.errors import FatalTrackerError, LifecycleError
from trackway.tracker import Report


def test_an_alert_says_rule_values_step_and_run(caplog):
    """The log and the backends get the message, the condition, what was seen, the step and the run."""
    rows = Rows([HIGH])
    rows.give(1, 9, 9, 1)
    (alert,) = rows.sent
    assert (alert.title, alert.level, alert.step, alert.state) == ("loss is high", "error", 1, "firing")
    assert alert.text == "loss > 5 at step 1: loss = 9\nrun: run-7"
    assert caplog.messages == ["alert: loss is high: loss > 5 at step 1: loss = 9; run: run-7"]
    assert rows.report == Report("alerts", accepted=2, delivered=2)


def test_the_end_of_a_condition_is_told_where_that_is_asked_for(caplog):
    """A rule with `recovery` says that its condition is over, as information."""
    caplog.set_level(logging.INFO, "trackway")
    rows = Rows([{"when": HIGH, "recovery": True}])
    rows.give(9, 1)
    assert [(alert.state, alert.level, alert.title) for alert in rows.sent] == [
        ("firing", "error", "loss is high"),
        ("recovered", "info", "recovered: loss is high"),
    ]
    assert [one.levelname for one in caplog.records] == ["ERROR", "INFO"]


def test_every_alert_that_is_told_is_recorded():
    """What keeps a record gets each alert once, whatever its channels, but none that is held back; it may fail."""
    kept = []

    def record(alert):
        kept.append((alert.name, alert.step))
        if alert.step == 1:
            raise OSError("full")

    rows = Rows(["loss > 7", {"when": "loss > 5", "mode": "level", "channels": []}], record=record, rule_rate_limit=3)
    rows.give(9, 6, 6, 6)
    assert kept == [("loss > 7", 0), ("loss > 5", 0), ("loss > 5", 1), ("loss > 5", 2)]
    assert rows.steps == [0]
    assert (rows.report.accepted, rows.report.delivered, rows.report.failed) == (2, 2, {"record": 1})


def test_rules_and_channels_choose_each_other():
    """A rule may name its channels, and a channel the least level that it takes."""
    told = {"all": [], "grave": []}
    rows = Rows(
        [{"when": "loss > 5", "channels": ["backends"]}, "loss > 7 => error", "loss > 8 => info"],
        channels=[
            "backends",
            {"call": told["all"].append, "name": "all"},
            {"call": told["grave"].append, "name": "grave", "level": "error"},
        ],
    )
    rows.give(9)
    rows.alerts.stop(WAIT)
    assert [alert.name for alert in rows.sent] == ["loss > 5", "loss > 7", "loss > 8"]
    assert [alert.name for alert in told["all"]] == ["loss > 7", "loss > 8"]
    assert [alert.name for alert in told["grave"]] == ["loss > 7"]


def test_a_service_that_comes_back_gets_each_alert_once(monkeypatch):
    """A web service that refuses twice gets the alert at the third attempt, once, while rows go on."""
    with receiving() as receiver:
        monkeypatch.setenv("CHAT_URL", receiver.url)
        receiver.answers = [500, 503]
        rows = Rows([HIGH], channels=[{"apprise": "CHAT_URL"}], retry_delay=0.001)
        rows.give(9, 9, 1)
        assert receiver.wait_for(bodies=1)
        rows.give(1, 9)
        rows.alerts.stop(WAIT)
        assert [body["message"].splitlines()[0] for body in receiver.bodies] == [
            "loss > 5 at step 0: loss = 9",
            "loss > 5 at step 4: loss = 9",
        ]
        assert receiver.bodies[0]["title"] == "loss is high"
        assert receiver.refused == 2
    assert rows.report == Report("alerts", accepted=2, delivered=2, failed={"CHAT_URL": 2})


def test_a_required_tracker_may_stop_the_run():
    """`FatalTrackerError` from the backends is let out, once every channel was told."""
    told = []

    def send(_):
        raise FatalTrackerError("required")

    rows = Rows([HIGH, "loss > 6"], channels=["backends", {"call": told.append, "name": "page"}], send=send)
    with pytest.raises(FatalTrackerError):
        rows.give(9)
    rows.alerts.stop(WAIT)
    assert [alert.name for alert in told] == ["loss > 5", "loss > 6"]


def test_a_channel_must_not_end_the_run():
    """Within a channel, on whatever thread, `inside` is true and `stop` is refused; elsewhere it is not."""
    seen = []

    def page(_):
        seen.append(rows.alerts.inside)
        rows.alerts.stop(WAIT)

    rows = Rows([HIGH], channels=["backends", page], send=page)
    rows.give(9)
    assert rows.alerts.flush(WAIT)
    assert not rows.alerts.inside
    assert seen == [True, True]
    assert rows.report.failed.keys() == {"backends", rows.alerts.config.channel_specs()[1].name}
    rows.alerts.stop(WAIT)
    assert rows.report.delivered == 0


def test_the_refusal_names_the_run():
    """The error says which run, and what to do instead."""
    errors = []

    def send(_):
        with pytest.raises(LifecycleError) as error:
            rows.alerts.stop(0)
        errors.append(str(error.value))

    rows = Rows([HIGH], send=send)
    rows.give(9)
    assert "run run-7: a channel of its alerts asked for the end" in errors[0]
    assert "end the run where it was started" in errors[0]


def test_a_channel_may_log_rows_that_fire():
    """A channel that logs, and so fires further rules, is served like any other; the rate limit ends a circle."""
    rows = Rows([{"when": "loss > 5", "mode": "level"}], send=lambda _: rows.give(9), rule_rate_limit=4)
    rows.give(9)
    assert rows.report.delivered == 8
    assert rows.report.dropped == {OVER_LIMIT: 1}
    assert not rows.alerts.inside


def test_after_the_end_nothing_is_told(caplog):
    """Alerts that come after `stop` are counted; `stop` again does nothing."""
    rows = Rows([HIGH])
    rows.alerts.stop(WAIT)
    rows.alerts.stop(WAIT)
    rows.give(9)
    assert rows.sent == []
    assert rows.report.dropped == {"called after finish": 1}


def test_metrics_that_never_came_are_named_at_the_end(caplog):
    """A rule on a misspelt metric can never fire; the end of the run says so."""
    rows = Rows(["losss > 5", "loss > 5"])
    rows.give(1)
    rows.alerts.stop(WAIT)
    assert caplog.messages == ["alerts: rules read metrics of which no row had a number: losss"]


def test_a_forked_child_tells_nobody():
    """In a child alerts are counted and go nowhere, no thread starts, and the end is reached at once."""
    told = []
    rows = Rows([HIGH, "no_data(1s)"], channels=["backends", {"call": told.append, "name": "page"}])
    rows.give(9)
    assert rows.alerts.flush(WAIT)
    pid = os.fork()
    if pid == 0:
        try:
            rows.give(1, 9)
            rows.alerts.start()
            rows.alerts.stop(WAIT)
            counted = "called in a forked child; start a tracker of its own there" in rows.report.dropped
            # other libraries may start threads of theirs again
            alone = not [one for one in threading.enumerate() if one.name.startswith("trackway")]
            wrong = [not counted, not alone, len(rows.sent) != 1, len(told) != 1]
            os._exit(sum(2**bit for bit, value in enumerate(wrong) if value))
        finally:
            os._exit(16)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    rows.give(1, 9)
    rows.alerts.stop(WAIT)
    assert [alert.step for alert in told] == [0, 2]


def test_rows_of_an_earlier_process_fire_nothing_and_fill_windows():
    """`backfill` gives rules the rows before: a condition that held then is no news, and its end is."""
    rows = Rows([{"when": "mean(loss[3]) > 5", "recovery": True}])
    taken = rows.alerts.backfill({"_step": step, "_time": 900.0 + step, "loss": 9} for step in range(3))
    assert taken == 3
    rows.step = 3
    rows.give(9, 0, 0)
    assert [(alert.step, alert.state) for alert in rows.sent] == [(5, "recovered")]


def test_a_service_is_told_while_the_program_ends():
    """An alert that comes up when the interpreter already ends still reaches a service."""
    program = """
        import atexit
        from trackway.alerts import Alerts
        alerts = Alerts(["loss > 5"], channels=[{"apprise": "CHAT_URL"}])

        def end():
            alerts.deliver(alerts.observe(7, 1.0, {"loss": 9}))
            alerts.stop(20)

        atexit.register(end)
    """
    with receiving() as receiver:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env=os.environ | {"CHAT_URL": receiver.url},
            capture_output=True,
            text=True,
            timeout=WAIT,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert [body["message"] for body in receiver.bodies] == ["loss > 5 at step 7: loss = 9"]


def test_without_backends_there_is_no_such_channel():
    """Used alone, without trackers, "backends" is left out."""
    alerts = Alerts(AlertsConfig([HIGH]), run_id="x")
    alerts.deliver(alerts.observe(0, 1.0, {"loss": 9}))
    assert alerts.report() == Report("alerts", accepted=1, delivered=1)
