"""Lists and what is like a list to plain lists, for the walk over a payload."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, MappingView, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from trackway.values._leaves import PLAIN, is_huge
from trackway.values._text import type_name

if TYPE_CHECKING:
    from trackway.values._walk import Walk

__all__ = ["MAX_ITEMS", "SEQUENCES"]

MAX_ITEMS = 10_000
"""Items taken from an iterator, from a range, or from a sequence that makes them as it is asked."""


def _list(walk: Walk, value: Sequence[Any], path: str) -> Any:
    if (text := walk.late(value, path)) is not None:
        return text
    if (types := _plain_types(value)) is not None:
        walk.enter(value)
        return walk.texts(value, path) if str in types else list(value)
    return walk.nested(value, path, lambda v, p: walk.items(tuple(v), p))


def _plain_types(value: Sequence[Any]) -> set[type] | None:
    """The types of the items if all are plain."""
    types = set(map(type, value))
    if not PLAIN.issuperset(types) or (int in types and any(type(item) is int and is_huge(item) for item in value)):
        return None
    return types


def _sequence(walk: Walk, value: Sequence[Any], path: str) -> Any:
    def build(items: Sequence[Any], path: str) -> list[Any]:
        length = len(items)
        if length > MAX_ITEMS:
            walk.note(
                path, f"is a sequence of {type_name(items)} with more than {MAX_ITEMS:,} items; the first are kept"
            )
        walk.spend(min(length, MAX_ITEMS))
        return [walk.read(lambda i=i: items[i], path) for i in range(min(length, MAX_ITEMS))]  # type: ignore[misc]

    return walk.nested(value, path, build)


def _range(walk: Walk, value: range, path: str) -> Any:
    if value[MAX_ITEMS:]:
        walk.note(path, f"is a range of more than {MAX_ITEMS:,} numbers, logged as text")
        return repr(value)
    return list(value)


def _set(walk: Walk, value: AbstractSet[Any], path: str) -> Any:
    items = walk.nested(value, path, lambda v, p: walk.items(tuple(v), p))
    if not isinstance(items, list):  # a text, for what may not be entered
        return items
    for order in (None, lambda item: (type(item).__name__, repr(item))):
        try:
            return sorted(items, key=order)
        except Exception:  # noqa: S112 - unlike types have no order; text always has, save for huge ints
            continue
    return items


def _iterator(walk: Walk, value: Iterator[Any], path: str) -> Any:
    def build(items: Iterator[Any], path: str) -> list[Any]:
        taken = walk.items(itertools.islice(items, MAX_ITEMS + 1), path)
        if len(taken) > MAX_ITEMS:
            del taken[MAX_ITEMS:]
            walk.note(path, f"is an iterator of more than {MAX_ITEMS:,} items; the first of them are kept")
        return taken

    return walk.nested(value, path, build)


SEQUENCES: tuple[tuple[type | tuple[type, ...], Callable[[Walk, Any, str], Any]], ...] = (
    ((list, tuple, deque), _list),
    (range, _range),
    ((AbstractSet, MappingView), _set),
    (Sequence, _sequence),
    (Iterator, _iterator),
)
"""What converts the instances of each kind; the first match counts."""
