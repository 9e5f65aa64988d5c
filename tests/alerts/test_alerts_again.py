"""Alerts that are told again, held back, or lost, and what that does to their rules."""

from __future__ import annotations

import math
import threading
import types

from alert_rows import HIGH, WAIT, Rows

from trackway.alerts import AlertRule, Alerts
from trackway.alerts._limits import OVER_LIMIT, REPEATED, UNTOLD, Limits
from trackway.errors import LifecycleError


def test_a_delivery_that_failed_does_not_use_up_the_edge():
    """A rule whose alert was given up fires again at the next row, if its condition still holds, and not otherwise."""
    calls = []

    def page(alert):
        calls.append(alert.step)
        if len(calls) <= 3:
            raise ConnectionError("no route")

    rows = Rows([HIGH], channels=[{"call": page, "name": "page"}], retries=2, retry_delay=0.001)
    rows.give(9)
    assert rows.alerts.flush(WAIT)
    rows.give(9, 9)
    rows.alerts.stop(WAIT)
    assert calls == [0, 0, 0, 1]
    assert rows.report.dropped == {"given up, every attempt failed": 1}


def test_a_channel_that_is_down_does_not_have_others_told_again():
    """While a condition holds, its rule fires again only for the channels that do not know; a new edge is for all."""
    told = {"pager": [], "chat": []}
    down = [True]

    def pager(alert):
        if down[0]:
            raise ConnectionError("no route")
        told["pager"].append(alert.step)

    channels = [{"call": pager, "name": "pager"}, {"call": lambda one: told["chat"].append(one.step), "name": "chat"}]
    kept = []
    rows = Rows([HIGH], channels=["backends", *channels], record=kept.append, retries=0, retry_delay=0.001)
    rows.give(9)
    assert rows.alerts.flush(WAIT)
    down[0] = False
    rows.give(9, 9)
    assert rows.alerts.flush(WAIT)
    assert (rows.steps, told) == ([0], {"pager": [1], "chat": [0]})
    rows.give(1, 9)
    rows.alerts.stop(WAIT)
    assert (rows.steps, told) == ([0, 4], {"pager": [1, 4], "chat": [0, 4]})
    assert [alert.step for alert in kept] == [0, 4]


def test_a_condition_that_began_anew_is_told_to_all():
    """Where the condition ceased to hold before its alert came again, the next alert is one for every channel."""
    seen = []

    def pager(alert):
        seen.append(alert.step)
        raise LifecycleError("never")

    rows = Rows([HIGH], channels=["backends", {"call": pager, "name": "pager"}])
    rows.give(9)
    assert rows.alerts.flush(WAIT)
    rows.give(1, 9)
    rows.alerts.stop(WAIT)
    assert rows.steps == seen == [0, 2]


def test_channels_that_fail_one_after_the_other_are_all_told_in_the_end():
    """What a second channel gave up while the first was told again is made up for, too."""
    alerts = Alerts([HIGH], send=print)
    (first,) = alerts.observe(0, 1.0, {"loss": 9})
    edges = alerts._edges
    assert edges.failed(first, "chat") is first
    alerts.engine.delivery_failed(first)
    (second,) = alerts.observe(1, 2.0, {"loss": 9})
    assert [edges.is_owed(second, name) for name in ("chat", "pager")] == [True, False]
    assert edges.failed(first, "pager") is second
    assert edges.failed(second) is second  # held back
    alerts.engine._firing[0].give_back(second)
    alerts.engine._firing[0]._pause_until = 0.0
    (third,) = alerts.observe(2, 3.0, {"loss": 9})
    assert [edges.is_owed(third, name) for name in ("chat", "pager", "log")] == [True, True, False]


def test_backends_that_fail_are_counted_and_told_of_it_again():
    """What `send` raises reaches nobody; the rule fires again at the next row."""
    sent = []

    def send(alert):
        sent.append(alert.step)
        if len(sent) == 1:
            raise OSError("full")

    rows = Rows([HIGH], channels=["backends"], send=send)
    rows.give(9, 9, 9)
    assert sent == [0, 1]
    assert rows.report.failed == {"backends": 1}


def test_a_rule_that_fires_all_the_time_is_held_back():
    """Over the limit of its rule an alert is counted; the next one that is told says how many were held back."""
    rows = Rows([{"when": "loss > 5", "mode": "level"}, "loss > 99"], rule_rate_limit=3)
    rows.give(*[9] * 10)
    assert rows.steps == [0, 1, 2]
    rows.give(100)  # another rule is not concerned
    assert rows.steps == [0, 1, 2, 10]
    assert rows.report.dropped == {OVER_LIMIT: 8}


def test_an_alert_that_was_held_back_comes_when_there_is_room(monkeypatch):
    """The limit delays an alert whose condition goes on to hold; it does not swallow it."""
    now = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
    monkeypatch.setattr("trackway.alerts._alerts.time", clock)
    rows = Rows(["loss > 5", {"when": "isnan(loss)", "mode": "level"}], rate_limit=2)
    rows.give(math.nan, math.nan, 9, 9)
    assert rows.steps == [0, 1]
    for now[0] in (61.0, 63.0, 64.0):
        rows.give(9)
    assert rows.steps == [0, 1, 5]
    assert rows.sent[-1].text.splitlines()[-1] == "earlier alerts of this rule, held back by the rate limit: 2"


def test_limits_count_a_minute_and_know_what_is_alike():
    """Each rule and all together have a number for any minute; the same rule, state and step is told once."""
    limits = Limits(per_rule=2, total=3, window=10.0)
    rows = Rows([{"when": "a > 0", "mode": "level", "recovery": True}, {"when": "b > 0", "mode": "level"}])

    def made(step, **values):
        return rows.alerts.observe(step, 1000.0 + step, values)[0]

    first = made(0, a=1)
    assert limits.refuse(first, 0.0) == ""
    assert limits.refuse(first, 9.0) == REPEATED
    limits.forget(first)
    assert limits.refuse(first, 9.0) == ""
    assert limits.refuse(made(1, a=1), 10.0) == OVER_LIMIT
    assert limits.refuse(made(2, a=0), 10.0) == ""  # the end of what was told
    assert limits.refuse(made(3, a=1), 10.0) == OVER_LIMIT
    assert limits.refuse(made(4, a=0), 10.0) == UNTOLD
    assert limits.refuse(made(5, b=1), 11.0) == ""
    assert limits.refuse(made(6, b=1), 12.0) == OVER_LIMIT
    assert (limits.held_back("b > 0"), limits.held_back("b > 0")) == (1, 0)
    assert limits.refuse(made(7, a=1), 60.5) == ""
    assert limits.refuse(made(8, b=1), 68.9) == OVER_LIMIT
    assert limits.refuse(made(9, b=1), 69.1) == ""


def test_a_queue_that_is_full_gives_alerts_back():
    """A channel that hangs makes the queue full: the oldest goes, rows go on, and the rule has its edge back."""
    began, go, steps = threading.Event(), threading.Event(), []

    def page(alert):
        steps.append(alert.step)
        began.set()
        assert go.wait(WAIT)

    rows = Rows([{"when": "loss > 5", "mode": "level"}], channels=[page], queue_size=2, rule_rate_limit=50)
    rows.give(9)
    assert began.wait(WAIT)
    rows.give(9, 9, 9, 9)
    go.set()
    rows.alerts.stop(WAIT)
    assert steps == [0, 3, 4]
    assert rows.report.dropped == {"the queue was full, and it had waited longest": 2}


def test_a_run_that_goes_on_from_an_earlier_step_is_told_of_anew():
    """After `restart` the same alert at the same step is news, and rows that were superseded are forgotten."""
    rows = Rows([HIGH, "max(loss[2]) > 8"])
    rows.give(1, 9)
    rows.alerts.restart([{"_step": 0, "_time": 1000.0, "loss": 1}])
    rows.step = 1
    rows.give(6, 9)
    assert [(alert.name, alert.step) for alert in rows.sent] == [
        ("loss > 5", 1),
        ("max(loss[2]) > 8", 1),
        ("loss > 5", 1),
        ("max(loss[2]) > 8", 2),
    ]


def test_a_failure_from_before_a_restart_concerns_nobody():
    """What a channel gives up after the run went on from an earlier step is counted, and its rule is left alone."""
    began, go = threading.Event(), threading.Event()

    def page(_):
        began.set()
        assert go.wait(WAIT)
        raise LifecycleError("never")

    rows = Rows([AlertRule("loss > 5")], channels=["backends", {"call": page, "name": "page"}])
    rows.give(9)
    assert began.wait(WAIT)
    rows.alerts.restart([])
    go.set()
    assert rows.alerts.flush(WAIT)
    rows.give(1, 1)
    assert rows.steps == [0]
    assert rows.report.failed == {"page": 1}
    rows.alerts.stop(WAIT)
