"""A tracker that takes a tenth of a second for each row, behind a queue of a hundred."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from figures import Figure
from running.rows import Sizes, nanoseconds, resident_megabytes

import trackway
from trackway.config import TrackerConfig
from trackway.testing import SlowTracker
from trackway.tracker import BackgroundPolicy, NoopTracker, Tracker

ROWS = 10_000
POLICIES = ("spill", "drop_newest", "drop_oldest", "block")
BLOCK_SECONDS = 0.05
ROWS_WHEN_BLOCKED = 130


@dataclass
class SlowConfig(TrackerConfig):
    """Starts the slow tracker."""

    background: bool | BackgroundPolicy = field(default=True, kw_only=True)

    def init(self, run_id: str | None) -> Tracker:  # noqa: ARG002 - of the interface
        """Return it."""
        return SlowTracker(NoopTracker("slow"), seconds=0.1)


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Measure each policy for a full queue."""
    warm = [_logged("spill", ROWS) for _ in range(2)]
    for policy in POLICIES:
        rows = ROWS_WHEN_BLOCKED if policy == "block" else ROWS
        before = resident_megabytes()
        tries = [_logged(policy, rows) for _ in range(sizes.cold)]
        grown = resident_megabytes() - before
        name = f"a tracker that takes 0.1 s a row, {rows:,} rows, {policy}: "
        if policy == "block":
            slowest = [one.slowest / 1e3 for one in tries]
            yield Figure(f"{name}slowest trackway.log", slowest, at_most=1e3 * BLOCK_SECONDS + 20, unit="ms")
        else:
            percentiles = [one.percentile for one in tries]
            yield Figure(f"{name}99th percentile of trackway.log", percentiles, at_most=100.0, unit="us")
            yield Figure(f"{name}memory gained over {sizes.cold} runs", [grown], at_most=20.0, unit="MB")
        yield Figure(f"{name}finish, of at most 1 s", [one.finish for one in tries], at_most=1.1, unit="s")
    assert warm


@dataclass
class _Try:
    percentile: float
    slowest: float
    finish: float


def _logged(policy: str, rows: int) -> _Try:
    """Return microseconds of rows, and seconds of the end."""
    limits = BackgroundPolicy(queue_size=100, on_full=policy, block_timeout=BLOCK_SECONDS, finish_timeout=1.0)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder:
        run = trackway.start([SlowConfig(background=limits)], dir=folder, run_id="run")
        times = nanoseconds(lambda metrics, step: trackway.log(metrics, step=step), 2, iter(range(rows)))
        started = time.perf_counter()
        trackway.finish()
        finish = time.perf_counter() - started
        report = run.report()
        assert report.store is not None
        assert report.store.delivered == rows
    return _Try(statistics.quantiles(times, n=100)[-1] / 1e3, max(times) / 1e3, finish)
