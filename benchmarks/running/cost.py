"""What logging a row costs, beside writing the same line by hand."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, Turns, ratios
from running.rows import Sizes, bare_loop, per_row

import trackway
from trackway.store import LocalTracker

BOUNDS = {1: 6.0, 10: 4.0, 100: 3.5}
"""By the number of metrics."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Compare rows of some sizes."""
    for count, bound in BOUNDS.items():
        yield from _compare(count, bound, Turns(sizes.rounds))


def _compare(count: int, bound: float, turns: Turns) -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder,
        bare_loop(Path(folder, "bare.jsonl")) as bare,
        trackway.start(dir=folder, run_id="run") as run,
        contextlib.ExitStack() as stack,
    ):
        tracker = LocalTracker(Path(folder, "tracker"))
        stack.callback(tracker.finish)  # as a context manager it would be the current tracker
        steps = itertools.count()  # of the run, whose steps have to rise
        seconds = turns.compare(
            {
                "bare": per_row(bare, count),
                "verb": per_row(lambda metrics, step: trackway.log(metrics, step=step), count, steps),
                "method": per_row(lambda metrics, step: run.log(metrics, step=step), count, steps),
                "tracker": per_row(lambda metrics, step: tracker.log(metrics, step=step), count),
            }
        )
        assert run.report().late == 0
        assert run.report().rows == next(steps) - 1  # the last one is open
    row = f"{count} metric{'s'[: count > 1]}: "
    beside = "to orjson.dumps and os.write of the row"
    yield Figure(f"{row}trackway.log {beside}", ratios(seconds["verb"], seconds["bare"]), at_most=bound)
    yield Figure(f"{row}run.log {beside}", ratios(seconds["method"], seconds["bare"]), at_most=bound)
    yield Figure(f"{row}LocalTracker.log {beside}", ratios(seconds["tracker"], seconds["bare"]))
    yield Figure(f"{row}trackway.log", [1e6 * value for value in seconds["verb"]], unit="us")
