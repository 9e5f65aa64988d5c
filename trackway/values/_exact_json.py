"""The slow JSON writer: for rows that hold what the fast one cannot write."""

from __future__ import annotations

import math
from collections.abc import Iterable
from json.encoder import encode_basestring
from typing import Any, final

from trackway.values._histogram import Histogram
from trackway.values._leaves import huge_text, is_huge
from trackway.values._media_base import Media
from trackway.values._pending import Pending
from trackway.values._walk import Walk

__all__ = ["plain_leaf", "write_exact"]

_MIN_FAST, _MAX_FAST = -(2**63), 2**64 - 1
_SHORT_BITS = 2000  # about 600 digits, below every limit that Python may be told to put on the length of integers


def plain_leaf(value: Any) -> Any:
    """Return what stands in JSON for a leaf that is no JSON type."""
    if isinstance(value, Pending):
        value = value.resolve()
    if isinstance(value, Histogram | Media):
        return value.describe()
    plain = Walk().plain(value, "value")
    return plain.resolve() if isinstance(plain, Pending) else plain


def write_exact(tree: dict[str, Any], *, strict: bool) -> bytes:
    """Return *tree* as a JSON line; see `trackway.values.encode`."""
    writer = _Writer(strict=strict)
    reserved: list[str] = []
    entries: list[str] = []
    mirror: dict[str, Any] = {}
    for key, value in tree.items():
        text, marks = writer.write(value)
        if marks is not None:
            mirror[_key(key)] = marks
        leading = not entries and _key(key).startswith("_")
        (reserved if leading else entries).append(f"{encode_basestring(_key(key))}:{text}")
    if mirror:
        reserved.append(f'"_nonfinite":{writer.write(mirror)[0]}')
    if writer.bigint:
        reserved.append('"_bigint":true')
    line = "{" + ",".join((*reserved, *entries)) + "}"
    return line.encode("utf-8", "backslashreplace")  # only lone surrogates cannot be encoded


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


@final
class _Writer:
    """Writes values as JSON text and returns beside it the mirror of the floats that became null."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self.bigint = False

    def write(self, value: Any) -> tuple[str, Any]:
        if isinstance(value, str):
            return encode_basestring(value), None
        if value is None or isinstance(value, bool):
            return _CONSTANTS[value], None
        if isinstance(value, float):
            return self._float(value)
        if isinstance(value, int):
            return self._int(value), None
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return self._array(value)
        return self.write(plain_leaf(value))

    def _float(self, value: float) -> tuple[str, Any]:
        if math.isfinite(value):
            return float.__repr__(value), None
        name = float.__repr__(value)
        return ("null", name) if self._strict else (_LITERALS[name], None)

    def _int(self, value: int) -> str:
        if _MIN_FAST <= value <= _MAX_FAST:
            return int.__repr__(value)
        if is_huge(value):
            return encode_basestring(huge_text(value))
        self.bigint = True
        if value.bit_length() <= _SHORT_BITS:
            return int.__repr__(value)
        from decimal import Decimal

        return str(Decimal(value))

    def _object(self, value: dict[Any, Any]) -> tuple[str, Any]:
        keys = [_key(key) for key in value]
        texts, mirror = self._children(keys, value.values())
        pairs = (f"{encode_basestring(key)}:{text}" for key, text in zip(keys, texts, strict=True))
        return "{" + ",".join(pairs) + "}", mirror

    def _array(self, value: list[Any] | tuple[Any, ...]) -> tuple[str, Any]:
        texts, mirror = self._children(map(str, range(len(value))), value)
        return "[" + ",".join(texts) + "]", mirror

    def _children(self, names: Iterable[str], values: Iterable[Any]) -> tuple[list[str], dict[str, Any] | None]:
        texts: list[str] = []
        mirror: dict[str, Any] = {}
        for name, value in zip(names, values, strict=True):
            text, marks = self.write(value)
            texts.append(text)
            if marks is not None:
                mirror[name] = marks
        return texts, mirror or None


_CONSTANTS = {None: "null", True: "true", False: "false"}
_LITERALS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
