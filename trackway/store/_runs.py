"""Runs on disk, found by their path."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from trackway.store._layout import MANIFEST, is_url, metrics_name
from trackway.store._stored_run import StoredRun

__all__ = ["folder_of_runs", "holds_run", "read_run", "runs"]

_AT_ONCE = 16  # requests to an object store


def read_run(path: str | os.PathLike[str]) -> StoredRun:
    """Return the run in the directory *path*, or the one whose file of rows *path* is.

    A file of rows may also stand alone, say as a download: then the run has a history, and little else. *path* may also
    be the URL of a run on an object store, or of the file of rows in one.

    Raises:
        FileNotFoundError: if there is nothing at *path*.
        OSError: if it is neither a directory nor a regular file, or a store cannot be asked.
        ConfigError: if there is no file system for the URL, or its package is not installed.
    """
    if is_url(path):
        return _remote_run(str(path))
    place = Path(path)
    if place.is_dir():
        return StoredRun(place)
    if place.is_file():
        return StoredRun._of_rows(place)  # noqa: SLF001 - the other half of this module
    if place.exists():
        raise OSError(errno.EINVAL, "a run is a directory, or a file of rows, and this is neither", str(place))
    raise FileNotFoundError(errno.ENOENT, "there is no such run", str(place))


def _remote_run(url: str) -> StoredRun:
    folder, _, name = url.rstrip("/").rpartition("/")
    is_file = name.endswith(".jsonl")
    try:
        run = StoredRun(folder if is_file else url)
    except NotADirectoryError:
        raise FileNotFoundError(errno.ENOENT, "there is no such run", url) from None
    if is_file:
        run._rows = url.rstrip("/")  # noqa: SLF001 - the other half of this module
    return run


def folder_of_runs(folder: str | os.PathLike[str] | None = None) -> Path | str:
    """Return *folder*, or where runs are kept by default: `TRACKWAY_DIR`, or "runs"; a URL as text."""
    given = folder if folder is not None else os.environ.get("TRACKWAY_DIR", "").strip() or "runs"
    return str(given).rstrip("/") if is_url(given) else Path(given)


def runs(dir: str | os.PathLike[str] | None = None) -> list[StoredRun]:  # noqa: A002 - the field's word
    """Return the runs in the folder *dir*, sorted by the names of their directories.

    A run is a directory right in it that has a `run.json` or rows; other files are passed over. Nothing of the runs is
    read before it is asked for.

    Args:
        dir: The folder of run directories, or its URL; None takes `TRACKWAY_DIR`, or "runs".

    Raises:
        FileNotFoundError: if there is no such folder. On an object store that cannot be told from one without runs.
        OSError: if it cannot be read.
        ConfigError: if there is no file system for the URL, or its package is not installed.
    """
    folder = folder_of_runs(dir)
    if isinstance(folder, str):
        return _remote_runs(folder)
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and holds_run(entry.path))
    return [StoredRun(folder / name) for name in names]


def _remote_runs(folder: str) -> list[StoredRun]:
    """Return the runs below a URL; many are asked at the same time, for each takes a while to answer."""
    from concurrent.futures import ThreadPoolExecutor

    from trackway.store._remote_read import run_urls

    with ThreadPoolExecutor(_AT_ONCE, "trackway-runs") as pool:
        return [run for run in pool.map(_run_or_none, run_urls(folder)) if run is not None]


def _run_or_none(url: str) -> StoredRun | None:
    try:
        return StoredRun(url)
    except NotADirectoryError:
        return None


def holds_run(path: str) -> bool:
    """Whether there is a run in the directory *path*: a `run.json`, or rows."""
    return any(os.path.lexists(os.path.join(path, name)) for name in (MANIFEST, metrics_name(0)))  # noqa: PTH118 - a thousand of them
