"""What a rule is, what it fires, and how it is written down."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, final, get_args

from trackway.alerts._grammar import parse_condition, parse_rule_text, seconds_of
from trackway.errors import AlertSyntaxError

__all__ = ["Alert", "AlertRule", "Level", "Mode", "State", "parse_rule"]

Level: TypeAlias = Literal["info", "warning", "error"]
"""How grave an alert is."""

Mode: TypeAlias = Literal["edge", "level"]
"""Whether a rule fires once when its condition begins to hold, or at every row at which it holds."""

State: TypeAlias = Literal["firing", "recovered"]
"""Whether the condition holds, or has just ceased to."""

LEVELS: tuple[Level, ...] = get_args(Level)
MODES: tuple[Mode, ...] = get_args(Mode)


@final
@dataclasses.dataclass(frozen=True)
class AlertRule:
    """A condition on the rows of a run, and what to do when it holds. Immutable, thread-safe.

    Attributes:
        when: The condition, such as `"zscore(train/loss[50]) > 4"`.
        level: How grave the alert is: "info", "warning" or "error".
        message: What the alert says; the condition, where it is empty.
        name: What the rule is called in reports and in alerts without a message; the condition by default.
        for_points: The condition has to hold at so many looks at the rows in succession, at least 1.
        for_seconds: It has to hold for so long, measured between the rows' times.
        mode: "edge": fire when it begins to hold, and not again until it has ceased to. "level": whenever it holds.
        cooldown: Seconds after an alert of this rule in which it fires no other.
        max_fires: Alerts of this rule in a run, at most; None: any number.
        recovery: Whether to send an alert of state "recovered" when a condition that fired no longer holds.
        channels: The channels that get its alerts; None: those of the run.

    Raises:
        AlertSyntaxError: if the condition cannot be read, or a field has a value that is not allowed.
        ConfigError: if the package `lark` is not installed.
    """

    when: str
    level: Level = "warning"
    message: str = ""
    name: str | None = None
    for_points: int = 1
    for_seconds: float = 0.0
    mode: Mode = "edge"
    cooldown: float = 0.0
    max_fires: int | None = None
    recovery: bool = False
    channels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.when, str):
            raise AlertSyntaxError(f"alert rule: when is a text such as 'loss > 5', not {self.when!r}")
        _one_of("level", self.level, LEVELS)
        _one_of("mode", self.mode, MODES)
        _typed("message", self.message, str, "a text")
        _typed("recovery", self.recovery, bool, "true or false")
        if self.name is not None:
            _typed("name", self.name, str, "a text")
        _whole("for_points", self.for_points)
        if self.max_fires is not None:
            _whole("max_fires", self.max_fires)
        for field in ("for_seconds", "cooldown"):
            object.__setattr__(self, field, _seconds(field, getattr(self, field)))
        if self.channels is not None:
            object.__setattr__(self, "channels", _channels(self.channels))
        condition = parse_condition(self.when)
        if self.for_points > 1 and condition.timed and not condition.triggers:
            raise AlertSyntaxError(
                f"alert rule {self.when!r} holds between rows, so that it cannot hold for {self.for_points} of them; "
                "give a time, such as for 60s"
            )

    @property
    def title(self) -> str:
        """The message, else the name, else the condition."""
        return self.message or self.name or self.when


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Alert:
    """A rule that fired, or recovered. Immutable.

    Attributes:
        rule: The rule.
        name: Its name, or its condition.
        level: Its level.
        title: One line: the rule's message, name or condition.
        text: What was seen: the condition, the step and the values in it.
        step: The step of the row; between rows the last one's, None before the first row.
        time: The row's time, or the moment between rows, in seconds since 1970.
        state: "firing" or "recovered".
        values: What the parts of the condition were, such as `{"mean(loss[50])": 3.2}`; None: unknown.
    """

    rule: AlertRule
    name: str
    level: Level
    title: str
    text: str
    step: int | None
    time: float
    state: State = "firing"
    values: Mapping[str, float | bool | None] = dataclasses.field(default_factory=dict, hash=False)


_FOREVER = 1e15  # seconds; infinities and whole numbers beyond floating point are none
_FIELDS = tuple(field.name for field in dataclasses.fields(AlertRule))


def parse_rule(item: str | Mapping[str, Any] | AlertRule) -> AlertRule:
    """Return the rule that *item* describes.

    Args:
        item: A text such as `"loss > 5 for 3 => error: loss spike"`, whose parts from `for` and from `=>` on may be
            left out; or a mapping of the fields of `AlertRule`, whose `when` may be such a text too, with `for` for
            either of `for_points` and `for_seconds`, and durations as seconds or text such as "10m"; or a rule.

    Raises:
        AlertSyntaxError: if it cannot be read; it is a ValueError.
        ConfigError: if the package `lark` is not installed.
    """
    if isinstance(item, AlertRule):
        return item
    if isinstance(item, str):
        return AlertRule(**parse_rule_text(item))
    if isinstance(item, Mapping):
        return _from_mapping(item)
    raise AlertSyntaxError(
        f"alert rule: got {type(item).__name__}; a rule is a text such as 'loss > 5 => error: loss is high', a mapping "
        "with the key 'when', or an AlertRule"
    )


def _from_mapping(item: Mapping[str, Any]) -> AlertRule:
    given = dict(item)
    allowed = (*_FIELDS, "for")
    for key in given:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AlertSyntaxError(f"alert rule: unknown key {key!r}{hint}; allowed are: {', '.join(allowed)}")
    when = given.pop("when", None)
    if not isinstance(when, str):
        raise AlertSyntaxError(f"alert rule: the key 'when' is a text such as 'loss > 5', not {when!r}")
    fields = parse_rule_text(when)
    if "for" in given:
        given.update(_for(given.pop("for"), given))
    for key in given:
        if key in fields:
            raise AlertSyntaxError(f"alert rule: {key!r} is given twice, in {when!r} and as a key; leave one out")
    if isinstance(given.get("channels"), list | str):
        channels = given["channels"]
        given["channels"] = (channels,) if isinstance(channels, str) else tuple(channels)
    return AlertRule(**fields, **given)


def _for(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    if "for_points" in given or "for_seconds" in given:
        raise AlertSyntaxError("alert rule: 'for' stands for 'for_points' or 'for_seconds'; give one of them alone")
    if isinstance(value, str) and not re.fullmatch(r"\s*\d+\s*", value):
        return {"for_seconds": _seconds("for", value)}
    return {"for_points": int(value) if isinstance(value, str) else value}


def _seconds(field: str, value: Any) -> float:
    seconds = seconds_of(value) if isinstance(value, str) else value
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < _FOREVER:
        return float(seconds)
    raise AlertSyntaxError(
        f"alert rule: {field} is a number of seconds, 0 or more, or a text such as '90s', '10m' or '2h', not {value!r}"
    )


def _one_of(field: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AlertSyntaxError(f"alert rule: {field} is one of {', '.join(allowed)}, not {value!r}{hint}")


def _typed(field: str, value: Any, kind: type, words: str) -> None:
    if not isinstance(value, kind):
        raise AlertSyntaxError(f"alert rule: {field} is {words}, not {value!r}")


def _whole(field: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise AlertSyntaxError(f"alert rule: {field} is a whole number, 1 or more, not {value!r}")


def _channels(value: Any) -> tuple[str, ...]:
    channels = tuple(value) if isinstance(value, tuple | list) else None
    if channels is None or not all(isinstance(channel, str) for channel in channels):
        raise AlertSyntaxError(f"alert rule: channels is a list of names of channels, not {value!r}")
    return channels
