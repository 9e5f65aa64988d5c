"""The slowest rows of one writer, and several writers at once."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, Turns, ratios
from running.rows import Log, Sizes, bare_loop, metrics_of, nanoseconds

import trackway
from trackway.store import LocalTracker

MICROSECONDS = 100.0
ROWS = 2_000
WRITERS = 8
ROWS_OF_A_WRITER = 500


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Measure one writer, then several."""
    for count in (1, 10):
        yield from _slowest(count, sizes)
    yield from _together(sizes)


def _slowest(count: int, sizes: Sizes) -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder,
        bare_loop(Path(folder, "bare.jsonl")) as bare,
        trackway.start(dir=folder, run_id="run"),
    ):
        steps = itertools.count()

        def slowest(log: Log) -> float:
            return statistics.quantiles(nanoseconds(log, count, itertools.islice(steps, ROWS)), n=100)[-1] / 1e9

        seconds = Turns(sizes.rounds).compare(
            {
                "trackway": lambda _: slowest(lambda metrics, step: trackway.log(metrics, step=step)),
                "bare": lambda _: slowest(bare),
            },
            calibrated=False,
        )
    row = f"{count} metric{'s'[: count > 1]}: 99th percentile of "
    yield Figure(f"{row}trackway.log", [1e6 * s for s in seconds["trackway"]], at_most=MICROSECONDS, unit="us")
    yield Figure(f"{row}orjson.dumps and os.write", [1e6 * s for s in seconds["bare"]], unit="us")


def wall_seconds(log: Log, writers: int, rows: int) -> float:
    """Return how long it takes until that many threads have logged that many rows each."""
    barrier = threading.Barrier(writers + 1)

    def write() -> None:
        barrier.wait()
        for step in range(rows):
            log(metrics_of(1, step), step)

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    started = time.perf_counter()
    barrier.wait()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def _together(sizes: Sizes) -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder,
        bare_loop(Path(folder, "bare.jsonl")) as bare,
        trackway.start(dir=folder, run_id="run") as run,
        contextlib.ExitStack() as stack,
    ):
        tracker = LocalTracker(Path(folder, "tracker"))
        stack.callback(tracker.finish)  # as a context manager it would be the current tracker
        seconds = Turns(sizes.rounds).compare(
            {
                # without a step each call is a row, whoever makes it
                "run": lambda _: wall_seconds(lambda metrics, _: trackway.log(metrics), WRITERS, ROWS_OF_A_WRITER),
                "tracker": lambda _: wall_seconds(lambda metrics, _: tracker.log(metrics), WRITERS, ROWS_OF_A_WRITER),
                "bare": lambda _: wall_seconds(bare, WRITERS, ROWS_OF_A_WRITER),
            },
            calibrated=False,
        )
        assert run.report().rows == WRITERS * ROWS_OF_A_WRITER * sizes.rounds
    name = f"{WRITERS} threads, all rows written: "
    beside = "to orjson.dumps and os.write"
    yield Figure(f"{name}trackway.log {beside}", ratios(seconds["run"], seconds["bare"]), at_most=3.0)
    yield Figure(f"{name}LocalTracker.log {beside}", ratios(seconds["tracker"], seconds["bare"]))
