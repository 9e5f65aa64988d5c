"""Where the arrays of a row lie in its buffers, and the short way to read the usual row: numbers that are all there."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trackway.values import Row

__all__ = ["RowReader", "Slot", "row_reader"]

RowReader = Callable[[Sequence[Any]], tuple[int | None, Row]]
"""Returns the step, if known, and the values of the row in buffers, which are on the host or are fetched."""

_Numbers = Callable[[Any], Sequence[Any]]
_CODES = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "uint32": "I", "uint64": "Q"}  # of `struct`


@dataclass(frozen=True)
class Slot:
    """Where an array lies in the buffers: all of one, or from *start* on."""

    buffer: int
    start: int | None
    shape: tuple[int, ...]
    is_bool: bool

    def read(self, buffers: Sequence[np.ndarray]) -> np.ndarray:
        """Return the array."""
        buffer = buffers[self.buffer]
        if self.start is None:
            return buffer
        flat = buffer[self.start : self.start + math.prod(self.shape)].reshape(self.shape)
        return flat.astype(bool) if self.is_bool else flat


def row_reader(names: tuple[str, ...], slots: Sequence[Slot], step: Slot | int | None) -> RowReader:
    """Return what reads one row of numbers.

    Args:
        names: The names.
        slots: Where the number of each lies; each is one number within a buffer.
        step: Where that of the step lies, or the step itself.
    """
    places = [(slot.buffer, slot.start) for slot in slots]
    if not isinstance(step, Slot) and places == [(0, number) for number in range(len(slots))]:
        return _reader_of_one(names, step)
    takes: list[tuple[int, list[str], _Numbers]] = []
    for buffer in sorted({buffer for buffer, _ in places}):
        own = [name for name, (number, _) in zip(names, places, strict=True) if number == buffer]
        takes.append((buffer, own, _taker([start or 0 for number, start in places if number == buffer])))

    def read(buffers: Sequence[Any]) -> tuple[int | None, Row]:
        numbers = [np.asarray(buffer).tolist() for buffer in buffers]
        row = Row()
        for buffer, own, take in takes:
            row.update(zip(own, take(numbers[buffer]), strict=True))
        if len(takes) > 1:
            row = Row({name: row[name] for name in names})
        row.flat = True
        return int(numbers[step.buffer][step.start]) if isinstance(step, Slot) else step, row

    return read


def _reader_of_one(names: tuple[str, ...], step: int | None) -> RowReader:
    """Return what reads a row whose numbers are the first ones of the first buffer."""
    numbers: _Numbers | None = None  # known with the first row

    def read(buffers: Sequence[Any]) -> tuple[int | None, Row]:
        nonlocal numbers
        if numbers is None:
            numbers = _fastest(buffers[0])
        try:
            row = Row(zip(names, numbers(buffers[0]), strict=False))  # there may be more: a step that is shown
        except (BufferError, ValueError):
            row = Row(zip(names, _by_numpy(buffers[0]), strict=False))
        row.flat = True
        return step, row

    return read


def _fastest(vector: Any) -> _Numbers:
    """Return the fastest way to read *vector*, and others like it.

    The memory of an array on the CPU is there to be read; to make a NumPy array of it first takes longer, and on a
    busy machine several times as long as when it is measured alone.
    """
    code = _CODES.get(vector.dtype.name)
    if code is None:
        return _by_numpy
    unpack = struct.Struct(f"{vector.size}{code}").unpack_from
    try:
        unpack(vector)
    except (BufferError, ValueError):  # it is on another device, on several, or not in one piece
        return _by_numpy
    return unpack


def _by_numpy(vector: Any) -> Sequence[Any]:
    return np.asarray(vector).tolist()  # type: ignore[no-any-return]


def _taker(places: list[int]) -> _Numbers:
    """Return a function that takes what is at *places* out of a list."""
    if places == list(range(places[0], places[0] + len(places))):
        return operator.itemgetter(slice(places[0], places[0] + len(places)))
    return operator.itemgetter(*places)
