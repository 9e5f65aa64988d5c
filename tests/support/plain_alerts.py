"""Alert rules evaluated plainly: for every row from the whole history, with exact fractions, and without any state."""

from __future__ import annotations

import itertools
import math
import statistics
from fractions import Fraction
from typing import NamedTuple

from trackway.alerts._grammar import parse_condition
from trackway.alerts._nodes import Binary, Metric, Number, Unary

CLOSE = 1e-9


class Point(NamedTuple):
    """A number that was logged."""

    row: int
    step: int
    time: float
    value: float


class TooCloseError(Exception):
    """A comparison hangs on rounding."""


class Plain:
    """Evaluates over *rows*, which are dicts with `_step` and `_time`."""

    def __init__(self, rows):
        """Take the rows, in their order."""
        self.rows = rows

    def now(self, row):
        """Return the time that a row counts as."""
        return max(each["_time"] for each in self.rows[: row + 1])

    def points(self, metric, row):
        """Return the numbers of a metric up to a row."""
        found = []
        for index, each in enumerate(self.rows[: row + 1]):
            value = _number(each, metric)
            if value is not None:
                found.append(Point(index, each["_step"], self.now(index), value))
        return found

    def triggered(self, condition, row):
        """Tell whether a rule is looked at on a row."""
        if not condition.triggers:
            return True
        for metric, finite in condition.triggers:
            value = _number(self.rows[row], metric)
            if value is not None and (math.isfinite(value) or not finite):
                return True
        return False

    def value(self, node, row):
        """Return what an expression is at a row: a number, a truth value or None."""
        if isinstance(node, Number):
            return node.value
        if isinstance(node, Metric):
            points = self.points(node, row)
            return points[-1].value if points else None
        if isinstance(node, Unary):
            operand = self.value(node.operand, row)
            if operand is None:
                return None
            return not operand if node.sign == "not" else -operand
        if isinstance(node, Binary):
            return _combined(node.sign, self.value(node.left, row), self.value(node.right, row))
        return self._call(node, row)

    def _call(self, node, row):
        name, now = node.function, self.now(row)
        if name in {"isnan", "isinf", "abs"}:
            operand = self.value(node.operand, row)
            functions = {"isnan": math.isnan, "isinf": math.isinf, "abs": abs}
            return None if operand is None else functions[name](operand)
        if name == "step":
            return self.rows[row]["_step"]
        if name == "elapsed":
            return now - self.now(0)
        if name == "no_data":
            return False
        if name in {"has", "age"}:
            holders = [i for i, each in enumerate(self.rows[: row + 1]) if _value(each, node.metric) is not None]
            if name == "has":
                return bool(holders)
            return now - (self.now(holders[-1]) if holders else self.now(0))
        finite = [point for point in self.points(node.metric, row) if math.isfinite(point.value)]
        return _of_points(node, finite, now)


def _value(row, metric):
    names = [metric.name] if metric.quoted else [metric.name, metric.name.replace(".", "/")]
    return next((row[name] for name in names if row.get(name) is not None), None)


def _number(row, metric):
    value = _value(row, metric)
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def _of_points(node, points, now):
    name, window = node.function, node.window
    inside, filled = points, True
    if window.points is not None and name != "ema":
        inside, filled = points[-window.points :], len(points) >= window.points
    elif window.points is not None:
        filled = len(points) >= window.points
    elif window.seconds is not None:
        inside = [point for point in points if point.time > now - window.seconds]
        filled = bool(points) and now - points[0].time >= window.seconds
    if name == "count":
        return len(inside)
    least = {"std": 2, "diff": 2, "rate": 2, "pct_change": 2, "slope": 2, "zscore": 3}.get(name, 1)
    least = 2 if name in {"increasing", "decreasing", "stalled"} else least
    if not filled or len(inside) < least:
        return None
    return FUNCTIONS[name](inside, node)


def _mean(values):
    return sum(values) / len(values)


def _std(values):
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values]))


def _zscore(points):
    *others, newest = _exact(points)
    off, spread = newest - _mean(others), _std(others)
    if spread:
        return float(off) / spread
    return math.copysign(math.inf, off) if off else 0.0


def _slope(points):
    steps, values = [Fraction(point.step) for point in points], _exact(points)
    middle, mean = _mean(steps), _mean(values)
    spread = sum((step - middle) ** 2 for step in steps)
    products = sum((step - middle) * (value - mean) for step, value in zip(steps, values, strict=True))
    return float(products / spread) if spread else None


def _ema(points, node):
    alpha = node.parameter or 2 / (node.window.points + 1)
    average = points[0].value
    for point in points[1:]:
        average = average + alpha * (point.value - average)
    return average


def _rate(points):
    seconds = points[-1].time - points[0].time
    return (points[-1].value - points[0].value) / seconds if seconds > 0 else None


def _percent(points):
    first = abs(points[0].value)
    return (points[-1].value - points[0].value) / first * 100 if first else None


def _exact(points):
    return [Fraction(point.value) for point in points]


def _plain(points):
    return [point.value for point in points]


FUNCTIONS = {
    "mean": lambda points, _: float(_mean(_exact(points))),
    "sum": lambda points, _: float(sum(_exact(points))),
    "std": lambda points, _: _std(_exact(points)),
    "median": lambda points, _: statistics.median(_plain(points)),
    "min": lambda points, _: min(_plain(points)),
    "max": lambda points, _: max(_plain(points)),
    "first": lambda points, _: points[0].value,
    "last": lambda points, _: points[-1].value,
    "diff": lambda points, _: points[-1].value - points[0].value,
    "rate": lambda points, _: _rate(points),
    "pct_change": lambda points, _: _percent(points),
    "slope": lambda points, _: _slope(points),
    "zscore": lambda points, _: _zscore(points),
    "ema": _ema,
    "increasing": lambda points, _: all(a.value < b.value for a, b in itertools.pairwise(points)),
    "decreasing": lambda points, _: all(a.value > b.value for a, b in itertools.pairwise(points)),
    "stalled": lambda points, node: max(_plain(points)) - min(_plain(points)) <= (node.parameter or 0),
}


def _combined(sign, left, right):
    if sign == "and":
        return False if left is False or right is False else None if None in {left, right} else True
    if sign == "or":
        return True if left is True or right is True else None if None in {left, right} else False
    if left is None or right is None:
        return None
    if sign in {"+", "-", "*", "/"}:
        if sign == "/" and right == 0:
            return None
        return {"+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1)}[sign]
    if math.isnan(left) or math.isnan(right):
        return None
    if left != right and abs(left - right) <= CLOSE * max(abs(left), abs(right), 1.0):
        raise TooCloseError
    return {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "==": left == right,
        "!=": left != right,
    }[sign]


def alerts_of(rule, rows):
    """Return the number of the row, its step and the state of every alert of *rule* over *rows*."""
    plain, condition = Plain(rows), parse_condition(rule.when)
    looks = [(row, plain.value(condition.root, row)) for row in range(len(rows)) if plain.triggered(condition, row)]
    fired, out = [], []
    open_ = False
    for index, (row, holds) in enumerate(looks):
        now = plain.now(row)
        if holds is False and open_:
            open_ = False
            if rule.recovery:
                out.append((row, rows[row]["_step"], "recovered"))
        if holds is not True:
            continue
        streak = 1
        while streak <= index and looks[index - streak][1] is True:
            streak += 1
        lasted = now - plain.now(looks[index - streak + 1][0])
        if streak < rule.for_points or lasted < rule.for_seconds or (open_ and rule.mode == "edge"):
            continue
        if rule.max_fires is not None and len(fired) >= rule.max_fires:
            continue
        if fired and now - fired[-1] < rule.cooldown:
            continue
        fired.append(now)
        open_ = True
        out.append((row, rows[row]["_step"], "firing"))
    return out
