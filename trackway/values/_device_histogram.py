"""The fields of a histogram as a JAX computation."""

from __future__ import annotations

from typing import Any

__all__ = ["device_fields"]

_INT32_LIMIT = 2**31
_FLOAT32_BYTES = 4


def device_fields(x: Any, edges: Any, bins: int) -> tuple[Any, ...]:
    """Return the fields of `Histogram` for a JAX array, which keeps its shape so that shards stay where they are."""
    import jax
    import jax.numpy as jnp

    wide = jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize >= _FLOAT32_BYTES
    x = x if wide else x.astype(jnp.result_type(float))
    whole = jnp.int32 if x.size < _INT32_LIMIT else jnp.uint32
    finite = jnp.isfinite(x)
    num = jnp.sum(finite, dtype=whole)
    least = jnp.min(jnp.where(finite, x, jnp.inf))
    greatest = jnp.max(jnp.where(finite, x, -jnp.inf))
    borders = _even_edges(least, greatest, num, bins) if edges is None else jnp.asarray(edges, x.dtype)
    # One reduction for each border: exact, without sorting, and cheap for arrays that are spread over devices.
    above = jax.lax.map(lambda border: jnp.sum(finite & (x >= border), dtype=whole), borders[:-1])
    above_last = jnp.sum(finite & (x > borders[-1]), dtype=whole)
    counts = above - jnp.append(above[1:], above_last)
    kept = jnp.where(finite, x, 0)
    shifted = jnp.where(finite, x - jnp.where(num > 0, least / 2 + greatest / 2, 0), 0)  # a sum of x may overflow
    deviations = jnp.where(finite, shifted - jnp.sum(shifted) / jnp.maximum(num, 1), 0)
    return (
        borders,
        counts,
        jnp.where(num > 0, least, jnp.nan),
        jnp.where(num > 0, greatest, jnp.nan),
        num,
        jnp.sum(kept),
        jnp.sum(kept * kept),
        jnp.sum(jnp.isnan(x), dtype=whole),
        jnp.sum(x == jnp.inf, dtype=whole),
        jnp.sum(x == -jnp.inf, dtype=whole),
        jnp.sum(deviations * deviations),
    )


def _even_edges(least: Any, greatest: Any, num: Any, bins: int) -> Any:
    """Return borders that are increasing whatever the range: empty, one value, very narrow or very wide."""
    import jax.numpy as jnp

    least, greatest = jnp.where(num > 0, least, 0), jnp.where(num > 0, greatest, 1)
    info = jnp.finfo(least.dtype)
    largest = jnp.maximum(jnp.abs(least), jnp.abs(greatest))
    needed = jnp.maximum((bins + 1) * 4 * info.eps * largest, (bins + 1) * info.tiny)
    half = jnp.where(least == greatest, jnp.maximum(0.5, needed), needed)
    narrow = (greatest / 2 - least / 2) < needed / 2
    centre = least / 2 + greatest / 2
    limit = info.max
    low = jnp.where(narrow, jnp.maximum(jnp.minimum(centre - half, least), -limit), least)
    high = jnp.where(narrow, jnp.minimum(jnp.maximum(centre + half, greatest), limit), greatest)
    parts = jnp.arange(bins + 1, dtype=least.dtype) / bins
    # Exact at both ends, and no overflow where the range exceeds the greatest float.
    inner = low * (1 - parts) + high * parts
    return inner.at[0].set(low).at[-1].set(high)
