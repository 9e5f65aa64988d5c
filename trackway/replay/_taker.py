"""The tracker that a run is delivered to, and what becomes of what it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, final

from trackway.replay._cursor import Cursor
from trackway.replay._report import ReplayError
from trackway.replay._stored import Event
from trackway.store import LocalTracker
from trackway.store._revive import ReadFile
from trackway.store._stored_rows import Keep, call_of
from trackway.tracker import Call, FilterPolicy, Ledger, Report, Tracker
from trackway.tracker._backlog import Place
from trackway.tracker._interface import name_of
from trackway.tracker._row_time import call_at_its_time

__all__ = ["Taker"]

_ENOUGH = 20  # calls in a row that fail, after which it is no matter of single values
_CURE = "; it is left out"


def _all(call: Call) -> Call:
    return call


@final
class Taker:
    """Makes calls on *tracker*, one after the other, on this thread.

    What it refuses is counted and left out, since it would refuse it again; an `OSError`, and so what a network does,
    ends the delivery, and so do twenty refusals in a row.

    Attributes:
        ledger: What says what it refused.
        refused: How many calls.
        good: Where the delivery stood before the refusals in a row; None where the last call went well.
    """

    def __init__(self, tracker: Tracker, policy: FilterPolicy, read: ReadFile, state: Callable[[], Cursor]) -> None:
        """Call *tracker*, which sees what *policy* lets pass; *read* has the media, *state* says where it stands."""
        self.ledger = Ledger(f"replay to {name_of(tracker)}")
        self.refused = 0
        self.good: Cursor | None = None
        self._tracker = tracker
        self._keep: Keep = _all if policy.passes_all else lambda call: policy.call(call, call.kwargs["step"])
        self._read = read
        self._state = state
        self._in_a_row = 0
        self._takes_events = getattr(type(tracker), "log_event", None) is not Tracker.log_event
        self._local = tracker if isinstance(tracker, LocalTracker) else None

    @property
    def failing(self) -> bool:
        """Whether the last call was refused."""
        return self._in_a_row > 0

    def first_missing_step(self) -> int | None:
        """Return what the tracker says."""
        return self._tracker.first_missing_step()

    def take_row(self, row: dict[str, Any], place: Place) -> bool:
        """Hand over a stored row; return whether the tracker has it, or False where it is not to see it."""
        call = call_of(row, place, self._read, self._keep)
        if call is None:
            return False
        if self._local is None or not call.payload:
            return self.take(call, place.time or None)
        store = self._local  # which takes a row with its time
        with store.lock:
            store.append(place.step, place.time, call.payload)
        store.tell()
        return True

    def take_event(self, event: Event) -> bool:
        """Hand over an event; return whether the tracker has it."""
        if not self._takes_events:
            return False
        return self.take(Call("log_event", (event.name, event.payload), {"step": event.step}), event.time or None)

    def take(self, call: Call, time: float | None = None) -> bool:
        """Make *call*; return whether that went well.

        Raises:
            OSError: if the tracker's place cannot be reached.
            ReplayError: if it refuses everything.
        """
        try:
            call_at_its_time(call, self._tracker, time)
        except OSError:
            raise
        except Exception as error:
            self._refused(call.method, error)
            return False
        self._in_a_row, self.good = 0, None
        return True

    def _refused(self, method: str, error: Exception) -> None:
        if not self._in_a_row:
            self.good = self._state()
        self._in_a_row += 1
        if self._in_a_row >= _ENOUGH:
            self.refused -= self._in_a_row - 1  # they will be tried again
            raise ReplayError(
                f"{self._in_a_row} calls in a row failed, at last {method}: {type(error).__name__}: {error}"
            ) from error
        self.refused += 1
        self.ledger.fail(method, error, _CURE)

    def flush(self) -> None:
        """Have the tracker keep what it got.

        Raises:
            Exception: what it raised, or an `OSError` where rows still wait.
        """
        self._tracker.flush()
        report = self.report()
        if report is not None and report.pending > 0:
            raise OSError(f"{report.pending} rows could not be written yet")

    def finish(self, error: BaseException | None) -> None:
        """End the tracker, as failed where the run ended by *error*.

        Raises:
            Exception: what it raised, or that it could not end well.
        """
        try:
            if error is not None:
                with contextlib.suppress(Exception):
                    self._tracker.mark_failed(error)
        finally:
            self._tracker.finish()
        report = self.report()
        if report is not None and report.failed.get("finish"):
            raise ReplayError("it could not be finished; not everything may have arrived, replay it again")

    def report(self) -> Report | None:
        """Return the tracker's own counts."""
        ask = getattr(self._tracker, "report", None)
        found = ask() if callable(ask) else None
        return found if isinstance(found, Report) else None
