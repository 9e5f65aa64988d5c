"""Spans that ended and are not in a row yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from trackway.run._rows import OpenRows, sum_of
from trackway.values import Row

__all__ = ["OpenSpans"]

_MAX = 4096


@final
class OpenSpans:
    """Name and seconds of spans that are to be added to the open row of *rows*, or to the next one.

    `put` may be called at any time; the owner holds a lock around everything else.

    Attributes:
        waiting: They, in order; for a look whether there are any.
        many: How many of them should be summed up.
    """

    def __init__(self, rows: OpenRows) -> None:
        """Hold none."""
        self._rows = rows
        self.waiting: deque[tuple[str, float]] = deque()
        self.many = _MAX
        self.put: Callable[[tuple[str, float]], None] = self.waiting.append
        """Takes name and seconds, in time that does not show beside what a span measures."""

    def __len__(self) -> int:
        return len(self.waiting)

    def rest(self) -> None:
        """Take those that wait now for few."""
        self.many = max(_MAX, 2 * len(self.waiting))

    def added_to(self, row: Row, step: int | None, *, last: bool = False) -> Row:
        """Add what waits to the open row; where none is open, return *row*, which begins one at *step*, with it.

        A row that may be dropped for its step gets none. A row of its own is made only where it is the *last* one.
        """
        no_row = self._rows.step is None
        waiting = not last and no_row and (not row or self._rows.is_behind(step))
        if waiting and len(self.waiting) < _MAX:
            return row
        seconds = self._taken()
        if waiting:
            self.waiting.extend(seconds.items())
        elif last or not no_row:
            self._rows.add(Row({f"time/{name}": lasted for name, lasted in seconds.items()}))
        else:
            row = row.copy()
            for name, lasted in seconds.items():
                row[f"time/{name}"] = sum_of(row.get(f"time/{name}"), lasted)
        return row

    def _taken(self) -> dict[str, float]:
        """Take all, and return the sums by name."""
        seconds: dict[str, float] = {}
        for _ in range(len(self.waiting)):
            try:
                name, lasted = self.waiting.popleft()
            except IndexError:  # a signal handler has read the open row meanwhile
                break
            seconds[name] = seconds.get(name, 0.0) + lasted
        return seconds

    def clear(self) -> None:
        """Forget all."""
        self.waiting.clear()
