"""From tracker configs to YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from draccus import CHOICE_TYPE_KEY
from draccus.parsers.encoding import encode_dataclass

from trackway import _notices
from trackway.config._base import TrackerConfig
from trackway.config._observers import alerts_of, import_path
from trackway.config._trackers import Trackers
from trackway.config._tracking import TrackingConfig
from trackway.values import RedactionPolicy

__all__ = ["encode_config", "encode_trackers", "encode_tracking"]


def encode_config(config: TrackerConfig, _declared: Any = None) -> dict[str, Any]:
    """Return the fields of *config*, with its `type` before them, whatever type it was declared as."""
    fields: dict[str, Any] = encode_dataclass(config)
    try:
        return {CHOICE_TYPE_KEY: config.get_choice_name(type(config)), **fields}
    except ValueError:
        name = type(config).__qualname__
        _notices.log_once(
            ("unregistered", type(config)),
            f"{name} is written without a type and cannot be read back, because it is not registered: put "
            f'`@TrackerConfig.register_subclass("...")` over it',
        )
        return fields


def encode_trackers(trackers: Trackers, _declared: Any = None) -> list[dict[str, Any]]:
    """Return the list of the encoded configs."""
    return [encode_config(config) for config in trackers]


def encode_tracking(tracking: TrackingConfig, _declared: Any = None) -> dict[str, Any]:
    """Return the fields of *tracking* as a file can hold them.

    A callable `print` is written as true; hooks and channels by their import paths, and those that have none left out.
    """
    redact = tracking.redact
    if isinstance(redact, RedactionPolicy):
        redact = {"enabled": redact.enabled, "keep": list(redact.keep), "also": list(redact.also)}
    written = replace(
        tracking,
        redact=redact,
        print=bool(tracking.print),
        events=replace(tracking.events, hooks=_writable(tracking.events.hooks)),
        hooks=_writable(tracking.hooks),
        alerts=_writable_alerts(tracking.alerts),
    )
    fields: dict[str, Any] = encode_dataclass(written)
    return fields


def _writable_alerts(alerts: Any) -> Any:
    """What a file can hold of them: as they were given, but for channels that are callables."""
    if alerts is None or isinstance(alerts, str | list | tuple):
        return alerts
    config = alerts_of(alerts)
    if not isinstance(alerts, Mapping):
        return None if config is None else config.writable()
    return {**alerts, "channels": config.writable().channels} if config is not None and "channels" in alerts else alerts


def _writable(hooks: tuple[Any, ...]) -> tuple[str, ...]:
    """The import paths of *hooks*, without those that have none."""
    paths = [hook if isinstance(hook, str) else import_path(hook) for hook in hooks]
    return tuple(path for path in paths if path is not None)
