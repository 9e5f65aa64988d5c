"""Which plain values fit a field's type, and how to name that type to a person.

draccus alone turns `null` into an empty optional, a list into its text, and text into a list of letters.
"""

from __future__ import annotations

import itertools
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Union

__all__ = ["describe", "misfit"]


class Misfit(NamedTuple):
    """A value that is not of the type that its place asks for."""

    path: Sequence[str]
    hint: Any
    value: Any


_UNIONS = (Union, types.UnionType)
_LISTS = (list, tuple, set, frozenset)
_WORDS: dict[Any, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
    set: "a list",
    Callable: "a callable",
}


def misfit(hint: Any, value: Any, path: Sequence[str]) -> Misfit | None:
    """Return the innermost part of *value*, as it came from YAML, that cannot be meant for a field of type *hint*.

    Args:
        hint: The field's type.
        value: The value given.
        path: Where it stands.

    Returns:
        The part's path, type and value; None where everything may fit.
    """
    if typing.get_origin(hint) in _UNIONS:
        misfits = [misfit(option, value, path) for option in typing.get_args(hint)]
        deeper = [one for one in misfits if one is not None and len(one.path) > len(path)]
        return None if None in misfits else (deeper or [Misfit(path, hint, value)])[0]
    if not _fits(typing.get_origin(hint) or hint, value):
        return Misfit(path, hint, value)
    inner = (misfit(kind, item, (*path, key)) for key, kind, item in _parts(hint, value))
    return next((one for one in inner if one is not None), None)


def _fits(origin: Any, value: Any) -> bool:
    if origin is Any or isinstance(origin, typing.TypeVar):
        return True
    if origin is Literal:
        return value is not None
    if origin in _LISTS:
        return isinstance(value, _LISTS)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    return _fits_scalar(origin, value)


def _parts(hint: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """The items of a list or mapping: the key of each, the type it should have, and itself."""
    arguments = [one for one in typing.get_args(hint) if one is not Ellipsis]
    origin = typing.get_origin(hint) or hint
    if not arguments or not isinstance(origin, type):
        return
    if issubclass(origin, Mapping):
        yield from ((str(key), arguments[-1], item) for key, item in value.items())
    elif origin in _LISTS:
        kinds = itertools.chain(arguments, itertools.repeat(arguments[-1]))
        yield from ((str(index), kind, item) for index, (kind, item) in enumerate(zip(kinds, value, strict=False)))


def _fits_scalar(kind: Any, value: Any) -> bool:
    if kind is type(None) or value is None:
        return kind is type(None) and value is None
    if kind in {int, float}:
        return isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if kind is str:
        return not isinstance(value, (bool, Mapping, *_LISTS))
    return True


def describe(hint: Any) -> str:
    """Return *hint* in words: "text or null", "a list of integers", "one of primary, all"."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in _UNIONS:
        return " or ".join(describe(option) for option in arguments)
    origin = typing.get_origin(hint) or hint
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    word = _WORDS.get(origin) or f"a {getattr(origin, '__name__', str(origin))}"
    if origin in _LISTS and arguments and arguments[0] is not Any:
        return f"{word} of {describe(arguments[0]).removeprefix('an ').removeprefix('a ')}"
    return word
