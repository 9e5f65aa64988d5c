"""Images, audio, tables, texts and pages: a file each, and a reference in the row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, final

from trackway._locks import new_lock
from trackway.store._layout import MEDIA, safe_name
from trackway.tracker import Ledger
from trackway.values import Audio, Html, Image, Row, Table, Text

__all__ = ["MediaFolder"]

_MANY = 1_000_000
_SUMMARY = "summary-"
_HASH_DIGITS = 16

_FORMS: dict[type, tuple[str, Callable[[Any], bytes]]] = {
    Image: ("png", Image.to_png),
    Audio: ("wav", Audio.to_wav),
    Table: ("json", Table.to_json),
    Text: ("txt", lambda text: _utf8(text.text)),
    Html: ("html", lambda page: _utf8(page.html)),
}


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


@final
class MediaFolder:
    """The folder `media` of a run directory. Thread-safe: every file is made under a name that is free."""

    def __init__(self, directory: Path, rank: int, ledger: Ledger) -> None:
        """Write below *directory*; a value that could not be kept is counted in *ledger*."""
        self._directory = directory
        self._tag = f"rank{rank}-" if rank else ""
        self._ledger = ledger
        self._lock = new_lock()
        self._next: dict[Path, tuple[str, int]] = {}  # the newest beginning of a name in each folder, and its number
        self._of_summary: set[str] = set()

    def store(self, row: Row, step: int | None) -> Row:
        """Return *row* with a reference in the place of every media value, whose data is then in a file.

        Args:
            row: A row that may hold media anywhere.
            step: What the files' names begin with; None for values of the summary, whose files have a hash in their
                names and are removed by `keep_only`.
        """
        return row.derive({key: self._value(value, key, step) for key, value in row.items()})

    def _value(self, value: Any, path: str, step: int | None) -> Any:
        if type(value) in _FORMS:
            return self._reference(value, path, step)
        if isinstance(value, dict):
            return {key: self._value(item, f"{path}/{key}", step) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item, path, step) for item in value]
        return value

    def _reference(self, value: Any, path: str, step: int | None) -> dict[str, Any]:
        entry: dict[str, Any] = {"_type": type(value).__name__.lower(), "path": None}
        try:
            described = {key: item for key, item in value.describe().items() if key not in {"_type", "text"}}
            suffix, data_of = _FORMS[type(value)]
            data = data_of(value)
            entry |= {"sha256": hashlib.sha256(data).hexdigest()} | described
            entry["path"] = self._write(data, self._directory / MEDIA / safe_name(path), step, suffix)
        except Exception as error:  # one bad picture must cost neither its row nor the training
            self._failed(path, error)
        return entry

    def _write(self, data: bytes, folder: Path, step: int | None, suffix: str) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        if step is None:
            return self._write_once(data, folder, suffix).relative_to(self._directory).as_posix()
        stem = f"{step}-{self._tag}"
        for _ in range(_MANY):
            path = folder / f"{stem}{self._number(folder, stem)}.{suffix}"
            try:
                with path.open("xb") as file:
                    _write_or_remove(file, data, path)
            except FileExistsError:
                continue
            return path.relative_to(self._directory).as_posix()
        raise FileExistsError(f"{folder} has no free name left for {stem}*.{suffix}")

    def _write_once(self, data: bytes, folder: Path, suffix: str) -> Path:
        path = folder / f"{_SUMMARY}{hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]}.{suffix}"
        if not path.exists() or path.read_bytes() != data:
            with path.open("wb") as file:
                _write_or_remove(file, data, path)
        return path

    def _number(self, folder: Path, stem: str) -> int:
        with self._lock:
            newest, number = self._next.get(folder, ("", 0))
            number = number if newest == stem else 0
            self._next[folder] = (stem, number + 1)
        return number

    def keep_only(self, summary: Any) -> None:
        """Remove the files of the summary that was given here before and to which *summary* refers no more."""
        kept = set(_places(summary))
        with self._lock:
            gone, self._of_summary = self._of_summary - kept, kept
        for place in gone:
            try:
                (self._directory / place).unlink(missing_ok=True)
            except OSError as error:
                self._failed(place, error)

    def _failed(self, path: str, error: Exception) -> None:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        self._ledger.drop(path, f"its file could not be written: {reason}")


def _places(value: Any) -> Iterator[str]:
    """Paths of the files that were made for a summary, of all that *value* refers to."""
    if isinstance(value, list):
        for item in value:
            yield from _places(item)
    elif isinstance(value, dict):
        if "_type" in value and isinstance(value.get("path"), str) and _is_of_summary(value["path"]):
            yield value["path"]
        for item in value.values():
            yield from _places(item)


def _is_of_summary(path: str) -> bool:
    """Whether *path*, which anyone may have written, is that of a file which `MediaFolder` makes for a summary."""
    parts = PurePosixPath(path).parts
    match parts:
        case (folder, metric, name):
            return folder == MEDIA and not metric.startswith(".") and name.startswith(_SUMMARY) and "\0" not in path
    return False


def _write_or_remove(file: Any, data: bytes, path: Path) -> None:
    """Half a picture is worse than none."""
    try:
        file.write(data)
        file.flush()
    except OSError:
        path.unlink()
        raise
