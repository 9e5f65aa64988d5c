"""Histograms of arrays on the host, on devices and inside compiled functions."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any, Self, final

import numpy as np

from trackway.errors import ConfigError
from trackway.values._arrays import as_host, reject_tracer

__all__ = ["MAX_BINS", "Histogram", "register_pytrees"]

MAX_BINS = 512
"""Most bins that a histogram may have."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Histogram:
    """How the values of an array are distributed; make one with `from_array`.

    Every field covers the finite values only, save for `nan`, `posinf` and `neginf`. Inside a compiled JAX function
    the fields are arrays of that function; a histogram may be returned from it. On the host `edges` and `counts` are
    NumPy arrays and the others Python numbers.
    """

    edges: Any
    """Bin borders, `[bins + 1]`, increasing. A bin holds its left border; the last one holds both."""
    counts: Any
    """Values in each bin, `[bins]`, integers."""
    min: Any
    """Least finite value; NaN if there is none."""
    max: Any
    """Greatest finite value; NaN if there is none."""
    num: Any
    """Number of finite values, also those outside of given edges."""
    sum: Any
    """Sum of the finite values."""
    sum_squares: Any
    """Sum of the squares of the finite values."""
    nan: Any = 0
    """Number of NaNs."""
    posinf: Any = 0
    """Number of positive infinities."""
    neginf: Any = 0
    """Number of negative infinities."""
    squared_deviations: Any = float("nan")
    """Sum of the squared deviations of the finite values from their mean, which `sum_squares` is too coarse to give."""
    approximate: bool = dataclasses.field(default=False, kw_only=True)
    """Whether `counts` are estimates, because histograms with different edges were put together. A mark of the host,
    no part of the tree that JAX sees."""

    @classmethod
    def from_array(cls, x: Any, num_bins: int = 31, edges: Any = None) -> Self:
        """Return the histogram of all values of *x*.

        For a JAX array the work is done where it lies, also when it is sharded or traced, and is not waited for. The
        counts are exact with respect to `edges`; without *edges* the bins divide the range of the finite values
        evenly.

        Args:
            x: An array of any shape and real or boolean type, or nested lists of numbers. Types below 32 bits are
                widened first. On a device the sums have its precision (float32 unless x64 is enabled).
            num_bins: Number of bins, 1 to 512. Ignored where *edges* is given.
            edges: Bin borders, strictly increasing, 2 to 513 of them; on the host, not traced. Values outside of them
                count in everything but `counts`.

        Raises:
            ConfigError: If *num_bins* or *edges* are not allowed. It is a `ValueError`.
        """
        borders = None if edges is None else _check_edges(edges)
        bins = _check_bins(num_bins) if borders is None else len(borders) - 1
        if getattr(getattr(x, "dtype", None), "kind", None) == "c":
            raise ConfigError("Histogram: complex values have no order; log their absolute value or angle")
        if _is_jax(x) and x.size:
            register_pytrees()
            return cls(*_device_builder()(x, borders, bins))
        return cls(*_host_fields(as_host(x).astype(np.float64).ravel(), borders, bins))

    @property
    def mean(self) -> Any:
        """Mean of the finite values; NaN if there are none."""
        return self.sum / _or_nan(self.num)

    @property
    def variance(self) -> Any:
        """Mean squared deviation from the mean; NaN if there are no finite values."""
        return self.squared_deviations / _or_nan(self.num)

    def merge(self, other: Histogram) -> Histogram:
        """Return the histogram of both sets of values.

        Raises:
            ValueError: If the edges differ. Build both with the same *edges*.
        """
        if not np.array_equal(as_host(self.edges), as_host(other.edges)):
            raise ValueError("histograms with different edges cannot be merged; build both with the same `edges=`")
        mine, theirs = self.to_host(), other.to_host()
        least = float(np.fmin(mine.min, theirs.min))
        greatest = float(np.fmax(mine.max, theirs.max))
        added = {name: getattr(mine, name) + getattr(theirs, name) for name in _ADDED}
        spread = _merged_deviations(mine, theirs)
        unsure = mine.approximate or theirs.approximate
        return Histogram(
            edges=mine.edges, min=least, max=greatest, squared_deviations=spread, approximate=unsure, **added
        )

    def parts(self) -> tuple[Any, ...]:
        """Return the fields in order."""
        return tuple(getattr(self, name) for name in _NAMES)

    def map(self, convert: Callable[[Any], Any]) -> Histogram:
        """Return a histogram of `convert(field)` for each field."""
        return Histogram(*map(convert, self.parts()), approximate=self.approximate)

    def on_host(self) -> bool:
        """Tell whether no field is an array of a device."""
        return all(isinstance(part, int | float | np.ndarray | np.generic) for part in self.parts())

    def to_host(self) -> Histogram:
        """Return it with NumPy arrays and Python numbers as fields, waiting for the device if need be."""
        if type(self.num) is int and type(self.edges) is np.ndarray:
            return self
        edges = _frozen(as_host(self.edges).astype(np.float64))
        counts = _frozen(as_host(self.counts).astype(np.int64))
        rest = (as_host(part).item() for part in self.parts()[2:])
        return Histogram(edges, counts, *rest, approximate=self.approximate)

    def describe(self) -> dict[str, Any]:
        """Return all of it as a plain mapping, the form in which it stands in a JSON line."""
        host = self.to_host()
        mark = {"approximate": True} if self.approximate else {}
        return {"_type": "histogram", **{name: _listed(getattr(host, name)) for name in _NAMES}, **mark}


_NAMES = tuple(field.name for field in dataclasses.fields(Histogram) if field.name != "approximate")
_ADDED = ("counts", "num", "sum", "sum_squares", "nan", "posinf", "neginf")


def _merged_deviations(mine: Histogram, theirs: Histogram) -> float:
    spread = float(mine.squared_deviations + theirs.squared_deviations)
    if not mine.num or not theirs.num:
        return spread
    apart = float(mine.mean) - float(theirs.mean)
    return spread + float(apart * (apart * mine.num * (theirs.num / (mine.num + theirs.num))))


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _or_nan(num: Any) -> Any:
    return num if not isinstance(num, int) or num else float("nan")


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _check_bins(num_bins: int) -> int:
    if isinstance(num_bins, bool) or not isinstance(num_bins, int | np.integer) or not 1 <= num_bins <= MAX_BINS:
        raise ConfigError(f"Histogram: num_bins must be an integer from 1 to {MAX_BINS}, got {num_bins!r}")
    return int(num_bins)


def _check_edges(edges: Any) -> Any:
    reject_tracer(edges, "Histogram: edges")
    borders = np.array(as_host(edges), dtype=np.float64)
    if borders.ndim != 1 or not 2 <= borders.size <= MAX_BINS + 1:  # noqa: PLR2004 - one bin has two borders
        raise ConfigError(f"Histogram: edges must be 2 to {MAX_BINS + 1} numbers in one row, got {borders.shape}")
    if not np.all(np.isfinite(borders)) or not np.all(np.diff(borders) > 0):
        raise ConfigError("Histogram: edges must be finite and strictly increasing")
    return _frozen(borders)


def _host_fields(values: Any, edges: Any, bins: int) -> tuple[Any, ...]:
    is_finite = np.isfinite(values)
    finite = values if is_finite.all() else values[is_finite]
    nan, posinf = int(np.isnan(values).sum()), int((values == np.inf).sum())
    neginf = values.size - finite.size - nan - posinf
    least, greatest = (float(finite.min()), float(finite.max())) if finite.size else (np.nan, np.nan)
    even = edges is None
    if even:
        edges = _frozen(_even_edges(least, greatest, bins) if finite.size else np.linspace(0.0, 1.0, bins + 1))
    counts = _fast_counts(finite, edges) if even else None
    if counts is None:
        counts = np.histogram(finite, bins=edges)[0].astype(np.int64)
    total, squares, deviations = _sums(finite, least, greatest)
    size = int(finite.size)
    return (edges, _frozen(counts), least, greatest, size, total, squares, nan, posinf, neginf, deviations)


def _fast_counts(finite: Any, edges: Any) -> Any:
    """Counts between even *edges* by NumPy's way for a range, which is exact too; None where it is not to be had."""
    if edges[-1] / 2 - edges[0] / 2 > np.finfo(np.float64).max / 4:  # NumPy would overflow on its way
        return None
    try:
        counts, used = np.histogram(finite, bins=len(edges) - 1, range=(edges[0], edges[-1]))
    except ValueError:
        return None
    return counts.astype(np.int64) if np.array_equal(used, edges) else None


def _sums(finite: Any, least: float, greatest: float) -> tuple[float, float, float]:
    """Sum, sum of squares, and sum of squared deviations from the mean."""
    if not finite.size:
        return 0.0, 0.0, 0.0
    with np.errstate(over="ignore"):
        shifted = finite - (least / 2 + greatest / 2)  # first to a centre that cannot overflow, then to the mean
        shifted -= shifted.mean()
        return float(finite.sum()), float(np.square(finite).sum()), float(np.dot(shifted, shifted))


def _even_edges(least: float, greatest: float, bins: int) -> Any:
    """Return borders as NumPy makes them, but also for ranges too narrow or too wide for it."""
    if least == greatest:
        least, greatest = least - 0.5, greatest + 0.5
    if greatest / 2 - least / 2 <= np.finfo(np.float64).max / 4:
        edges = np.linspace(least, greatest, bins + 1)
    else:
        parts = np.linspace(0.0, 1.0, bins + 1)
        edges = least * (1 - parts) + greatest * parts
    if np.all(edges[1:] > edges[:-1]):
        return edges
    centre = least / 2 + greatest / 2
    numbers = np.finfo(np.float64)
    half = (bins + 1) * max(float(numbers.eps) * max(abs(least), abs(greatest)), float(numbers.tiny))
    return np.linspace(max(centre - half, float(numbers.min)), min(centre + half, float(numbers.max)), bins + 1)


def _is_jax(x: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array) and isinstance(x.dtype, np.dtype)


@functools.cache
def _device_builder() -> Callable[..., tuple[Any, ...]]:
    import jax

    from trackway.values._device_histogram import device_fields

    compiled: Callable[..., tuple[Any, ...]] = jax.jit(device_fields, static_argnums=2)
    return compiled


@functools.cache
def register_pytrees() -> None:
    """Tell JAX that a `Histogram` is a tree of its fields, so that it can leave a compiled function; imports jax."""
    import jax

    jax.tree_util.register_pytree_node(
        Histogram, lambda histogram: (histogram.parts(), None), lambda _, parts: Histogram(*parts)
    )
