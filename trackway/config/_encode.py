"""From tracker configs to YAML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from draccus import CHOICE_TYPE_KEY
from draccus.parsers.encoding import encode_dataclass

from trackway import _notices
from trackway.config._base import TrackerConfig
from trackway.config._trackers import Trackers
from trackway.config._tracking import TrackingConfig

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
    """Return the fields of *tracking*; a callable `print`, which no file can hold, is written as true."""
    fields: dict[str, Any] = encode_dataclass(replace(tracking, print=bool(tracking.print)))
    return fields
