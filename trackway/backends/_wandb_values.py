"""From logged values to what W&B keeps and shows."""

from __future__ import annotations

import html
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from trackway.tracker import Ledger
from trackway.values import Audio, Downgrade, Histogram, Html, Image, Row, Table, Text, flatten

__all__ = ["Values", "plain"]

_LARGEST = 2**63
_MAX_BINS = 512


@final
class Values:
    """Makes what `wandb.Run.log` takes of each row; counts in *ledger* what it has to convert or drop.

    Not thread-safe: its tracker holds a lock.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def of(self, row: Row) -> dict[str, Any]:
        """Return the values of *row* under flat names."""
        self._ledger.count_downgrades(row)
        values: dict[str, Any] = {}
        lost: list[Downgrade] = []
        for name, value in flatten(row, lost).items():
            try:
                values.update(self._made(name, value))
            except Exception as error:  # one bad picture must not cost its row
                self._ledger.drop(name, f"W&B could not take it: {type(error).__name__}: {error}".partition("\n")[0])
        for path, reason, _ in lost:
            self._ledger.drop(path, reason)
        return values

    def _made(self, name: str, value: Any) -> dict[str, Any]:
        if type(value) is int and not -_LARGEST <= value < _LARGEST:
            self._ledger.convert(name, "integers beyond 64 bits become floats")
            return {name: _as_float(value)}
        match value:
            case Histogram():
                return self._histogram(name, value)
            case Image() | Audio() | Table() | Text() | Html():
                return {name: self._media(name, value)}
            case list() | dict():
                return {name: plain(value)}
        return {name: value}

    def _histogram(self, name: str, value: Histogram) -> dict[str, Any]:
        import wandb

        counts, edges = np.asarray(value.counts), np.asarray(value.edges)
        made: dict[str, Any] = {}
        for mark in ("nan", "posinf", "neginf"):
            if number := getattr(value, mark):
                made[f"{name}/{mark}"] = number
                self._ledger.convert(name, f"histogram: counts of non-finite values are the metric <name>/{mark}")
        if len(counts) > _MAX_BINS:
            raise ValueError(f"W&B takes {_MAX_BINS} bins, got {len(counts)}")
        return {name: wandb.Histogram(np_histogram=(counts.tolist(), edges.tolist())), **made}

    def _media(self, name: str, value: Any) -> Any:
        import wandb

        match value:
            case Image():
                return wandb.Image(value.pixels, caption=value.caption)
            case Audio():
                return wandb.Audio(self._file(value.to_wav(), "wav"), caption=value.caption)
            case Table():
                data = [[plain(cell) for cell in line] for line in value.data]
                return wandb.Table(columns=list(value.columns), data=data, allow_mixed_types=True)
            case Html():
                return wandb.Html(value.html, inject=False, data_is_not_path=True)
        self._ledger.convert(name, "text is shown as a page, since W&B has no panel for texts", lossless=True)
        page = f'<pre style="white-space: pre-wrap">{html.escape(value.text)}</pre>'
        return wandb.Html(page, inject=False, data_is_not_path=True)

    def _file(self, data: bytes, suffix: str) -> str:
        """Return the path of a file with *data*: W&B makes sounds of samples by a library of their own only."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="trackway-wandb-", ignore_cleanup_errors=True)
        self._files += 1
        path = Path(self._folder.name, f"{self._files}.{suffix}")
        path.write_bytes(data)
        return str(path)

    def close(self) -> None:
        """Remove the files that were made."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def plain(value: Any) -> Any:
    """Return *value*, of a list, a summary or hyper-parameters, as JSON types."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Histogram | Image | Audio | Table | Text | Html):
        return plain(value.describe())
    return _as_float(value) if type(value) is int and not -_LARGEST <= value < _LARGEST else value


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
