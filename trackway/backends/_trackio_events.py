"""Events as rows of Trackio."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import final

from trackway.backends._held_events import HeldEvent, HeldEvents
from trackway.backends._trackio_places import Entry
from trackway.backends._trackio_values import Values, identity
from trackway.tracker._row_time import begun_at, row_time
from trackway.values import Row

__all__ = ["Events"]


@final
class Events:
    """Makes a row of each event, and holds it back until the metrics of its step are there.

    Trackio is asked for its last step when a run goes on, and an event must not stand for a row of metrics that did not
    arrive. Not thread-safe.
    """

    def __init__(self, values: Values, run_id: str) -> None:
        """Have *values* say what Trackio keeps of an event of the run *run_id*."""
        self._values = values
        self._run_id = run_id
        self._held = HeldEvents()

    def take(self, event: str, row: Row, step: int | None, *, last: int | None, prefix: str) -> list[Entry]:
        """Take an event at *step*, or at the *last* one of rows; return the rows to be written now."""
        at = last if step is None else step
        named = row.derive({"event": event, **{f"{event}/{name}": value for name, value in row.items()}})
        values, files = self._values.of(named, at or 0)
        metrics = {f"{prefix}{name}": value for name, value in values.items()}
        now = datetime.fromtimestamp(begun_at(), UTC).isoformat()
        entry = Entry(at or 0, metrics, now, self._log_id(named, step), files)
        if at is not None and last is not None and at <= last:
            return [entry]
        return _entries(self._held.put(HeldEvent(at, event, entry)), at or 0)

    def _log_id(self, named: Row, step: int | None) -> str:
        """Return the same for an event that is sent again, which one is that has a time of its own: a replay's."""
        time = row_time()
        if time is None:
            return uuid.uuid4().hex
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self._run_id} event {step} {time!r} {identity(named)}").hex

    def with_row(self, step: int) -> list[Entry]:
        """Return the rows that follow one of *step*."""
        return _entries(self._held.row(step), step)

    def rest(self, last: int | None) -> list[Entry]:
        """Return the rows to be written at the end: none is of a step above the *last* one that metrics have."""
        due = self._held.rest()
        if last is None:
            return _entries(due, max((one.step for one in due if one.step is not None), default=0))
        return [
            one.values
            if one.step is None or one.step <= last
            else replace(one.values, step=last, metrics={**one.values.metrics, f"{one.event}/step": one.step})
            for one in due
        ]


def _entries(due: Iterable[HeldEvent], step: int) -> list[Entry]:
    return [one.values if one.step is not None else replace(one.values, step=step) for one in due]
