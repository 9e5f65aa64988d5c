"""The comparisons that make sense on every device."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import trackway
from trackway.store import LocalTracker

from .measure import Figure, Turns, ratios
from .steps import (
    Work,
    by_hand,
    captured,
    debug_callback,
    plain_io_callback,
    tracked,
    with_callback,
    without_metrics,
)

COUNTS = (1, 10, 100)
"""Metrics of a step."""

COMPARISONS = 5 * len(COUNTS)
"""How many comparisons `common_figures` makes."""

HOST_SECONDS = 0.0006
"""Of a loop's own work for each step: loading and preparing a batch."""


@final
class Discard(trackway.Tracker):
    """Takes every row as a backend does, its values on the host, and throws it away."""

    name = "discard"

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:
        """Throw the row away."""

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Throw them away."""

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Throw it away."""

    def log_artifact(self, artifact_path: Any, *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002
        """Throw it away."""

    def finish(self) -> None:
        """Do nothing."""


def capture_against_hand(turns: Turns, work: Work, label: str) -> Iterator[Figure]:
    """Compare what is captured to what is threaded through the step by hand; nobody looks at either."""
    for count in COUNTS:
        seconds = turns.compare({"hand": work.running(by_hand(count)), "captured": work.running(captured(count))})
        name = f"{label} step, {count} metrics: jit(capture_logging(step)) / by hand"
        yield Figure(name, ratios(seconds["captured"], seconds["hand"]), at_most=1.03)


def tracked_against_hand(turns: Turns, work: Work, label: str) -> Iterator[Figure]:
    """Compare rows that arrive in a run directory to metrics by hand that nobody looks at."""
    for count, bound in zip(COUNTS, (1.05, 1.0, 0.9), strict=True):
        with tempfile.TemporaryDirectory() as folder:
            tracker = LocalTracker(Path(folder) / "run")
            with trackway.current_tracker(tracker):
                seconds = turns.compare({"hand": work.running(by_hand(count)), "tracked": work.running(tracked(count))})
            tracker.finish()
        name = f"{label} step, {count} metrics: trackway.jit to a run directory / by hand, not fetched"
        yield Figure(name, ratios(seconds["tracked"], seconds["hand"]), at_most=bound)


def callbacks_against_tracked(turns: Turns, work: Work, label: str) -> Iterator[Figure]:
    """Compare host callbacks that do nothing to rows that arrive in a tracker that does nothing."""
    for count in COUNTS:
        with trackway.current_tracker(Discard()):
            seconds = turns.compare(
                {
                    "tracked": work.running(tracked(count)),
                    "debug.callback": work.running(with_callback(count, debug_callback)),
                    "io_callback": work.running(with_callback(count, plain_io_callback)),
                }
            )
        for kind in ("debug.callback", "io_callback"):
            name = f"{label} step, {count} metrics: one {kind} a step / trackway.jit"
            yield Figure(name, ratios(seconds[kind], seconds["tracked"]), at_least=4.0)


def loop_with_host_work(turns: Turns, work: Work, label: str) -> Iterator[Figure]:
    """Compare a tracked loop that also has work on the host to the same loop without logging.

    That is the same step, whose metrics nobody looks at: whether a step computes a loss is not up to its tracker. What
    it costs to compute the metrics at all is a line of its own, without a bound.
    """
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            tracker = LocalTracker(Path(folder) / "run")
            with trackway.current_tracker(tracker):
                seconds = turns.compare(
                    {
                        "none": work.running(without_metrics(), host_seconds=HOST_SECONDS),
                        "hand": work.running(by_hand(count), host_seconds=HOST_SECONDS),
                        "tracked": work.running(tracked(count), host_seconds=HOST_SECONDS),
                    }
                )
            tracker.finish()
        name = f"{label} step, 0.6 ms of host work, {count} metrics: "
        yield Figure(
            f"{name}trackway.jit to a run directory / not logged",
            ratios(seconds["tracked"], seconds["hand"]),
            at_most=1.05,
        )
        yield Figure(f"{name}not logged / not even computed", ratios(seconds["hand"], seconds["none"]))


def common_figures(turns: Turns, short: tuple[Work, str], long: tuple[Work, str]) -> Iterator[Figure]:
    """Make all of the comparisons above.

    Args:
        turns: Measures.
        short: Work whose step takes about as long as its dispatch, and how to call it.
        long: Work whose step takes long beside its dispatch, and how to call it.
    """
    for group, sizes in (
        (capture_against_hand, (short, long)),
        (tracked_against_hand, (long,)),
        (callbacks_against_tracked, (short,)),
        (loop_with_host_work, (long,)),
    ):
        for work, label in sizes:
            if turns.over:
                print(f"no time left for {group.__name__}, {label}")
                continue
            yield from group(turns, work, label)
