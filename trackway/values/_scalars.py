"""JAX arrays of one element, by a way shorter than that of the others: they are what training loops log.

It runs once a step, between computations that leave nothing of it in the caches of the processor. So each call of JAX
and each Python function counts for several microseconds, and there are few of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trackway.values._arrays import NUMBERS, is_tracer_class, is_user_defined
from trackway.values._leaves import PLAIN, is_huge
from trackway.values._pending import Pending, compiled_copy, is_device_class, is_readable, place_of
from trackway.values._redact import current_policy

__all__ = ["How", "how_of", "is_jax_class", "numbers_in", "scalar"]


class How(NamedTuple):
    """How arrays of one type in one place become numbers."""

    read: Callable[[Any], Any]
    """Waits for an array of one element and returns the number in it."""
    on_cpu: bool
    """Whether the array lies on CPUs."""


_MAX_KNOWN = 256
_jax_classes: dict[type, bool] = {}
_known: dict[tuple[Any, int], tuple[Any, How | None]] = {}  # with the sharding itself, so that no other has its id


def numbers_in(row: dict[str, Any]) -> bool | None:
    """Put numbers, or `Pending` ones, in the place of the arrays in *row*, if all that it holds is of a simple kind.

    Simple are plain values, NumPy scalars and JAX arrays that `how_of` knows, under names that mean nothing else. They
    become what the general walk would make of them.

    Returns:
        Whether a number is pending; None if *row* holds something else, or something that cannot be read. It may have
        changed by then: the general walk has to begin with the payload itself.
    """
    found: list[tuple[str, Any, How | None]] = []
    for key, value in row.items():
        kind = type(value)
        if type(key) is not str or key[:1] == "_":
            return None
        if kind in PLAIN:
            if kind is str:
                row[key] = current_policy().value(key, value)
            elif kind is int and is_huge(value):
                return None
        elif kind in NUMBERS:
            found.append((key, value, None))
        elif is_jax_class(kind) and (how := how_of(value)) is not None:
            found.append((key, value, how))
        else:
            return None
    pending = False
    try:  # only now: what is begun for one array is in vain if another is not simple
        for key, value, how in found:
            row[key] = number = NUMBERS[type(value)](value) if how is None else scalar(value, how, key)
            pending = pending or type(number) is Pending
    except Exception:
        return None  # the walk meets it again, and says what it is
    return pending


def is_jax_class(cls: type) -> bool:
    """Tell whether *cls* is a class of JAX arrays that are not traced; found out once for a class."""
    known = _jax_classes.get(cls)
    if known is None:
        array = getattr(sys.modules.get("jax"), "Array", None)
        if array is None:
            return False
        if len(_jax_classes) >= _MAX_KNOWN:  # a program that makes classes as it goes must not fill the memory
            _jax_classes.clear()
        known = issubclass(cls, array) and is_device_class(cls) and not is_tracer_class(cls)
        _jax_classes[cls] = known
    return known


def how_of(array: Any) -> How | None:
    """Return how *array*, a JAX array, becomes a number; None if it is not one real number, or not all here."""
    dtype, sharding = array.dtype, getattr(array, "sharding", None)
    known = _known.get((dtype, id(sharding)))
    if known is None:
        if not isinstance(dtype, np.dtype):  # keys of a random generator, for one, have no numbers
            return None
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        known = _known[dtype, id(sharding)] = sharding, _find_out(dtype, place_of(array))
    return None if array.shape and array.size != 1 else known[1]


def scalar(array: Any, how: How, name: str) -> Any:
    """Return the number in *array* if it is at hand, else one that is pending, as `hold` does for others.

    Raises:
        Unreachable: If the array never can be read, because it was deleted.
    """
    read, on_cpu = how
    if is_readable(array) and on_cpu:
        return read(array)
    try:
        copied = compiled_copy()(array)
    except Exception:  # a debugging mode of JAX forbids it; reading the array itself may still work
        copied = array
    if type(copied) is not type(array):  # a trace is active: copies would become part of it
        return read(array)
    if not on_cpu:
        copied.copy_to_host_async()
    return Pending(copied, read, name=name)


def _find_out(dtype: np.dtype[Any], place: str | None) -> How | None:
    if place is None:
        return None
    if dtype.kind in "biuf":
        return How(_item, place == "cpu")
    if is_user_defined(dtype):
        return How(_whole if dtype.name.startswith(("int", "uint")) else _real, place == "cpu")
    return None


def _item(array: Any) -> Any:
    return np.asarray(array).item()


def _whole(array: Any) -> int:
    return int(np.asarray(array).item())


def _real(array: Any) -> float:
    return float(np.asarray(array).item())
