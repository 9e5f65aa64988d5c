"""From logged values to the JSON that Trackio keeps and shows."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from trackway.tracker import Ledger
from trackway.values import Audio, Downgrade, Histogram, Html, Image, Row, Table, Text, encode, flatten

__all__ = ["Values", "identity", "legal_text", "plain"]

_RESERVED = frozenset({"project", "run", "timestamp", "step", "time", "metrics"})
_LARGEST = 2**63
_TYPE = "_type"


@final
class Values:
    """Makes of each row what Trackio keeps; counts in *ledger* what it has to convert or drop. Thread-safe.

    Args:
        ledger: Where to count.
        folder: Returns the folder for the media files of a step, and what its paths are relative to.
    """

    def __init__(self, ledger: Ledger, folder: Callable[[int], tuple[Path, Path]]) -> None:
        self._ledger = ledger
        self._folder = folder

    def of(self, row: Row, step: int) -> tuple[dict[str, Any], tuple[Path, ...]]:
        """Return the values of *row* under flat names, as JSON, and the files that belong to them."""
        self._ledger.count_downgrades(row)
        values: dict[str, Any] = {}
        files: list[Path] = []
        lost: list[Downgrade] = []
        for name, value in flatten(row, lost).items():
            try:
                values |= dict(self._made(self._name(name), value, step, files))
            except Exception as error:  # one bad picture must not cost its row
                self._ledger.drop(name, f"Trackio could not take it: {type(error).__name__}: {error}")
        for path, reason, _ in lost:
            self._ledger.drop(path, reason)
        return values, tuple(files)

    def settings(self, payload: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """Return hyper-parameters or summary values under flat names, as JSON."""
        made: dict[str, Any] = {}
        for name, value in flatten(payload).items():
            legal = legal_text(f"{prefix}{name}") or "unnamed"
            if legal.startswith("_"):  # Trackio's own, and hidden
                legal = f"config/{legal}"
                self._ledger.convert(name, "hyper-parameters that begin with `_` get `config/` before it")
            made[legal] = plain(value)
        return made

    def _name(self, name: str) -> str:
        legal = legal_text(name) or "unnamed"
        if legal in _RESERVED or legal.startswith("__"):
            legal = f"__{legal}"  # as Trackio itself does
            self._ledger.convert(name, f"a name that Trackio keeps for itself: it is {legal}")
        elif legal != name:
            self._ledger.convert(legal, "a name that is no text for Trackio: it is changed")
        return legal

    def _made(self, name: str, value: Any, step: int, files: list[Path]) -> Iterator[tuple[str, Any]]:
        match value:
            case bool():
                self._ledger.convert(name, "true and false become 1 and 0: Trackio draws numbers", lossless=True)
                yield name, int(value)
            case int() if not -_LARGEST <= value < _LARGEST:
                self._ledger.convert(name, "integers beyond 64 bits become floats")
                yield name, plain(value)
            case Histogram():
                yield from self._histogram(name, value)
            case Image() | Audio() | Html():
                yield name, self._file(name, value, step, files)
            case Table():
                yield name, {_TYPE: "trackio.table", "_value": self._table(name, value)}
            case Text():
                yield name, {_TYPE: "trackio.markdown", "_value": legal_text(value.text)}
            case _:
                yield name, plain(value)

    def _histogram(self, name: str, value: Histogram) -> Iterator[tuple[str, Any]]:
        host = value.to_host()
        yield name, {_TYPE: "trackio.histogram", "bins": host.edges.tolist(), "values": host.counts.tolist()}
        for part in ("nan", "posinf", "neginf"):
            if number := int(getattr(host, part)):
                self._ledger.convert(name, "non-finite values of a histogram become counts beside it")
                yield f"{name}/{part}", number

    def _file(self, name: str, value: Image | Audio | Html, step: int, files: list[Path]) -> dict[str, Any]:
        """Write the file in the way and to the place that Trackio does, and return what stands for it in the row."""
        match value:
            case Image():
                kind, suffix, data = "image", "png", value.to_png()
            case Audio():
                kind, suffix, data = "audio", "wav", value.to_wav()
            case _:
                kind, suffix, data = "html", "html", value.html.encode("utf-8", "backslashreplace")
        if getattr(value, "clipped", 0):
            self._ledger.convert(name, f"values of an {type(value).__name__} outside its range are clipped")
        folder, root = self._folder(step)
        path = folder / f"{uuid.uuid4()}.{suffix}"
        path.write_bytes(data)
        files.append(path)
        caption = getattr(value, "caption", None)
        shown = None if caption is None else legal_text(caption)
        return {_TYPE: f"trackio.{kind}", "file_path": str(path.relative_to(root)), "caption": shown}

    def _table(self, name: str, table: Table) -> list[dict[str, Any]]:
        columns: list[str] = []
        for column in map(legal_text, table.columns):
            unique, number = column, 1
            while unique in columns:
                number += 1
                unique = f"{column} ({number})"
            if unique != column:
                self._ledger.convert(name, "columns of one name get a number behind it")
            columns.append(unique)
        return [dict(zip(columns, map(_cell, line), strict=True)) for line in table.data]


def identity(row: Row) -> str:
    """Return a digest of what is in *row*, the data of media included: equal rows have equal ones."""
    digest = hashlib.sha256(encode(row))
    for value in flatten(row).values() if row.has_media else ():
        match value:
            case Image():
                digest.update(value.pixels.tobytes())
            case Audio():
                digest.update(value.samples.tobytes())
            case Html():
                digest.update(value.html.encode("utf-8", "backslashreplace"))
            case Table():
                digest.update(value.to_json())
    return digest.hexdigest()


def legal_text(text: str) -> str:
    """Return *text* with what UTF-8 cannot hold, lone surrogates, escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain(value: Any) -> Any:
    """Return *value* as types that Trackio makes JSON of; media become their descriptions."""
    match value:
        case Mapping():
            return {legal_text(str(name)): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case str():
            return legal_text(value)
        case int() if not -_LARGEST <= value < _LARGEST:
            return _as_float(value)
        case Histogram() | Image() | Audio() | Table() | Text() | Html():
            return plain(value.describe())
    return value


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):  # which the table has no form for
        return encode({"v": value}).decode("utf-8", "replace")[5:-1]
    return plain(value)


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
