"""Single values of the standard library to plain ones."""

from __future__ import annotations

import datetime as dt
import functools
import math
import os
import pathlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import decimal
    import fractions

__all__ = [
    "MAX_DIGITS",
    "NUMBER_PROTOCOLS",
    "PLAIN",
    "huge_text",
    "is_huge",
    "leaf_table",
    "number_of",
    "qualified_name",
]

PLAIN = frozenset({float, int, str, bool, type(None)})
"""The types that are kept as they are; subclasses of them are not in it."""

MAX_DIGITS = 10_000
"""Digits that an integer in a row may have."""

_TOO_LARGE: int = 10**MAX_DIGITS


def is_huge(value: int) -> bool:
    """Tell whether an integer has more than `MAX_DIGITS` digits: printing and reading it takes quadratic time."""
    return not -_TOO_LARGE < value < _TOO_LARGE


def huge_text(value: int) -> str:
    """Return leading digits, exponent and number of digits of an integer too long to be written out."""
    exponent = math.log10(abs(value))
    sign = "-" if value < 0 else ""
    digits = f"{int(exponent) + 1:,}"
    return f"{sign}{10 ** (exponent % 1):.6f}e+{int(exponent)} (an integer of {digits} digits)"


def qualified_name(value: Any) -> str:
    """Return `module.name` of a class, function or module."""
    name = getattr(value, "__qualname__", None) or value.__name__
    module = getattr(value, "__module__", None)
    return str(name) if module in {None, "builtins"} else f"{module}.{name}"


def _bytes(value: bytes | bytearray | memoryview) -> str:
    """Text where the bytes are UTF-8; `base64:` and the code otherwise."""
    raw = bytes(value)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        import base64

        return "base64:" + base64.b64encode(raw).decode()


def _complex(value: complex) -> dict[str, float]:
    return {"real": float(value.real), "imag": float(value.imag)}


def _decimal(value: decimal.Decimal) -> int | float:
    """A whole number stays exact; others become the nearest float."""
    if value.is_finite() and value.adjusted() >= MAX_DIGITS:
        raise OverflowError(f"a number of {value.adjusted() + 1:,} digits")
    if value.is_finite() and value == value.to_integral_value():
        return int(value)
    return float(value)


def _fraction(value: fractions.Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def number_of(value: Any) -> int | float | dict[str, float]:
    """Return the number that *value* is by one of `NUMBER_PROTOCOLS`."""
    cls = type(value)
    if getattr(cls, "__index__", None) is not None:
        return int.__int__(value.__index__())
    if getattr(cls, "__float__", None) is not None:
        return float.__float__(value.__float__())
    return _complex(value.__complex__())


@functools.cache
def leaf_table() -> tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...]:
    """Return types and what makes a plain value of their instances; the first match counts.

    Made at the first value that is no plain one: the modules of rare numbers would slow down every import.
    """
    import decimal
    import fractions
    import uuid

    return (
        (str, str.__str__),
        (int, int.__int__),
        (float, float.__float__),
        (complex, _complex),
        ((bytes, bytearray, memoryview), _bytes),
        ((dt.datetime, dt.date, dt.time), lambda value: value.isoformat()),
        (dt.timedelta, lambda value: value.total_seconds()),
        (uuid.UUID, str),
        (decimal.Decimal, _decimal),
        (fractions.Fraction, _fraction),
        ((pathlib.PurePath, os.PathLike), lambda value: _bytes(p) if isinstance(p := os.fspath(value), bytes) else p),
        (np.dtype, lambda value: value.name),
        ((type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType), qualified_name),
    )


NUMBER_PROTOCOLS = ("__index__", "__float__", "__complex__")
"""Methods by which a class says that it is a number."""
