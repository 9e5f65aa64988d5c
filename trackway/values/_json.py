"""Rows to JSON lines and back, without losing a digit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

from trackway.values._exact_json import plain_leaf, write_exact
from trackway.values._leaves import MAX_DIGITS

__all__ = ["decode", "encode"]

_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_SHORT_DIGITS = 600  # below every limit that Python may be told to put on the length of integers


def encode(row: Mapping[str, Any], *, strict: bool = False) -> bytes:
    r"""Return *row* as one line of JSON, UTF-8, without a newline at its end.

    What JSON has no form for is kept by these rules, which `decode` undoes:

    - NaN and infinities are the literals `NaN`, `Infinity`, `-Infinity`. With *strict* they are null, and
      `"_nonfinite"` mirrors the tree with what they were: `{"loss": "nan", "xs": {"1": "-inf"}}`.
    - Integers beyond 64 bits stand with all their digits, and `"_bigint": true` tells readers to parse them exactly.
      One of more than 10,000 digits is a text that says how many.
    - Lone surrogates are escapes such as `\udc80`; other text is readable UTF-8.

    `_nonfinite` and `_bigint` follow the reserved keys with which *row* begins, such as `_step`. A histogram is
    written out; media give their type and size, and a `Pending` is waited for.
    """
    tree = row if isinstance(row, dict) else dict(row)
    try:
        line = orjson.dumps(tree, plain_leaf, _OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return write_exact(tree, strict=strict)
    if b"null" in line and _has_nonfinite(tree):  # orjson writes null for NaN
        return write_exact(tree, strict=True) if strict else _with_literals(tree)
    return line


def _with_literals(tree: dict[str, Any]) -> bytes:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"), default=plain_leaf).encode()


def decode(line: bytes | bytearray | memoryview | str) -> dict[str, Any]:
    """Return the mapping that `encode` wrote, also one written by any other JSON encoder.

    Raises:
        ValueError: If *line* is no JSON object, or is marked to be read exactly and holds an integer of more than
            10,000 digits, which `encode` never writes.
    """
    row = _object(_parse(line))
    if "_bigint" in row:
        row = _object(_parse_exact(line))
        del row["_bigint"]
    if "_nonfinite" in row:
        _restore(row, row.pop("_nonfinite"))
    return row


def _object(parsed: Any) -> dict[str, Any]:
    if not isinstance(parsed, dict):
        raise ValueError(f"a JSON object is expected, got {type(parsed).__name__}")  # noqa: TRY004 - bad data
    return parsed


def _parse(line: bytes | bytearray | memoryview | str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return _parse_exact(line)  # literals, lone surrogates


def _parse_exact(line: bytes | bytearray | memoryview | str) -> Any:
    text = line if isinstance(line, str) else bytes(line).decode("utf-8", "surrogatepass")
    try:
        return json.loads(text, parse_int=_parse_int)
    except RecursionError:
        raise ValueError("the JSON line is nested too deeply") from None


def _parse_int(digits: str) -> int:
    if len(digits) < _SHORT_DIGITS:
        return int(digits)
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"an integer of more than {MAX_DIGITS:,} digits")
    from decimal import Decimal

    return int(Decimal(digits))


def _has_nonfinite(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_nonfinite, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nonfinite, value))
    if isinstance(value, float):
        return not math.isfinite(value)
    if value is None or isinstance(value, str | int):
        return False
    return _has_nonfinite(plain_leaf(value))


_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _restore(tree: Any, mirror: Any) -> None:
    """Put the floats that *mirror* names in their places; what does not fit *tree* is left alone."""
    if not isinstance(mirror, dict):
        return
    for key, name in mirror.items():
        place = _place(tree, key)
        if place is None:
            continue
        if isinstance(name, dict):
            _restore(tree[place], name)
        elif tree[place] is None and isinstance(name, str) and name in _NAMES:
            tree[place] = _NAMES[name]


def _place(tree: Any, key: str) -> Any:
    if isinstance(tree, dict):
        return key if key in tree else None
    if isinstance(tree, list) and key.isdecimal() and len(key) < _SHORT_DIGITS and int(key) < len(tree):
        return int(key)
    return None
