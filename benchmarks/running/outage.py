"""A disk that is full for two thousand rows: the file may not grow, as for a quota."""

from __future__ import annotations

import itertools
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, Turns, ratios
from running.rows import Sizes, metrics_of

import trackway
from trackway.run import Run
from trackway.store import read_history

ROWS = 2_000


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Compare rows on a full disk to rows on one with room."""
    with tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder:
        with trackway.start(dir=folder, run_id="run") as run:
            steps = itertools.count()
            seconds = Turns(sizes.rounds).compare(
                {"usual": lambda _: _log_rows(steps), "full": lambda _: _log_rows_in_vain(run, steps)},
                calibrated=False,
            )
        logged = next(steps)
        missing = logged - len(read_history(Path(folder, "run"), None))
    yield Figure(
        f"disk full for {ROWS:,} rows: trackway.log to its usual cost",
        ratios(seconds["full"], seconds["usual"]),
        at_most=3.0,
    )
    yield Figure(f"disk full for {ROWS:,} rows: rows missing once it was not", [missing], at_most=0, unit="")


def _log_rows(steps: Iterator[int]) -> float:
    """Return the mean seconds of a row: that a few are slow counts here."""
    started = time.perf_counter()
    for step in itertools.islice(steps, ROWS):
        trackway.log(metrics_of(1, step), step=step)
    return (time.perf_counter() - started) / ROWS


def _log_rows_in_vain(run: Run, steps: Iterator[int]) -> float:
    assert run.store is not None
    path = run.store.directory / "metrics.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        seconds = _log_rows(steps)
        assert path.stat().st_size == size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    run.flush()  # what waits is written
    return seconds
