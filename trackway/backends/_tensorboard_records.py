"""The records of an event file: length, data and their checksums."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

__all__ = ["frame"]

_MASK = 0xFFFFFFFF


@functools.cache
def _checksum() -> Callable[[bytes], int]:
    from tensorboardX.crc32c import crc32c  # that of the package crc32c where it is installed, as our extra has it

    return crc32c  # type: ignore[no-any-return]


def _masked(data: bytes) -> bytes:
    crc = _checksum()(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK)


def frame(data: bytes) -> bytes:
    """Return the record that holds the serialised event *data*."""
    return b"".join((_header(len(data)), data, _masked(data)))


@functools.lru_cache(1024)
def _header(length: int) -> bytes:
    """Return what stands before *length* bytes of data; most events are of a few lengths."""
    header = struct.pack("<Q", length)
    return header + _masked(header)
