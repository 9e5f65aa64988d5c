"""From the values that stand in a line back to those that were logged."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trackway.values import Audio, Histogram, Html, Image, Row, Table, Text, decode
from trackway.values._leaves import PLAIN

__all__ = ["ReadFile", "files_in", "revive"]

ReadFile: TypeAlias = Callable[[str], bytes]
"""Returns what is in a file of the run, given by its path in the run directory; raises `OSError` or `ValueError`."""

_HEADER = struct.Struct(">IIBBBBB")
_CHANNELS = {0: 1, 2: 3, 6: 4}
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def revive(line: Mapping[str, Any], read: ReadFile) -> Row:
    """Return the metrics of *line*, a row as it was read, as they were when they were committed.

    Histograms, images, sounds, tables, texts and pages are such again, their data taken by *read*. One whose file is
    gone, or was not written by this library, stays the mapping that describes it.
    """
    row = Row(line)
    for name in [name for name in row if name[:1] == "_" and name[:2] != "__"]:
        del row[name]
    if PLAIN.issuperset(map(type, row.values())):
        row.flat = True
        return row
    for name, value in row.items():
        row[name] = _value(value, read)
    row.has_media = any(_has_media(value) for value in row.values())
    return row


def _has_media(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_media, value.values()))
    if isinstance(value, list):
        return any(map(_has_media, value))
    return isinstance(value, Audio | Html | Image | Table | Text)


def _value(value: Any, read: ReadFile) -> Any:
    if isinstance(value, list):
        return [_value(item, read) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("_type")
    if kind == "histogram":
        return _histogram(value)
    if kind in _FORMS and isinstance(value.get("path"), str):
        with contextlib.suppress(OSError, ValueError, KeyError, EOFError, zlib.error, struct.error):
            return _FORMS[kind](read(value["path"]), value)
        return value
    return {name: _value(item, read) for name, item in value.items()}


def files_in(directory: Path) -> ReadFile:
    """Return what reads the files of the run in *directory*; one that lies elsewhere is refused."""
    root = directory.resolve()

    def read(place: str) -> bytes:
        path = directory / place
        if not path.resolve().is_relative_to(root):  # a run of someone else may refer to anything
            raise ValueError(f"{place} lies outside of the run directory")
        return path.read_bytes()

    return read


def _histogram(value: dict[str, Any]) -> Any:
    fields = {name: item for name, item in value.items() if name != "_type"}
    try:
        fields["edges"] = np.asarray(fields["edges"], np.float64)
        fields["counts"] = np.asarray(fields["counts"], np.int64)
        return Histogram(**fields)
    except (KeyError, TypeError, ValueError, OverflowError):
        return value


def _image(data: bytes, value: dict[str, Any]) -> Image:
    """Decode the one form that `Image.to_png` writes: 8 bits a channel, lines without filter, one chunk of data."""
    width, height, depth, colour, *rest = _HEADER.unpack(_chunk(data, b"IHDR")[: _HEADER.size])
    lines = np.frombuffer(zlib.decompress(_chunk(data, b"IDAT")), np.uint8)
    lines = lines.reshape(height, width * _CHANNELS[colour] + 1)
    if depth != 8 or any(rest) or lines[:, 0].any():  # noqa: PLR2004 - bits
        raise ValueError("a PNG file of another form")
    return Image(lines[:, 1:].reshape(height, width, _CHANNELS[colour]), caption=value.get("caption"))


def _chunk(data: bytes, kind: bytes) -> bytes:
    at = len(_SIGNATURE)
    while data.startswith(_SIGNATURE):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == kind:
            return data[at + 8 : at + 8 + length]
        at += length + 12
    raise ValueError("no PNG file")


def _audio(data: bytes, value: dict[str, Any]) -> Audio:
    import wave

    try:
        with wave.open(io.BytesIO(data)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
            return Audio(samples, file.getframerate(), caption=value.get("caption"))
    except wave.Error as error:
        raise ValueError("no WAV file") from error


def _table(data: bytes, _value: dict[str, Any]) -> Table:
    table = decode(data)
    return Table(table["columns"], table["data"])


_FORMS: dict[Any, Callable[[bytes, dict[str, Any]], Any]] = {
    "image": _image,
    "audio": _audio,
    "table": _table,
    "text": lambda data, _: Text(data.decode("utf-8")),
    "html": lambda data, _: Html(data.decode("utf-8")),
}
