"""Sums that stay right over many terms, and the types and shapes in which they are taken.

A sum that a loop carries is compensated: beside it stands what rounding took from it (D. E. Knuth, The Art of Computer
Programming 2, 4.2.2, theorem B), and each addition brings the two into order again. So a float32 mean over twenty
million iterations is right to the last digits.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

__all__ = ["add", "float_type", "over", "promoted", "total_of", "wide"]

State = list[Any]


def over(xp: Any, count: Any, x: Any) -> Any:
    """Return *count* in a shape that divides *x*, whose leading axes are those of *count*."""
    if isinstance(count, int):
        return count
    return xp.reshape(count, count.shape + (1,) * (x.ndim - count.ndim))


def float_type(dtype: Any) -> Any:
    """Return the type in which values of *dtype* are averaged: at least float32."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return dtype
    if not jnp.issubdtype(dtype, jnp.floating) or jnp.finfo(dtype).bits < 32:  # noqa: PLR2004
        return jnp.dtype(jnp.float32)
    return dtype


def promoted(x: Any, y: Any) -> tuple[Any, Any]:
    """Return both in the type that holds both."""
    dtype = jnp.promote_types(x.dtype, y.dtype)
    return x.astype(dtype), y.astype(dtype)


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded sum, and what rounding took from it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def wide(x: Any) -> State:
    """Return a sum in the form that loops carry: with a remainder, if it is not of integers."""
    return [x, jnp.zeros_like(x)] if jnp.issubdtype(x.dtype, jnp.inexact) else [x]


def add(a: State, b: State) -> State:
    """Add two sums, of which each is plain or compensated."""
    if len(a) == len(b) == 1:
        return [a[0] + b[0]]
    total, lost = _two_sum(a[0], b[0])
    for rest in (*a[1:], *b[1:]):
        lost = lost + rest
    lost = jnp.where(jnp.isnan(lost), 0, lost)  # of an infinite total, which has to stay infinite
    whole = total + lost
    return [whole, lost - (whole - total)]


def total_of(xp: Any, part: State) -> Any:
    """Return the value of a sum; a sum that is infinite has no meaningful remainder."""
    return part[0] if len(part) == 1 else xp.where(xp.isfinite(part[0]), part[0] + part[1], part[0])
