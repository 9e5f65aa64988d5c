"""How fast a stored run is delivered, and whether memory stays flat.

    python benchmarks/replay.py [rows] [rounds]

A run of 200,000 rows of two metrics is replayed into TensorBoard, into another run directory, and to a tracker that
does nothing, which tells what reading and preparing costs. Prints rows per second, and how much the process grew,
between the first tenth of the rows and the end; exits with 1 if a bound is missed.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figure, print_table

import trackway
from trackway.replay import Progress
from trackway.store import LocalTracker
from trackway.values import Row

ROWS, ROUNDS = 200_000, 3
PAGE = os.sysconf("SC_PAGE_SIZE")
STATM = Path("/proc/self/statm")


def write_run(folder: Path, rows: int) -> None:
    """Write a run of so many rows."""
    with LocalTracker(folder) as store:
        for step in range(rows):
            row = Row({"train/loss": 1 / (step + 1), "train/accuracy": step / rows})
            row.flat = True
            with store.lock:
                store.append(step, 1.7e9 + step, row)


def resident() -> float:
    """Return the MiB of memory that the process has."""
    return int(STATM.read_text().split()[1]) * PAGE / 2**20


def measured(run: Path, to: dict[str, Any], rows: int) -> tuple[float, float]:
    """Return thousands of rows per second, and the MiB by which the process grew."""
    seen: list[tuple[float, int, float]] = []

    def note(progress: Progress) -> None:
        if progress.rows >= rows // 10:
            seen.append((time.perf_counter(), progress.rows, resident()))

    report = trackway.replay(run, to=to, on_progress=note)
    assert report.rows == rows
    (begun, before, size), (ended, _, _) = seen[0], seen[-1]
    return (rows - before) / (ended - begun) / 1e3, max(entry[2] for entry in seen) - size


def main() -> int:
    """Measure and print."""
    logging.getLogger("trackway").setLevel(logging.CRITICAL)
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    figures = []
    with tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder:
        place = Path(folder)
        write_run(place / "run", rows)
        for kind, key, bound in (("tensorboard", "logdir", 20.0), ("local", "dir", None), ("noop", "label", None)):
            paces, growths = [], []
            for number in range(rounds):
                # a place of its own: to the same one a second replay delivers nothing
                to = {
                    "type": kind,
                    key: str(place / f"{kind}{number}"),
                    "prefix": "" if kind != "noop" else str(number),
                }
                pace, growth = measured(place / "run", to, rows)
                paces.append(pace)
                growths.append(growth)
                print(".", end="", file=sys.stderr, flush=True)
            figures.append(Figure(f"{kind}: thousand rows per second", paces, at_least=bound, unit="k"))
            figures.append(Figure(f"{kind}: growth over nine tenths of the rows", growths, at_most=8.0, unit="MiB"))
    print_table(figures)
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    raise SystemExit(main())
