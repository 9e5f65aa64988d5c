"""Alerts as a field of a configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, final

from trackway.alerts._channels import ChannelSpec, channel_spec, writable_channel
from trackway.alerts._rule import AlertRule, parse_rule
from trackway.alerts._suggest import did_you_mean
from trackway.errors import ConfigError

__all__ = ["AlertsConfig", "alerts_config"]

_COUNTS = {"rate_limit": 1, "rule_rate_limit": 1, "queue_size": 1, "retries": 0}
_SECONDS = {"interval": False, "dedup_window": True, "retry_delay": False, "stop_timeout": True}


@final
@dataclass
class AlertsConfig:
    """What a run alerts of, and whom.

    ```yaml
    alerts:
      rules:
        - isnan(train/loss) => error: the loss is NaN
        - no_data(10m) => error: training hangs
      channels: [log, backends, {apprise: TEAM_CHAT_URL}]
    ```

    Attributes:
        rules: Each a text, a mapping of the fields of `AlertRule`, or one.
        channels: Each "log" (the logger `trackway`), "backends" (the run's other trackers), the import path
            "package.module:callable" of a callable that takes an `Alert`, the callable itself, or a mapping:
            `apprise`, the environment variable that holds the URL of a service, or `call`, an import path; `name`,
            what rules call it (by default the variable or path); `level`, the least level that it gets.
        interval: Seconds between two looks at rules that depend on time, at most: how late a hang may be noticed.
        rate_limit: Alerts in a minute, at most, of all rules together.
        rule_rate_limit: The same of one rule.
        dedup_window: Seconds in which one rule is not told twice for one step; 0 tells each.
        queue_size: Deliveries that may wait for slow channels; the one that waited longest makes room.
        retries: How often a delivery that failed is tried again.
        retry_delay: Seconds before the first of these; each later one waits twice as long, a minute at most.
        stop_timeout: Seconds that the end of a run waits at most for alerts that are under way.

    Raises:
        AlertSyntaxError: if a rule is wrong.
        ConfigError: if anything else is.
    """

    rules: list[Any] = field(default_factory=list)
    channels: list[Any] = field(default_factory=lambda: ["log", "backends"])
    interval: float = 1.0
    rate_limit: int = 60
    rule_rate_limit: int = 10
    dedup_window: float = 60.0
    queue_size: int = 100
    retries: int = 4
    retry_delay: float = 1.0
    stop_timeout: float = 10.0

    def __post_init__(self) -> None:
        for name in ("rules", "channels"):
            setattr(self, name, _listed(name, getattr(self, name)))
        self.rules = [_unfolded(rule) for rule in self.rules]
        for name, least in _COUNTS.items():
            _check_count(name, getattr(self, name), least)
        for name, may_be_zero in _SECONDS.items():
            setattr(self, name, _checked_seconds(name, getattr(self, name), may_be_zero=may_be_zero))
        known = [spec.name for spec in self.channel_specs()]
        for index, rule in enumerate(self.parsed_rules()):
            for name in rule.channels or ():
                if name not in known:
                    raise ConfigError(
                        f"alerts.rules[{index}].channels: there is no channel {name!r}; the channels are "
                        f"{', '.join(known) or 'none'}{did_you_mean(name, known)}"
                    )

    def parsed_rules(self) -> list[AlertRule]:
        """Return the rules as `AlertRule`s.

        Raises:
            AlertSyntaxError: if one is wrong.
        """
        return [parse_rule(rule) for rule in self.rules]

    def channel_specs(self) -> list[ChannelSpec]:
        """Return the channels as they are named, without opening them.

        Raises:
            ConfigError: if one is wrong, or two have one name.
        """
        specs = [channel_spec(item, f"alerts.channels[{index}]") for index, item in enumerate(self.channels)]
        names = [spec.name for spec in specs]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ConfigError(
                    f"alerts.channels[{index}]: there is a channel {name!r} already; give one of them a `name`"
                )
        return specs

    def writable(self) -> AlertsConfig:
        """Return it as a file can hold it: callables by their import paths, those that have none left out."""
        return replace(
            self, channels=[plain for item in self.channels if (plain := writable_channel(item)) is not None]
        )

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Return a configuration of the fields given.

        Raises:
            ConfigError: if a name is no field, or a value is wrong.
        """
        names = [one.name for one in fields(cls)]
        for name in given:
            if name not in names:
                raise ConfigError(
                    f"alerts.{name}: unknown field; the fields are {', '.join(names)}{did_you_mean(str(name), names)}"
                )
        return cls(**given)


def alerts_config(value: Any) -> AlertsConfig:
    """Return the configuration that *value* is short for.

    Args:
        value: A list of rules, one rule as a text or an `AlertRule`, a mapping of the fields of `AlertsConfig` (or of
            those of one rule, if it has `when`), an `AlertsConfig`, or None for no alerts.

    Raises:
        AlertSyntaxError: if a rule is wrong.
        ConfigError: if anything else is.
    """
    if isinstance(value, AlertsConfig):
        return value
    if value is None:
        return AlertsConfig()
    if isinstance(value, (str, AlertRule)) or (isinstance(value, Mapping) and "when" in value):
        return AlertsConfig([value])
    if isinstance(value, Mapping):
        return AlertsConfig.from_mapping(value)
    if isinstance(value, Sequence):
        return AlertsConfig(list(value))
    raise ConfigError(f"alerts must be a list of rules or a mapping of {_fields()}, got {type(value).__name__}")


def _fields() -> str:
    return ", ".join(one.name for one in fields(AlertsConfig))


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        raise ConfigError(f"alerts.{name} must be a list, got {type(value).__name__}")
    return list(value)


def _unfolded(rule: Any) -> Any:
    """Return the text of a rule that YAML took for a mapping, such as `loss > 5 => error: high` without quotes."""
    if isinstance(rule, Mapping) and len(rule) == 1:
        ((key, value),) = rule.items()
        if (
            isinstance(key, str)
            and "=>" in key
            and isinstance(value, (str, int, float))
            and not isinstance(value, bool)
        ):
            return f"{key}: {value}"
    return rule


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"alerts.{name} must be an integer of at least {least}, got {value!r}")


def _checked_seconds(name: str, value: Any, *, may_be_zero: bool) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
        bound = "of at least 0" if may_be_zero else "greater than 0"
        raise ConfigError(f"alerts.{name} must be a number of seconds {bound}, got {value!r}")
    return float(value)
