"""What `LocalTracker.log` costs beside the least that writing a JSON line can cost.

Prints, for rows of 1, 10 and 100 metrics, the median time per row of `LocalTracker.log`, that of `orjson.dumps` and
`os.write` of the same row, and their ratio. The two take turns in one process, so that a busy machine hits both.

    python benchmarks/local.py
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from trackway.store import LocalTracker

_TURNS = 60
_ROWS_PER_TURN = 200


def _turn(log: Callable[[int], None], first: int) -> float:
    """Median nanoseconds per row of one turn."""
    times = []
    for step in range(first, first + _ROWS_PER_TURN):
        started = time.perf_counter_ns()
        log(step)
        times.append(time.perf_counter_ns() - started)
    return statistics.median(times)


def compare(metrics: int, folder: Path) -> tuple[float, float]:
    """Return the nanoseconds per row of the tracker and of the bare loop, for rows of *metrics* values."""
    values = {f"train/metric_{number}": 0.1 * number for number in range(metrics)}
    tracker = LocalTracker(folder / f"run-{metrics}")
    bare = os.open(folder / f"bare-{metrics}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(step: int) -> None:
        os.write(bare, orjson.dumps({"_step": step, "_time": time.time(), **values}) + b"\n")

    def log(step: int) -> None:
        tracker.log(values, step=step)

    turns = [(_turn(log, n * _ROWS_PER_TURN), _turn(write, n * _ROWS_PER_TURN)) for n in range(_TURNS)]
    tracker.finish()
    os.close(bare)
    return statistics.median(t for t, _ in turns), statistics.median(b for _, b in turns)


def main() -> None:
    """Print the table."""
    print(f"{'metrics':>8} {'LocalTracker.log':>18} {'dumps + write':>14} {'ratio':>6}")
    with tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder:
        for metrics in (1, 10, 100):
            tracker, bare = compare(metrics, Path(folder))
            print(f"{metrics:>8} {tracker / 1000:>15.2f} µs {bare / 1000:>11.2f} µs {tracker / bare:>6.2f}")


if __name__ == "__main__":
    main()
