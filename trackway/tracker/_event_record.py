"""What one line of a file of events holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackway import _notices
from trackway.values import Row

__all__ = ["event_record"]

_OWN = frozenset({"event", "_step", "_time"})


def event_record(event: str, row: Mapping[str, Any], step: int | None, time: float) -> dict[str, Any]:
    """Return the line of one event: its name, its step and time, and after them what it brought.

    A key of *row* that the line has for itself (`event`, `_step`, `_time`) gets `_` at its end, with one warning.

    >>> event_record("checkpoint", {"path": "model.pt"}, 50, 1754323200.5)
    {'event': 'checkpoint', '_step': 50, '_time': 1754323200.5, 'path': 'model.pt'}

    Args:
        event: The event's name.
        row: Its payload, normalised. A `Row` keeps its marks.
        step: The training step; None for an event without one, which then has no `_step`.
        time: Unix time in seconds.
    """
    record: dict[str, Any] = {"event": event}
    if step is not None:
        record["_step"] = step
    record["_time"] = time
    if _OWN.isdisjoint(row):
        record.update(row)
    else:
        record.update(_renamed(row))
    return row.derive(record) if isinstance(row, Row) else record


def _renamed(row: Mapping[str, Any]) -> dict[str, Any]:
    """*row* with other names for what would take the place of the line's own."""
    names: dict[str, str] = {}
    for key in _OWN & row.keys():
        name = f"{key}_"
        while name in row or name in names.values():
            name += "_"
        names[key] = name
        _notices.warn_once(
            ("event key", key),
            f"the payload of an event has a key {key!r}, which stands for the event's own in files of events; there "
            f"it is {name!r}. Give it another name.",
        )
    return {names.get(key, key): value for key, value in row.items()}
