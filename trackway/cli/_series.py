"""Curves to be plotted."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np

__all__ = ["Curve", "Panel", "panels_of"]

_MAX_POINTS = 2000


@final
class Curve(NamedTuple):
    """The values of one metric of one run."""

    label: str
    xs: Any
    ys: Any


@final
class Panel(NamedTuple):
    """The curves of one metric.

    Attributes:
        dropped: How many values could not be drawn: infinite, or not positive on a logarithmic axis. NaN is a gap.
    """

    metric: str
    curves: list[Curve]
    dropped: int


def panels_of(
    runs: list[tuple[str, Any]], metrics: tuple[str, ...], *, smooth: float, log: bool, by_time: bool
) -> list[Panel]:
    """Return what is to be plotted of *runs*, given with their labels: one panel for each metric that has numbers.

    Args:
        runs: The runs, each behind its label.
        metrics: Names and globs; none means all.
        smooth: Weight of the exponential moving average, from 0 to 1.
        log: Whether the values stand on a logarithmic axis.
        by_time: Whether the other axis is the time since the first row, in seconds, instead of the step.
    """
    curves: dict[str, list[Curve]] = {}
    dropped: dict[str, int] = {}
    for label, run in runs:
        columns = run.history(None, metrics=list(metrics) or None, output="numpy")
        xs = columns["_time"] - columns["_time"].min() if by_time and len(columns["_time"]) else columns["_step"]
        for name, column in columns.items():
            values = None if name[:1] == "_" else _numbers(column)
            if values is None:
                continue
            known = ~np.isnan(values) if column.dtype != object else np.array([v is not None for v in column])
            drawn = np.isfinite(values) & (values > 0 if log else True)
            dropped[name] = dropped.get(name, 0) + int((known & ~drawn).sum())
            if drawn.any():
                curves.setdefault(name, []).append(_curve(label, xs[drawn], values[drawn], smooth))
    return [Panel(name, curves[name], dropped[name]) for name in _in_order(curves, metrics)]


def _in_order(curves: dict[str, list[Curve]], metrics: tuple[str, ...]) -> list[str]:
    named = [name for name in metrics if name in curves]
    return list(dict.fromkeys([*named, *sorted(curves)]))


def _numbers(column: Any) -> Any:
    """Return *column* as floats, None where there is no number in it."""
    if column.dtype != object:
        return column.astype(float)
    if not any(isinstance(value, int | float) for value in column):
        return None
    return np.array([_number(value) for value in column])


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


def _curve(label: str, xs: Any, ys: Any, smooth: float) -> Curve:
    if smooth:
        ys = _smoothed(ys, smooth)
    kept = _thinned(ys)
    return Curve(label, xs[kept], ys[kept])


def _smoothed(ys: Any, weight: float) -> Any:
    """The exponential moving average, without the pull of its first value towards zero."""
    result, average, norm = np.empty(len(ys)), 0.0, 0.0
    for at, value in enumerate(ys.tolist()):
        average = weight * average + (1 - weight) * value
        norm = weight * norm + (1 - weight)
        result[at] = average / norm
    return result


def _thinned(ys: Any) -> Any:
    """Return the indices of the least and the greatest value of each of a thousand stretches."""
    if len(ys) <= _MAX_POINTS:
        return np.arange(len(ys))
    bounds = np.linspace(0, len(ys), _MAX_POINTS // 2 + 1).astype(int)
    kept = {0, len(ys) - 1}
    for begin, end in pairwise(bounds.tolist()):
        part = ys[begin:end]
        kept |= {begin + int(part.argmin()), begin + int(part.argmax())}
    return np.array(sorted(kept))
