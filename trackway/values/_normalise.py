"""Payloads to rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time, timedelta
from enum import Enum
from typing import Any, Protocol, SupportsFloat, TypeAlias

from trackway._notices import warn_once
from trackway.values._fields import Pairs, pairs_of
from trackway.values._histogram import Histogram
from trackway.values._leaves import PLAIN, is_huge
from trackway.values._media_base import Media
from trackway.values._pending import Pending
from trackway.values._row import Row
from trackway.values._scalars import numbers_in
from trackway.values._text import bounded, bounded_repr
from trackway.values._walk import Walk

__all__ = ["ArrayLike", "LoggableValue", "normalise", "source_of", "to_plain"]


class ArrayLike(Protocol):
    """An array or array scalar of any library."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""

    @property
    def shape(self) -> Any:
        """The length of each axis."""


LoggableValue: TypeAlias = (
    bool
    | int
    | float
    | complex
    | str
    | bytes
    | ArrayLike
    | Histogram
    | Media
    | Pending
    | date
    | time
    | timedelta
    | SupportsFloat
    | Enum
    | os.PathLike[str]
    | Mapping[str, Any]
    | Iterable[Any]
    | None
)
"""What has a form of its own in a row. Anything else may be logged too and becomes the text of its `repr`."""


def normalise(
    payload: Mapping[str, Any],
    *,
    warn: bool = True,
    reserved: bool = True,
    arrays: Callable[[Any], Any] | None = None,
) -> Row:
    """Return the row of plain values that *payload* stands for; a `Row` is returned as it is.

    The payload is neither kept nor changed, and no value in it costs another: what has no plain form becomes a
    bounded text and is listed in `Row.downgrades`. Values on a device are not waited for, see `Pending`. Marks stand in
    place of secrets, see `RedactionPolicy`.

    Args:
        payload: Any mapping, or a dataclass, pydantic model or named tuple, of names to values; or an object whose
            method `__trackway_row__` returns one. Keys that are no text become text.
        warn: Issue a `TrackwayWarning`, once for each name and reason, for what was downgraded.
        reserved: Ignore names that begin with `_`, as for metrics; False keeps them, as for hyper-parameters. Names
            that mean something in files, `_nonfinite` and `_bigint` at the top and `_type` below it, are kept with
            one underscore more at their end, which is a downgrade.
        arrays: Called with each JAX array, traced or not, each NumPy array of numbers or booleans that has an axis, and
            each `Histogram` that holds a JAX value; what it returns stands in the row. None refuses traced values.

    Raises:
        TypeError: If *payload* is none of those.
        TracerError: If it holds a traced JAX value, and *arrays* is not given.
    """
    kind = type(payload)
    if kind is Row:
        return payload  # type: ignore[return-value]  # mypy does not narrow by `type() is`
    if kind is dict and reserved:
        row = Row(payload)
        if (len(row) > _FEW and _are_plain(row)) or _is_plain(row):
            row.flat = True
            return row
        if arrays is None and (pending := numbers_in(row)) is not None:
            row.pending, row.flat = pending, not pending
            return row
    pairs = source_of(payload)
    walk = Walk(arrays, metrics=reserved)
    row = Row(walk.nested(payload, "", lambda _, __: walk.mapping(pairs, "", top=reserved)))
    row.pending, row.has_media, row.downgrades = walk.pending, walk.has_media, tuple(walk.downgrades)
    if warn and row.downgrades:
        _warn(row)
    return row


def source_of(payload: Any) -> Pairs:
    """Return the names of *payload*, each with what reads its value.

    Raises:
        TypeError: If it is neither a mapping nor one at heart.
    """
    own = getattr(type(payload), "__trackway_row__", None)
    source = payload if own is None else own(payload)
    pairs = None if isinstance(source, type) else pairs_of(type(source))
    if pairs is None:
        raise TypeError(
            f"metrics must be a mapping of names to values, got {type(source).__name__}: {bounded_repr(source)}. "
            'Give the value a name, as in log({"loss": value}).'
        )
    return pairs(source)


def to_plain(value: Any) -> Any:
    """Return the plain form of one value, by the same rules as `normalise` but without a warning.

    Raises:
        TracerError: If it is or holds a traced JAX value.
    """
    return Walk().plain(value, "value")


_FEW = 4
_BARE = PLAIN - {str}  # a text may have to be redacted
_NAMES = {str}
_FLOATS = {float}
_MAX_KNOWN = 256
_known: set[tuple[str, ...]] = set()  # names that rows had: those of a training loop are the same at every step


def _are_plain(row: Row) -> bool:
    """Whether all is plain, as far as that can be told without a look at each."""
    kinds = set(map(type, row.values()))
    if kinds != _FLOATS and (int in kinds or not kinds <= _BARE):
        return False
    names = tuple(row)
    if names not in _known:
        if not _is_plain(row):
            return False
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known.add(names)
    return set(map(type, names)) == _NAMES


def _is_plain(row: Row) -> bool:
    for key, value in row.items():
        kind = type(value)
        if kind is not float and (kind not in _BARE or (kind is int and is_huge(value))):
            return False
        if type(key) is not str or key[:1] == "_":
            return False
    return True


def _warn(row: Row) -> None:
    for path, reason, _ in dict.fromkeys(row.downgrades):
        kind = reason.partition(": ")[0]  # what follows may differ from row to row
        what = f"metric {bounded(path, 200)!r}" if path else "the payload"
        warn_once(("value", path, kind), f"{what} {reason}.")
