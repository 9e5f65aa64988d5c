"""The row: a payload after normalising."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

from trackway._notices import warn_once
from trackway.values._leaves import PLAIN
from trackway.values._pending import Pending

__all__ = ["Downgrade", "Row", "flatten", "pendings", "resolve", "resolve_value"]

_TWICE = "is given twice in one row, once by its flat name and once nested; the later one is kept"


class Downgrade(NamedTuple):
    """A leaf that was kept in another form than it was given, or not at all."""

    path: str
    """The names that lead to it, joined with `/`."""
    reason: str
    """What became of it and why."""
    lost: bool = False
    """Whether nothing of it is kept."""


@final
class Row(dict[str, Any]):
    """A payload of plain values: what `normalise` returns and every tracker receives.

    It is an ordinary dict of `str` to None, bool, int, float, str, list, dict, `Pending`, `Histogram` or media.
    Nested mappings stay nested (see `flatten`). Treat it as read-only: several trackers get the same one.
    """

    pending: bool = False
    """Whether a leaf anywhere in it is a `Pending`."""
    flat: bool = False
    """Whether it is known that no value in it is a mapping, a list, a `Pending` or media."""
    has_media: bool = False
    """Whether a leaf anywhere in it is an `Image`, `Table`, `Text`, `Html` or `Audio`."""
    downgrades: tuple[Downgrade, ...] = ()
    """The leaves that could not be kept as given."""

    def copy(self) -> Row:
        """Return a row that shares no dict or list with this one, for a receiver that may change it."""
        return self.derive({key: _copied(value) for key, value in self.items()})

    def derive(self, values: Mapping[str, Any]) -> Row:
        """Return a row of *values*, which come from this row's (renamed, filtered), with this row's marks."""
        row = Row(values)
        row.pending, row.has_media, row.downgrades = self.pending, self.has_media, self.downgrades
        return row


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value


def flatten(row: Mapping[str, Any], lost: list[Downgrade] | None = None) -> dict[str, Any]:
    """Return *row* with nested mappings joined by `/`: `{"a": {"b": 1}}` becomes `{"a/b": 1}`.

    Empty mappings stay as they are, under their name. Where `"a/b"` stands beside `{"a": {"b": ...}}` the later wins,
    with one warning.

    Args:
        row: A row, or any mapping of plain values.
        lost: Gets a `Downgrade` for every value that another took the place of, so that a tracker can count it.
    """
    if PLAIN.issuperset(map(type, row.values())):
        return dict(row)
    flat: dict[str, Any] = {}
    _flatten_into(flat, row, "", [] if lost is None else lost)
    return flat


def _flatten_into(flat: dict[str, Any], mapping: Mapping[str, Any], prefix: str, lost: list[Downgrade]) -> None:
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            _flatten_into(flat, value, f"{name}/", lost)
            continue
        if name in flat:
            lost.append(Downgrade(name, _TWICE, lost=True))
            warn_once(("flatten", name), f"metric {name!r} {_TWICE}. Give one of them another name.")
        flat[name] = value


def resolve(row: Row) -> Row:
    """Return *row* with every `Pending` replaced by its host value, waiting where need be; never raises.

    A row without any is returned itself. Values that cannot be had are added to `downgrades`.
    """
    if not row.pending:
        return row
    lost: list[Downgrade] = []
    resolved = Row(row)
    for key, value in row.items():
        if type(value) not in PLAIN:
            resolved[key] = resolve_value(value, key, lost)
    resolved.flat = PLAIN.issuperset(map(type, resolved.values()))
    resolved.has_media, resolved.downgrades = row.has_media, (*row.downgrades, *lost)
    return resolved


def _resolve_mapping(mapping: Mapping[str, Any], prefix: str, lost: list[Downgrade]) -> dict[str, Any]:
    return {key: resolve_value(value, f"{prefix}{key}", lost) for key, value in mapping.items()}


def resolve_value(value: Any, path: str, lost: list[Downgrade]) -> Any:
    """Return *value* with every `Pending` in it replaced; those that cannot be had are added to *lost*."""
    if isinstance(value, Pending):
        host, reason = value.outcome()
        if reason is not None:
            lost.append(Downgrade(path, reason, lost=True))
        return host
    if isinstance(value, dict):
        return _resolve_mapping(value, f"{path}/", lost)
    if isinstance(value, list):
        return [resolve_value(item, path, lost) for item in value]
    return value


def pendings(value: Any) -> Iterator[Pending]:
    """Yield every `Pending` in *value*, a row or a part of one."""
    if isinstance(value, Pending):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            if type(item) not in PLAIN:
                yield from pendings(item)
