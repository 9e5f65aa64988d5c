"""Reading all rows of a run in a fresh process, beside a loop that parses its lines and does nothing else.

Run as a program, it reads once and prints the seconds: `python benchmarks/running/cold.py metrics.jsonl rows`. What
reading imports by itself is in its time; trackway, NumPy and orjson are imported before.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from figures import Figure
    from running.rows import Sizes

BOUNDS = {
    "rows": 1.3,
    "numpy columns, with Polars": 0.7,
    "numpy columns, with Polars, imported before": None,
    "numpy columns, without Polars": 1.4,
}

LARGE = 1 << 23
"""Bytes of a file from which on Polars is worth its import."""


def parse_only(path: Path) -> list[Any]:
    """Parse each line of *path*: what the others are measured by."""
    rows = []
    with path.open("rb") as file:
        for line in file:
            rows.append(orjson.loads(line))  # noqa: PERF401 - the loop that is written without thinking
    return rows


def seconds_of(kind: str, path: Path) -> float:
    """Return how long reading takes in this process."""
    from trackway.store import read_history

    if kind.endswith("without Polars"):
        sys.modules["polars"] = None  # type: ignore[assignment]  # what makes an import fail
    if kind.endswith("imported before"):
        importlib.import_module("polars")
    started = time.perf_counter()
    if kind == "parsing":
        read: Any = parse_only(path)
    else:
        read = read_history(path, output="rows" if kind == "rows" else "numpy")
    seconds = time.perf_counter() - started
    steps = [row["_step"] for row in read] if isinstance(read, list) else read["_step"]
    assert len(steps) == steps[-1] + 1
    assert (sys.modules.get("polars") is not None) == (
        kind.endswith("imported before") or (kind.endswith("with Polars") and path.stat().st_size >= LARGE)
    )
    return seconds


def figures(path: Path, sizes: Sizes) -> Iterator[Figure]:
    """Compare the ways of reading *path*, each in processes of their own."""
    from figures import Figure, Turns, ratios

    def variant(kind: str) -> float:
        words = [sys.executable, __file__, str(path), kind]
        return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    kinds = ("parsing", *BOUNDS)
    seconds = Turns(sizes.cold).compare({kind: lambda _, kind=kind: variant(kind) for kind in kinds}, calibrated=False)
    for kind, bound in BOUNDS.items():
        name = f"{sizes.rows:,} rows read in a fresh process: {kind}, to orjson.loads of the lines"
        yield Figure(name, ratios(seconds[kind], seconds["parsing"]), at_most=bound)


if __name__ == "__main__":
    print(seconds_of(sys.argv[2], Path(sys.argv[1])))
