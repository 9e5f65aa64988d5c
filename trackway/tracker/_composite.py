"""Several trackers behind one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from trackway.errors import FatalTrackerError, TrackerFinishError
from trackway.tracker._background import BackgroundTracker
from trackway.tracker._callbacks import raise_deferred, wait_for_callbacks
from trackway.tracker._dispatch import Call, ForwardingTracker, walk
from trackway.tracker._interface import Tracker, check_tracker
from trackway.tracker._isolation import Isolation
from trackway.tracker._ledger import Report
from trackway.tracker._reports import combined

__all__ = ["CompositeTracker"]


@final
class CompositeTracker(ForwardingTracker):
    """Passes every call to all of *loggers*, in their order.

    A member that raises keeps the call from no other member and from no training loop: the failure is counted, and
    logged once per member and method. Thread-safe if the members are.

    Attributes:
        loggers: The members; the list may be changed between calls.
    """

    name: str = "composite"

    def __init__(self, loggers: Iterable[Tracker]) -> None:
        self.loggers: list[Tracker] = [check_tracker(tracker, "CompositeTracker") for tracker in loggers]
        self._isolation = Isolation()

    def members(self) -> tuple[Tracker, ...]:
        """Return the members as they stand."""
        return tuple(self.loggers)

    def reports(self) -> tuple[Report, ...]:
        """Return, per member, what became of the rows: everything that stands behind it in one `Report`."""
        return tuple(combined(tracker, self._isolation.failures(tracker)) for tracker in self.loggers)

    def failures(self) -> tuple[Report, ...]:
        """Return, per member, which methods raised and how often."""
        return tuple(self._isolation.failures(tracker) for tracker in self.loggers)

    def finish(self) -> None:
        """Finish every member.

        Raises:
            TrackerFinishError: holding the failures of members declared `required: true`, after all are finished.
        """
        wait_for_callbacks()
        for tracker in walk(self):
            if isinstance(tracker, BackgroundTracker):
                tracker.start_finish()  # all at once, so that their bounds do not add up
        _, fatal = self._call_all(Call("finish"))
        if fatal:
            raise TrackerFinishError("required trackers failed to finish", fatal)
        raise_deferred()

    def flush(self) -> None:
        """Flush every member, after the callbacks of compiled functions that are still under way."""
        wait_for_callbacks()
        self._forward(Call("flush"))

    def _forward(self, call: Call) -> Any:
        result, fatal = self._call_all(call)
        if fatal:
            raise fatal[0]
        return result

    def _call_all(self, call: Call) -> tuple[Any, list[Exception]]:
        """Return the first result that is not None, and the failures that may not be swallowed."""
        result, fatal, interrupt = None, [], None
        call.shared = call.shared or len(self.loggers) > 1
        for tracker in self.members():
            try:
                answer = self._isolation.call(call, tracker)
            except (FatalTrackerError, TrackerFinishError) as error:
                fatal.append(error)
                continue
            except BaseException as error:  # Ctrl+C, say: the other members get the row all the same
                interrupt = interrupt or error
                continue
            result = answer if result is None else result
        if interrupt is not None:
            raise interrupt
        return result, list(fatal)
