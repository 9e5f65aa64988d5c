"""From YAML to tracker configs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from draccus import CHOICE_TYPE_KEY

from trackway.config._base import TrackerConfig
from trackway.config._errors import FieldError, did_you_mean, show
from trackway.config._fields import decode_fields, field_names
from trackway.config._registry import own_fields_are_lost, type_name
from trackway.config._trackers import Trackers
from trackway.config._tracking import TrackingConfig
from trackway.errors import ConfigError
from trackway.tracker import BackgroundPolicy

__all__ = [
    "decode_background",
    "decode_config",
    "decode_optional_config",
    "decode_optional_trackers",
    "decode_optional_tracking",
    "decode_print",
    "decode_trackers",
    "decode_tracking",
]

_REPLACE = (
    "A mapping on the command line is merged into the file's; to replace it, give a list: '[{{type: {0}}}]', or: '{0}'"
)


def decode_trackers(_cls: Any, raw: Any, path: Sequence[str] = ()) -> Trackers:
    """Return the trackers that *raw* says: null, one (a mapping, or its type as a text), or a list of such."""
    path = tuple(path) or ("tracker",)
    if raw is None:
        return Trackers([])
    if isinstance(raw, (Mapping, str, TrackerConfig)):
        return Trackers([decode_config(TrackerConfig, raw, path)])
    if isinstance(raw, (list, tuple)):
        return Trackers([decode_config(TrackerConfig, item, (*path, str(i))) for i, item in enumerate(raw)])
    raise FieldError(path, f"expected a mapping, a list of mappings or a tracker type, got {show(raw)}")


def decode_optional_trackers(_cls: Any, raw: Any, path: Sequence[str] = ()) -> Trackers | None:
    """The same for a field that may be null, and then stays null."""
    return None if raw is None else decode_trackers(_cls, raw, path)


def decode_config(cls: Any, raw: Any, path: Sequence[str] = ()) -> TrackerConfig:
    """Return the config that *raw* says: a mapping, or its type as a text.

    Args:
        cls: The class `TrackerConfig`, or a config class where only that is wanted.
        raw: What stands in the YAML file.
        path: Where it stands.

    Raises:
        FieldError: with the whole path, whatever is wrong.
    """
    path = tuple(path) or ("tracker",)
    if isinstance(raw, cls):
        return cast("TrackerConfig", raw)
    if isinstance(raw, str):
        raw = {CHOICE_TYPE_KEY: raw}
    if not isinstance(raw, Mapping):
        raise FieldError(path, f"expected a mapping such as {{type: noop}}, or a tracker type, got {show(raw)}")
    chosen = _chosen(cls, raw, path)
    if own_fields_are_lost(chosen):
        raise FieldError(path, f"{chosen.__module__}.{chosen.__qualname__} is not a dataclass; put @dataclass over it")
    given = {name: value for name, value in raw.items() if name != CHOICE_TYPE_KEY}
    return decode_fields(chosen, given, path, lambda name: _unknown(name, chosen, assumed=len(given) == len(raw)))


def decode_optional_config(cls: Any, raw: Any, path: Sequence[str] = ()) -> TrackerConfig | None:
    """The same for a field that may be null."""
    return None if raw is None else decode_config(cls, raw, path)


def _chosen(cls: type[TrackerConfig], raw: Mapping[str, Any], path: Sequence[str]) -> type[TrackerConfig]:
    name = raw.get(CHOICE_TYPE_KEY, cls.default_choice_name())
    if CHOICE_TYPE_KEY not in raw and not inspect.isabstract(cls):
        return cls
    try:
        chosen = cast("type[TrackerConfig]", cls.get_choice_class(name))
    except ConfigError as error:
        raise FieldError((*path, CHOICE_TYPE_KEY), str(error)) from error
    if not issubclass(chosen, cls):
        raise FieldError((*path, CHOICE_TYPE_KEY), f"expected the type of {cls.__qualname__}, got {name!r}")
    return chosen


def _unknown(name: str, cls: type[TrackerConfig], *, assumed: bool) -> str:
    names, kind = field_names(cls), type_name(cls)
    guess = did_you_mean(name, names)
    if guess and not assumed:
        return f"unknown field of {kind}{guess}"
    elsewhere = [other for other, config in cls.get_known_choices().items() if name in field_names(config)]
    if assumed:
        where = f"; {name} is a field of {', '.join(elsewhere)}: add `type`" if elsewhere else ""
        return f"unknown field of {kind}, which is assumed because no type is given{guess or where}"
    fields = f"unknown field of {kind}; its fields are {', '.join(names)}"
    return f"{fields}. {name} is a field of {', '.join(elsewhere)}. {_REPLACE.format(kind)}" if elsewhere else fields


def decode_background(_cls: Any, raw: Any, path: Sequence[str] = ()) -> bool | BackgroundPolicy:
    """Return the value of `background`: true, false, or the fields of a `BackgroundPolicy`."""
    if isinstance(raw, (bool, BackgroundPolicy)):
        return raw
    if isinstance(raw, Mapping):
        names = field_names(BackgroundPolicy)
        return decode_fields(
            BackgroundPolicy,
            raw,
            path,
            lambda name: f"unknown field of background{did_you_mean(name, names) or f'; its fields are {names}'}",
        )
    raise FieldError(path, f"expected true, false or a mapping such as {{queue_size: 1000}}, got {show(raw)}")


def decode_tracking(_cls: Any, raw: Any, path: Sequence[str] = ()) -> TrackingConfig:
    """Return the tracking of a run that *raw*, a mapping, says; null says nothing.

    Raises:
        FieldError: with the whole path, whatever is wrong.
    """
    path = tuple(path)
    if isinstance(raw, TrackingConfig):
        return raw
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        example = "expected a mapping such as {trackers: [{type: console}], run_id: digits}"
        raise FieldError(path or ("tracking",), f"{example}, got {show(raw)}")
    return decode_fields(TrackingConfig, raw, path, _unknown_in_tracking)


def decode_optional_tracking(_cls: Any, raw: Any, path: Sequence[str] = ()) -> TrackingConfig | None:
    """The same for a field that may be null, and then stays null."""
    return None if raw is None else decode_tracking(_cls, raw, path)


def _unknown_in_tracking(name: str) -> str:
    names = field_names(TrackingConfig)
    guess = did_you_mean(name, names)
    if guess:
        return f"unknown field of tracking{guess}"
    of_trackers = name == CHOICE_TYPE_KEY or any(
        name in field_names(config) for config in TrackerConfig.get_known_choices().values()
    )
    cure = f"; {name} is a field of trackers: put it into `trackers`, under its tracker" if of_trackers else ""
    return f"unknown field of tracking; its fields are {', '.join(names)}{cure}"


def decode_print(_cls: Any, raw: Any, path: Sequence[str] = ()) -> bool | Callable[[str], Any]:
    """Return the value of `print`: true or false; a callable is for Python."""
    if isinstance(raw, bool) or callable(raw):
        return cast("bool | Callable[[str], Any]", raw)
    raise FieldError(path, f"expected true or false, got {show(raw)}; a callable can be given in Python only")
