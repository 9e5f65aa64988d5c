"""Events and alerts of a run, as a configuration says them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from trackway.config._environment import mode
from trackway.config._errors import did_you_mean, show
from trackway.errors import ConfigError

if TYPE_CHECKING:
    from trackway.alerts import AlertRule, AlertsConfig
    from trackway.events import EventLogger, EventsConfig
    from trackway.values import RedactionPolicy

    EventsOption: TypeAlias = EventsConfig | EventLogger | Mapping[str, Any] | None
    AlertsOption: TypeAlias = AlertsConfig | Mapping[str, Any] | Sequence[str | Mapping[str, Any] | AlertRule] | None
    RedactOption: TypeAlias = RedactionPolicy | Mapping[str, Any] | bool | None
else:  # for who resolves annotations without having the packages loaded
    EventsOption = AlertsOption = RedactOption = Any

__all__ = [
    "AlertsOption",
    "EventsOption",
    "RedactOption",
    "alerts_of",
    "events_of",
    "import_path",
    "ready_alerts",
    "ready_events",
    "silenced",
]


def events_of(value: Any, hooks: Iterable[Any] = ()) -> Any:
    """Return how events are told: an `EventsConfig` with *hooks* beside its own, a started logger, or None.

    Raises:
        ConfigError: if *value* is none of these, a field is unknown or wrong, or a hook is none.
    """
    hooks = () if hooks is None else (hooks,) if isinstance(hooks, str) else hooks
    if isinstance(hooks, bytes | Mapping) or not isinstance(hooks, Iterable):
        raise ConfigError(f"hooks must be a list, got {show(hooks)}")
    hooks = tuple(hooks)
    if value is None and not hooks:
        return None
    from trackway.events import EventLogger, EventsConfig
    from trackway.events._hooks import check_hooks

    hooks = check_hooks(hooks, "hooks")
    if isinstance(value, EventLogger):
        if hooks:
            raise ConfigError("hooks cannot be given beside an EventLogger, which has its own: add them to its `hooks`")
        return value
    config = EventsConfig() if value is None else value
    if isinstance(config, Mapping):
        names = [one.name for one in dataclasses.fields(EventsConfig)]
        for name in config:
            if name not in names:
                raise ConfigError(
                    f"events.{name}: unknown field; the fields are {', '.join(names)}{did_you_mean(str(name), names)}"
                )
        config = EventsConfig(**config)
    if not isinstance(config, EventsConfig):
        raise ConfigError(f"events must be an EventsConfig or a mapping of its fields, got {show(value)}")
    return dataclasses.replace(config, hooks=(*config.hooks, *hooks)) if hooks else config


def ready_events(value: Any, hooks: Iterable[Any]) -> Any:
    """Return the same with hooks that are imported, so that one that cannot be does not spoil a run that has begun.

    With `TRACKWAY_MODE=disabled` nobody is told.
    """
    config = events_of(value, hooks)
    if mode() == "disabled":
        return silenced(None)
    if not dataclasses.is_dataclass(config):
        return config
    from trackway.events._hooks import checked_hook

    found: Any = config
    own = len(getattr(events_of(value), "hooks", ()))
    places = [f"events.hooks[{n}]" if n < own else f"hooks[{n - own}]" for n in range(len(found.hooks))]
    loaded = tuple(map(checked_hook, found.hooks, places))
    return dataclasses.replace(found, hooks=loaded)


def silenced(config: Any) -> Any:
    """Return how events are told where they are not to be seen, nor kept, but in the run directory: to hooks alone."""
    from trackway.events import EventLogger, EventsConfig

    if isinstance(config, EventLogger):
        return config
    return dataclasses.replace(config or EventsConfig(), console=False, file=None, json_file=None)


def ready_alerts(value: Any) -> AlertsConfig | None:
    """Return the same, with the channels tried: whether a variable is set, a URL is good, a callable is there."""
    config = alerts_of(value)
    if mode() == "disabled":
        return None
    if config is not None:
        from trackway.alerts import Alerts

        Alerts(config, send=lambda _: None).stop()
    return config


def alerts_of(value: Any) -> AlertsConfig | None:
    """Return the rules of a run and how what they find is told; None where there are none.

    Raises:
        AlertSyntaxError: if a rule cannot be read.
        ConfigError: if anything else is wrong.
    """
    if value is None or (isinstance(value, Sequence) and not value):
        return None
    from trackway.alerts import alerts_config

    config = alerts_config(value)
    return config if config.rules else None


def import_path(target: Any) -> str | None:
    """Return the path "package.module:name" by which a callable can be imported; None for one that cannot."""
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split(".") if isinstance(name, str) else ():
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is target and found is not None else None
