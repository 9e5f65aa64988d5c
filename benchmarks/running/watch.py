"""What alert rules, events and spans cost."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from figures import Figure, Turns, Variant, ratios
from running.rows import Sizes, per_row

import trackway
from trackway.events import EventsConfig

RULES = ("isnan(loss)", "loss > 5", "mean(loss[50]) > 3", "zscore(loss[50]) > 4", "no_data(60s)")
SKIPPED_MICROSECONDS = 2.0
SPAN_MICROSECONDS = 5.0


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Compare a run with five rules to one without; then time events that nobody is told of, and spans."""
    turns = Turns(sizes.rounds)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trackway-bench-"))
        plain = stack.enter_context(trackway.start(dir=folder, run_id="plain"))
        ruled = stack.enter_context(trackway.start(dir=folder, run_id="ruled", alerts=RULES))
        seconds = turns.compare(
            {
                "plain": per_row(lambda metrics, step: plain.log(metrics, step=step), 1, itertools.count()),
                "ruled": per_row(lambda metrics, step: ruled.log(metrics, step=step), 1, itertools.count()),
            }
        )
        assert ruled.report().alerts.accepted == 0
    yield Figure("run.log with five rules to run.log without", ratios(seconds["ruled"], seconds["plain"]), at_most=3.0)
    with (
        tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder,
        trackway.start(dir=folder, events=EventsConfig(every_steps=1_000_000, console=False)),
    ):
        seconds = turns.compare({"event": _each(_skip), "span": _each(_span)})
    skipped, span = ([1e6 * value for value in seconds[name]] for name in ("event", "span"))
    yield Figure("a train_step event that is skipped", skipped, at_most=SKIPPED_MICROSECONDS, unit="us")
    yield Figure("a span around nothing", span, at_most=SPAN_MICROSECONDS, unit="us")


def _skip(step: int) -> None:
    trackway.log_event("train_step", {"loss": 0.5}, step=step)


def _span(_step: int) -> None:
    with trackway.span("data"):
        pass


def _each(call: Callable[[int], None]) -> Variant:
    """Return a variant that calls, and gives the median time of a call."""

    def run(steps: int) -> float:
        times = []
        for step in range(1, steps + 1):
            started = time.perf_counter_ns()
            call(step)
            times.append(time.perf_counter_ns() - started)
        return statistics.median(times) / 1e9

    return run
