"""Objects that are mappings at heart: dataclasses, models, named tuples."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

__all__ = ["Pairs", "pairs_of"]

Pairs = Iterator[tuple[Any, Callable[[], Any]]]
"""Keys, each with a function that reads its value and may raise, so that one bad field does not hide the others."""


def pairs_of(cls: type) -> Callable[[Any], Pairs] | None:
    """Return what lists the fields of instances of *cls*, or None if they have none."""
    if issubclass(cls, dict):
        return _dict_pairs
    if issubclass(cls, Mapping):
        return _mapping_pairs
    names = _field_names(cls)
    if names is None:
        return None
    return lambda value: _attribute_pairs(value, names)


def _dict_pairs(value: dict[Any, Any]) -> Pairs:
    # An exact dict is copied in one go: another thread may be adding to it.
    return _mapping_pairs(value.copy() if type(value) is dict else value)


def _mapping_pairs(value: Mapping[Any, Any]) -> Pairs:
    for key in value:
        yield key, partial(operator.getitem, value, key)


def _attribute_pairs(value: Any, names: tuple[str, ...]) -> Pairs:
    for name in names:
        yield name, partial(getattr, value, name)
    for name in tuple(getattr(value, "__pydantic_extra__", None) or ()):
        yield name, partial(getattr, value, name)


def _field_names(cls: Any) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    fields = getattr(cls, "model_fields", None)
    if isinstance(fields, Mapping) and callable(getattr(cls, "model_dump", None)):
        return (*fields, *getattr(cls, "model_computed_fields", ()))
    attributes = getattr(cls, "__attrs_attrs__", None)
    if attributes is not None:
        return tuple(attribute.name for attribute in attributes)
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        names: tuple[str, ...] = cls._fields
        return names
    return None
