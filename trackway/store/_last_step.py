"""The last step of a run, found at the end of its file of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trackway.store._history import open_rows
from trackway.store._scan import Source, attempt_of, parse_row

__all__ = ["last_step"]

_SHORT = 1 << 12
_ENOUGH = 1 << 20  # bytes in which there is a row that was not added to an earlier one, in any run that is sound


def last_step(path: Path | str) -> int | None:
    """Return the highest step of the newest attempt in the file or at the URL *path*; None where there is no row.

    Only the end of the file is read, so it costs the same however long that is.

    Raises:
        OSError: if the file cannot be read.
    """
    best: int | None = None
    newest = 0
    with open_rows(path) as source:
        row = _last_row(source)
        if row is not None and row.get("_patch") is not True:
            step = row["_step"]
            assert isinstance(step, int)
            return step
        for offset, lines in source.backwards():
            for row in reversed(lines.rows):
                attempt = attempt_of(row)
                if attempt < newest:
                    return best
                if attempt > newest:
                    newest, best = attempt, None
                best = row["_step"] if best is None else max(best, row["_step"])
                if row.get("_patch") is not True:  # all before it in the attempt are lower
                    return best
            if source.size - offset > _ENOUGH:
                break
    return best


def _last_row(source: Source) -> dict[str, Any] | None:
    """The row of the last line, where that is whole and short; most runs are told by it alone."""
    lines = source.read(max(0, source.size - _SHORT), source.size).split(b"\n")
    return parse_row(lines[-2]) if len(lines) > 2 and not lines[-1] else None  # noqa: PLR2004 - nothing cut off before it
