"""Events that come before the row of their step."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, final

__all__ = ["HeldEvent", "HeldEvents"]

_MAX_HELD = 64


class HeldEvent(NamedTuple):
    """An event, and what it brings as the backend keeps it."""

    step: int | None
    event: str
    values: Any


@final
class HeldEvents:
    """Holds events back for as long as rows of lower steps may follow. Not thread-safe.

    A run hands over a row when its step is over, but an event at once, and so ahead of the row of its step. A backend
    whose steps only rise would then take the row for a late one, and one that is asked for its last step, to go on
    from there, would tell that of a row which it never got.

    Where no row came yet, an event is held until there is one of a higher step: then the lag is one event.
    """

    def __init__(self) -> None:
        self._held: deque[HeldEvent] = deque()
        self._rows = False

    def __len__(self) -> int:
        return len(self._held)

    def put(self, event: HeldEvent) -> list[HeldEvent]:
        """Hold *event*; return those whose time has come by that, the lowest steps first."""
        step = event.step
        due = self._take(step - 1) if not self._rows and step is not None else []
        self._held.append(event)
        while len(self._held) > _MAX_HELD:
            due.append(self._held.popleft())
        return due

    def row(self, step: int) -> list[HeldEvent]:
        """Return the events to go before or with the row of *step*, the lowest steps first.

        Those without a step are the last of them: they go with it.
        """
        self._rows = True
        return self._take(step) if self._held else []

    def rest(self) -> list[HeldEvent]:
        """Return all that is held, the lowest steps first."""
        highest = max((event.step for event in self._held if event.step is not None), default=0)
        return self._take(highest, alone=True)

    def _take(self, step: int, *, alone: bool = False) -> list[HeldEvent]:
        due = sorted(
            (event for event in self._held if event.step is not None and event.step <= step),
            key=lambda event: event.step or 0,
        )
        if due or alone or self._rows:
            due += [event for event in self._held if event.step is None]
        taken = set(map(id, due))
        self._held = deque(event for event in self._held if id(event) not in taken)
        return due
