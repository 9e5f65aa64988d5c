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
    header = struct.pack("<Q", len(data))
    return b"".join((header, _masked(header), data, _masked(data)))
