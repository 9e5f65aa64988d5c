"""What becomes of the end of a condition whose alerts were not all delivered."""

from __future__ import annotations

import pytest
from alert_rows import WAIT, Rows

from trackway.alerts import AlertRule
from trackway.alerts._engine import RuleEngine

LEVEL = AlertRule("x > 5", mode="level", recovery=True)


def fired(engine, steps):
    """Return the alert of each of *steps*, at which the condition holds."""
    return [engine.observe(step, float(step), {"x": 9})[0] for step in steps]


def end(engine, step=99):
    """Return the states of what comes when the condition no longer holds."""
    return [alert.state for alert in engine.observe(step, float(step), {"x": 1})]


@pytest.mark.parametrize(
    ("failed", "expected"),
    [([2], ["recovered"]), ([0], ["recovered"]), ([2, 2, 2], ["recovered"]), ([1, 2], ["recovered"]),
     ([0, 1, 2], []), ([2, 1, 0], [])],
)  # fmt: skip
def test_a_level_rule_recovers_if_one_of_its_alerts_arrived(failed, expected):
    """An alert that failed, however often that is said, does not take back those that did not."""
    engine = RuleEngine([LEVEL])
    alerts = fired(engine, range(3))
    for index in failed:
        engine.delivery_failed(alerts[index])
    assert end(engine) == expected
    assert end(engine) == []


def test_a_level_rule_that_fired_very_often_recovers():
    """Only the latest alerts can be taken back; of the others one is taken to have arrived."""
    engine = RuleEngine([LEVEL])
    for alert in fired(engine, range(100)):
        engine.delivery_failed(alert)
    fired(engine, [100])
    assert end(engine, 101) == ["recovered"]
    engine = RuleEngine([LEVEL])
    alerts = fired(engine, range(100))
    for alert in alerts:
        engine.delivery_failed(alert)
    assert end(engine, 101) == ["recovered"]


def test_an_alert_of_another_engine_is_none_of_ours():
    """Two engines may have one rule; what failed of the first one is nothing to the second."""
    one, other = RuleEngine([LEVEL]), RuleEngine([LEVEL])
    (alert,) = fired(one, [0])
    other.delivery_failed(alert)
    assert end(other) == []
    fired(other, [100])
    other.delivery_failed(alert)
    assert end(other, 101) == ["recovered"]


def test_an_engine_says_since_when_a_condition_holds():
    """It is the time of the row at which it began to hold; None while it does not, and for a rule of others."""
    engine = RuleEngine([LEVEL])
    assert engine.held_since(LEVEL) is None
    fired(engine, [3, 4])
    assert engine.held_since(LEVEL) == 3.0
    assert engine.held_since(AlertRule("x > 5", mode="level", recovery=True)) is None
    end(engine)
    assert engine.held_since(LEVEL) is None


@pytest.mark.parametrize("mode", ["edge", "level"])
def test_who_was_told_is_told_of_the_end(mode):
    """Where one channel is away for all the time, the others hear of the beginning and of the end."""

    def away(_):
        raise ConnectionError("no route")

    rows = Rows(
        [{"when": "loss > 5", "recovery": True, "mode": mode, "cooldown": "1h"}],
        channels=["backends", {"call": away, "name": "pager"}],
        retries=0,
        retry_delay=0.001,
    )
    for loss in (9, 9, 9, 1):
        rows.give(loss)
        assert rows.alerts.flush(WAIT)
    assert [alert.state for alert in rows.sent if alert.step in {0, 3}] == ["firing", "recovered"]
    rows.alerts.stop(WAIT)


def test_who_was_not_told_is_not_told_of_the_end():
    """The end of a condition goes to the channels that know of its beginning, and to no other."""
    told = []

    def pager(alert):
        told.append((alert.step, alert.state))
        raise ConnectionError("no route")

    rows = Rows(
        [{"when": "loss > 5", "recovery": True}],
        channels=["backends", {"call": pager, "name": "pager"}],
        retries=0,
        retry_delay=0.001,
    )
    rows.give(9)
    assert rows.alerts.flush(WAIT)
    rows.give(1)
    rows.alerts.stop(WAIT)
    assert [(alert.step, alert.state) for alert in rows.sent] == [(0, "firing"), (1, "recovered")]
    assert told == [(0, "firing")]


def test_what_nobody_was_told_has_no_end():
    """If every channel failed, one after the other, nobody hears that it is over."""

    def away(_):
        raise ConnectionError("no route")

    rows = Rows(
        [{"when": "loss > 5", "recovery": True}],
        channels=[{"call": away, "name": "pager"}, {"call": away, "name": "chat"}],
        retries=0,
        retry_delay=0.001,
    )
    rows.give(9)
    assert rows.alerts.flush(WAIT)
    assert rows.alerts.observe(1, 1001.0, {"loss": 1}) == ()
    rows.alerts.stop(WAIT)
