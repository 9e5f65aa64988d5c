"""What logging a row costs, beside other trackers that keep runs in a folder: expr-tracker 0.4.1 and Trackio 0.43.

`expr_tracker.log` writes its rows from a thread. `trackio.log` puts the row into a list, from which a thread of its own
takes it twice a second; that thread has its time after each turn, so that it falls into nobody else's.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Iterator

from figures import Figure, Turns, Variant, ratios
from running.rows import Sizes, per_row

import trackway

SENDING_SECONDS = 0.8


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Compare rows of one metric."""
    with tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder:
        yield _beside_expr_tracker(folder, sizes)
        yield _beside_trackio(folder, sizes)


def _seconds(name: str, variant: Variant, folder: str, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Return the times of *variant* and those of `trackway.log`."""
    with trackway.start(dir=folder, run_id=f"beside-{name}") as run:
        ours = per_row(lambda metrics, step: trackway.log(metrics, step=step), 1)
        seconds = Turns(sizes.rounds).compare({"theirs": variant, "ours": ours})
        assert run.report().late == 0
    return seconds["theirs"], seconds["ours"]


def _beside_expr_tracker(folder: str, sizes: Sizes) -> Figure:
    import expr_tracker
    from loguru import logger

    logger.disable("expr_tracker")
    expr_tracker.init("bench", name="run", dir=f"{folder}/expr", backends=("jsonl",))
    try:
        variant = per_row(lambda metrics, step: expr_tracker.log(metrics, step=step), 1)
        theirs, ours = _seconds("expr-tracker", variant, folder, sizes)
    finally:
        expr_tracker.finish()
    return Figure("1 metric: expr_tracker.log to trackway.log", ratios(theirs, ours), at_least=5.0)


def _beside_trackio(folder: str, sizes: Sizes) -> Figure:
    os.environ |= {"TRACKIO_DIR": f"{folder}/trackio", "HF_HUB_OFFLINE": "1"}
    import trackio

    row = per_row(lambda metrics, step: trackio.log(metrics, step=step), 1)

    def variant(rows: int) -> float:
        seconds = row(rows)
        time.sleep(SENDING_SECONDS if rows > 5 else 0.0)
        return seconds

    with contextlib.redirect_stdout(io.StringIO()):
        trackio.init("bench", embed=False, auto_log_gpu=False, auto_log_cpu=False)
        try:
            theirs, ours = _seconds("trackio", variant, folder, sizes)
        finally:
            trackio.finish()
    return Figure(
        "1 metric: trackway.log to trackio.log, which keeps the row in memory", ratios(ours, theirs), at_most=0.7
    )
