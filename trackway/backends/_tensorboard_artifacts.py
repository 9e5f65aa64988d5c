"""Artifacts copied beside the event file."""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from trackway._locks import new_lock
from trackway.backends._tensorboard_files import place_of
from trackway.store._artifacts import ArtifactFolder
from trackway.store._layout import ARTIFACTS, safe_name
from trackway.values._redact import redacted_name

__all__ = ["Artifacts"]


@final
class Artifacts:
    """The folder `artifacts` in *logdir*, a local folder or URL. A name given again is kept as `name.v2`, and so on.

    Thread-safe. *skipped* is told the path and the reason of what is left out of a folder.
    """

    def __init__(self, logdir: str, skipped: Callable[[str, str], None]) -> None:
        fs, root = place_of(logdir)
        self._folder = ArtifactFolder(Path(root), skipped) if fs is None else _Objects(fs, root, skipped)

    def keep(self, source: str, name: str | None) -> None:
        """Copy the file, folder or object *source*.

        Raises:
            FileNotFoundError: if there is none.
            OSError: if it cannot be copied.
            Exception: what else the file system of a URL raises.
        """
        fs, path = place_of(source)
        if not source or (fs is None and not os.path.exists(path)):  # noqa: PTH110 - a path in text
            raise FileNotFoundError(f"no file or folder {source!r}")
        name = redacted_name(name or os.path.basename(path.rstrip("/")))  # noqa: PTH119
        if fs is None:
            self._folder.add(Path(path), name, None)
            return
        with tempfile.TemporaryDirectory() as folder:
            local = f"{folder}/artifact"
            fs.get(path, local, recursive=fs.isdir(path))
            self._folder.add(Path(local), name, None)


@final
class _Objects:
    """The same behind an fsspec URL."""

    def __init__(self, fs: Any, root: str, skipped: Callable[[str, str], None]) -> None:
        self._fs = fs
        self._root = f"{root.rstrip('/')}/{ARTIFACTS}"
        self._skipped = skipped
        self._taken: set[str] = set()
        self._versions: dict[str, int] = {}
        self._naming = new_lock()

    def add(self, source: Path, name: str, kind: str | None) -> None:  # noqa: ARG002 - as ArtifactFolder's
        """Upload *source*; links are followed."""
        mode = source.stat().st_mode
        if stat.S_ISDIR(mode):
            self._upload_folder(source, self._free(safe_name(name)), (source.resolve(),))
        elif stat.S_ISREG(mode):
            self._fs.put_file(str(source), self._free(safe_name(name)))
        else:
            raise OSError(f"{source} is neither a file nor a folder")

    def _free(self, name: str) -> str:
        with self._naming:
            for version in itertools.count(self._versions.get(name, 0) + 1):
                target = f"{self._root}/{name}" if version == 1 else f"{self._root}/{name}.v{version}"
                if target not in self._taken and not self._fs.exists(target):
                    self._taken.add(target)
                    self._versions[name] = version
                    return target
        raise AssertionError("unreachable")

    def _upload_folder(self, source: Path, target: str, above: tuple[Path, ...]) -> None:
        with os.scandir(source) as entries:
            for entry in entries:
                try:
                    self._upload_entry(entry, f"{target}/{entry.name}", above)
                except (PermissionError, FileNotFoundError, UnicodeError) as error:  # one file costs no other
                    self._skipped(entry.path, f"cannot be copied: {error}")

    def _upload_entry(self, entry: os.DirEntry[str], target: str, above: tuple[Path, ...]) -> None:
        real = Path(entry.path).resolve()
        if real in above:
            self._skipped(entry.path, "is a link to a folder around it")
        elif entry.is_dir():
            self._upload_folder(Path(entry.path), target, (*above, real))
        elif entry.is_file():
            self._fs.put_file(entry.path, target)
        else:
            self._skipped(entry.path, "is neither a file nor a folder")
