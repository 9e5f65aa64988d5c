"""Copies of the files and folders that belong to a run."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, final

from trackway._locks import new_lock
from trackway.store._layout import ARTIFACTS, safe_name

__all__ = ["ArtifactFolder"]

_BLOCK = 1 << 20
_MAX_DEPTH = 200
_PARTIAL = re.compile(r"\.partial-\d+-\d+")

_Place: TypeAlias = tuple[int, int]  # device and inode, which are the same by whatever path a folder is reached


@final
class ArtifactFolder:
    """The folder `artifacts` of a run directory. Thread-safe; nothing in it is ever overwritten."""

    def __init__(self, directory: Path, skipped: Callable[[str, str], None]) -> None:
        """Copy into *directory*; *skipped* is told the path and the reason of what is left out of a folder."""
        self._run = directory
        self._folder = directory / ARTIFACTS
        self._skipped = skipped
        self._numbers = itertools.count()
        self._versions: dict[str, int] = {}
        self._naming = new_lock()

    def clear(self) -> None:
        """Remove half-made copies that a killed process left; to be called while nobody else writes to the run."""
        for path in self._folder.glob(".partial-*"):
            if _PARTIAL.fullmatch(path.name):
                _remove(path)

    def add(
        self, source: Path, name: str, kind: str | None, latest: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Copy *source* and return what the manifest says about it, or None where it is the same as *latest*.

        Args:
            source: A file or folder; links are followed. The run directory and its artifacts are left out of a
                folder that holds them.
            name: The artifact's name. Where it is taken, the copy is `<name>.v2`, `<name>.v3`, ...
            kind: The artifact's type.
            latest: What the manifest says about the last file of that name; an equal one is not kept twice.

        Raises:
            OSError: if it cannot be read or written, or is the run directory or its artifacts itself; nothing is left
                behind then.
        """
        mode = source.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(f"{source} is neither a file nor a folder")
        self._folder.mkdir(parents=True, exist_ok=True)
        own = (_place(self._run), _place(self._folder))
        if _place(source) in own:
            raise OSError(f"{source} is where the run is kept; a copy of it would hold itself")
        partial = self._folder / f".partial-{os.getpid()}-{next(self._numbers)}"
        try:
            if stat.S_ISDIR(mode):
                found = _FolderCopy(own, self._skipped).copy(source, partial, (_place(source),))
            else:
                found = _copy_file(source, partial)
                if latest is not None and latest.get("sha256") == found["sha256"]:
                    _remove(partial)
                    return None
            target, version = self._put(partial, safe_name(name))
        except BaseException:
            _remove(partial)
            raise
        entry = {"name": name, "type": kind, "path": f"{ARTIFACTS}/{target.name}", "version": version}
        return entry | found

    def _put(self, partial: Path, name: str) -> tuple[Path, int]:
        with self._naming:
            for version in itertools.count(self._versions.get(name, 0) + 1):
                target = self._folder / (name if version == 1 else f"{name}.v{version}")
                if not os.path.lexists(target):
                    partial.rename(target)
                    self._versions[name] = version
                    return target, version
        raise AssertionError("unreachable")


@final
class _FolderCopy:
    """One copy of a folder, without the folders *own* in which it comes to lie."""

    def __init__(self, own: tuple[_Place, ...], skipped: Callable[[str, str], None]) -> None:
        self._own = own
        self._skipped = skipped

    def copy(self, source: Path, target: Path, above: tuple[_Place, ...]) -> dict[str, Any]:
        """Copy what can be copied; one unreadable file must not cost the others."""
        target.mkdir()
        size = files = 0
        with os.scandir(source) as entries:
            for entry in entries:
                try:
                    found = self._copy_entry(entry, target / entry.name, above)
                except OSError as error:
                    self._skipped(entry.path, f"cannot be copied: {error.strerror or error}")
                    continue
                size += found.get("size", 0)
                files += found.get("files", 1 if found else 0)
        return {"size": size, "files": files}

    def _copy_entry(self, entry: os.DirEntry[str], target: Path, above: tuple[_Place, ...]) -> dict[str, Any]:
        reason: str | None
        if _PARTIAL.fullmatch(entry.name):
            reason = "is a copy that is being made"
        elif entry.is_dir():
            place = _place(Path(entry.path))
            reason = self._reason_against(place, above)
            if reason is None:
                return self.copy(Path(entry.path), target, (*above, place))
        elif entry.is_file():
            return _copy_file(Path(entry.path), target)
        else:
            reason = "is neither a file nor a folder"
        self._skipped(entry.path, reason)
        return {}

    def _reason_against(self, place: _Place, above: tuple[_Place, ...]) -> str | None:
        if place in self._own:
            return "is the run itself"
        if place in above:
            return "is a link to a folder around it"
        return "lies too deep" if len(above) >= _MAX_DEPTH else None


def _place(path: Path) -> _Place:
    status = path.stat()
    return status.st_dev, status.st_ino


def _copy_file(source: Path, target: Path) -> dict[str, Any]:
    with source.open("rb") as reading, target.open("xb") as writing:
        size, digest = _copy_bytes(reading, writing)
    with contextlib.suppress(OSError):
        shutil.copymode(source, target)
    return {"size": size, "sha256": digest}


def _copy_bytes(reading: BinaryIO, writing: BinaryIO) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while block := reading.read(_BLOCK):
        writing.write(block)
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
