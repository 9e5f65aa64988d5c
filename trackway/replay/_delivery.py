"""One run on its way to one target."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, final

from trackway import _notices
from trackway.errors import TrackwayError
from trackway.replay._cursor import Cursor, CursorFile, NoFile
from trackway.replay._report import OnProgress, Progress, ReplayError, TargetReport
from trackway.replay._stored import Event, Stored, digest, error_of
from trackway.replay._taker import Taker
from trackway.replay._target import Target
from trackway.store._scan import Source
from trackway.store._stored_rows import Stored as StoredRow
from trackway.store._stored_rows import attempts_in, is_superseded, rows_of, steps_together
from trackway.tracker import Call
from trackway.tracker._backlog import Place

__all__ = ["Delivery"]

_ROWS, _SECONDS = 5_000, 1.0
"""After so many rows, or so long, the target is flushed and the cursor written."""
_LOOK = 64  # rows between two looks at the clock
_BESIDES = "; the run's other parts are delivered all the same"

_Has = Callable[[Place], bool]


def _has_nothing(_place: Place) -> bool:
    return False


@final
class Delivery:
    """Brings what is new of *stored* to *target*, and remembers in *file* what was brought. For one thread.

    Attributes:
        error: Why it came to nothing; empty as long as it has not.
    """

    def __init__(self, stored: Stored, target: Target, file: CursorFile | NoFile, on_progress: OnProgress) -> None:
        self.error = ""
        self._stored = stored
        self._target = target
        self._file = file
        self._on_progress = on_progress
        self._cursor = Cursor()
        self._taker: Taker | None = None
        self._unsure = False  # whether what an earlier replay handed over, which did not come to its end, has arrived
        self._asked = False
        self._has: _Has = _has_nothing
        self._rewinds = True
        self._rows = self._events = self._artifacts = 0
        self._skipped = 0
        self._complete = False
        self._saved, self._since, self._total = time.monotonic(), 0, 0

    def report(self) -> TargetReport:
        """Return what became of everything so far."""
        return TargetReport(
            self._target.name,
            rows=self._rows,
            events=self._events,
            artifacts=self._artifacts,
            skipped=self._skipped,
            failed=0 if self._taker is None else self._taker.refused,
            complete=self._complete,
            error=self.error,
            tracker=None if self._taker is None else self._taker.report(),
        )

    def begin(self) -> None:
        """Find out how far the target is.

        Raises:
            ReplayError: if that cannot be told, or another process is at it.
        """
        self._cursor = self._file.open()
        self._skipped = self._cursor.rows
        self._unsure = not self._cursor.state and self._cursor != Cursor()

    # --- what the run has by now ---

    def advance(self, *, config: bool, ended: bool) -> None:
        """Deliver rows, events and artifacts that are new, and with *config* hyper-parameters that are.

        Args:
            config: Whether to look at the hyper-parameters.
            ended: Whether nobody writes the run any more.

        Raises:
            Exception: what the target raised that is no matter of one row.
        """
        if config:
            self._bring_config()
        with self._stored.events(self._cursor.events) as events, self._stored.rows() as source:
            self._check(source)
            for row, following in _with_next(self._new_rows(source, last=ended)):
                if events.next is not None:
                    coming = events.with_row(row[0].step, row[0].time, following)
                    self._bring_events(coming, there=self._has(row[0]))
                self._bring_row(row)
            self._has, self._rewinds = _has_nothing, True  # what the target says holds for what was there as it said so
            self._bring_events(events.rest())
        self._bring_artifacts()
        self._tell_progress()

    def _check(self, source: Source) -> None:
        self._total = source.size
        if source.size < self._cursor.offset:
            raise ReplayError(
                f"{source.shown} is shorter than what {self._target.name} has got of it already: it is another run. "
                f"Remove the folder `replay` beside it to have everything delivered"
            )

    def _bring_config(self) -> None:
        config = self._stored.run.config
        mark = digest(config)
        if mark and mark != self._cursor.config:
            self._opened().take(Call("log_hyperparameters", (config,)))
            self._cursor.config = mark

    def _new_rows(self, source: Source, *, last: bool) -> Iterator[StoredRow]:
        """Yield the rows behind the cursor, and before them those that the target turns out to lack."""
        rows = steps_together(rows_of(source, self._cursor.offset, last=last))
        first = next(rows, None)
        if first is None and (self._asked or not self._unsure):
            return
        self._ask(source)
        if first is not None:
            yield first
        yield from rows

    def _ask(self, source: Source) -> None:
        """Ask the target, once, which rows it has."""
        if self._asked:
            return
        self._asked = True
        known = self._opened().first_missing_step()
        cursor = self._cursor
        if known is None:
            return
        if self._unsure:  # of these it does not tell, and to get them twice does no harm
            cursor.config, cursor.summary, cursor.artifacts = "", "", 0
            self._bring_config()
        if not cursor.begun:
            if known > 0:  # it got rows by another way than this one
                begun = attempts_in(source)
                self._has, self._rewinds = lambda place: place.step < known or is_superseded(place, begun), False
            return
        assert cursor.last is not None
        if cursor.last != cursor.highest:  # it goes over steps again, of which the target does not tell
            return
        if known > cursor.last + 1:  # an earlier replay was killed before it could write how far it was
            attempt = cursor.attempt
            self._has = lambda place: place.attempt == attempt and place.step < known
        elif known <= cursor.last:
            self._bring_again(source, known)

    def _bring_again(self, source: Source, start: int) -> None:
        """Deliver rows before the cursor that did not arrive, and the events that come with them."""
        cursor = self._cursor
        begun = {attempt: step for attempt, step in attempts_in(source).items() if attempt <= cursor.attempt}
        with self._stored.events(0) as events:
            for (place, end, row), following in _with_next(steps_together(rows_of(source))):
                if end > cursor.offset:
                    break
                there = place.step < start or is_superseded(place, begun)
                self._bring_events_again(events.with_row(place.step, place.time, following), there=there)
                if not there and self._opened().take_row(row, place):
                    self._rows += 1
                    self._skipped -= 1
            self._bring_events_again(events.rest(), there=False)

    def _bring_events_again(self, events: Iterator[Event], *, there: bool) -> None:
        for event in events:
            if event.end > self._cursor.events:
                return
            if not there and self._opened().take_event(event):
                self._events += 1

    def _bring_row(self, stored: StoredRow) -> None:
        place, end, row = stored
        if self._has(place):
            self._skipped += 1
        else:
            taker = self._opened()
            if place.attempt > self._cursor.attempt and self._cursor.begun and self._rewinds:
                taker.take(Call("rewind", (place.step,)))
            if taker.take_row(row, place):
                self._rows += 1
            elif not taker.failing:
                self._skipped += 1
        self._cursor.take(place.step, place.attempt, end)
        self._since += 1
        if self._since % _LOOK == 0:
            self._save_if_due()

    def _bring_events(self, events: Iterator[Event], *, there: bool = False) -> None:
        for event in events:
            if not there and self._opened().take_event(event):
                self._events += 1
            self._cursor.events = event.end

    def _bring_artifacts(self) -> None:
        entries = self._stored.run.artifacts
        for number, entry in enumerate(entries[self._cursor.artifacts :], self._cursor.artifacts + 1):
            if self._bring_artifact(entry):
                self._artifacts += 1
            self._cursor.artifacts = number

    def _bring_artifact(self, entry: dict[str, Any]) -> bool:
        taker = self._opened()
        name, kind = str(entry.get("name") or "artifact"), entry.get("type")
        try:
            with self._stored.artifact(entry) as path:
                words = {"name": name, "type": kind if isinstance(kind, str) else None}
                return taker.take(Call("log_artifact", (path,), words))
        except ValueError as error:
            taker.ledger.fail("log_artifact", error, _BESIDES)
        except FileNotFoundError:
            taker.ledger.drop(f"artifact {name!r}", "it is not in the run directory")
        taker.refused += 1
        return False

    # --- its end ---

    def end(self) -> None:
        """Deliver the summary and how the run ended, and finish the target.

        Raises:
            Exception: what the target raised.
        """
        state = self._stored.run.state
        summary = self._stored.summary()
        mark = digest(summary)
        if mark and mark != self._cursor.summary:
            call = Call("log_summary", (self._stored.revived(summary),))
            taker = self._opened()
            if (passed := self._target.policy.call(call, 0)) is not None:
                taker.take(passed)
            self._cursor.summary = mark
        if self._taker is None and self._cursor.state != state:
            self._opened()
        if self._taker is not None:
            taker = self._taker
            error = error_of(self._stored.run, state)
            self._save()
            taker.finish(error)
            self._cursor.state = state
            self._file.save(self._cursor)
        self._complete = True
        self._tell_progress()

    def abandon(self, error: BaseException) -> None:
        """Leave it at where it stands because of *error*: what has arrived is remembered."""
        if self.error:
            return
        self.error = _told(error) or type(error).__name__
        if self._taker is None:
            return
        if self._taker.good is not None:  # what was refused in a row is to be tried again
            self._cursor = self._taker.good
        with contextlib.suppress(Exception):
            self._keep(self._taker)
        with contextlib.suppress(Exception):
            self._taker.finish(error)

    def close(self) -> None:
        """Let other processes at the target."""
        self._file.close()

    # --- the target ---

    def _opened(self) -> Taker:
        """Return the target, started with the first thing that is to be delivered."""
        if self._taker is None:
            cursor = self._cursor
            context = self._stored.context(
                resumed=cursor.begun,
                next_step=None if cursor.last is None else cursor.last + 1,
                attempt=cursor.attempt,
            )
            tracker = self._target.start(context)
            self._taker = Taker(tracker, self._target.policy, self._stored.read, self._state)
            if cursor.state:
                cursor.state = ""  # until it is finished
                self._file.save(dataclasses.replace(cursor, state=""))
        return self._taker

    def _state(self) -> Cursor:
        return dataclasses.replace(self._cursor)

    def _save_if_due(self) -> None:
        now = time.monotonic()
        if self._since >= _ROWS or now - self._saved >= _SECONDS:
            self._save()
            self._tell_progress()

    def _save(self) -> None:
        """Have the target keep what it got, and remember that; not while it refuses everything."""
        if self._taker is not None and not self._taker.failing:
            self._keep(self._taker)

    def _keep(self, taker: Taker) -> None:
        taker.flush()
        self._file.save(self._cursor)
        self._saved, self._since = time.monotonic(), 0

    def _tell_progress(self) -> None:
        done = self._total if self._complete else self._cursor.offset
        self._on_progress(Progress(self._stored.run_id, self._target.name, done, self._total, self._rows))


def _with_next(rows: Iterator[StoredRow]) -> Iterator[tuple[StoredRow, float]]:
    """Yield each row and the time of the one that follows, which is infinite for the last one."""
    row = next(rows, None)
    while row is not None:
        following = next(rows, None)
        yield row, math.inf if following is None else following[0].time
        row = following


def _told(error: BaseException) -> str:
    if isinstance(error, TrackwayError) and not isinstance(error, ExceptionGroup):
        return str(error)
    reasons = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
    _notices.logger.debug("traceback of a replay's end", exc_info=error)
    return "; ".join(f"{type(reason).__name__}: {reason}" for reason in reasons)
