"""The rows of a run directory, for a tracker that did not get them as they were committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, final

import orjson

from trackway.store._atomic import RecordFile
from trackway.store._layout import DELIVERY, metrics_name, safe_name
from trackway.store._local import LocalTracker
from trackway.store._revive import files_in
from trackway.store._scan import Source
from trackway.store._stored_rows import Keep, attempts_in, call_of, rows_missing, rows_of
from trackway.tracker import Call
from trackway.tracker._backlog import Gap, Place

__all__ = ["StoreBacklog"]

_INTERVAL = 1.0
_POLL = 0.1
_FIRST = -(2**63)


class _Delivered(NamedTuple):
    """The last row that a tracker got; without a step, none."""

    attempt: int
    step: int | None


@final
class StoreBacklog:
    """Reads rows of *store* again, and notes how far its tracker has come. For one thread."""

    def __init__(self, store: LocalTracker, name: str, keep: Keep, *, below: int | None = None) -> None:
        """Serve the tracker *name*.

        Args:
            store: The open run directory.
            name: What the tracker is called in the configuration.
            keep: What the tracker is to see of a row.
            below: The step at which this process goes on: rows from there on are about to be superseded.
        """
        self._store = store
        self._path = store.directory / metrics_name(store.rank)
        self._read = files_in(store.directory)
        self._keep = keep
        self._below = below
        suffix = f".rank{store.rank}" if store.rank else ""
        path = store.directory / DELIVERY / f"{safe_name(name)}{suffix}.json"
        self._before = _read(path)
        # of a run that is continued, a tracker that is new to it is not owed what was there before
        self._delivered = self._before or _Delivered(store.attempt, None if below is None else below - 1)
        self._file = RecordFile(path, self._render, _INTERVAL)
        self._file.dirty = self._before is None

    def calls(self, gap: Gap, given_up: Callable[[], bool]) -> Iterator[Call]:
        """Yield the rows of *gap*; see `Backlog.calls`."""
        begun = False
        for place, row in self._following(gap.first.offset, given_up):
            same = (place.step, place.time, place.attempt)
            begun = begun or same == gap.first[1:]
            if begun and (call := self._call(row, place)) is not None:
                yield call
            if begun and same == gap.last[1:]:
                return

    def _following(self, offset: int, given_up: Callable[[], bool]) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Yield the rows from *offset* on, also those that are yet to be written."""
        while True:
            waiting = self._store.write_rows()
            with self._source() as source:
                for place, end, row in rows_of(source, offset):
                    yield place, row
                    offset = end
            if not waiting or given_up():
                return
            time.sleep(_POLL)

    def missing(self, first_missing_step: int | None) -> Iterator[Call]:
        """Yield what the tracker lacks of what is in the file; see `Backlog.missing`."""
        delivered, start = self._before, first_missing_step
        if start is None:
            if delivered is None:
                return
            start = _FIRST if delivered.step is None else delivered.step + 1
        with self._source() as source:
            begun = attempts_in(source)
            if delivered is not None:
                behind = [step for attempt, step in begun.items() if attempt > delivered.attempt and step < start]
                if behind:
                    start = min(behind)
                    yield Call("rewind", (start,))
            for place, _, row in rows_missing(source, start, begun, self._below):
                if (call := self._call(row, place)) is not None:
                    yield call

    def _source(self) -> Source:
        return Source(self._path, missing_ok=True)

    def _call(self, row: dict[str, Any], place: Place) -> Call | None:
        return call_of(row, place, self._read, self._keep)

    def note(self, place: Place) -> None:
        """Remember that the tracker got all rows up to *place*; on the disk about a second later."""
        last = self._delivered
        behind = last.step is None or last.attempt != place.attempt or last.step < place.step
        self._delivered = _Delivered(place.attempt, place.step if behind else last.step)
        self._file.dirty = True
        if self._file.due:
            self.save()

    def save(self) -> None:
        """Write what was noted.

        Raises:
            OSError: if that fails.
        """
        if self._file.dirty:
            self._store.directory.joinpath(DELIVERY).mkdir(exist_ok=True)
            self._file.save()

    def _render(self) -> bytes:
        return orjson.dumps({"format": 1, **self._delivered._asdict()}) + b"\n"


def _read(path: Path) -> _Delivered | None:
    try:
        noted = orjson.loads(path.read_bytes())
        return _Delivered(int(noted["attempt"]), None if noted["step"] is None else int(noted["step"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
