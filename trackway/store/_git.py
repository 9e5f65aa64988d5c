"""The commit that is checked out, read from the files of git without starting it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["commit"]

_MAX_BYTES = 1 << 24
_HEX = frozenset("0123456789abcdef")


def commit(start: Path) -> str | None:
    """Return the commit of the working tree around *start*, or None where there is none or it cannot be told."""
    try:
        for folder in (start, *start.parents):
            if (folder / ".git").exists():
                return _head(_git_folder(folder / ".git"))
    except (OSError, ValueError):
        return None
    return None


def _git_folder(path: Path) -> Path:
    """The folder behind *path*, which in a linked working tree or submodule is a file that names it."""
    if path.is_dir():
        return path
    return path.parent / _text(path).removeprefix("gitdir:").strip()


def _head(folder: Path) -> str | None:
    head = _text(folder / "HEAD").strip()
    if not head.startswith("ref:"):
        return _checked(head)
    name = head.removeprefix("ref:").strip()
    shared = folder / "commondir"
    places = [folder, folder / _text(shared).strip()] if shared.exists() else [folder]
    for place in places:
        if (place / name).is_file():
            return _checked(_text(place / name).strip())
    return next((found for place in places if (found := _packed(place, name))), None)


def _packed(folder: Path, name: str) -> str | None:
    path = folder / "packed-refs"
    if not path.is_file():
        return None
    for line in _text(path).splitlines():
        value, _, ref = line.partition(" ")
        if ref == name:
            return _checked(value)
    return None


def _checked(value: str) -> str | None:
    return value if len(value) in {40, 64} and _HEX.issuperset(value) else None


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).decode("utf-8")
