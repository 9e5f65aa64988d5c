"""Doing something once a second beside the training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

from trackway import _notices

__all__ = ["Ticker"]

_PATIENCE = 5.0


@final
class Ticker:
    """Calls *work* every *interval* seconds on a daemon thread, from `start` to `stop`."""

    def __init__(self, work: Callable[[], None], interval: float, name: str) -> None:
        self._work = work
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; where no thread can be had, `work` is left to those who flush."""
        try:
            self._thread.start()
        except RuntimeError as error:
            _notices.logger.warning("%s: no thread can be started: %s", self._thread.name, error)

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self._work()
            except Exception as error:  # the next second may be better
                _notices.log_once(("ticker", type(error)), f"{self._thread.name}: {error}", error)

    def stop(self, *, wait: bool = True) -> None:
        """End, and wait for a call under way, at most five seconds: a disk that hangs must not hang training."""
        self._ended.set()
        if wait and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)
