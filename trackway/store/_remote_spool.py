"""The directory of this machine in which a run lies until it is on the object store."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackway import _notices
from trackway.store._layout import (
    ARTIFACTS,
    CONFIG,
    DELIVERY,
    EVENTS,
    MANIFEST,
    MEDIA,
    METRICS,
    SPANS,
    SUMMARY,
    lines_name,
    metrics_name,
    safe_name,
    torn_lines_name,
)
from trackway.store._remote import Remote
from trackway.store._segments import Segment, segments_in
from trackway.values import decode

__all__ = ["ORIGIN", "fill", "has_rows", "is_used", "remove", "spool_of"]

ORIGIN = ".origin"
"""The file of a spool that says where its run belongs."""
_MINE = 0o700
_RECORD = re.compile(rf"({METRICS}|{EVENTS}|{SPANS})\.torn|({MANIFEST}|{SUMMARY}|{CONFIG})(\.damaged-[0-9]+)?")


def spool_of(url: str, rank: int) -> Path:
    """Return where the run of *url* is kept until it is brought there: the same place in every process of this user.

    It lies below the directory for temporary files, which `TMPDIR` chooses.
    """
    url = url.rstrip("/")
    digest = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    suffix = f"-rank{rank}" if rank else ""
    return _home() / f"{safe_name(url.rpartition('/')[2])}-{digest}{suffix}"


def _home() -> Path:
    """The folder of spools, which must be this user's alone: in a folder for all anybody may have made it."""
    folder = Path(tempfile.gettempdir()).absolute() / f"trackway-{os.getuid()}"
    folder.mkdir(mode=_MINE, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid == os.getuid() and not folder.is_symlink() and not status.st_mode & 0o077:
        return folder
    raise OSError(f"{folder} is open to others, or theirs; remove it, or set TMPDIR to a folder of your own")


def is_used(spool: Path, rank: int) -> bool:
    """Whether a process of this machine writes to *spool*."""
    try:
        with (spool / metrics_name(rank)).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, or no locks: the claim tells
        return False
    return False


def has_rows(spool: Path, rank: int) -> bool:
    """Whether an earlier process left rows in *spool*."""
    file = spool / metrics_name(rank)
    return file.is_file() and file.stat().st_size > 0


def fill(remote: Remote, listing: Mapping[str, int], spool: Path, rank: int) -> dict[str, int]:
    """Have the run in *spool* as it is on the store, or further on where an earlier process left it there.

    Media and artifacts are not fetched: empty files take their names, so that no other file gets one of them.

    Args:
        remote: The run.
        listing: What it consists of.
        spool: The directory; made where it is missing.
        rank: The process's rank.

    Returns:
        How many bytes of the file of each kind of lines the store has.

    Raises:
        OSError: if something cannot be fetched or written.
    """
    if spool.exists() and not _goes_on(remote, listing, spool, rank):
        _set_aside(spool, remote)
    spool.mkdir(mode=_MINE, parents=True, exist_ok=True)
    (spool / ORIGIN).write_text(remote.url + "\n")
    for name in sorted(listing):
        path = spool / name
        if not _is_wanted(name, rank) or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name.startswith((f"{MEDIA}/", f"{ARTIFACTS}/")) else remote.get(name))
    brought = {}
    for kind in (METRICS, EVENTS, SPANS):
        segments = segments_in(listing, rank, kind)
        path = spool / lines_name(kind, rank)
        if kind != METRICS and segments and path.is_file() and not _begins_with(path, remote, segments):
            path.replace(
                _free(path)
            )  # the rest was lost with the machine's power, for it is not waited for at each row
        if segments and not (path.is_file() and path.stat().st_size > 0):
            _fetch_lines(remote, [segment.name for segment in segments], path)
        brought[kind] = sum(segment.size for segment in segments)
    return brought


def _is_wanted(name: str, rank: int) -> bool:
    """Whether an object, which is no segment, is one that the process needs."""
    folder, _, rest = name.partition("/")
    if folder in {MEDIA, ARTIFACTS} and rest:
        return True
    if rank:
        return name in _torn_names(rank) or (folder == DELIVERY and name.endswith(f".rank{rank}.json"))
    return folder == DELIVERY if rest else _RECORD.fullmatch(name) is not None


def _torn_names(rank: int) -> set[str]:
    return {torn_lines_name(kind, rank) for kind in (METRICS, EVENTS, SPANS)}


def _fetch_lines(remote: Remote, names: list[str], path: Path) -> None:
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as file:
        data = b"\n"
        for name in names:
            data = remote.get(name)
            file.write(data)
        if not data.endswith(b"\n"):  # of someone else: the next segment then begins with the newline
            file.write(b"\n")
    temporary.replace(path)


def _goes_on(remote: Remote, listing: Mapping[str, int], spool: Path, rank: int) -> bool:
    """Whether *spool* holds all that the store has, and perhaps more."""
    if MANIFEST in listing and not rank and _attempts(_bytes_of(spool)) < _attempts(remote.get(MANIFEST)):
        return False
    segments = segments_in(listing, rank)
    try:
        return _begins_with(spool / metrics_name(rank), remote, segments)
    except FileNotFoundError:
        return not segments


def _begins_with(path: Path, remote: Remote, segments: list[Segment]) -> bool:
    """Whether the file at *path* begins with what *segments* hold."""
    with path.open("rb") as file:
        return all(file.read(segment.size) == remote.get(segment.name) for segment in segments)


def _free(path: Path) -> Path:
    """Return a hidden name beside *path* that is not taken."""
    names = (path.with_name(f".{path.name}.left-{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _bytes_of(spool: Path) -> bytes:
    path = spool / MANIFEST
    return path.read_bytes() if path.is_file() else b""


def _attempts(data: bytes) -> int:
    try:
        content: Any = decode(data)
        return len(content["attempts"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return 0


def _set_aside(spool: Path, remote: Remote) -> None:
    target = next(
        path
        for path in (spool.with_name(f"{spool.name}.left-{number}") for number in itertools.count(1))
        if not path.exists()
    )
    spool.rename(target)
    _notices.logger.warning(
        "local: an earlier process left a part of the run in %s here, and the run went on without it; it is kept in %s",
        remote.url,
        target,
    )


def remove(spool: Path) -> None:
    """Remove *spool*, all of which is on the store."""
    shutil.rmtree(spool, ignore_errors=True)
