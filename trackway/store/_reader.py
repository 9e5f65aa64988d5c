"""Reading rows back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trackway import _notices
from trackway.store._layout import is_url, metrics_name
from trackway.store._reopen import parse

__all__ = ["read_rows"]


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return all rows of a run in the order in which they were logged.

    A last line without its newline is a row still being written, or torn, and is left out without a word unless it
    is complete. Damaged lines further up are left out too; how many there are is said on the `trackway` logger.

    Args:
        path: A run directory, or one file of rows such as `metrics.jsonl`; also the fsspec URL of one.

    Returns:
        One dict per line, with its step under `_step` and the Unix time in seconds under `_time`.

    Raises:
        FileNotFoundError: if there is no such file.
        ConfigError: if there is no file system for the URL, or its package is not installed.
    """
    file, data = _content(path)
    *lines, tail = data.split(b"\n")
    rows = [parse(line) for line in lines]
    damaged = rows.count(None)
    if damaged:
        _notices.logger.warning("%s: %d damaged lines were skipped", ascii(file), damaged)
    rows.append(parse(tail) if tail else None)
    return [row for row in rows if row is not None]


def _content(path: str | os.PathLike[str]) -> tuple[str, bytes]:
    """The name and the content of the file of rows."""
    if is_url(path):
        from trackway.store._remote_read import source_of

        source = source_of(str(path))
        return source.shown, source.read(0, source.size)
    file = Path(path)
    if file.is_dir():
        file /= metrics_name(0)
    return str(file), file.read_bytes()
