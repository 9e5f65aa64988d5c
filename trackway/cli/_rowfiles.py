"""Rows as text and as files: JSON, CSV, Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from trackway.cli._output import flat, needed, to_json
from trackway.store._safe_text import safe

__all__ = ["columns_of", "write_csv", "write_json", "write_lines", "write_parquet"]

_META = ("_step", "_time", "_attempt", "_rank")


def columns_of(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names that any of the flat *rows* has: trackway's own first, the others in order of appearance."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [*(name for name in _META if name in names), *(name for name in names if name not in _META)]


def write_csv(rows: list[dict[str, Any]], file: IO[str], *, harmless: bool = False) -> None:
    """Write *rows*, nested, as CSV with one column per name; what is no number or text is JSON.

    Args:
        rows: The rows.
        file: Where to.
        harmless: Whether control characters become escapes, for a terminal.
    """
    lines = [flat(row) for row in rows]
    names = columns_of(lines)
    writer = csv.writer(file, lineterminator="\n")
    clean = _harmless if harmless else _as_is
    writer.writerow(map(clean, names))
    writer.writerows([clean(_cell(line.get(name))) for name in names] for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return to_json(value).strip('"')  # NaN and infinities are texts there


def _as_is(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _harmless(text: str) -> str:
    return safe(text, len(text))


def write_json(rows: list[dict[str, Any]], file: IO[str]) -> None:
    """Write *rows* as one JSON array, a row on each line."""
    file.write("[" + ",\n".join(map(to_json, rows)) + "]\n")


def write_lines(rows: list[dict[str, Any]], file: IO[str]) -> None:
    """Write *rows* as JSON, one object on each line."""
    file.writelines(to_json(row) + "\n" for row in rows)


def write_parquet(table: Any, path: Path) -> None:
    """Write an Arrow table as a Parquet file."""
    needed("pyarrow.parquet", "parquet", "frames").write_table(table, path)
