"""Printing committed rows, a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from trackway.run._rows import Committed
from trackway.tracker import Ledger
from trackway.values import Histogram, flatten

__all__ = ["Printer", "line_of"]

_MAX_TEXT = 80


def line_of(row: Committed) -> str:
    """Return *row* as one line, such as `step 100: train/loss=0.31 lr=0.0003`."""
    shown = " ".join(f"{name}={_shown(value)}" for name, value in flatten(row.values).items())
    return f"step {row.step}: {_on_one_line(shown)}"


def _shown(value: Any) -> str:
    if type(value) is float:
        return f"{value:.6g}"
    if isinstance(value, Histogram):
        return f"<histogram of {value.num}>"
    if not isinstance(value, str | int | float | list | dict | type(None)):
        return f"<{type(value).__name__.lower()}>"
    text = str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def _on_one_line(text: str) -> str:
    """Metric names and texts may come from anywhere; a terminal must not obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


@final
class Printer:
    """Hands the line of each row to *write*; what that raises is counted, said once, and keeps nothing from anyone."""

    def __init__(self, write: Callable[[str], Any], ledger: Ledger) -> None:
        self._write = write
        self._ledger = ledger

    def __call__(self, row: Committed) -> None:
        try:
            self._write(line_of(row))
        except Exception as error:
            self._ledger.fail("print", error, "; training goes on")
