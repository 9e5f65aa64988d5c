"""What the comparisons share: how much is measured, timing row by row, and the bare loop."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from figures import Variant

Log = Callable[[dict[str, Any], int], object]
"""Logs metrics at a step."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        rounds: Turns of each variant of a comparison.
        rows: Rows of the long run.
        names: Distinct names of metrics.
        cold: Processes that read the long run, for each variant.
    """

    rounds: int
    rows: int
    names: int
    cold: int


FULL = Sizes(rounds=31, rows=1_000_000, names=100_000, cold=7)
QUICK = Sizes(rounds=2, rows=3_000, names=12_000, cold=1)


def metrics_of(count: int, step: int) -> dict[str, float]:
    """Return that many metrics, other ones at each step."""
    return {"loss": 1 / (step + 3), **{f"train/metric_{number}": (number + step) / 7 for number in range(1, count)}}


def nanoseconds(log: Log, count: int, steps: Iterator[int]) -> list[int]:
    """Return the time of each call that logs *count* metrics at the next of *steps*."""
    times = []
    for step in steps:
        metrics = metrics_of(count, step)
        started = time.perf_counter_ns()
        log(metrics, step)
        times.append(time.perf_counter_ns() - started)
    return times


def per_row(log: Log, count: int, steps: Iterator[int] | None = None) -> Variant:
    """Return a variant that logs rows of *count* metrics at the next of *steps*, and gives the median time of one."""
    numbers = itertools.count() if steps is None else steps
    return lambda rows: statistics.median(nanoseconds(log, count, itertools.islice(numbers, rows))) / 1e9


@contextmanager
def bare_loop(path: Path) -> Iterator[Log]:
    """Yield the least that writing a row as a JSON line can be: `orjson.dumps` and `os.write`, to *path*."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def log(metrics: dict[str, Any], step: int) -> None:
        os.write(file, orjson.dumps({"_step": step, "_time": time.time(), **metrics}) + b"\n")

    try:
        yield log
    finally:
        os.close(file)


def resident_megabytes() -> float:
    """Return how much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
