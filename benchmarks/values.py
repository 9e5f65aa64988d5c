"""What normalising a payload costs, beside the JSON encoder alone in the same run.

Run it with `python benchmarks/values.py`; ratios hold between machines, times do not.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from trackway.values import encode, normalise

ROUNDS = 15


def median_ns(function: Callable[[], Any], number: int) -> float:
    """Return the median time of one call in nanoseconds."""
    function()
    return statistics.median(timeit.repeat(function, number=number, repeat=ROUNDS)) / number * 1e9


def payloads() -> dict[str, dict[str, Any]]:
    """Return the payloads that are measured."""
    many = {f"train/metric_{index}": index / 7 for index in range(100)}
    return {
        "1 float": {"loss": 0.5},
        "100 floats": many,
        "100 floats, one NaN": {**many, "loss": float("nan")},
        "100 numpy floats": {name: np.float32(value) for name, value in many.items()},
        "nested": {"train": {"loss": 0.5, "accuracy": 0.25}, "sizes": [1, 2, 3]},
    }


def main() -> None:
    """Print one line for each payload."""
    print(f"{'payload':<22}{'normalise':>12}{'encode':>12}{'orjson':>12}{'(n + e) / orjson':>18}")
    for name, payload in payloads().items():
        number = max(200, 20_000 // len(payload))
        row = normalise(payload)
        normalising = median_ns(lambda p=payload: normalise(p), number)
        encoding = median_ns(lambda r=row: encode(r), number)
        bare = median_ns(lambda r=row: orjson.dumps(r), number)
        times = f"{normalising:>9.0f} ns{encoding:>9.0f} ns{bare:>9.0f} ns"
        print(f"{name:<22}{times}{(normalising + encoding) / bare:>17.1f}x")


if __name__ == "__main__":
    main()
