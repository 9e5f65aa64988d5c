"""Rows of a file, read again for trackers: in the order in which they were committed, and where each stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from trackway.store._assembly import combine
from trackway.store._revive import ReadFile, revive
from trackway.store._scan import Source, attempt_of, parse_row
from trackway.tracker import Call
from trackway.tracker._backlog import Place

__all__ = [
    "Keep",
    "Stored",
    "attempts_in",
    "call_of",
    "is_superseded",
    "lines_of",
    "rows_missing",
    "rows_of",
    "steps_together",
]

Keep: TypeAlias = Callable[[Call], Call | None]
"""Returns a row as one tracker is to see it; None where it is not to see it at all."""

Stored: TypeAlias = tuple[Place, int, dict[str, Any]]
"""Where a row stands, where it ends, and the row, with its reserved keys."""


def lines_of(source: Source, offset: int = 0, *, last: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield each whole line from *offset* on, and where it ends; *offset* may lie in the midst of one.

    With *last* also what stands behind the last newline, which may be a row that nobody will complete any more.
    """
    begin = max(0, offset - 1)
    in_midst = offset > 0
    for block in source.blocks(begin=begin):
        lines = block.split(b"\n")
        rest = lines.pop()
        for line in lines:
            begin += len(line) + 1
            if in_midst:
                in_midst = False
            else:
                yield begin, line
        if rest and last and not in_midst:
            yield begin + len(rest), rest


def rows_of(source: Source, offset: int = 0, *, last: bool = False) -> Iterator[Stored]:
    """Yield all rows from *offset* on; lines that hold none are passed over."""
    for end, line in lines_of(source, offset, last=last):
        row = parse_row(line)
        if row is not None:
            yield Place(offset, row["_step"], _time_of(row), attempt_of(row)), end, row
        offset = end


def _time_of(row: dict[str, Any]) -> float:
    time = row.get("_time")
    return time if type(time) is float else 0.0  # as every writer of ours has it


def steps_together(rows: Iterator[Stored]) -> Iterator[Stored]:
    """Yield *rows*, of which those that follow one another and are of one step and attempt become one row."""
    held: Stored | None = None
    for stored in rows:
        if held is None:
            held = stored
        elif stored[0].step == held[0].step and stored[0].attempt == held[0].attempt:
            held = held[0], stored[1], combine((held[2], stored[2]))
        else:
            yield held
            held = stored
    if held is not None:
        yield held


def attempts_in(source: Source) -> dict[int, int]:
    """Return the first step of each attempt after the first one."""
    begun: dict[int, int] = {}
    for _, line in lines_of(source):
        if b'"_attempt"' in line and (row := parse_row(line)) is not None and attempt_of(row) > 1:
            begun.setdefault(attempt_of(row), row["_step"])
    return begun


def rows_missing(source: Source, start: int, begun: dict[int, int], below: int | None = None) -> Iterator[Stored]:
    """Yield the rows of step *start* and above, those left out that a later attempt has taken the place of.

    Args:
        source: The file of rows.
        start: The first step.
        begun: What `attempts_in` says of the file.
        below: The step at which rows are about to be superseded; None for no such step.
    """
    for stored in rows_of(source):
        step = stored[0].step
        if step < start or (below is not None and step >= below):
            continue
        if not is_superseded(stored[0], begun):
            yield stored


def is_superseded(place: Place, begun: dict[int, int]) -> bool:
    """Whether one of the attempts in *begun*, see `attempts_in`, has taken the place of the row at *place*."""
    return any(later > place.attempt and place.step >= first for later, first in begun.items())


def call_of(row: dict[str, Any], place: Place, read: ReadFile, keep: Keep) -> Call | None:
    """Return the call that hands *row* to a tracker, as *keep* has it see the row."""
    call = Call.of_row(revive(row, read), place.step, commit=True)
    call.origin = place
    return keep(call)
