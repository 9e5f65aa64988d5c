"""A run of a million rows: whether logging stays quick and small, and what reading costs."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from figures import Figure, Turns, Variant, ratios
from running import cold
from running.rows import Log, Sizes, per_row, resident_megabytes

import trackway
from trackway.run import Run
from trackway.store import LocalTracker, read_history

METRICS = 2
FIRST = 1_000
"""Rows that count as the beginning of a run."""

LAST = 50
MILLISECONDS = 5.0


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Log the rows; then read them: while the run lives, as if it had crashed, with a row that was added to."""
    with tempfile.TemporaryDirectory(prefix="trackway-bench-") as name:
        folder = Path(name)
        with trackway.start(dir=folder, run_id="run", step_policy="allow") as run:
            assert run.store is not None
            steps = count()
            yield from _growth(run, steps, folder, sizes)
            live, crashed = run.store.directory, folder / "crashed"
            crashed.mkdir()
            shutil.copy(live / "metrics.jsonl", crashed)
            yield _last("of a live run", lambda: run.history(LAST), sizes)
            yield _last("of a run that crashed without an index", lambda: read_history(crashed, LAST), sizes)
            run.log({"loss": 0.5}, step=7)
            yield _last("of a live run with a patched row", lambda: run.history(LAST), sizes)
        yield _last("of a finished run with a patched row", lambda: read_history(live, LAST), sizes)
        yield from cold.figures(crashed / "metrics.jsonl", sizes)


def _logging(run: Run) -> Log:
    return lambda metrics, step: run.log(metrics, step=step)


def _growth(run: Run, steps: Iterator[int], folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Log until there are enough rows, then by turns with runs that begin."""
    log = _logging(run)
    per_row(log, METRICS, steps)(FIRST)
    before = resident_megabytes()
    for step in islice(steps, sizes.rows - FIRST):
        run.log({"loss": 1 / (step + 3), "train/metric_1": (1 + step) / 7}, step=step)
    grown = resident_megabytes() - before

    def beginning(_: int) -> float:
        fresh = Run((), LocalTracker(folder / f"beginning-{time.time_ns()}"))
        seconds = per_row(_logging(fresh), METRICS)(FIRST)
        fresh.finish()
        return seconds

    later = per_row(log, METRICS, steps)
    seconds = Turns(sizes.rounds).compare({"late": lambda _: later(FIRST), "early": beginning}, calibrated=False)
    name = f"{sizes.rows:,} rows of {METRICS} metrics: "
    yield Figure(
        f"{name}run.log to that of the first {FIRST:,}", ratios(seconds["late"], seconds["early"]), at_most=1.1
    )
    yield Figure(f"{name}memory that the process has gained", [grown], at_most=20.0, unit="MB")


def _last(what: str, read: Callable[[], Any], sizes: Sizes) -> Figure:
    """Measure the last rows."""
    assert len(read()) == LAST

    def variant(reads: int) -> float:
        started = time.perf_counter()
        for _ in range(reads):
            read()
        return (time.perf_counter() - started) / reads

    reading: dict[str, Variant] = {"": lambda _: variant(3)}
    seconds = Turns(2 * sizes.rounds).compare(reading, calibrated=False)
    milliseconds = [1e3 * value for value in seconds[""]]
    return Figure(f"{sizes.rows:,} rows: history({LAST}) {what}", milliseconds, at_most=MILLISECONDS, unit="ms")
