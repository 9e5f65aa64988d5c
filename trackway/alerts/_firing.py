"""When a rule whose condition holds fires: edges, `for`, cooldown, limits, recovery."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from trackway.alerts._rule import Alert, AlertRule, State

__all__ = ["Firing"]

_LEVEL_PAUSE = 60.0  # seconds between alerts of one rule in mode "level" while no row comes
_MAX_PAUSE = 60.0  # seconds between attempts at an alert that is not delivered
_MAX_OUT = 64


@final
class Firing:
    """The state of one rule. Not thread-safe.

    Attributes:
        rule: The rule.
        on: Whether an alert is out whose condition has not ceased to hold since.
        since: When the condition began to hold; None: it does not.
    """

    __slots__ = (
        "_before",
        "_clock",
        "_count",
        "_failures",
        "_last",
        "_more",
        "_newest",
        "_out",
        "_pause_until",
        "_streak",
        "_told",
        "on",
        "rule",
        "since",
    )

    def __init__(self, rule: AlertRule, clock: Callable[[], float]) -> None:
        self.rule = rule
        self.on = False
        self.since: float | None = None
        self._clock = clock
        self._streak = self._count = self._failures = 0
        self._out: deque[Alert] = deque(maxlen=_MAX_OUT)  # what makes it be on, as far as that may be given back
        self._more = False  # whether there are more than that
        self._told = False  # whether someone has what was given back for others
        self._newest: Alert | None = None
        self._last: float | None = None  # when it last fired
        self._before: float | None = None  # and when before that
        self._pause_until = 0.0

    @property
    def busy(self) -> bool:
        """Whether a look at which the condition does not hold changes anything."""
        return self.on or self._told or self.since is not None

    def advance(self, holds: bool | None, now: float, *, between: bool) -> State | None:
        """Take what a look found at the time *now*; return the state of the alert that is due, if one is."""
        if not holds:
            self._streak, self.since = 0, None
            if holds is None or not (self.on or self._told):
                return None
            self.on = self._told = self._more = False
            self._failures, self._newest = 0, None
            self._out.clear()
            return "recovered" if self.rule.recovery else None
        self._streak += not between
        if self.since is None:
            self.since = now
        if not self._is_due(now, between=between):
            return None
        self.on = True
        self._count += 1
        self._before, self._last = self._last, now
        return "firing"

    def _is_due(self, now: float, *, between: bool) -> bool:
        rule = self.rule
        if self.on and rule.mode == "edge":
            return False
        if rule.max_fires is not None and self._count >= rule.max_fires:
            return False
        if self._streak < rule.for_points and rule.for_points > 1:
            return False
        if rule.for_seconds and now - (self.since or 0.0) < rule.for_seconds:
            return False
        pause = max(rule.cooldown, _LEVEL_PAUSE) if between and rule.mode == "level" else rule.cooldown
        if pause and self._last is not None and now - self._last < pause:
            return False
        return not self._pause_until or self._clock() >= self._pause_until

    def fired(self, alert: Alert) -> None:
        """Take *alert* for the one that was due by the latest `advance`."""
        self._more = self._more or len(self._out) == _MAX_OUT
        self._out.append(alert)
        self._newest = alert

    def give_back(self, alert: Alert, *, told: bool = False) -> None:
        """Have the rule fire again if its condition still holds; at once the first time, then after growing pauses.

        Its end is told where someone was *told* of this alert, or others are out, as they may be in mode "level".
        """
        if alert is self._newest or any(one is alert for one in self._out):
            self._told = told or (self._told and self.rule.mode == "level")
        kept = [one for one in self._out if one is not alert]
        if len(kept) == len(self._out):  # of an earlier time, or given back already
            return
        self._out.clear()
        self._out.extend(kept)
        self.on = bool(kept) or self._more
        self._count -= 1
        if alert is self._newest:
            self._last = self._before
            self._pause_until = self._clock() + min(_MAX_PAUSE, 2.0**self._failures / 2) if self._failures else 0.0
            self._failures += 1
