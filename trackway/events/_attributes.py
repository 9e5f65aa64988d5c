"""What is kept of the attributes of a span."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackway import _notices
from trackway.errors import TrackwayWarning
from trackway.values import Pending, normalise
from trackway.values._pending import Unreachable, is_device_class, is_readable
from trackway.values._text import type_name

__all__ = ["plain"]

_PLAIN = frozenset({int, float, str, bool, type(None)})


def plain(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *attributes* as plain values, without waiting for a device; what cannot be kept as it is becomes text."""
    for value in attributes.values():
        if type(value) not in _PLAIN:
            break
    else:
        return attributes
    return {name: value if type(value) in _PLAIN else _plain(name, value) for name, value in attributes.items()}


def _plain(name: str, value: Any) -> Any:
    try:
        return _settled(normalise({name: _described(value)}, reserved=False).get(name))
    except TrackwayWarning:  # where the program has warnings raised
        raise
    except Exception as error:
        _notices.log_once(("attributes", type(error)), f"of an attribute of a span the type is kept: {error}", error)
        return type_name(value)


def _described(value: Any) -> Any:
    """Return type and shape of an array that is not computed, or cannot be read, and other values as they are."""
    if not is_device_class(type(value)):
        return value
    try:
        if is_readable(value):
            return value
    except Unreachable:
        pass
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _settled(value: Any) -> Any:
    if isinstance(value, Pending):
        return value.resolve() if value.is_ready() else "on a device"
    if isinstance(value, dict):
        return {name: _settled(item) for name, item in value.items()}
    return [_settled(item) for item in value] if isinstance(value, list) else value
