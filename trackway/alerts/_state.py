"""What the engine knows between two rows: the newest points, the time, and which rules are at work."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

__all__ = ["Clock", "Notices", "Points", "find", "numeric"]


@final
class Notices(dict[str, str]):
    """What there is to say about rules and metrics, by a key; a key is set once.

    Attributes:
        on_new: Called, under the lock of the engine's owner, when there is something new to say.
    """

    on_new: Callable[[], Any] | None = None

    def __setitem__(self, key: str, message: str) -> None:
        super().__setitem__(key, message)
        if self.on_new is not None:
            self.on_new()


@final
class Clock:
    """The times that rules ask for, in seconds since 1970.

    Attributes:
        now: The latest time of a row; rows never make it run backwards.
        begun: The time of the first row, and until there is one the moment at which this began.
        accepted: The actual time at which the latest row was accepted.
        step: The step of the latest row.
        started: Whether there was a row.
        notices: What there is to say about metrics, by their names; each is said once.
    """

    __slots__ = ("accepted", "begun", "notices", "now", "started", "step")

    def __init__(self, now: float) -> None:
        self.now = -math.inf
        self.begun = self.accepted = now
        self.step: int | None = None
        self.started = False
        self.notices = Notices()

    def advance(self, time: float) -> float:
        """Take the time of a row; return the time that it counts as."""
        if self.now < time < math.inf:
            self.now = time
        elif self.now == -math.inf:
            self.now = self.begun
        if not self.started:
            self.started, self.begun = True, self.now
        return self.now


@final
class Points:
    """What was last seen of one metric.

    Attributes:
        name: As the rule has it.
        names: What it may be called in a row, the best first.
        value: The newest number; None: there was none.
        seen: Whether there was a value of any kind.
        time: The time of the row that held the newest value of any kind.
        count: How many finite numbers there were.
        begun: The time of the first of them.
    """

    __slots__ = ("begun", "count", "name", "names", "notices", "seen", "time", "value")

    def __init__(self, name: str, quoted: bool, notices: dict[str, str]) -> None:
        self.name = name
        dotted = "." in name and not quoted
        self.names = (name, name.replace(".", "/")) if dotted else (name,)
        self.value: float | None = None
        self.seen = False
        self.time = self.begun = math.nan
        self.count = 0
        self.notices = notices


def find(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the value that one of *names* leads to through nested mappings, or None."""
    if getattr(values, "flat", False):  # a row that is known to hold no mapping
        return None
    return next((value for name in names for value in _nested(values, name) if value is not None), None)


def _nested(values: Mapping[str, Any], name: str) -> Iterator[Any]:
    place = name.find("/")
    while place >= 0:
        inner, rest = values.get(name[:place]), name[place + 1 :]
        if isinstance(inner, Mapping):
            yield inner.get(rest)
            yield from _nested(inner, rest)
        place = name.find("/", place + 1)


def numeric(points: Points, value: Any) -> float | None:
    """Return *value*, which is no float, as one; None, and a notice the first time, where there is no such number."""
    kind = type(value)
    try:
        if kind is int or kind is bool or isinstance(value, numbers.Real):
            return float(value)
        what = f"its value is no number but a {kind.__name__}"
    except OverflowError:
        what = "a whole number too large for floating point was skipped"
    except Exception:
        what = f"its value, a {kind.__name__}, cannot be made a number"
    if points.name not in points.notices:
        points.notices[points.name] = f"alert rules read the metric {points.name!r}, but {what}; other metrics go on"
    return None
