"""Where alerts go: how a channel is named in a configuration, and what it does with an alert."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, cast, final, get_args

from trackway import _notices
from trackway.alerts._apprise import AppriseChannel, check_variable
from trackway.alerts._message import on_one_line, safe
from trackway.alerts._rule import Alert
from trackway.alerts._suggest import did_you_mean
from trackway.errors import ConfigError
from trackway.tracker._interface import AlertLevel

__all__ = ["LEVELS", "Channel", "ChannelSpec", "SendAlert", "channel_spec", "open_channel", "writable_channel"]

LEVELS: tuple[AlertLevel, ...] = get_args(AlertLevel)
_BUILT_IN = ("log", "backends")
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FIELDS = ("apprise", "call", "name", "level")
_EXAMPLES = "'log', 'backends', 'package.module:callable', {apprise: NAME_OF_A_VARIABLE} or a callable"
_LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

SendAlert: TypeAlias = Callable[[Alert], Any]
"""Takes an alert; returning means that it was delivered, raising that it was not."""


class Channel(Protocol):
    """Takes alerts to one place.

    Attributes:
        immediate: Whether it is fast and local, so that it is called on the thread on which an alert comes up.
    """

    immediate: bool

    def deliver(self, alert: Alert) -> None:
        """Take *alert* there; raise if that fails."""


@final
@dataclass(frozen=True)
class ChannelSpec:
    """A channel as the configuration names it.

    Attributes:
        name: What rules and reports call it.
        kind: "log", "backends", "call" or "apprise".
        target: The callable or its import path, or the environment variable that holds the URL.
        level: The least level that it takes.
    """

    name: str
    kind: Literal["log", "backends", "call", "apprise"]
    target: Any = None
    level: AlertLevel = "info"

    def takes(self, level: str) -> bool:
        """Return whether alerts of *level* go there."""
        return LEVELS.index(cast("AlertLevel", level)) >= LEVELS.index(self.level)


def channel_spec(item: Any, path: str) -> ChannelSpec:
    """Return what *item*, which stands at *path* of the configuration, says; nothing is imported or looked up.

    Raises:
        ConfigError: if it is no channel.
    """
    if isinstance(item, str):
        return _named(item, path)
    if isinstance(item, Mapping):
        return _mapped(item, path)
    if callable(item):
        return ChannelSpec(str(getattr(item, "__qualname__", type(item).__qualname__)), "call", item)
    raise ConfigError(f"{path} must be {_EXAMPLES}, got {type(item).__name__}")


def _named(text: str, path: str) -> ChannelSpec:
    if text in _BUILT_IN:
        return ChannelSpec(text, cast("Literal['log', 'backends']", text))
    if _PATH.fullmatch(text):
        return ChannelSpec(text, "call", text)
    if "://" in text:
        raise ConfigError(f"{path} is a URL; put it into an environment variable, and write {{apprise: ITS_NAME}}")
    raise ConfigError(f"{path} must be {_EXAMPLES}, got {safe(repr(text))}{did_you_mean(text, _BUILT_IN)}")


def _mapped(item: Mapping[Any, Any], path: str) -> ChannelSpec:
    for field in item:
        if field not in _FIELDS:
            raise ConfigError(
                f"{path}.{safe(field)}: unknown field of a channel; its fields are {', '.join(_FIELDS)}"
                f"{did_you_mean(str(field), _FIELDS)}"
            )
    name, level = item.get("name"), item.get("level", "info")
    if level not in LEVELS:
        raise ConfigError(f"{path}.level must be one of {', '.join(LEVELS)}, got {level!r}")
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"{path}.name must be a text, got {name!r}")
    if "apprise" in item and "call" in item:
        raise ConfigError(f"{path} must have `apprise` or `call`, not both")
    if "apprise" in item:
        variable = check_variable(item["apprise"], f"{path}.apprise")
        return ChannelSpec(name or variable, "apprise", variable, level)
    if "call" in item:
        spec = channel_spec(item["call"], f"{path}.call")
        if spec.kind != "call":
            raise ConfigError(f"{path}.call must be 'package.module:callable', got {item['call']!r}")
        return replace(spec, name=name or spec.name, level=level)
    if name in _BUILT_IN:
        return ChannelSpec(name, cast("Literal['log', 'backends']", name), None, level)
    raise ConfigError(f"{path} must have `apprise` or `call`, or `name: log` or `name: backends`")


def writable_channel(item: Any) -> Any:
    """Return *item* as a file can hold it, or None where it is a callable that cannot be imported by its name."""
    target = item.get("call") if isinstance(item, Mapping) else item
    if isinstance(target, str) or not callable(target):
        return item
    path = f"{getattr(target, '__module__', None)}:{getattr(target, '__qualname__', '')}"
    if not _PATH.fullmatch(path):
        return None
    return {**item, "call": path} if isinstance(item, Mapping) else path


def open_channel(spec: ChannelSpec, send: SendAlert) -> Channel:
    """Return the channel that *spec* names; "backends" is *send*.

    Raises:
        ConfigError: if a variable is missing, a URL wrong, or a callable cannot be imported.
    """
    if spec.kind == "log":
        return LogChannel()
    if spec.kind == "backends":
        return BackendsChannel(send)
    if spec.kind == "apprise":
        return AppriseChannel(spec.target)
    return CallChannel(_imported(spec.target) if isinstance(spec.target, str) else spec.target)


def _imported(path: str) -> SendAlert:
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # whatever a module does when it is imported
        raise ConfigError(f"alert channel {path}: cannot import {module}: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"alert channel {path}: {module} has no {name}{did_you_mean(part, _names(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"alert channel {path}: must be a callable that takes an alert, got {type(found).__name__}")
    return cast("SendAlert", found)


def _names(thing: Any) -> Iterable[str]:
    return [name for name in dir(thing) if not name.startswith("_")]


@final
class LogChannel:
    """Writes one line to the `trackway` logger, at the level of the alert; the end of one at INFO."""

    immediate = True

    def deliver(self, alert: Alert) -> None:
        """Write it."""
        level = logging.INFO if alert.state == "recovered" else _LOG_LEVELS[alert.level]
        _notices.logger.log(level, "alert: %s", on_one_line(alert))


@final
class BackendsChannel:
    """Gives the alert to the run's trackers, by *send*; the end of one at the level "info"."""

    immediate = True

    def __init__(self, send: SendAlert) -> None:
        self._send = send

    def deliver(self, alert: Alert) -> None:
        """Hand it over."""
        self._send(replace(alert, level="info") if alert.state == "recovered" else alert)


@final
class CallChannel:
    """Calls *function* with the alert."""

    immediate = False

    def __init__(self, function: SendAlert) -> None:
        self._function = function

    def deliver(self, alert: Alert) -> None:
        """Call it."""
        self._function(alert)
