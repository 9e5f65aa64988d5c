"""Events of a run: who is told of them, beside the run directory and the trackers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, final

from trackway._locks import new_lock
from trackway.tracker import Call, Report, Tracker, leaves

if TYPE_CHECKING:
    from trackway.events import EventLogger, EventsConfig

__all__ = ["EventsOption", "Happenings"]

EventsOption: TypeAlias = "EventsConfig | EventLogger | None"
"""How the events of a run are told."""


@final
class Happenings:
    """The event logger of one run, which is made when it is first needed where nothing was said about it.

    Thread-safe.
    """

    def __init__(self, given: EventsOption, trackers: Tracker) -> None:
        """Take a logger, or make one of its configuration; raises what `EventsConfig.build` raises.

        One of *trackers* that prints events, as the console does, prints them alone.
        """
        self._lock = new_lock()
        self._console = not any(getattr(leaf, "prints_events", False) for leaf in leaves(trackers))
        self._logger: Any = given
        if given is not None and hasattr(given, "build"):  # here and now, because that resolves its paths
            config: Any = given
            self._logger = replace(config, console=config.console and self._console).build()

    @property
    def logger(self) -> EventLogger:
        """The logger."""
        if self._logger is None:
            from trackway.events import EventLogger

            with self._lock:
                if self._logger is None:
                    self._logger = EventLogger(console=self._console)
        logger: EventLogger = self._logger
        return logger

    def wants(self, event: str, step: int | None, payload: Mapping[str, Any]) -> bool:
        """Whether anyone is to be told, by the cadence."""
        return bool((self._logger or self.logger).wants(event, step, payload))

    @property
    def inside(self) -> bool:
        """Whether this thread is in a hook, which others may be waiting for."""
        return self._logger is not None and bool(self._logger.inside)

    def completed(self, call: Call) -> Call:
        """Return *call*, which brings an event, whose values are on the host, as everyone is to be told of it."""
        assert call.payload is not None
        row = self.logger.with_memory(_event_of(call), call.payload)
        return call if row is call.payload else call.with_payload(row)

    def tell(self, call: Call) -> None:
        """Tell of the event that *call* brings."""
        assert call.payload is not None
        self.logger.deliver(_event_of(call), call.payload, call.kwargs.get("step"), time.time())

    def report(self) -> Report | None:
        """What became of them; None where there were none."""
        if self._logger is None:
            return None
        report: Report = self._logger.report()
        return report

    def close(self) -> None:
        """Close files and hooks."""
        if self._logger is not None:
            self._logger.close()


def _event_of(call: Call) -> str:
    return str(call.args[0] if call.args else call.kwargs["event"])
