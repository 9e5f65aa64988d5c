"""What a run that goes on has in its directory."""

from __future__ import annotations

from trackway.store import read_rows


def lines_of(run):
    """Return the lines of the run's file, also those that a moment later would be in it by themselves."""
    run.store.save()
    return read_rows(run.store.directory)
