"""One step, one row: merging calls into the open row, and deciding when it is committed."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Literal, NamedTuple, TypeAlias, final

from trackway.errors import StepError
from trackway.store import merge
from trackway.tracker import check_step
from trackway.tracker._backlog import Place
from trackway.values import Row

__all__ = ["Committed", "OpenRows", "StepPolicy", "sum_of"]

StepPolicy: TypeAlias = Literal["monotonic", "allow", "error"]
"""What becomes of a row whose step lies behind: dropped, kept, or an error."""


class Committed(NamedTuple):
    """A row that is complete."""

    step: int
    time: float
    """When it was begun, in seconds since 1970."""
    values: Row
    place: Place | None = None
    """Where the store has it; None without a store."""


@final
class OpenRows:
    """The open row of a run and the rules by which it becomes a committed one. Not thread-safe: its owner holds a lock.

    Ctrl+C may come at any moment: a row is always the open one, or in `taken` until its owner has dealt with it.

    Attributes:
        taken: Rows that are complete, in their order; the owner takes them off.
        step: The step of the open row; None where no row is open.
        next_step: The step of the next row that comes without one.
        last: The highest committed step of this attempt; None before the first row.
        late: Rows that were dropped for their step.
    """

    __slots__ = ("_begun", "_owned", "_policy", "_values", "last", "late", "next_step", "step", "taken")

    def __init__(self, policy: StepPolicy = "monotonic", *, next_step: int = 0, last: int | None = None) -> None:
        self._policy = policy
        self._values = Row()
        self._begun = 0.0
        self._owned = False  # whether nobody else has the row
        self.taken: deque[Committed] = deque()
        self.step: int | None = None
        self.next_step = next_step
        self.last = last
        self.late = 0

    def log(self, values: Row, step: int | None, commit: bool | None) -> None:
        """Take one call of `log`; rows that are complete by it are in `taken` then.

        Without a step it goes to the open row, or begins the next one, and commits it unless *commit* is False. With
        one it begins a row of that step, having committed the open row of another, and commits it if *commit* is True.
        No values make no row.

        Args:
            values: Values on the host; kept, but not changed.
            step: The step, checked.
            commit: As given to `log`.

        Raises:
            StepError: for a step that lies behind, under the policy "error".
        """
        if step is None:
            if self.step is None:
                if not values:
                    return
                self._open(check_step(self.next_step) or 0, values)
            elif values:
                self._merge(values)
            if commit is not False:
                self.take()
            return
        if step == self.step:
            if values:
                self._merge(values)
        elif self.step is not None:
            if step < self.step:
                self._behind(values, step)
                return
            self.take()
        elif self.last is not None and step < self.last:
            self._behind(values, step)
            return
        if step != self.step:
            if not values:
                self.next_step = step
                return
            self._open(step, values)
        if commit:
            self.take()

    def add(self, values: Row) -> None:
        """Add numbers to those of the open row, or begin the next one with them; other values take their place."""
        if not values:
            return
        if self.step is None:
            self._open(check_step(self.next_step) or 0, values)
        else:
            sums = {name: sum_of(self._values.get(name), value) for name, value in values.items()}
            self._merge(values.derive(sums))

    def take(self) -> None:
        """Commit the open row, which there is."""
        assert self.step is not None
        row = Committed(self.step, self._begun, self._values)
        self.next_step, self.last = row.step + 1, row.step
        # nothing comes between these: Python looks for signals after the call
        self.step = None
        self.taken.append(row)

    def rewind(self, step: int) -> None:
        """Have the next row begin a new attempt, at *step* unless it says another; no row may be open."""
        self.last, self.next_step = None, step

    def peek(self) -> Committed | None:
        """Return a copy of the open row as it stands, or None."""
        return None if self.step is None else Committed(self.step, self._begun, self._values.copy())

    def _open(self, step: int, values: Row) -> None:
        self.step, self._begun, self._values, self._owned = step, time.time(), values, False

    def _merge(self, values: Row) -> None:
        if not self._owned:
            self._values, self._owned = self._values.copy(), True
        open_ = self._values
        if values.flat:
            open_.update(values)
        else:
            merge(open_, values)
            open_.flat = False
        open_.has_media = open_.has_media or values.has_media
        if values.downgrades:
            open_.downgrades = (*open_.downgrades, *values.downgrades)

    def is_behind(self, step: int | None) -> bool:
        """Whether a row of *step* would be dropped, or refused."""
        return step is not None and self.last is not None and step < self.last and self._policy != "allow"

    def _behind(self, values: Row, step: int) -> None:
        """Decide about a row whose step lies behind the open one, or the last one."""
        if step != self.last and self._policy != "allow":
            where = self.step if self.step is not None else self.last
            if self._policy == "error":
                raise StepError(
                    f"step {step} lies behind step {where}, and step_policy is 'error'; log steps in order, or choose "
                    "the policy 'allow' to keep late rows"
                )
            self.late += bool(values)
        elif values:
            self.taken.append(Committed(step, time.time(), values))


def sum_of(old: Any, new: Any) -> Any:
    """Return *old* + *new*, or *new* where one of them is no number."""
    numbers = isinstance(old, int | float) and isinstance(new, int | float)
    return old + new if numbers else new
