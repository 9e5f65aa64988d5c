"""Keeping a rule that fires all the time from flooding those whom it tells."""

from __future__ import annotations

from collections import Counter, deque
from typing import TypeAlias, final

from trackway.alerts._rule import Alert

__all__ = ["OVER_LIMIT", "REPEATED", "UNTOLD", "Limits"]

OVER_LIMIT = "over the rate limit"
REPEATED = "like one told a moment ago"
UNTOLD = "the end of an alert that was held back"

_PERIOD = 60.0
_MAX_KEPT = 10_000

_Key: TypeAlias = tuple[str, str, int | None]


@final
class Limits:
    """Decides which alerts are told. Not thread-safe.

    Alerts are alike if they are of one rule, state and step. The end of an alert is told unless its beginning was held
    back.
    """

    def __init__(self, per_rule: int, total: int, window: float) -> None:
        """Allow *per_rule* alerts of a rule and *total* in all within a minute, and none twice in *window* seconds."""
        self._per_rule = per_rule
        self._window = window
        self._all: deque[float] = deque(maxlen=total)
        self._of_rule: dict[str, deque[float]] = {}
        self._told: dict[_Key, float] = {}
        self._open: set[str] = set()  # rules of which an alert was told whose end has not come
        self._silenced: set[str] = set()  # rules of which all since the last end were held back
        self._held_back: Counter[str] = Counter()

    def refuse(self, alert: Alert, now: float) -> str:
        """Return why *alert* is not to be told at *now*, in seconds of a clock that is never set; "" if it is."""
        key = (alert.name, alert.state, alert.step)
        told = self._told.get(key)
        if told is not None and now - told < self._window:
            return REPEATED
        if alert.state == "recovered":
            self._open.discard(alert.name)
            if alert.name in self._silenced:
                self._silenced.discard(alert.name)
                return UNTOLD
        elif self._has_room(alert.name, now):
            self._open.add(alert.name)
            self._silenced.discard(alert.name)
        else:
            if alert.name not in self._open:
                self._silenced.add(alert.name)
            self._held_back[alert.name] += 1
            return OVER_LIMIT
        self._note(key, now)
        return ""

    def _has_room(self, name: str, now: float) -> bool:
        of_rule = self._of_rule.get(name)
        if of_rule is None:
            of_rule = self._of_rule[name] = deque(maxlen=self._per_rule)
        for times in (of_rule, self._all):
            if len(times) == times.maxlen and now - times[0] < _PERIOD:
                return False
        of_rule.append(now)
        self._all.append(now)
        return True

    def _note(self, key: _Key, now: float) -> None:
        self._told[key] = now
        if len(self._told) > _MAX_KEPT or now - next(iter(self._told.values())) > self._window:
            self._told = {one: told for one, told in list(self._told.items()) if now - told < self._window}
        while len(self._told) > _MAX_KEPT:
            del self._told[next(iter(self._told))]

    def held_back(self, name: str) -> int:
        """Return how many alerts of the rule were over the limit since this was last asked."""
        return self._held_back.pop(name, 0)

    def forget(self, alert: Alert) -> None:
        """Take *alert* for one that was not told, because its delivery failed."""
        self._told.pop((alert.name, alert.state, alert.step), None)

    def restart(self) -> None:
        """Take every step for new: a run goes on from an earlier one."""
        self._told.clear()
