"""Runs on disk, found by their path."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from trackway.store._layout import MANIFEST, is_url, metrics_name
from trackway.store._stored_run import StoredRun

__all__ = ["folder_of_runs", "read_run", "runs"]


def read_run(path: str | os.PathLike[str]) -> StoredRun:
    """Return the run in the directory *path*, or the one whose file of rows *path* is.

    A file of rows may also stand alone, say as a download: then the run has a history, and little else.

    Raises:
        FileNotFoundError: if there is nothing at *path*.
        OSError: if it is neither a directory nor a regular file.
    """
    if is_url(path):
        try:
            return StoredRun(path)
        except NotADirectoryError:
            raise FileNotFoundError(errno.ENOENT, "there is no such run", str(path)) from None
    place = Path(path)
    if place.is_dir():
        return StoredRun(place)
    if place.is_file():
        return StoredRun._of_rows(place)  # noqa: SLF001 - the other half of this module
    if place.exists():
        raise OSError(errno.EINVAL, "a run is a directory, or a file of rows, and this is neither", str(place))
    raise FileNotFoundError(errno.ENOENT, "there is no such run", str(place))


def folder_of_runs(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return *folder*, or where runs are kept by default: `TRACKWAY_DIR`, or "runs"."""
    return Path(folder if folder is not None else os.environ.get("TRACKWAY_DIR") or "runs")


def runs(dir: str | os.PathLike[str] | None = None) -> list[StoredRun]:  # noqa: A002 - the field's word
    """Return the runs in the folder *dir*, sorted by the names of their directories.

    A run is a directory right in it that has a `run.json` or rows; other files are passed over. Nothing of the runs is
    read before it is asked for.

    Args:
        dir: The folder of run directories; None takes `TRACKWAY_DIR`, or "runs".

    Raises:
        FileNotFoundError: if there is no such folder.
        OSError: if it cannot be read.
    """
    base = dir if dir is not None else os.environ.get("TRACKWAY_DIR", "").strip()
    if is_url(base):
        from trackway.store._remote_read import RemoteRun, run_urls

        return [StoredRun(url) for url in run_urls(str(base)) if RemoteRun(url).is_run()]
    folder = folder_of_runs(dir)
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and _is_run(entry.path))
    return [StoredRun(folder / name) for name in names]


def _is_run(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in (MANIFEST, metrics_name(0)))  # noqa: PTH118 - a thousand of them
