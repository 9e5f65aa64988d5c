"""When a rule whose condition holds fires: edges, `for`, cooldown, limits, recovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from trackway.alerts._rule import AlertRule, State

__all__ = ["Firing"]

_LEVEL_PAUSE = 60.0  # seconds between alerts of one rule in mode "level" while no row comes
_MAX_PAUSE = 60.0  # seconds between attempts at an alert that is not delivered


@final
class Firing:
    """The state of one rule. Not thread-safe.

    Attributes:
        on: Whether an alert is out whose condition has not ceased to hold since.
    """

    __slots__ = ("_before", "_clock", "_count", "_failures", "_last", "_pause_until", "_since", "_streak", "on", "rule")

    def __init__(self, rule: AlertRule, clock: Callable[[], float]) -> None:
        self.rule = rule
        self.on = False
        self._clock = clock
        self._streak = self._count = self._failures = 0
        self._since: float | None = None  # when the condition began to hold
        self._last: float | None = None  # when it last fired
        self._before: float | None = None  # and when before that
        self._pause_until = 0.0

    @property
    def busy(self) -> bool:
        """Whether a look at which the condition does not hold changes anything."""
        return self.on or self._since is not None

    def advance(self, holds: bool | None, now: float, *, between: bool) -> State | None:
        """Take what a look found at the time *now*; return the state of the alert that is due, if one is."""
        if not holds:
            self._streak, self._since = 0, None
            if holds is None or not self.on:
                return None
            self.on, self._failures = False, 0
            return "recovered" if self.rule.recovery else None
        self._streak += not between
        if self._since is None:
            self._since = now
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
        if rule.for_seconds and now - (self._since or 0.0) < rule.for_seconds:
            return False
        pause = max(rule.cooldown, _LEVEL_PAUSE) if between and rule.mode == "level" else rule.cooldown
        if pause and self._last is not None and now - self._last < pause:
            return False
        return not self._pause_until or self._clock() >= self._pause_until

    def give_back(self) -> None:
        """Have the rule fire again if its condition still holds; at once the first time, then after growing pauses."""
        if not self.on:
            return
        self.on = False
        self._count -= 1
        self._last = self._before
        self._pause_until = self._clock() + min(_MAX_PAUSE, 2.0**self._failures / 2) if self._failures else 0.0
        self._failures += 1
