"""What a replay would deliver."""

from __future__ import annotations

from trackway.replay._cursor import CursorFile, NoFile
from trackway.replay._report import TargetReport
from trackway.replay._stored import Stored
from trackway.replay._target import Target
from trackway.store._stored_rows import call_of, rows_of, steps_together

__all__ = ["planned"]


def planned(stored: Stored, target: Target, file: CursorFile | NoFile) -> TargetReport:
    """Return what *target* would get of the run by now; it is not started, and so not asked what it has."""
    cursor = file.peek()
    rows = passed = 0
    running = stored.run.state == "running"
    with stored.rows() as source:
        for place, _, row in steps_together(rows_of(source, cursor.offset, last=not running)):
            call = call_of(row, place, stored.read, lambda call: target.policy.call(call, call.kwargs["step"]))
            rows, passed = rows + (call is not None), passed + (call is None)
    with stored.events(cursor.events) as journal:
        events = sum(1 for _ in journal.rest())
    artifacts = max(0, len(stored.run.artifacts) - cursor.artifacts)
    complete = not (rows or events or artifacts) and cursor.state == stored.run.state
    return TargetReport(target.name, rows, events, artifacts, skipped=cursor.rows + passed, complete=complete)
