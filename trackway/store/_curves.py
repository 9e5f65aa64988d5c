"""The rough course of metrics over a whole run, at the cost of some hundred lines of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trackway.store._assembly import read_all
from trackway.store._history import open_rows
from trackway.store._scan import Source, attempt_of, parse_row
from trackway.store._summary import leaves

__all__ = ["curves_of", "joined", "sampled"]

_WHOLE = 1 << 18  # bytes up to which all rows are read
_SAMPLES = 200
_MAX_LINE = 1 << 15

Curves = dict[str, list[tuple[int, float]]]


def sampled(path: Path | str) -> list[dict[str, Any]]:
    """Return rows of the file *path* in the order of their steps: all of a small one, else some 200 spread over it.

    Lines of steps that a later attempt wrote again are left out. Of a large file, lines of more than 32 KiB are too.

    Raises:
        OSError: if the file cannot be read.
    """
    with open_rows(path) as source:
        if source.size <= _WHOLE:
            return read_all(source).rows()
        rows: list[dict[str, Any]] = []
        attempt = 1
        for row in _spread(source):
            if attempt_of(row) > attempt:
                attempt = attempt_of(row)
                rows = [known for known in rows if known["_step"] < row["_step"]]
            rows.append(row)
    return sorted(rows, key=lambda row: row["_step"])


def _spread(source: Source) -> Iterator[dict[str, Any]]:
    seen = -1
    for number in range(_SAMPLES + 1):
        begin = number * source.size // _SAMPLES
        if number == _SAMPLES:
            begin = max(0, source.size - (_MAX_LINE >> 2))
        start, row = _line_after(source, begin)
        if row is not None and start > seen:
            seen = start
            yield row


def _line_after(source: Source, begin: int) -> tuple[int, dict[str, Any] | None]:
    """The offset and the row of the first line that begins behind the byte *begin*, or at it if that is the first."""
    length = 1 << 12
    while length <= _MAX_LINE:
        block = source.read(begin, begin + length)
        start = block.find(b"\n") + 1 if begin else 0
        end = block.find(b"\n", start)
        if end >= 0 and (start or not begin):
            return begin + start, parse_row(block[start:end])
        length *= 2
    return begin, None


def joined(sample: list[dict[str, Any]], latest: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a run that goes on: a *sample* of its file, and the *latest* ones, in which all are."""
    if not latest:
        return sample
    return [row for row in sample if row["_step"] < latest[0]["_step"]] + latest


def curves_of(rows: Iterable[dict[str, Any]]) -> Curves:
    """Return the finite numbers of *rows* by name, as pairs of step and value in the order of *rows*."""
    curves: Curves = {}
    for row in rows:
        for path, value in leaves(row):
            if path[0][:1] == "_" or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            number = float(value) if abs(value) < 1e300 else math.inf  # noqa: PLR2004 - what floats can hold, about
            if math.isfinite(number):
                curves.setdefault("/".join(path), []).append((row["_step"], number))
    return curves
