"""The steps of W&B, which only rise, and what becomes of rows that do not fit in."""

from __future__ import annotations

from typing import Any, NamedTuple, final

__all__ = ["AXIS", "Placed", "Steps", "highest_of", "known"]

AXIS = "trackway/step"
"""The metric that holds the step of rows, and the highest one, once W&B numbers them in another way."""

_LARGEST = 2**62
"""Rows of higher steps leave W&B no number for those that follow, so they are not numbered by their steps."""


class Placed(NamedTuple):
    """Where a row goes.

    Attributes:
        step: Its step at W&B.
        prefix: What is put before its names; empty in the usual case.
        axis: The metric that holds its own step, None where that is the step at W&B.
        highest: What `trackway/step` is in this row, from which a resumed run finds out where it was; None for nothing.
    """

    step: int
    prefix: str
    axis: str | None
    highest: int | None


@final
class Steps:
    """Gives every row a step that W&B keeps. Not thread-safe.

    W&B drops what comes for a step below the current one. So a row of a rising step has that step, and one that is
    late, or of an attempt that goes over steps again, is a row of the next free step, under names of its own:
    `late/<name>` over the axis `late/step`, `attempt_2/<name>` over `attempt_2/step`. From then on W&B's numbers may
    be ahead of the steps, and every row has the highest step so far in `trackway/step`.
    """

    def __init__(
        self,
        free: int = 0,
        highest: int | None = None,
        *,
        attempt: int = 1,
        begins: int | None = None,
        noted: bool = False,
    ) -> None:
        """Begin.

        Args:
            free: The first step that W&B takes.
            highest: The highest step that rows have there; None for none.
            attempt: The number of the attempt.
            begins: The step at which this attempt goes on; None for that after the highest one.
            noted: Whether rows have `trackway/step` already.
        """
        self._free = free
        self._highest = highest
        self._attempt = attempt
        again = begins is not None and highest is not None and begins <= highest
        self._again = again  # whether this attempt goes over steps that are there
        self._last = highest if begins is None or not again else begins - 1  # of this attempt
        self._open: int | None = None
        self._noted = noted

    @property
    def next(self) -> int:
        """The step of a row that comes without one."""
        return 0 if self._last is None else self._last + 1

    @property
    def last(self) -> int | None:
        """The highest step of rows of this attempt, or of those before; None if there is none."""
        return self._last

    @property
    def open(self) -> int | None:
        """The step of the row that W&B still merges into; None if there is none."""
        return self._open

    def rewind(self, step: int) -> None:
        """Begin another attempt, at *step*."""
        self._attempt += 1
        self._last, self._open = step - 1, None
        self._again = self._highest is not None and step <= self._highest

    def place(self, step: int, *, closed: bool) -> Placed:
        """Return where a row of *step* goes; *closed* says whether no more is to come for that step."""
        if step == self._open:  # W&B merges it into the row that is open
            placed = self._among(self._free, step)
        elif self._last is not None and step <= self._last:
            placed = self._beside("late")
            self._open = None
            self._free = placed.step + 1
            return placed
        elif self._again and self._highest is not None and step <= self._highest:
            self._last, self._open = step, None
            placed = self._beside(f"attempt_{self._attempt}")
            self._free = placed.step + 1
            return placed
        else:
            at = self._after_open() if step > _LARGEST else max(step, self._after_open())
            self._free, self._open = at, step
            self._last = self._highest = step
            placed = self._among(at, step)
        if closed:
            self._free, self._open = placed.step + 1, None
        return placed

    def aside(self) -> Placed:
        """Return where a row goes that is of no step."""
        self._noted = True
        placed = Placed(self._after_open(), "", None, self._highest)
        self._free, self._open = placed.step + 1, None
        return placed

    def _beside(self, name: str) -> Placed:
        self._noted = True
        return Placed(self._after_open(), f"{name}/", f"{name}/step", self._highest)

    def _among(self, at: int, step: int) -> Placed:
        self._noted = self._noted or at != step
        return Placed(at, "", AXIS if self._noted else None, step if self._noted else None)

    def _after_open(self) -> int:
        return self._free if self._open is None else self._free + 1


def known(placed: Placed, step: int | None) -> dict[str, Any]:
    """Return the metrics with the row's own step and the highest one, where its step at W&B does not tell them."""
    return ({} if placed.highest is None else {AXIS: placed.highest}) | (
        {} if placed.axis is None else {placed.axis: step}
    )


def highest_of(run: Any, free: int) -> tuple[int | None, bool]:
    """Return the highest step that rows of a resumed run have, and whether they say so, or W&B's own number does."""
    if not free:
        return None, False
    try:
        noted = run.summary.get(AXIS)
    except Exception:
        noted = None
    return (int(noted), True) if isinstance(noted, int | float) else (free - 1, False)
