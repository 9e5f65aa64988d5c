"""Texts of strangers, made harmless for a terminal or a page."""

from __future__ import annotations

from typing import Any

from trackway.values import encode

__all__ = ["safe", "shown"]

_LIMIT = 100
_MAX_DIGITS = 30
_BASIC = 0x10000


def safe(text: Any, limit: int = _LIMIT) -> str:
    r"""Return *text* on one line, of *limit* characters at most, without any character that controls what shows it.

    Control characters, those that turn the direction of writing, invisible ones and lone surrogates become escapes
    such as `\x1b`; what is longer is cut, and ends with an ellipsis.
    """
    line = text if isinstance(text, str) else str(text)
    cut = line if len(line) <= limit else f"{line[: limit - 1]}…"
    return cut if cut.isprintable() else "".join(map(_escaped, cut))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    code = ord(char)
    if code < 0x100:  # noqa: PLR2004 - what two digits can say
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _BASIC else f"\\U{code:08x}"


def shown(value: Any, limit: int = _LIMIT) -> str:
    """Return a short text for a value of a row, of the configuration or of the summary: numbers have six digits."""
    if isinstance(value, str):
        return safe(value, limit)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() < 3 * _MAX_DIGITS else f"<integer of {value.bit_length()} bits>"
    if isinstance(value, dict) and "_type" in value:
        return safe(_described(value), limit)
    if isinstance(value, dict | list):
        line = encode({"": value})
        return safe(line[line.index(b'"":') + 3 : -1].decode("utf-8", "replace"), limit)
    return safe(value, limit)


def _described(value: dict[str, Any]) -> str:
    """Media and histograms are named by what they are."""
    count = value.get("num")
    return f"<{value['_type']}>" if count is None else f"<{value['_type']} of {count}>"
