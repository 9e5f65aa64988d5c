"""What the commands print: tables, JSON and messages, all of it harmless."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import click

from trackway.store._safe_text import safe, shown

__all__ = [
    "Messages",
    "date",
    "duration",
    "flat",
    "in_colour",
    "is_number",
    "named",
    "needed",
    "print_json",
    "say",
    "table",
    "to_json",
    "width",
]

_GAP = 2
_LEAST = 8
_DAY, _HOUR, _MINUTE = 86400, 3600, 60
_COLOURS = {"running": "cyan", "finished": "green", "failed": "red", "crashed": "red"}


@final
class Messages(logging.Handler):
    """Prints the library's warnings to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        if record.levelno >= logging.WARNING:
            say(f"warning: {record.getMessage()}", limit=1000)


def say(message: str, limit: int = 300) -> None:
    """Print a message of one line to standard error, harmless."""
    click.echo(f"trackway: {safe(message, limit)}", err=True)


def needed(library: str, what: str, extra: str = "cli") -> Any:
    """Import and return *library*.

    Raises:
        click.ClickException: if it cannot be imported; it says what *what* needs and how to install it.
    """
    import importlib

    try:
        return importlib.import_module(library)
    except ImportError as error:
        name = library.partition(".")[0]
        raise click.ClickException(
            f'{what} needs {name}, which cannot be imported ({error}); pip install "trackway[{extra}]"'
        ) from error


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Have errors speak of *path*, the file that is to be written, and not of a temporary one beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def width() -> int | None:
    """Return the columns of the terminal; None where the output goes elsewhere, and nothing has to be cut."""
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def in_colour() -> bool:
    """Whether the output may have colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


# --- values ---


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of *tree* by their names, joined by `/`."""
    from trackway.store._summary import leaves

    return {"/".join(path): value for path, value in leaves(tree)}


def is_number(value: Any) -> bool:
    """Whether *value* can be plotted."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def date(seconds: Any) -> str:
    """Return a time in seconds since 1970 as local date and time; an empty text for what is none."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return ""


def duration(begin: Any, end: Any) -> str:
    """Return the time between two moments as `2h 05m`; an empty text where one of them is no number."""
    if not all(isinstance(moment, int | float) and math.isfinite(moment) for moment in (begin, end)):
        return ""
    seconds = max(0, round(end - begin))
    if seconds >= _DAY:
        return f"{seconds // _DAY}d {seconds % _DAY // _HOUR:02d}h"
    if seconds >= _HOUR:
        return f"{seconds // _HOUR}h {seconds % _HOUR // _MINUTE:02d}m"
    return f"{seconds // _MINUTE}m {seconds % _MINUTE:02d}s" if seconds >= _MINUTE else f"{seconds}s"


def to_json(value: Any, indent: int | None = None) -> str:
    """Return *value* as JSON in ASCII; NaN and infinities are the texts `NaN`, `Infinity` and `-Infinity`."""
    try:
        return json.dumps(value, allow_nan=False, indent=indent)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 - NaN alone does so
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def print_json(value: Any) -> None:
    """Print *value* as JSON."""
    click.echo(to_json(value, indent=2))


# --- tables ---


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, keep: int = 1, hint: str = "--metrics") -> None:
    """Print *rows* below *headers*, in columns; numbers stand right, and `-` for None.

    In a terminal that is too narrow, columns from the *keep*-th on are left out, and *hint* says which option chooses.
    """
    body = [["-" if cell is None else shown(cell, 60) for cell in row] for row in rows]
    head = [safe(name, 60) for name in headers]
    right = [_is_number_column(body, at) for at in range(len(head))]
    widths = [max(map(_columns, column)) for column in zip(head, *body, strict=True)]
    fitting = _fitting(widths, width(), keep)
    for number, row in enumerate([head, *body]):
        line = (
            (" " * _GAP)
            .join(_padded(row[at], widths[at] - _columns(row[at]), right[at]) for at in range(fitting))
            .rstrip()
        )
        click.echo(click.style(line, bold=True) if number == 0 and in_colour() else _coloured(line, row))
    if fitting < len(head):
        say(f"{len(head) - fitting} more columns do not fit; choose with {hint}, or pipe the output")


def _columns(text: str) -> int:
    """How many columns of a terminal *text* takes."""
    if text.isascii():
        return len(text)
    try:
        from rich.cells import cell_len
    except ImportError:
        return len(text)
    return cell_len(text)


def _is_number_column(body: list[list[str]], at: int) -> bool:
    cells = [row[at] for row in body if row[at] not in {"-", ""}]
    return bool(cells) and all(map(_is_number, cells))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fitting(widths: list[int], room: int | None, keep: int) -> int:
    if room is None:
        return len(widths)
    used = 0
    for at, wide in enumerate(widths):
        used += wide + (_GAP if at else 0)
        if used > room and at >= max(keep, 1):
            return at
    return len(widths)


def _padded(text: str, missing: int, right: bool) -> str:
    return " " * missing + text if right else text + " " * missing


def _coloured(line: str, row: Sequence[str]) -> str:
    """Colour the word of a state, the first one of the *row*'s cells."""
    state = next((cell for cell in row if cell in _COLOURS), None)
    if state is None or not in_colour():
        return line
    return line.replace(state, click.style(state, fg=_COLOURS[state]), 1) if f" {state}" in f" {line}" else line
