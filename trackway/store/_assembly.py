"""Lines to rows: what a step was given in several lines is put together, what an attempt replaced is left out."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, final

from trackway.store._scan import Lines, Source, attempt_of
from trackway.store._summary import merge

__all__ = ["Assembly", "Irregular", "Row", "Tail", "View", "combine", "read_all"]

_STEP = itemgetter("_step")
_META = ("_step", "_time", "_attempt")

Row = dict[str, Any]
View = Callable[[Row], Row | None]
"""Returns what is to be shown of a row; None where nothing of it is."""


def combine(lines: Iterable[Row]) -> Row:
    """Return the row of one step from its *lines*, the oldest first: later values win, the first time is kept."""
    row: Row = {}
    for line in lines:
        if not row:
            row = {key: line[key] for key in _META if key in line}
            if attempt_of(line) == 1:
                row.pop("_attempt", None)
        merge(row, {key: value for key, value in line.items() if key[:1] != "_"})
    return row


@final
class Assembly:
    """Takes the lines of a file from its beginning and puts the rows together. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: list[Row] = []  # in the order of their steps, as long as the lines are; else of the last line each
        self._by_step: dict[int, Row] | None = None  # from then on
        self._attempts: list[tuple[int, int]] = [(1, -sys.maxsize - 1)]  # number and first step of those begun

    def add(self, lines: Lines) -> None:
        """Take the rows of the next block, which are kept and changed."""
        attempt = self._attempts[-1][0]
        if self._by_step is None and lines.plain and lines.attempt >= attempt:
            if lines.attempt > attempt:
                self._begin(lines.attempt, lines.steps[0])
            if not self._rows or lines.steps[0] > self._rows[-1]["_step"]:
                self._rows += lines.rows
                return
        for row in lines.rows:
            self._put(row)

    def _begin(self, attempt: int, step: int) -> None:
        """An attempt takes the place of what earlier ones wrote from its first step on."""
        self._attempts.append((attempt, step))
        if self._by_step is None:
            del self._rows[bisect_left(self._rows, step, key=_STEP) :]
            return
        for late in [other for other in self._by_step if other >= step]:
            del self._by_step[late]

    def _put(self, line: Row) -> None:
        step, attempt = line["_step"], attempt_of(line)
        if attempt > self._attempts[-1][0]:
            self._begin(attempt, step)
        elif attempt < self._attempts[-1][0] and any(n > attempt and step >= first for n, first in self._attempts):
            return
        if self._by_step is None:
            if not self._rows or step > self._rows[-1]["_step"]:
                self._rows.append(combine((line,)))
                return
            if step == self._rows[-1]["_step"]:
                self._rows[-1] = combine((self._rows[-1], line))
                return
            self._by_step = {row["_step"]: row for row in self._rows}
            self._rows = []
        row = self._by_step.pop(step, None)
        self._by_step[step] = combine((line,) if row is None else (row, line))

    def rows(self) -> list[Row]:
        """Return all rows in the order of their steps."""
        if self._by_step is None:
            return self._rows
        return sorted(self._by_step.values(), key=_STEP)

    def latest(self) -> Iterable[Row]:
        """Return all rows, the one that was written to last first."""
        return reversed(self._rows if self._by_step is None else list(self._by_step.values()))


class Irregular(Exception):  # noqa: N818 - not an error of the caller's
    """Lines are not in the order that their marks claim, so that reading from the end cannot tell what they mean."""


@final
class Tail:
    """Takes the lines of a file from its end, until the last rows are known. Not thread-safe.

    A line that is not marked as a patch has a step above all earlier ones of its attempt, and all earlier attempts
    were replaced from this attempt's first step on. So no earlier line speaks of that step or a higher one: what was
    gathered of them is complete.

    Attributes:
        done: Whether earlier lines cannot change the result any more.
        pending: The steps that belong to the result, as it seems, of which earlier lines may tell more.
    """

    def __init__(self, view: View, count: int | None, low: int | None, high: int | None) -> None:
        """Gather the last rows of which *view* shows something.

        Args:
            view: What is shown of a row.
            count: How many rows; None for all of the range.
            low: The least step; None for no limit.
            high: The step above the greatest one; None for no limit.
        """
        self.done = count == 0
        self.pending: dict[int, list[Row]] = {}
        self._view = view
        self._count = sys.maxsize if count is None else count
        self._by_step = low is not None or high is not None
        self._low = -sys.maxsize - 1 if low is None else low
        self._high = sys.maxsize + 1 if high is None else high
        self._found: dict[int, Row] = {}
        self._seen: dict[int, int] = {}  # step to its place in the order of last lines
        self._attempt = 0
        self._limit = sys.maxsize + 1  # where a later attempt begins
        self._first = 0  # the step of the earliest line so far of the attempt
        self._base = sys.maxsize + 1  # likewise of lines that are no patches

    @property
    def gathered(self) -> int:
        """Number of rows found."""
        return len(self._found)

    @property
    def stuck(self) -> bool:
        """Whether all that is missing are earlier lines of the steps in `pending`."""
        return not self.done and not self._by_step and len(self._found) >= self._count

    def add(self, lines: Lines) -> None:
        """Take the block before those taken so far.

        Raises:
            Irregular: if the marks do not say what the steps do.
        """
        if self._skips(lines):
            self._base = self._first = lines.steps[0]
            return
        if lines.plain and not self.pending and lines.attempt == self._attempt and lines.steps[-1] < self._base:
            self._add_plain(lines)
            return
        for row in reversed(lines.rows):
            self._take(row)
            if self.done:
                break

    def _skips(self, lines: Lines) -> bool:
        """Whether the block, all of it, is of no interest."""
        if not lines.plain or lines.attempt != self._attempt or lines.steps[-1] >= self._base:
            return False
        if any(step >= lines.steps[0] for step in self.pending):
            return False
        return self.stuck or lines.steps[0] >= min(self._high, self._limit)

    def _add_plain(self, lines: Lines) -> None:
        """Do what `_take` does to each row of a plain block, while no earlier line can add to any."""
        view, found, limit = self._view, self._found, min(self._limit, self._high)
        for step, row in zip(reversed(lines.steps), reversed(lines.rows), strict=True):
            part = view(row) if self._low <= step < limit else None
            if part is not None:
                self._seen[step] = len(self._seen)
                found[step] = part
            if len(found) >= self._count or step <= self._low:
                self.done = True
                return
        self._base = self._first = lines.steps[0]

    def _take(self, row: Row) -> None:
        step, attempt = row["_step"], attempt_of(row)
        if attempt != self._attempt:
            self._cross(attempt)
        if step >= self._base:
            raise Irregular
        self._first = step
        wanted = step < self._limit and self._low <= step < self._high
        if wanted and (step in self.pending or not self.stuck):
            self._seen.setdefault(step, len(self._seen))
            self.pending.setdefault(step, []).append(row)
        if row.get("_patch") is True:
            return
        self._base = step
        self._settle(step)
        enough = len(self._found) >= self._count
        self.done = step <= self._low or (enough and (self._by_step or not self.pending))

    def _cross(self, attempt: int) -> None:
        """Go on to lines of an earlier attempt."""
        if self._attempt:
            if attempt > self._attempt:
                raise Irregular
            self._limit = min(self._limit, self._first)
            self._settle(self._limit)
        self._attempt = attempt
        self._base = sys.maxsize + 1

    def _settle(self, step: int) -> None:
        """No earlier line has *step* or a higher one."""
        for known in [other for other in self.pending if other >= step]:
            self.complete(known, ())

    def complete(self, step: int, earlier: Iterable[Row]) -> None:
        """Take the lines of a pending *step* that are still missing, the oldest first."""
        row = self._view(combine((*earlier, *reversed(self.pending.pop(step)))))
        if row is not None:
            self._found[step] = row
        if self.stuck and not self.pending:
            self.done = True

    def rows(self) -> list[Row]:
        """Return the rows in the order of their steps; to be asked once `done`, or at the beginning of the file."""
        for step in list(self.pending):
            self.complete(step, ())
        latest = sorted(self._found, reverse=True) if self._by_step else sorted(self._found, key=self._seen.__getitem__)
        return [self._found[step] for step in sorted(latest[: self._count])]


def read_all(source: Source) -> Assembly:
    """Return the assembly of everything in *source*."""
    assembly = Assembly()
    for lines in source.forwards():
        assembly.add(lines)
    return assembly
