"""Looking at the rules when no row comes: a training that hangs logs nothing that could fire one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

from trackway import _notices

__all__ = ["Watchdog"]

_SOON = 0.02


@final
class Watchdog:
    """Calls *look* on a daemon thread, from `start` to `stop`.

    *look* returns the seconds until it is worth another look, None where it cannot know. The thread sleeps so long,
    *interval* seconds at most: rows that came meanwhile may have made something due earlier.
    """

    def __init__(self, look: Callable[[], float | None], interval: float) -> None:
        self._look = look
        self._interval = interval
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def inside(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Begin; where no thread can be had, rules are looked at when rows come."""
        self._thread = threading.Thread(target=self._run, name="trackway-alerts-watchdog", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            _notices.logger.warning("alerts: no thread can be started, so that a hang goes unnoticed: %s", error)

    def _run(self) -> None:
        seconds = 0.0
        while not self._ended.wait(seconds):
            try:
                due = self._look()
            except Exception as error:  # the next look may be better
                due = None
                _notices.log_once(("watchdog", type(error)), f"alerts: the watchdog failed: {error}", error)
            seconds = self._interval if due is None else min(max(due, _SOON), self._interval)

    def stop(self, timeout: float) -> None:
        """End, and wait for a look under way, *timeout* seconds at most."""
        self._ended.set()
        if self._thread is not None and not self.inside:
            self._thread.join(timeout)
