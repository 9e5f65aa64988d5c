"""What rules see in rows, and when they fire."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from trackway.alerts import AlertRule, replay_rules
from trackway.alerts._engine import RuleEngine

NAN, INF = math.nan, math.inf


class Clock:
    """A clock that a test moves."""

    def __init__(self, now=1000.0):
        """Begin at *now*."""
        self.now = now

    def __call__(self):
        """Return the time."""
        return self.now


def engine_of(*rules, clock=None, **fields):
    """Return an engine; *fields* are those of the only rule."""
    made = [AlertRule(rules[0], **fields)] if fields else rules
    return RuleEngine(made, clock=clock or Clock())


def steps(engine, values, name="x"):
    """Return the steps at which alerts came, for one value a second; `...` is a row without the metric."""
    fired = []
    for step, value in enumerate(values):
        row = {"other": 1.0} if value is ... else {name: value}
        fired += [(alert.step, alert.state) for alert in engine.observe(step, 1000.0 + step, row)]
    return [step if state == "firing" else -step for step, state in fired]


# --- values ---


@pytest.mark.parametrize(
    ("condition", "values", "expected"),
    [
        ("x > 5", [1, 6, 7, 1, 8], [1, 4]),
        ("isnan(x)", [1.0, NAN, NAN, 1.0, NAN], [1, 4]),
        ("isinf(x)", [1.0, -INF, NAN, INF], [1, 3]),
        ("isnan(x - x)", [1.0, INF, 1.0], [1]),
        ("x > 5", [NAN, INF], [1]),
        ("not x > 5", [NAN, None, "text", 1], [3]),
        ("x == x", [NAN, NAN], []),
        ("x / (x - 1) > 1 or x / (x - 1) <= 1", [1.0, 2.0], [1]),
        ("mean(x[3]) > 2", [3, 3, 3, 0, 9], [2, 4]),
        ("mean(x[3]) > 2", [3, NAN, 3, ..., INF, 3], [5]),
        ("median(x[3]) == 2", [9, 1, 2, 3], [2]),
        ("min(x[2]) > 2 and max(x[2]) < 5", [3, 4, 5, 4, 3], [1, 4]),
        ("sum(x[2]) == 7", [3, 4, 3], [1]),
        ("std(x[4]) == 2", [1, 5, 1, 5], [3]),
        ("x > 2 * min(x)", [4, 2, 3, 5, 1, 3], [3, 5]),
        ("first(x) > last(x)", [4, 5, 3, 6, 1], [2, 4]),
        ("diff(x) >= 2", [1, 3, 4, 6], [1, 3]),
        ("diff(x[3]) == 3", [1, 3, 4, 6], [2]),
        ("rate(x[3]) == 1.5", [1, 3, 4, 6], [2]),
        ("pct_change(x) > 50", [0, 2, 3.5, -1, 1], [2, 4]),
        ("slope(x[3]) == 2", [0, 2, 4, 5], [2]),
        ("slope(x[3]) == 0", [2, 2, 2], [2]),
        ("zscore(x[5]) > 3", [1, 2, 1, 2, 4, 1], [4]),
        ("zscore(x[4]) > 1e9", [1, 1, 1, 1, 1, 1.001], [5]),
        ("ema(x, 0.5) >= 4", [2, 6, 6], [1]),
        ("ema(x[3]) >= 4", [6, 6, 6], [2]),
        ("increasing(x[3])", [1, 2, 3, 3, 4, 5], [2, 5]),
        ("decreasing(x[2])", [3, 2, 2, 1], [1, 3]),
        ("stalled(x[3])", [1, 1, 1, 2, 1], [2]),
        ("stalled(x[3], 1)", [1, 2, 1, 3, 5], [2]),
        ("count(x) >= 3", [1, NAN, 2, ..., 3], [4]),
        ("count(x[2s]) < 2", [1, 1, ..., 1, 1, 1], [0, 2]),
        ("mean(x[3s]) > 2", [9, 9, 9, 9], [3]),
        ("mean(x[2s]) > 2 and other > 0", [9, 9, 9, ..., ..., 9], [3]),
        ("step >= 3", [0, 0, 0, 0, 0], [3]),
        ("elapsed > 2", [0, 0, 0, 0, 0], [3]),
        ("has(x) and step > 1", [..., ..., ..., 1], [3]),
        ("not has(x) and step >= 1", [..., ..., 1], [1]),
        ("age(x) >= 2", [..., 1, ..., ..., ..., 1, ..., ...], [3, 7]),
        ("age(x) >= 2", [..., ..., ...], [2]),
        ("x > 1 and other > 0", [2, ..., 2], [1]),
        ("1 < x <= 3", [1, 2, 3, 4], [1]),
        ("abs(x) > 3 or -x == 1", [-4, -2, -1], [0, 2]),
    ],
)
def test_conditions_hold_where_they_should(condition, values, expected):
    """One row a second; what is missing, NaN, or a window that is not filled is unknown and fires nothing."""
    assert steps(engine_of(condition), values) == expected


def test_names_lead_to_values_by_any_way():
    """A dot stands for a slash unless there is the exact name; nested rows and flat ones are the same."""
    engine = engine_of("train.loss > 5", "`train.loss` > 5", "train/loss > 5")
    rows = [{"train/loss": 9.0}, {"train/loss": 0.0}, {"train": {"loss": 9.0}}, {"train": {"loss": 0.0}}]
    rows += [{"train.loss": 9.0, "train/loss": 1.0}, {"train.loss": 0.0, "train": {"loss": 9.0}}]
    fired = [[alert.name for alert in engine.observe(step, 1.0, row)] for step, row in enumerate(rows)]
    dotted, exact, slashed = "train.loss > 5", "`train.loss` > 5", "train/loss > 5"
    assert fired == [[dotted, slashed], [], [dotted, slashed], [], [dotted, exact], [slashed]]
    assert engine.metrics == ("train.loss", "train/loss")
    deep = engine_of("a/b/c > 5")
    assert [bool(deep.observe(0, 1.0, row)) for row in ({"a": {"x": 9}}, {"a/b": {"c": 9}}, {"a": 9})] == [
        False,
        True,
        False,
    ]
    deep = engine_of("a/b/c > 5")
    assert deep.observe(0, 1.0, {"a": {"b/c": 9}})


def test_hostile_names_and_values_are_data():
    """Nothing of a name is executed, and no value makes a look fail."""
    name = "x\"'); raise SystemExit #\n{0}%s"
    engine = engine_of(f"`{name}` > 5", "x > 5")
    values = [np.float32(9), np.int64(9), np.array([9.0]), object(), {"a": 1}, "9", b"9", 9j, None, [], True]
    assert [bool(engine.observe(0, 1.0, {name: value})) for value in values[:2]] == [True, False]
    for value in values:
        engine.observe(0, 1.0, {name: value, "x": value})
    assert [alert.name for alert in engine.observe(0, 1.0, {"x": 9.0})] == ["x > 5"]  # after True, which is 1
    assert not [key for key in engine._clock.notices if key.startswith("(")]


def test_numbers_too_large_for_floats_are_skipped_with_one_notice(caplog):
    """Their neighbours go on; the metric counts as logged."""
    engine = engine_of("big > 5", "x > 5", "has(big)")
    fired = [[alert.name for alert in engine.observe(step, 1.0, {"big": 10**400, "x": 9})] for step in range(3)]
    assert fired == [["x > 5", "has(big)"], [], []]
    assert engine.unseen == ()
    engine.tell()
    engine.tell()
    assert [record.message for record in caplog.records] == [
        (
            "alert rules read the metric 'big', but a whole number too large for floating point was skipped; "
            "other metrics go on"
        )
    ]


def test_metrics_that_never_came_are_known():
    """So that a misspelt name can be told at the end; a text is no number."""
    engine = engine_of("lss > 5", "x > 5", "note > 5")
    engine.observe(0, 1.0, {"loss": 9, "x": NAN, "note": "text"})
    assert engine.unseen == ("lss", "note")
    engine.tell()


def test_time_never_runs_backwards():
    """A row whose time lies before another's counts as of that one's time; neither is NaN a time."""
    engine = engine_of("elapsed > 10", "mean(x[5s]) > 1")
    fired = []
    for step, time in enumerate([100.0, 90.0, NAN, INF, 104.0, 105.0, 111.0]):
        fired += [(alert.name, alert.step, alert.time) for alert in engine.observe(step, time, {"x": 2.0})]
    assert fired == [("mean(x[5s]) > 1", 5, 105.0), ("elapsed > 10", 6, 111.0)]


# --- firing ---


@pytest.mark.parametrize(
    ("fields", "values", "expected"),
    [
        ({}, [9, 9, 1, 9], [0, 3]),
        ({"mode": "level"}, [9, 9, 1, 9], [0, 1, 3]),
        ({"for_points": 3}, [9, 9, 1, 9, 9, 9, 9], [5]),
        ({"for_points": 2}, [9, NAN, 9, 9], [3]),
        ({"for_points": 2}, [9, ..., 9], [2]),
        ({"for_points": 2, "mode": "level"}, [9, 9, 9, 1, 9, 9], [1, 2, 5]),
        ({"for_seconds": 2}, [9, 9, 9, 9, 1, 9, 9, 9], [2, 7]),
        ({"cooldown": 4}, [9, 1, 9, 1, 9, 1, 9], [0, 4]),
        ({"cooldown": 4}, [9, 1, 9, 9, 9, 9], [0, 4]),
        ({"cooldown": 3, "mode": "level"}, [9] * 8, [0, 3, 6]),
        ({"max_fires": 2}, [9, 1, 9, 1, 9], [0, 2]),
        ({"recovery": True}, [9, 9, 1, 1, 9, 1], [0, -2, 4, -5]),
        ({"recovery": True}, [9, NAN, 9, 1], [0, -3]),
        ({"recovery": True, "max_fires": 1}, [9, 1, 9, 1], [0, -1]),
        ({"recovery": True, "for_points": 2}, [9, 1, 9, 9, 1], [3, -4]),
    ],
)
def test_the_firing_policy(fields, values, expected):
    """Edges, levels, durations, cooldown, limits, recovery (negative steps); unknown ends no alert."""
    assert steps(engine_of("x > 5", mode=fields.pop("mode", "edge"), **fields), values) == expected


def test_an_alert_says_what_was_seen():
    """Title, text and values are those of the row; the rule is there as it was given."""
    rule = AlertRule("x > 5 and mean(y[9]) < 1", "error", "x is high", name="high x", recovery=True)
    engine = RuleEngine([rule, "x > 5 or mean(y[9]) < 1"])
    (alert,) = engine.observe(7, 12.5, {"x": 6.25})
    assert (alert.rule.when, alert.name, alert.title) == ("x > 5 or mean(y[9]) < 1",) * 3
    assert (alert.level, alert.state, alert.step, alert.time) == ("warning", "firing", 7, 12.5)
    assert alert.text == "x > 5 or mean(y[9]) < 1 at step 7: x = 6.25, mean(y[9]) = unknown"
    assert alert.values == {"x": 6.25, "mean(y[9])": None}
    for step in range(9):
        (alert, *_) = [*engine.observe(step, 20.0, {"y": 0.5}), alert]
    assert (alert.rule, alert.name, alert.title, alert.level) == (rule, "high x", "x is high", "error")
    alert = engine.observe(20, 21.0, {"x": 1.0})[0]
    assert (alert.title, alert.state) == ("recovered: x is high", "recovered")
    assert alert.text == "x > 5 and mean(y[9]) < 1 no longer holds at step 20: x = 1, mean(y[9]) = 0.5"


def test_a_failed_delivery_does_not_use_up_the_edge():
    """The rule fires again at the next row, then after pauses; limits are as if it had not fired."""
    clock = Clock()
    engine = engine_of("x > 5", clock=clock, max_fires=1, cooldown=100)
    (first,) = engine.observe(0, 1.0, {"x": 9})
    engine.delivery_failed(first)
    (second,) = engine.observe(1, 2.0, {"x": 9})
    engine.delivery_failed(first)  # of an earlier attempt: it is known already
    assert engine.observe(2, 3.0, {"x": 9}) == ()
    engine.delivery_failed(second)
    assert engine.observe(3, 4.0, {"x": 9}) == ()
    clock.now += 1.0
    (third,) = engine.observe(4, 5.0, {"x": 9})
    assert [alert.step for alert in (first, second, third)] == [0, 1, 4]
    assert engine.observe(5, 500.0, {"x": 1}) == engine.observe(6, 900.0, {"x": 9}) == ()


def test_a_failed_delivery_of_what_is_over_is_not_repeated():
    """A condition that has ceased to hold is not told again, nor does an alert that nobody got recover."""
    engine = engine_of("x > 5", recovery=True)
    (alert,) = engine.observe(0, 1.0, {"x": 9})
    engine.delivery_failed(alert)
    assert engine.observe(1, 2.0, {"x": 1}) == ()
    (alert,) = engine.observe(2, 3.0, {"x": 9})
    (recovered,) = engine.observe(3, 4.0, {"x": 1})
    engine.delivery_failed(alert)
    engine.delivery_failed(recovered)
    assert engine.observe(4, 5.0, {"x": 1}) == ()


# --- between rows ---


def test_no_data_sees_a_hung_run_by_when_rows_are_accepted():
    """The time of acceptance counts, not the row's; a row ends it, and it may fire again."""
    clock = Clock(1000.0)
    engine = engine_of("no_data(60s)", clock=clock, recovery=True)
    assert engine.next_check() == pytest.approx(60, abs=0.01)
    assert engine.check(1059.0) == ()
    clock.now = 1050.0
    assert engine.observe(5, 900.0, {"x": 1.0}) == ()  # a long step: begun long ago, accepted now
    assert engine.check(1109.0) == ()
    clock.now = 1110.0
    (alert,) = engine.check(1110.0)
    assert (alert.step, alert.time, alert.state) == (5, 1110.0, "firing")
    assert alert.text == "no_data(60s) after step 5: no_data(1m) = true"
    assert engine.check(1200.0) == ()
    (recovered,) = engine.observe(6, 1105.0, {"x": 1.0})
    assert recovered.state == "recovered"
    clock.now = 1170.0
    assert [alert.state for alert in engine.check(1170.0)] == ["firing"]


def test_a_run_without_any_row_is_hung_too():
    """Time counts from the beginning; there is no step to name."""
    engine = engine_of("no_data(60s)", "elapsed > 2m and not has(x)", "age(x) > 3m", clock=Clock(0.0))
    fired = [(now, alert.rule.when, alert.step) for now in (60.0, 121.0, 181.0) for alert in engine.check(now)]
    assert fired == [
        (60.0, "no_data(60s)", None),
        (121.0, "elapsed > 2m and not has(x)", None),
        (181.0, "age(x) > 3m", None),
    ]


def test_age_counts_from_the_time_of_the_row():
    """Of the row that held the metric last; other rows do not make it younger."""
    clock = Clock(1000.0)
    engine = engine_of("age(val) > 60", clock=clock)
    engine.observe(0, 990.0, {"val": 1.0})
    assert engine.next_check() == pytest.approx(50, abs=0.01)
    assert engine.observe(1, 1049.0, {"x": 1.0}) == ()
    assert [alert.values for alert in engine.check(1051.0)] == [{"age(val)": 61.0}]


def test_rules_that_do_not_ask_for_time_are_not_looked_at_between_rows():
    """They cost nothing there, and the watchdog need not run."""
    engine = engine_of("x > 5", "mean(x[10m]) > 5")
    engine.observe(0, 1.0, {"x": 1.0})
    assert engine.next_check() is None
    assert engine.check(1e9) == ()


def test_when_to_look_next():
    """The nearest deadline; now and then where it does not show, or a rule waits for something else."""
    clock = Clock(1000.0)
    assert engine_of("no_data(60s)", "elapsed >= 10", clock=clock).next_check() == pytest.approx(10, abs=0.01)
    assert engine_of("no_data(60s)", "age(x) + age(y) > 10", clock=clock).next_check() == 1.0
    held = engine_of("no_data(60s)", clock=clock, for_seconds=30)
    clock.now = 1061.0
    assert held.check(1061.0) == ()
    assert held.next_check() == 1.0
    assert held.check(1090.0) == ()
    assert len(held.check(1091.0)) == 1
    assert held.next_check() == 1.0


def test_a_level_rule_does_not_flood_between_rows():
    """Without rows it repeats itself once a minute at most."""
    engine = engine_of("no_data(10s)", clock=Clock(0.0), mode="level")
    assert [now for now in range(200) if engine.check(float(now))] == [10, 70, 130, 190]


# --- stored rows ---


def test_stored_rows_refill_windows_and_fire_nothing(caplog):
    """The edge is as it was; rows with a damaged time are left out, with a warning, and later ones are not."""
    rows = [{"_step": step, "_time": 100.0 + step, "x": 3.0} for step in range(4)]
    rows[1]["_time"] = NAN
    rows += [{"_step": 4, "_time": None, "x": 1e9}, {"_step": 5, "_time": 10**400, "x": 1e9}, {"_time": 1.0, "x": 1e9}]
    engine = engine_of("mean(x[4]) > 2", "x > 2", "no_data(60s)", clock=Clock(5000.0))
    assert engine.backfill(rows) == 3
    assert [record.message for record in caplog.records] == [
        "alert rules: 4 stored rows have no finite _time or no _step, and are left out of the windows"
    ]
    (alert,) = engine.observe(9, 5000.0, {"x": 3.0})
    assert (alert.name, alert.values) == ("mean(x[4]) > 2", {"mean(x[4])": 3.0})
    assert engine.next_check() == pytest.approx(60, abs=0.01)  # the rows are old, the run is not


def test_a_replay_fires_where_the_live_run_did():
    """Also between rows: the gaps of the stored times are looked through as the watchdog does."""
    clock = Clock(1000.0)
    rules = ["x > 5", AlertRule("no_data(60s)", recovery=True), "age(y) > 100", "zscore(x[20]) > 3 and elapsed > 1"]
    engine, live, rows, time = RuleEngine(rules, clock=clock), [], [], 1000.0
    chance = np.random.default_rng(3)
    for step in range(400):
        gap = 130.25 if step in {100, 200} else 1.0
        for _ in range(int(gap)):
            clock.now += min(1.0, time + gap - clock.now)
            live += engine.check(clock.now) if clock.now < time + gap else ()
        time = clock.now = time + gap
        row = {"x": float(chance.normal()) + 7 * (step % 97 == 0), **({"y": 1.0} if step % 50 == 0 else {})}
        rows.append({"_step": step, "_time": time, **row})
        live += engine.observe(step, time, row)
    again = list(replay_rules(rules, [{"_step": 1, "_time": NAN}, *rows]))
    assert [(a.name, a.step, a.state) for a in again] == [(a.name, a.step, a.state) for a in live]
    names = {alert.name for alert in live}
    assert names == {"x > 5", "no_data(60s)", "age(y) > 100", "zscore(x[20]) > 3 and elapsed > 1"}


def test_a_gap_of_years_is_replayed_with_few_looks(monkeypatch):
    """The number of looks between two rows is bounded, so that a run continued long after does not take ages."""
    looks = []
    check = RuleEngine.check
    monkeypatch.setattr(RuleEngine, "check", lambda engine, now: (looks.append(now), check(engine, now))[1])
    rows = [{"_step": step, "_time": step * 1e8, "x": 1.0} for step in range(3)]
    assert len(list(replay_rules(["age(x) - age(x) > 1", "no_data(60s)"], rows))) == 2
    assert 100 < len(looks) <= 20_000


def test_what_fails_inside_a_look_stays_there(caplog):
    """A row that cannot be read fires nothing, is said once, and the next one is looked at."""
    engine = engine_of("x > 5")
    with caplog.at_level(logging.WARNING):
        assert engine.observe(0, 1.0, object()) == ()
        assert engine.observe(1, 1.0, object()) == ()
        engine.tell()
    assert [record.message for record in caplog.records] == [
        "alert rules could not look at a row: AttributeError; training goes on"
    ]
    assert len(engine.observe(2, 2.0, {"x": 9})) == 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("x > 2 * min(x)", True), ("elapsed > 5", True), ("count(x) > 5", True), ("not has(x)", True),
     ("ema(x[5]) > 1", True),
     ("mean(x[50]) > 3", False), ("diff(x) > 1", False), ("no_data(60s)", False), ("isnan(x) and step > 3", False)],
)  # fmt: skip
def test_rules_that_depend_on_all_rows_are_known(condition, expected):
    """For these the last rows do not do when a run is continued."""
    assert engine_of("x > 1", condition).reads_all is expected


def test_an_engine_without_rules_says_nothing():
    """It costs little, and reads nothing."""
    engine = RuleEngine([])
    assert (engine.observe(0, 1.0, {"x": 1}), engine.check(1.0), engine.next_check()) == ((), (), None)
    assert (engine.metrics, engine.backfill([{"_step": 1, "_time": 2.0}])) == ((), 1)


def test_memory_of_a_window_in_time_is_bounded(monkeypatch):
    """The oldest points leave when there are too many, whatever their time."""
    monkeypatch.setattr("trackway.alerts._windows._MAX_POINTS", 50)
    engine = engine_of("mean(x[1h]) > 5", "max(x[1h]) > 5")
    for step in range(4000):
        engine.observe(step, float(step), {"x": 9.0 if step < 10 else 1.0})
    kept = [made for name, made in engine._look.__globals__.items() if name == "window0"]
    assert [len(window.times) for window in kept] == [50]
