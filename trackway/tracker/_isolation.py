"""Keeping a tracker's failure from the training loop."""

from __future__ import annotations

import weakref
from typing import Any, final

from trackway._locks import new_lock
from trackway.errors import FatalTrackerError, TrackerFinishError
from trackway.tracker._dispatch import Call, ForwardingTracker
from trackway.tracker._interface import Tracker, name_of
from trackway.tracker._ledger import Ledger, Report

__all__ = ["Isolation", "RequiredTracker", "fatal"]

_CURE = "; training goes on. Declare the tracker `required: true` to stop instead"
_NOT_OURS = (KeyboardInterrupt, SystemExit, GeneratorExit)


@final
class Isolation:
    """Makes calls on trackers and lets nothing out but what is meant to stop a run. Thread-safe."""

    def __init__(self) -> None:
        self._ledgers: dict[int, tuple[weakref.ref[Tracker], Ledger]] = {}
        self._lock = new_lock()

    def call(self, call: Call, tracker: Tracker) -> Any:
        """Return the call's result, or None where the tracker failed, which is counted and said once per method.

        Raises:
            FatalTrackerError: from a member that is required.
            TrackerFinishError: likewise, while finishing.
        """
        try:
            return call.on(tracker)
        except (FatalTrackerError, TrackerFinishError):
            raise
        except BaseException as error:  # a backend in another language may raise what is no Exception
            if isinstance(error, _NOT_OURS) or type(error).__name__ == "CancelledError":
                raise
            self._ledger(tracker).fail(call.method, error, _CURE)
            return None

    def _ledger(self, tracker: Tracker) -> Ledger:
        key = id(tracker)
        with self._lock:
            known = self._ledgers.get(key)
            if known is None:
                # by identity and without keeping it alive: a tracker need not be hashable
                alive = weakref.ref(tracker, lambda _: self._ledgers.pop(key, None))
                known = self._ledgers[key] = (alive, Ledger(name_of(tracker)))
        return known[1]

    def failures(self, tracker: Tracker) -> Report:
        """Return what failed at *tracker* so far."""
        return self._ledger(tracker).report()


@final
class RequiredTracker(ForwardingTracker):
    """Turns every failure of *tracker* into a `FatalTrackerError`: the run must not go on without it.

    Thread-safe if *tracker* is.
    """

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.name = name_of(tracker)

    def members(self) -> tuple[Tracker, ...]:
        """Return the one tracker behind."""
        return (self.tracker,)

    def _forward(self, call: Call) -> Any:
        try:
            return call.on(self.tracker)
        except FatalTrackerError:
            raise
        except Exception as error:
            raise fatal(self.name, call.method, error) from error


def fatal(name: str, method: str, error: BaseException) -> FatalTrackerError:
    """The error that stops a run because of a required tracker."""
    return FatalTrackerError(
        f"{name} is declared `required: true` and failed in {method}: {type(error).__name__}: {error}. "
        "Fix the cause, or set `required: false` to train on without it"
    )
