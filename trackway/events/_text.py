"""Rows and events as one readable line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from trackway.values import Audio, Histogram, Html, Image, Pending, Table, Text, redacted_text

__all__ = ["error_text", "event_text", "pairs_text", "value_text"]

_MAX_TEXT = 120
_MAX_VALUE = 160
_MAX_NAME = 200
_MAX_ITEMS = 8
_MAX_DEPTH = 4
_EXACT_BITS = 256
_QUOTED = frozenset(" \"'=")
_SEPARATORS = frozenset(",[]{}:")  # between the items of a list or mapping
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_STEP = frozenset({"step"})
_NOTHING: frozenset[str] = frozenset()
_WORDS = frozenset({"None", "True", "False", "nan", "inf", "-inf"})


def event_text(event: str, row: Mapping[str, Any], step: int | None) -> str:
    """Return one event as one line: `checkpoint step=50 path=model.pt`.

    Where *row* has a `step` other than the event's, that one stands in quotes.
    """
    if step is None or row.get("step") is step or (type(row.get("step")) is int and row["step"] == step):
        pairs = pairs_text(row)
    else:
        pairs = f"step={step} {pairs_text(row, _STEP)}"
    return f"{_key(event, _NOTHING)} {pairs}".rstrip()


def pairs_text(values: Mapping[str, Any], reserved: frozenset[str] = frozenset()) -> str:
    """Return *values* as `name=value` pairs, nested names joined with `/`.

    Names that hold a space, `=`, a quote or a control character stand in quotes, and so do those in *reserved*.
    """
    return " ".join(f"{_key(path, reserved)}={_cut(value_text(value))}" for path, value in _leaves(values, ""))


def _cut(text: str) -> str:
    """Lists of mappings, such as the trackers of a configuration, would fill the screen."""
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}...({len(text)} characters)"


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Names and values; unlike `flatten` it shows both of two that share a name."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def error_text(error: BaseException) -> str:
    """Return the type and the text of *error*, also where that raises."""
    try:
        return f"{type(error).__name__}: {redacted_text(str(error))}"
    except Exception:
        return type(error).__name__


def _key(key: str, reserved: frozenset[str]) -> str:
    if len(key) > _MAX_NAME:
        return f"{_quoted(key[:_MAX_NAME])}...({len(key)} characters)"
    return _quoted(key) if not key or key in reserved or _is_loose(key) else key


def _is_loose(text: str) -> bool:
    """Whether *text* would not be seen as one word, or would do something to a terminal."""
    return not text.isprintable() or not _QUOTED.isdisjoint(text)


def _quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 - the basic plane


def value_text(value: Any, depth: int = 0) -> str:
    """Return a short text for one value of a row; long ones are cut, and say how long they are."""
    if isinstance(value, str):
        return _string(value, inside=depth > 0)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer(value)
    if isinstance(value, list):
        return _list(value, depth)
    if isinstance(value, dict):
        return _mapping(value, depth)
    return _object(value)


def _string(text: str, *, inside: bool = False) -> str:
    """*text*, in quotes unless it is one plain word, which among others holds nothing that stands between them."""
    shown = text[:_MAX_TEXT]
    loose = not text or text in _WORDS or len(text) > _MAX_TEXT or _is_loose(shown) or shown[0] in "[{("
    loose = loose or (inside and not _SEPARATORS.isdisjoint(shown))
    quoted = _quoted(shown) if loose else shown
    return quoted if len(text) <= _MAX_TEXT else f"{quoted}...({len(text)} characters)"


def _integer(value: int) -> str:
    if value.bit_length() <= _EXACT_BITS:
        return int.__repr__(value)
    number = Decimal(value)
    return f"{number:.6e}...({number.adjusted() + 1} digits)"


def _list(items: list[Any], depth: int) -> str:
    if depth >= _MAX_DEPTH:
        return f"[...]({len(items)} items)"
    shown = ",".join(value_text(item, depth + 1) for item in items[:_MAX_ITEMS])
    return f"[{shown}]" if len(items) <= _MAX_ITEMS else f"[{shown},...]({len(items)} items)"


def _mapping(mapping: Mapping[str, Any], depth: int) -> str:
    if depth >= _MAX_DEPTH:
        return f"{{...}}({len(mapping)} names)"
    shown = list(mapping)[:_MAX_ITEMS]
    separated = frozenset(key for key in shown if not _SEPARATORS.isdisjoint(key))
    pairs = [f"{_key(key, separated)}:{value_text(mapping[key], depth + 1)}" for key in shown]
    return "{" + ",".join(pairs) + ("}" if len(mapping) <= _MAX_ITEMS else f",...}}({len(mapping)} names)")


def _object(value: Any) -> str:
    match value:
        case Histogram():
            return _histogram(value)
        case Image():
            return f"image({'x'.join(map(str, _image_size(value.pixels)))})"
        case Audio():
            seconds = np.shape(value.samples)[0] / value.sample_rate
            return f"audio({seconds:.6g}s,{value.sample_rate}Hz)"
        case Table():
            return f"table({len(value.data)}x{len(value.columns)})"
        case Text():
            return f"text({len(value.text)} characters)"
        case Html():
            return f"html({len(value.html)} characters)"
        case Pending():
            return value_text(value.resolve())
    return str(value) if value is None or isinstance(value, bool) else _string(str(value))


def _image_size(pixels: Any) -> tuple[int, ...]:
    height, width, *channels = np.shape(pixels)
    return (width, height, *channels)


def _histogram(value: Histogram) -> str:
    parts = {"n": value.num, "mean": value.mean, "min": value.min, "max": value.max}
    odd = {"nan": value.nan, "inf": value.posinf, "-inf": value.neginf}
    shown = parts | {name: count for name, count in odd.items() if count}
    return "hist(" + " ".join(f"{name}={value_text(item)}" for name, item in shown.items()) + ")"
