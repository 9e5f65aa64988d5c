"""The step at which a metric was best."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from trackway.store._summary import leaves

if TYPE_CHECKING:
    from trackway.store._stored_run import StoredRun

__all__ = ["MODES", "best_row", "best_step"]

MODES = ("min", "max")
_GLOB = re.compile(r"([*?[])")


def best_step(run: StoredRun, metric: str, mode: str) -> int | None:
    """Return the step at which *metric* was least or greatest, the first of several; None where it never was finite.

    Raises:
        ValueError: if *mode* is neither "min" nor "max".
        OSError: if the rows cannot be read.
    """
    if mode not in MODES:
        raise ValueError(f"at_best: mode must be 'min' or 'max', got {mode!r}")
    columns = run.history(None, metrics=_GLOB.sub(r"[\1]", metric), output="numpy")
    values = columns.get(metric)
    if values is None or not len(values):
        return None
    numbers = np.array([_number(value) for value in values]) if values.dtype == object else values.astype(float)
    numbers[~np.isfinite(numbers)] = np.nan
    if np.isnan(numbers).all():
        return None
    return int(columns["_step"][np.nanargmin(numbers) if mode == "min" else np.nanargmax(numbers)])


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def best_row(run: StoredRun, step: int) -> dict[str, Any]:
    """Return the row of *step*, its names joined by `/`."""
    rows = run.history(None, step_range=(step, step + 1))
    return {"/".join(path): value for row in rows for path, value in leaves(row)}
