"""What is said, while a run goes on, about rules that cannot work as they are meant."""

from __future__ import annotations

import threading

import pytest
from alert_rows import WAIT, Rows

import trackway
from trackway.alerts._engine import RuleEngine


def said(caplog):
    """Return the messages so far; the threads that say them are waited for."""
    for thread in threading.enumerate():
        if thread.name == "trackway-alerts-notices":
            thread.join(WAIT)
    return caplog.messages


def test_a_name_that_looks_misspelt_is_said_after_a_hundred_rows(caplog):
    """Nobody has to wait for the end of the run; a metric that may come later, as of an evaluation, is not named."""
    rows = Rows(["losss > 5", "train.los > 5", "val/accuracy < 0.1", "loss > 5"])
    for step in range(99):
        rows.alerts.observe(step, 1000.0 + step, {"loss": 1.0, "train": {"loss": 1.0}})
    assert said(caplog) == []
    rows.give(1, 1, 1)
    text = "'losss' (did you mean 'loss'?), 'train.los' (did you mean 'train/loss'?)"
    assert said(caplog) == [f"alerts: rules read metrics of which no row has had a number so far: {text}"]
    rows.alerts.stop(WAIT)


@pytest.mark.parametrize("rule", ["loss > 5", "val/loss > 5"])
def test_a_rule_that_may_work_is_not_spoken_of(caplog, rule):
    """A metric that was there, or that resembles none of those that were, gives no reason."""
    rows = Rows([rule])
    for step in range(300):
        rows.alerts.observe(step, 1000.0 + step, {"loss": 1.0, "train/loss": 1.0})
    assert said(caplog) == []
    assert not rows.alerts.engine._early > 0
    rows.alerts.stop(WAIT)


def test_a_value_that_is_no_number_is_said_at_once(caplog):
    """It is said once, by a thread of its own, and not again at the end."""
    rows = Rows(["loss > 5"])
    rows.give("high", "higher")
    expected = ["alert rules read the metric 'loss', but its value is no number but a str; other metrics go on"]
    assert said(caplog) == expected
    rows.give("high")
    rows.alerts.engine.tell()
    assert said(caplog) == expected


def test_the_rows_after_the_first_ones_are_looked_at_as_fast_as_can_be():
    """Names are noted in a hundred rows alone; then the engine calls the function made of the rules itself."""
    engine = RuleEngine(["lss > 5"])
    for step in range(100):
        engine.observe(step, float(step), {f"loss{step}": 1.0, 7: "no name"})
    assert engine._look is engine._compiled.look
    assert len(engine._names) == 100


def test_names_that_are_noted_are_bounded():
    """A row with very many metrics does not make the engine keep all their names."""
    engine = RuleEngine(["lss > 5"])
    for step in range(100):
        engine.observe(step, float(step), {f"{step}/{number}": 1.0 for number in range(2000)})
    assert len(engine._names) == 1000


def test_a_run_that_only_starts_says_nothing_of_its_metrics(tmp_path, caplog):
    """Where no row came, at the check of the rules before the start too, no metric is called missing."""
    with trackway.start(dir=tmp_path, run_id="run", alerts=["loss > 5"]):
        assert caplog.messages == []
    assert "rules read metrics" not in caplog.text
