"""A run that shows itself in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackway.run._run import Run

__all__ = ["picture_of_run"]


def picture_of_run(run: Run) -> str:
    """Return HTML of the run: state, summary and a curve of each metric, drawn from a sample of its rows."""
    from trackway.store._curves import joined, sampled
    from trackway.store._picture import picture_of

    rows: list[dict[str, Any]] = []
    if run.store is not None:
        rows = joined(sampled(run.store.directory / "metrics.jsonl"), run.history(50))
    return picture_of(run.run_id, run.report().state, dict(run.summary), rows)
