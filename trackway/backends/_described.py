"""Counting the values of which a backend shows a description in place of the data."""

from __future__ import annotations

from typing import Any

from trackway.tracker import Ledger

__all__ = ["count_described"]

_REASON = "media are described, not kept"
_PLAIN = frozenset({float, int, str, bool, type(None)})


def count_described(ledger: Ledger, value: Any, kinds: tuple[type, ...], path: str = "") -> None:
    """Count every value of *kinds* in *value*, a row or a part of one, as converted."""
    if isinstance(value, kinds):
        ledger.convert(path, _REASON, lossless=True)
    elif isinstance(value, dict):
        for key, item in value.items():
            count_described(ledger, item, kinds, f"{path}/{key}" if path else key)
    elif isinstance(value, list) and not _PLAIN.issuperset(map(type, value)):
        for item in value:
            count_described(ledger, item, kinds, path)
