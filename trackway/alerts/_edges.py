"""Who was told of what, so that a rule that fires again for a failed delivery tells only those who do not know."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

from trackway._locks import new_lock
from trackway.alerts._engine import RuleEngine
from trackway.alerts._rule import Alert

__all__ = ["Edges"]

_KEPT = 8


@final
@dataclass(eq=False, slots=True)
class _Edge:
    """The alerts of one rule while its condition held without a break.

    Attributes:
        since: When it began to hold.
        alerts: The latest ones.
        owed: The channels that are to be told by the next one; None: all.
        told: The same of the present one.
    """

    since: float | None
    alerts: deque[Alert] = field(default_factory=lambda: deque(maxlen=_KEPT))
    owed: set[str] | None = field(default_factory=set)
    told: set[str] | None = None

    def has(self, alert: Alert) -> bool:
        """Whether *alert* is one of them."""
        return any(one is alert for one in self.alerts)

    def knows(self, channel: str) -> bool:
        """Whether *channel* is not still to be told."""
        return self.owed is not None and channel not in self.owed


@final
class Edges:
    """Remembers, for each rule in mode "edge", the alerts of the time since its condition began to hold. Thread-safe.

    In mode "level" each alert is one of its own.
    """

    def __init__(self, engine: RuleEngine) -> None:
        self._engine = engine
        self._edges: dict[int, _Edge] = {}
        self._lock = new_lock()

    def note(self, alert: Alert) -> None:
        """Take note of an alert that came up; the caller holds the lock of the engine."""
        if alert.state != "firing" or alert.rule.mode != "edge":
            return
        key, since = id(alert.rule), self._engine.held_since(alert.rule)
        with self._lock:
            edge = self._edges.get(key)
            if edge is None or edge.since != since:
                edge = self._edges[key] = _Edge(since)
            else:
                edge.told, edge.owed = edge.owed, set()
            edge.alerts.append(alert)

    def is_owed(self, alert: Alert, channel: str) -> bool:
        """Return whether *alert* is news for *channel*; the end of what it never got is none."""
        edge = self._edges.get(id(alert.rule))
        if edge is not None and alert.state == "recovered":
            return edge.knows(channel)
        told = None if edge is None or not edge.alerts or edge.alerts[-1] is not alert else edge.told
        return told is None or channel in told

    def is_known(self, alert: Alert, channels: Iterable[str]) -> bool:
        """Return whether one of *channels* got *alert*, or is about to, as far as is known."""
        with self._lock:
            edge = self._edges.get(id(alert.rule))
            if edge is None or not edge.has(alert):
                return any(True for _ in channels)
            return any(map(edge.knows, channels))

    def failed(self, alert: Alert, channel: str | None = None) -> Alert:
        """Have the next alert tell *channel*, or all that *alert* was for; return the alert that the rule gets back."""
        with self._lock:
            edge = self._edges.get(id(alert.rule))
            if edge is None or not edge.has(alert):
                return alert
            if channel is None:
                edge.owed = None if edge.told is None or edge.owed is None else edge.owed | edge.told
            elif edge.owed is not None:
                edge.owed.add(channel)
            return edge.alerts[-1]
