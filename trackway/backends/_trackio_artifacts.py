"""Files and folders as Trackio's artifacts."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackway.tracker import Ledger
from trackway.values._redact import redacted_name

__all__ = ["keep", "legal_name"]

_MAX = 128
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_VERSION = re.compile(r"v\d+")


def legal_name(name: str) -> str:
    """Return *name*, or where Trackio does not take it as a name what stands for it: two names stay two."""
    legal = _ILLEGAL.sub("-", name)
    if legal == name and 0 < len(name) <= _MAX and name.strip("."):
        return name
    mark = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{legal[: _MAX - 9]}-{mark}"


def keep(run: Any, path: Path, name: str, kind: str | None, ledger: Ledger) -> None:
    """Copy the file or folder *path* to where *run* keeps artifacts; it gets the run's name as an alias.

    Raises:
        FileNotFoundError: if there is no such file or folder, or no file in it.
        OSError: if a file cannot be read, or the server is away.
        RuntimeError: if the server refuses it.
    """
    if not path.exists():
        raise FileNotFoundError(f"no file or folder {str(path)!r}")
    legal = legal_name(name)
    if legal != name:
        ledger.convert(f"artifact {name!r}", f"a name that Trackio does not take: it is {legal}")
    files = list(_files(path, ledger)) if path.is_dir() else [(path, _inside(redacted_name(path.name)))]
    if not files:
        raise FileNotFoundError(f"no file in the folder {str(path)!r}")
    kind = kind or "unspecified"
    try:
        _log(run, legal, kind, files)
    except Exception as error:
        if "already exists with type" not in str(error):
            raise
        other = legal_name(f"{legal}-{kind}")
        ledger.convert(f"artifact {name!r}", f"Trackio has that name with another type: it is {other}")
        _log(run, other, kind, files)


def _log(run: Any, name: str, kind: str, files: list[tuple[Path, str]]) -> None:
    artifact = importlib.import_module("trackio").Artifact(name, kind)
    for file, inside in files:
        artifact.add_file(file, name=inside)
    alias = legal_name(run.name)
    run.log_artifact(artifact, aliases=None if _VERSION.fullmatch(alias) else [alias])


def _files(root: Path, ledger: Ledger) -> Iterator[tuple[Path, str]]:
    """Yield every file in a folder, links followed save for those to a folder around them, and its path inside."""
    around: dict[str, frozenset[str]] = {str(root): frozenset((os.path.realpath(root),))}
    for folder, folders, files in os.walk(root, followlinks=True):
        above = around.pop(folder)
        for name in sorted(folders):
            real = os.path.realpath(Path(folder, name))
            if real in above:
                folders.remove(name)
                ledger.drop(str(Path(folder, name)), "artifact: is a link to a folder around it")
            else:
                around[os.path.join(folder, name)] = above | {real}  # noqa: PTH118 - as os.walk does
        for name in sorted(files):
            file = Path(folder, name)
            if file.is_file():
                yield file, _inside(file.relative_to(root).as_posix())
            else:
                ledger.drop(str(file), "artifact: is neither a file nor a folder")


def _inside(path: str) -> str:
    """Return *path* as Trackio takes one inside of an artifact."""
    legal = path.replace("\\", "_").encode("utf-8", "backslashreplace").decode().replace("\\", "_")
    return legal.replace(":", "_") if re.match("[A-Za-z]:", legal) else legal
