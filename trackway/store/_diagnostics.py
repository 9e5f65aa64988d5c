"""What a writer has to say about a file that it cannot write."""

from __future__ import annotations

import logging
import time
from typing import final

from trackway import _notices

__all__ = ["Diagnostics"]

_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 3600.0


@final
class Diagnostics:
    """Collects messages under the writer's lock, to be told once it is released; the same trouble ever more rarely.

    Attributes:
        waiting: Whether there are messages to tell.
    """

    def __init__(self) -> None:
        self.waiting = False
        self._messages: list[tuple[int, str]] = []
        self._quiet_until = 0.0
        self._pause = _FIRST_PAUSE
        self._troubled = False

    def trouble(self, message: str) -> None:
        """Note that something goes wrong; told at once the first time, then after pauses that double."""
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._troubled = True
        self._add(logging.WARNING, message)

    def well(self, message: str) -> None:
        """Note that the trouble is over, if any was told; how soon the next is told does not change."""
        if self._troubled:
            self._troubled = False
            self._add(logging.WARNING, message)

    def note(self, message: str) -> None:
        """Note something that happens once."""
        self._add(logging.WARNING, message)

    def _add(self, level: int, message: str) -> None:
        self._messages.append((level, message))
        self.waiting = True

    def tell(self) -> None:
        """Write what was collected to the `trackway` logger; the caller holds no lock."""
        self.waiting = False
        messages, self._messages = self._messages, []
        for level, message in messages:
            _notices.logger.log(level, "%s", message)
