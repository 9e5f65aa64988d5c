"""From conditions to one Python function that looks at a row with all of them.

The text of that function is made of names that stand here and of numbers; names of metrics are bound as constants, so
that nothing of what a rule says is ever executed. What several rules ask of one window is kept once. Unknown is None.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

from trackway.alerts._expression import Expression
from trackway.alerts._functions import FUNCTIONS
from trackway.alerts._grammar import Condition
from trackway.alerts._nodes import Call, Metric, Window
from trackway.alerts._running import Ema, Trend, Whole
from trackway.alerts._state import Clock, Points, find, numeric
from trackway.alerts._windows import Ends, Line, Lowest, Moments, Ordered, TimeWindow

__all__ = ["Compiled", "compile_rules"]


@final
class Compiled(NamedTuple):
    """Functions made for a set of conditions.

    Attributes:
        look: Takes step, time and values of a row, and returns what `advance` made of it.
        look_between: Takes the time between two rows; for rules that may begin to hold there.
        seen: For each condition, a function of the time and of whether it is between rows, which returns the values of
            its parts.
    """

    look: Callable[[int, float, Mapping[str, Any]], Any]
    look_between: Callable[[float], Any]
    seen: list[Callable[[float, bool], tuple[Any, ...]]]


_MAKERS: dict[str, tuple[str, Callable[[int], Any], str]] = {
    **dict.fromkeys(("mean", "sum", "std", "zscore"), ("Moments", Moments, "push(x)")),
    "slope": ("Line", Line, "put(x, step)"),
    "median": ("Ordered", Ordered, "push(x)"),
    "min": ("Lowest", Lowest, "push(x)"),
    "max": ("Highest", lambda size: Lowest(size, -1), "push(x)"),
    **dict.fromkeys(("first", "last", "diff", "rate", "pct_change"), ("Ends", Ends, "put(x, now)")),
}
"""The kind of statistic that each function reads, how to make one of so many points, and how a point gets in."""

_READ = {"min": "value()", "max": "value()"}
_TRENDS = {"increasing": "up", "decreasing": "down"}


def compile_rules(
    conditions: Sequence[Condition], points: dict[Metric, Points], clock: Clock, busy: list[bool], advance: Any
) -> Compiled:
    """Return the functions for *conditions*.

    Args:
        conditions: What to look for.
        points: Gets every metric that they read.
        clock: The times, which `look` moves on.
        busy: For each condition whether *advance* wants to hear of it even if it does not hold.
        advance: Called with the number of a condition, whether it holds, the time, whether that is between rows, and
            the alerts of this row or None; returns these with its own.
    """
    return _Compiler(conditions, points, clock, busy, advance).compile()


@final
class _Compiler:
    def __init__(
        self,
        conditions: Sequence[Condition],
        points: dict[Metric, Points],
        clock: Clock,
        busy: list[bool],
        advance: Any,
    ) -> None:
        self._conditions = conditions
        self._points = points
        self._names: dict[str, Any] = {
            "clock": clock,
            "busy": busy,
            "advance": advance,
            "find": find,
            "numeric": numeric,
            "inf": math.inf,
        }
        self._metrics: dict[Metric, int] = {}
        self._pushes: dict[Metric, list[str]] = {}
        self._statistics: dict[tuple[Any, ...], str] = {}
        self._windows: dict[tuple[Metric, float], str] = {}
        self._kept: dict[str, list[Any]] = {}
        self._read_time: set[Metric] = set()

    def compile(self) -> Compiled:
        rules = self._rules()
        between = [
            line
            for index, condition in enumerate(self._conditions)
            if condition.timed
            for line in self._looks([(index, condition)], between=True)
        ]
        seen = [self._seen(index, condition) for index, condition in enumerate(self._conditions)]
        body = [*self._head(), *(line for metric in self._metrics for line in self._fetch(metric))]
        source = [
            "def look(step, time, values):",
            *_indented(body),
            *_indented(rules),
            "    return alerts",
            "def look_between(now):",
            "    alerts = None; step = clock.step",
            *_indented(between),
            "    return alerts",
            *(line for function in seen for line in function),
        ]
        names = self._names
        exec(compile("\n".join(source), "<alert rules>", "exec"), names)  # noqa: S102 - of nothing but our own words
        return Compiled(
            names["look"], names["look_between"], [names[f"seen{index}"] for index in range(len(self._conditions))]
        )

    # --- the parts of the source ---

    def _head(self) -> list[str]:
        """What every row begins with."""
        lines = ["alerts = None; now = clock.now", "clock.step = step"]
        lines += ["if clock.started and now < time < inf: clock.now = now = time", "else: now = clock.advance(time)"]
        for (_, seconds), window in self._windows.items():
            lines.append(f"if {window}.times and {window}.times[0] <= now - {seconds!r}: {window}.trim(now)")
        return lines

    def _fetch(self, metric: Metric) -> list[str]:
        """How one metric is taken out of a row."""
        number = self._metrics[metric]
        names = self._points[metric].names
        lines = [f"got{number} = finite{number} = False", f"x = values.get(name{number})"]
        if len(names) > 1:
            lines.append(f"if x is None: x = values.get(other{number})")
        if "/" in names[-1]:
            lines.append(f"if x is None: x = find(values, names{number})")
        inside = []
        if metric in self._read_time:
            inside += [f"metric{number}.time = now; metric{number}.seen = True"]
        inside += [f"if x.__class__ is not float: x = numeric(metric{number}, x)", "if x is not None:"]
        took = [f"got{number} = True; metric{number}.value = x", "if x - x == 0.0:"]
        enter = [f"finite{number} = True"]
        if any(known == metric for known, _ in self._windows):
            enter.append(f"if not metric{number}.count: metric{number}.begun = now")
        enter += [f"metric{number}.count += 1", *self._pushes.get(metric, ())]
        lines += ["if x is not None:", *_indented([*inside, *_indented([*took, *_indented(enter)])])]
        return lines

    def _rules(self) -> list[str]:
        """How all rules are looked at; those in succession that look at the same rows share what they read."""
        lines: list[str] = []
        for triggers, group in itertools.groupby(enumerate(self._conditions), lambda item: item[1].triggers):
            rules = list(group)
            for _, condition in rules:
                for part in condition.parts:
                    if metric := part if isinstance(part, Metric) else part.metric:
                        self._number(metric)
            looks = self._looks(rules, between=False)
            hits = [f"{'finite' if finite else 'got'}{self._number(metric)}" for metric, finite in triggers]
            lines += [f"if {' or '.join(hits)}:", *_indented(looks)] if hits else looks
        return lines

    def _looks(self, rules: list[tuple[int, Condition]], *, between: bool) -> list[str]:
        expression = Expression(self._part, rules[0][1], between=between)
        for index, condition in rules:
            holds = expression.write(condition.root)
            call = f"alerts = advance({index}, {holds}, now, {between}, alerts)"
            expression.lines.append(f"if {holds} or busy[{index}]: {call}")
        return expression.lines

    def _seen(self, index: int, condition: Condition) -> list[str]:
        """The function that says what the parts of a condition are."""
        expression = Expression(self._part, condition, between=None)
        found = [expression.write(part) for part in condition.parts]
        return [
            f"def seen{index}(now, between):",
            "    step = clock.step",
            *_indented(expression.lines),
            f"    return ({', '.join(found)}{',' if found else ''})",
        ]

    # --- what a condition reads ---

    def _number(self, metric: Metric) -> int:
        """Return the number by which the source knows *metric*."""
        if metric not in self._metrics:
            number = self._metrics[metric] = len(self._metrics)
            points = self._points[metric] = Points(metric.name, metric.quoted, self._names["clock"].notices)
            self._names |= {f"metric{number}": points, f"name{number}": points.names[0], f"names{number}": points.names}
            self._names[f"other{number}"] = points.names[-1]
        return self._metrics[metric]

    def _part(self, part: Metric | Call) -> tuple[str, str]:
        """Return the source of a part's value, and of the condition without which it is unknown, or ""."""
        if isinstance(part, Metric):
            return f"metric{self._number(part)}.value", ""
        if part.function == "step":
            return "step", ""
        if part.function == "elapsed":
            return "now - clock.begun", ""
        if part.metric is None:
            return f"now - clock.accepted >= {part.parameter!r}", ""
        number = self._number(part.metric)
        if part.function in {"has", "age"}:
            self._read_time.add(part.metric)
            seen = f"metric{number}.seen"
            return (
                (seen, "")
                if part.function == "has"
                else (f"now - (metric{number}.time if {seen} else clock.begun)", "")
            )
        return self._of_points(part, part.metric, number, part.window or Window())

    def _of_points(self, part: Call, metric: Metric, number: int, window: Window) -> tuple[str, str]:
        name, least = part.function, FUNCTIONS[part.function].least
        count = f"metric{number}.count"
        ready = f"{count} >= {least}"
        in_window = count
        if window.points is not None:
            ready = f"{count} >= {window.points}"
            in_window = str(window.points)
        elif window.seconds is not None:
            times = self._in_time(metric, window.seconds)
            in_window = f"len({times}.times)"
            ready = f"{in_window} >= {least} and now - metric{number}.begun >= {window.seconds!r}"
        if name == "count":
            return (f"{count} if {count} < {in_window} else {in_window}" if window.points else in_window), ""
        if name in _TRENDS:
            trend = self._statistic(metric, Window(), "Trend", Trend, "push(x)")
            return f"{trend}.{_TRENDS[name]} >= {in_window} - 1", ready
        if name == "stalled":
            low, high = self._of(metric, window, "min"), self._of(metric, window, "max")
            return f"{high}.value() - {low}.value() <= {part.parameter or 0.0!r}", ready
        if name == "ema":
            alpha = part.parameter if part.parameter is not None else 2.0 / ((window.points or 1) + 1)
            return f"{self._statistic(metric, Window(), ('Ema', alpha), lambda: Ema(alpha), 'push(x)')}.value()", ready
        if window == Window():
            whole = self._statistic(metric, window, "Whole", Whole, "push(x)")
            return f"{whole}.{ {'min': 'low', 'max': 'high', 'first': 'first'}.get(name, f'{name}()') }", ready
        return f"{self._of(metric, window, name)}.{_READ.get(name, f'{name}()')}", ready

    def _of(self, metric: Metric, window: Window, function: str) -> str:
        kind, make, push = _MAKERS[function]
        size = -1 if window.points is None else window.points
        return self._statistic(metric, window, kind, lambda: make(size), push)

    def _statistic(self, metric: Metric, window: Window, kind: Any, make: Callable[[], Any], push: str) -> str:
        """Return the name of a statistic, made when it is first asked for."""
        key = (metric, window, kind)
        if key not in self._statistics:
            name = self._statistics[key] = f"statistic{len(self._statistics)}"
            self._names[name] = made = make()
            method, _, arguments = push.partition("(")
            self._names[f"{name}_{method}"] = getattr(made, method)
            self._pushes.setdefault(metric, []).append(f"{name}_{method}({arguments}")
            if window.seconds is not None:
                self._kept[self._in_time(metric, window.seconds)].append(made)
        return self._statistics[key]

    def _in_time(self, metric: Metric, seconds: float) -> str:
        """Return the name of a window in time, made when it is first asked for."""
        key = (metric, seconds)
        if key not in self._windows:
            name = self._windows[key] = f"window{len(self._windows)}"
            self._names[name] = TimeWindow(seconds, self._kept.setdefault(name, []))
            self._pushes.setdefault(metric, []).insert(0, f"{name}.push(now)")
        return self._windows[key]


def _indented(lines: Any) -> list[str]:
    return [f"    {line}" for line in lines]
