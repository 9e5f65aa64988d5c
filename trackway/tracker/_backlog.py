"""What a tracker in the background catches up from when it fell behind: rows that a store has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, final

if TYPE_CHECKING:
    from trackway.tracker._dispatch import Call

__all__ = ["Backlog", "Gap", "Place"]


class Place(NamedTuple):
    """Where the store has a committed row.

    Attributes:
        offset: A byte of the store's file before which the row does not begin.
        step: Its step.
        time: When it was begun, in seconds since 1970; with the step, what it is told by.
        attempt: The attempt that it is of.
    """

    offset: int
    step: int
    time: float
    attempt: int = 1


@final
class Gap:
    """Rows that follow one another and are to be had from the store only.

    Attributes:
        first: The place of the first one.
        last: The place of the last one.
        count: How many of them the tracker is to get.
    """

    __slots__ = ("count", "first", "last")

    def __init__(self, place: Place) -> None:
        self.first = self.last = place
        self.count = 1

    def extend(self, place: Place) -> None:
        """Take the row behind the last one."""
        self.last = place
        self.count += 1


class Backlog(Protocol):
    """The rows that a store has, as one tracker is to get them; for the thread of that tracker alone."""

    def calls(self, gap: Gap, given_up: Callable[[], bool]) -> Iterator[Call]:
        """Yield the rows of *gap*, each with its place as `Call.origin`.

        Rows that the store could not write yet are waited for until *given_up* says True; those that it lost are left
        out.
        """
        ...

    def missing(self, first_missing_step: int | None) -> Iterator[Call]:
        """Yield what the tracker did not get before this process began, where that is known.

        Args:
            first_missing_step: What the tracker says itself, see `Tracker.first_missing_step`.
        """
        ...

    def note(self, place: Place) -> None:
        """Remember, also for later processes, that the tracker got all rows up to *place*."""
        ...

    def save(self) -> None:
        """Have what was noted on the disk."""
        ...
