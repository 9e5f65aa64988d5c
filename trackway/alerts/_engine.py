"""Watches the rows of a run with a set of rules."""

from __future__ import annotations

import itertools
import math
import time as time_module
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from trackway import _notices
from trackway.alerts._compile import compile_rules
from trackway.alerts._deadlines import deadlines
from trackway.alerts._firing import Firing
from trackway.alerts._grammar import parse_condition
from trackway.alerts._nodes import Metric
from trackway.alerts._rule import Alert, AlertRule, State, parse_rule
from trackway.alerts._state import Clock, Points
from trackway.alerts._suggest import misspelt, names_in

__all__ = ["RuleEngine", "usable"]

_EARLY = 100  # rows after which a name that looks misspelt is said
_MAX_NAMES = 1000
_MISSPELT = "(misspelt)"
_POLL = 1.0  # seconds between looks where it is not known when a rule may begin to hold


@final
class RuleEngine:
    """Looks at each committed row with all rules. Not thread-safe: its owner holds a lock during each call.

    The rules are made one Python function: each metric is fetched once for a row, each window is kept once, and sums
    move with it. No call runs code of the user's, and none raises. Times are seconds since 1970.

    Attributes:
        rules: The rules.
        reads_all: Whether a rule depends on all rows of the run, as `min(loss)` and `elapsed` do, so that `backfill`
            needs them all; without one, as many as the windows are long will do.
    """

    def __init__(
        self, rules: Iterable[str | Mapping[str, Any] | AlertRule], *, clock: Callable[[], float] = time_module.time
    ) -> None:
        """Watch with *rules*, as `parse_rule` takes them; *clock* tells when rows are accepted.

        Raises:
            AlertSyntaxError: if a rule cannot be read.
            ConfigError: if the package `lark` is not installed.
        """
        self.rules = tuple(parse_rule(rule) for rule in rules)
        conditions = [parse_condition(rule.when) for rule in self.rules]
        self._wall = clock
        self._clock = Clock(clock())
        self._points: dict[Metric, Points] = {}
        self._firing = [Firing(rule, clock) for rule in self.rules]
        self._busy = [False] * len(self.rules)
        self.reads_all = any(condition.reads_all for condition in conditions)
        self._labels = [[str(part) for part in condition.parts] for condition in conditions]
        self._deadlines = [
            (index, deadlines(condition)) for index, condition in enumerate(conditions) if condition.timed
        ]
        self._compiled = compile_rules(conditions, self._points, self._clock, self._busy, self._advance)
        self._look: Callable[[int, float, Mapping[str, Any]], Any] = self._look_early
        self._early = _EARLY
        self._names: set[str] = set()  # of the metrics in the first rows
        self._said: dict[str, object] = {}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics that the rules read, as they are written there."""
        return tuple(dict.fromkeys(points.name for points in self._points.values()))

    @property
    def unseen(self) -> tuple[str, ...]:
        """Those of which no row had a number: perhaps they are misspelt. None before the first row."""
        if self._early == _EARLY:
            return ()
        return tuple(
            dict.fromkeys(points.name for points in self._points.values() if points.value is None and not points.seen)
        )

    def observe(self, step: int, time: float, values: Mapping[str, Any]) -> Sequence[Alert]:
        """Look at a row; return the alerts that are due by it, in the order of the rules.

        Args:
            step: The step of the row.
            time: When the row was begun. One that is not finite, or lies before an earlier row's, counts as that one's.
            values: The values, flat or nested.
        """
        try:
            if self._deadlines:
                self._clock.accepted = self._wall()
            return self._look(step, time, values) or ()
        except Exception as error:
            self._note("observe", f"alert rules could not look at a row: {type(error).__name__}; training goes on")
            return ()

    def check(self, now: float) -> Sequence[Alert]:
        """Look at the time between rows, with the rules that ask for it; return the alerts that are due."""
        if not self._deadlines:
            return ()
        try:
            return self._compiled.look_between(now) or ()
        except Exception as error:
            self._note("check", f"alert rules could not be checked: {type(error).__name__}; training goes on")
            return ()

    def next_check(self) -> float | None:
        """Return the seconds until a rule may begin to hold without a row; None if no rule can."""
        if not self._deadlines:
            return None
        now, soonest = self._wall(), math.inf
        for index, found in self._deadlines:
            times = [self._begin(kind, metric) + seconds - now for kind, metric, seconds in found or ()]
            coming = [time for time in times if time > 0.0]
            if found is None or (len(coming) < len(times) and not self._firing[index].on):
                return min(_POLL, soonest, *coming)
            soonest = min(soonest, *coming, math.inf)
        return soonest + 0.001 if soonest < math.inf else _POLL

    def backfill(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Take the rows of a run that is resumed, in their order, as if they came now; return how many were of use.

        Windows, counts, edges and limits are then as they were; no alert comes of it. Rows need `_step` and `_time`;
        those whose time is not finite are left out, with a warning on the `trackway` logger.
        """
        taken = skipped = 0
        for row in rows:
            place = usable(row)
            if place is None:
                skipped += 1
                continue
            self._look_back(*place, row)
            taken += 1
        self._clock.accepted = self._wall()
        if skipped:
            _notices.logger.warning(
                "alert rules: %d stored rows have no finite _time or no _step, and are left out of the windows", skipped
            )
        return taken

    def delivery_failed(self, alert: Alert, *, told: bool = False) -> None:
        """Take back that *alert* was fired, so that the rule fires again if its condition still holds.

        *told* says whether someone got it, and is to be told of its end all the same.
        """
        if alert.state != "firing":
            return
        for index, firing in enumerate(self._firing):
            if firing.rule is alert.rule:
                firing.give_back(alert, told=told)
                self._busy[index] = firing.busy

    def held_since(self, rule: AlertRule) -> float | None:
        """Return when the condition of *rule*, one of `rules`, began to hold; None while it does not."""
        return next((firing.since for firing in self._firing if firing.rule is rule), None)

    def tell(self) -> None:
        """Say once, on the `trackway` logger, what was met that rules cannot use; call it outside of locks.

        Any thread may.
        """
        for key, message in list(self._clock.notices.items()):
            mine = object()
            if self._said.setdefault(key, mine) is mine:
                text = misspelt(self.unseen, self._names) if key == _MISSPELT else message
                if text:
                    _notices.logger.warning("%s", text)

    def on_notice(self, call: Callable[[], Any]) -> None:
        """Have *call* called, by the thread that gives a row, when `tell` has something new to say; it must not."""
        self._clock.notices.on_new = call

    def _look_early(self, step: int, time: float, values: Mapping[str, Any]) -> Any:
        """Look at one of the first rows, and note what metrics are called; later ones go to the function itself."""
        found = self._compiled.look(step, time, values)
        if len(self._names) < _MAX_NAMES:
            self._names.update(itertools.islice(names_in(values), _MAX_NAMES))
        self._early -= 1
        if self._early <= 0:
            self._look = self._compiled.look
            if self.unseen:
                self._clock.notices[_MISSPELT] = ""  # words are found by who tells it, outside of locks
        return found

    # --- what the compiled function calls ---

    def _advance(
        self, index: int, holds: bool | None, now: float, between: bool, alerts: list[Alert] | None
    ) -> list[Alert] | None:
        firing = self._firing[index]
        state = firing.advance(holds, now, between=between)
        self._busy[index] = firing.busy
        if state is None:
            return alerts
        alert = self._alert(index, state, now, between)
        if state == "firing":
            firing.fired(alert)
        return [alert] if alerts is None else [*alerts, alert]

    def _alert(self, index: int, state: State, now: float, between: bool) -> Alert:
        rule, step = self.rules[index], self._clock.step
        values = dict(zip(self._labels[index], self._compiled.seen[index](now, between), strict=True))
        where = "before the first step" if step is None else f"{'after' if between else 'at'} step {step}"
        found = ", ".join(f"{label} = {_shown(value)}" for label, value in values.items())
        title = rule.title if state == "firing" else f"recovered: {rule.title}"
        text = f"{rule.when}{' no longer holds' if state == 'recovered' else ''} {where}: {found}"
        return Alert(rule, rule.name or rule.when, rule.level, title, text, step, now, state, values)

    def _look_back(self, step: int, time: float, row: Mapping[str, Any]) -> None:
        try:
            self._look(step, time, row)
        except Exception as error:
            self._note("backfill", f"alert rules could not look at a stored row: {type(error).__name__}; others go on")

    def _begin(self, kind: str, metric: Metric | None) -> float:
        """Return the time from which *kind* counts."""
        clock = self._clock
        if kind == "no_data":
            return clock.accepted
        points = None if metric is None else self._points[metric]
        return points.time if points is not None and points.seen else clock.begun

    def _note(self, key: str, message: str) -> None:
        if f"({key})" not in self._clock.notices:
            self._clock.notices[f"({key})"] = message


def usable(row: Mapping[str, Any]) -> tuple[int, float] | None:
    """Return step and time of a stored row; None if there is no step, or no finite time."""
    step, time = row.get("_step"), row.get("_time")
    if not isinstance(step, int) or not isinstance(time, int | float):
        return None
    try:
        return (step, float(time)) if math.isfinite(time) else None
    except OverflowError:
        return None


def _shown(value: float | bool | None) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}"
