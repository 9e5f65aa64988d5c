"""The engine agrees with an evaluator that does everything anew for each row."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plain_alerts import TooCloseError, alerts_of

from trackway.alerts import AlertRule
from trackway.alerts._engine import RuleEngine
from trackway.alerts._grammar import parse_condition

METRICS = st.sampled_from(["a", "b/c", "b.c", "`a`"])
POINTS = [
    "mean",
    "std",
    "median",
    "min",
    "max",
    "sum",
    "first",
    "last",
    "diff",
    "rate",
    "pct_change",
    "slope",
    "zscore",
]
WHOLE = ["mean", "std", "min", "max", "sum", "first", "last", "diff", "rate", "pct_change", "count"]
SMALL = st.integers(-8, 8).map(lambda number: number / 4)
PLAIN_VALUES = st.one_of(SMALL, SMALL, st.integers(-3, 3), st.floats(-1e3, 1e3), st.sampled_from([1e9, -1e9, 1e-9]))
ODD_VALUES = st.sampled_from([math.nan, math.inf, -math.inf, 10**400, "text", None, True, [1.0]])
CONSTANTS = st.one_of(SMALL, st.sampled_from([0, 1, 1.5, 0.1, 40])).map(lambda number: f"{number}")
COMPARISONS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


@st.composite
def windows(draw, least=3):
    """Draw a window, in points or in time."""
    return draw(st.one_of(st.integers(least, 7).map(str), st.integers(1, 12).map(lambda number: f"{number}s")))


@st.composite
def series(draw):
    """Draw a function of the points of a metric."""
    kind = draw(st.sampled_from(["window", "window", "whole", "ema", "count"]))
    metric = draw(METRICS)
    if kind == "window":
        return f"{draw(st.sampled_from(POINTS))}({metric}[{draw(windows())}])"
    if kind == "whole":
        return f"{draw(st.sampled_from(WHOLE))}({metric})"
    if kind == "count":
        return f"count({metric}[{draw(windows())}])"
    return draw(st.sampled_from([f"ema({metric}, 0.5)", f"ema({metric}[4])"]))


LEAVES = st.one_of(
    METRICS, METRICS, series(), series(), CONSTANTS, st.sampled_from(["step", "elapsed"]), METRICS.map("age({})".format)
)
NUMBERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map("abs({})".format),
        inner.map("-({})".format),
    ),
    max_leaves=3,
)
TRENDS = st.builds("{}({}[{}])".format, st.sampled_from(["increasing", "decreasing", "stalled"]), METRICS, windows(2))
TESTS = st.one_of(
    st.tuples(NUMBERS, COMPARISONS, NUMBERS).map(" ".join),
    st.tuples(NUMBERS, COMPARISONS, CONSTANTS).map(" ".join),
    NUMBERS.map("isnan({})".format),
    NUMBERS.map("isinf({})".format),
    METRICS.map("has({})".format),
    TRENDS,
    st.just("no_data(5s)"),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map("not ({})".format),
    ),
    max_leaves=3,
).filter(re.compile(r"\b(a|b[/.]c|step|elapsed|no_data)\b").search)  # what reads nothing is no condition


@st.composite
def rules(draw):
    """Draw a rule."""
    when = draw(CONDITIONS)
    condition = parse_condition(when)
    in_rows = condition.triggers or not condition.timed
    return AlertRule(
        when=when,
        mode=draw(st.sampled_from(["edge", "level"])),
        for_points=draw(st.sampled_from([1, 1, 2, 3])) if in_rows else 1,
        for_seconds=draw(st.sampled_from([0, 0, 4])),
        cooldown=draw(st.sampled_from([0, 0, 5])),
        max_fires=draw(st.sampled_from([None, None, 1, 2])),
        recovery=draw(st.booleans()),
    )


@st.composite
def histories(draw):
    """Draw rows: names, gaps, odd values, time that stands still or runs backwards."""
    rows, step, time = [], 0, 1000.0
    for _ in range(draw(st.integers(0, 30))):
        step += draw(st.integers(1, 3))
        time += draw(st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, 3.0, 9.0, -2.0]))
        row = {"_step": step, "_time": time}
        for name in ("a", "b/c", "b.c"):
            kind = draw(st.integers(0, 9))
            if kind > 2:
                row[name] = draw(ODD_VALUES if kind == 3 else PLAIN_VALUES)
        rows.append(row)
    return rows


def _observed(engine, rows):
    found = []
    for index, row in enumerate(rows):
        values = {name: value for name, value in row.items() if not name.startswith("_")}
        found += [(index, alert) for alert in engine.observe(row["_step"], row["_time"], values)]
    return found


def _said(found):
    return [(alert.rule, index, alert.step, alert.state) for index, alert in found]


@settings(max_examples=120, deadline=None)
@given(rule=rules(), rows=histories())
def test_a_rule_fires_where_the_plain_evaluator_has_it_fire(rule, rows):
    """Every alert of every rule comes at the row, and in the state, that follows from the whole history."""
    try:
        expected = alerts_of(rule, rows)
    except TooCloseError:
        assume(False)
    engine = RuleEngine([rule])
    assert [said[1:] for said in _said(_observed(engine, rows))] == expected
    assert not [text for name, text in engine._clock.notices.items() if name.startswith("(")]


@settings(max_examples=40, deadline=None)
@given(several=st.lists(rules(), min_size=2, max_size=5), rows=histories())
def test_rules_do_not_disturb_one_another(several, rows):
    """Rules that are compiled together, and share their windows, fire as each does alone."""
    together = _said(_observed(RuleEngine(several), rows))
    for index, rule in enumerate(several):
        if rule not in several[:index] and several.count(rule) == 1:
            alone = _said(_observed(RuleEngine([rule]), rows))
            assert [said for said in together if said[0] == rule] == alone


@settings(max_examples=60, deadline=None)
@given(rule=rules(), rows=histories(), share=st.floats(0, 1))
def test_a_resumed_run_fires_as_one_that_was_never_interrupted(rule, rows, share):
    """With the stored rows filled in, the second half fires at the steps at which it would have anyway."""
    half = int(share * len(rows))
    whole = [(index, alert) for index, alert in _observed(RuleEngine([rule]), rows) if index >= half]
    engine = RuleEngine([rule])
    assert engine.backfill(rows[:half]) == half
    resumed = [(index + half, alert) for index, alert in _observed(engine, rows[half:])]
    assert _said(resumed) == _said(whole)
    assert [str(alert.values) for _, alert in resumed] == [str(alert.values) for _, alert in whole]


@pytest.mark.parametrize("function", ["mean", "std", "slope", "sum", "zscore"])
def test_sums_that_move_along_stay_exact_for_long(function):
    """After thousands of points of very different sizes a window gives what its points give."""
    import random

    from plain_alerts import FUNCTIONS, Point

    chance = random.Random(5)
    engine = RuleEngine([f"{function}(x[40]) > 1e99"])
    (statistic,) = [made for name, made in engine._compiled.look.__globals__.items() if name == "statistic0"]
    points = []
    for step in range(3000):
        value = chance.gauss(0, 1) * 10.0 ** chance.choice([-6, 0, 0, 0, 0, 8 if step % 700 < 5 else 0])
        value += 1000.0 * (step > 1500)
        points.append(Point(step, step, float(step), value))
        engine.observe(step, float(step), {"x": value})
        if step >= 40 and step % 7 == 0:
            exact = FUNCTIONS[function](points[-40:], None)
            assert getattr(statistic, function)() == pytest.approx(exact, rel=1e-7, abs=1e-7)
