"""Events of rows that hold ordinary numbers alone, as most rows do: made from messages that are kept."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias, final

from trackway.backends._tensorboard_tags import Tags
from trackway.values import Row

__all__ = ["EXACT", "GREATEST", "LEAST", "ScalarEvents"]

GREATEST = 3.4028235677973366e38
"""From here on the nearest float32 is infinity."""
LEAST = 7.006492321624085e-46
"""Up to here it is 0."""
EXACT = 2**24
"""Integers up to here are float32 numbers."""
_MOST = 64  # sets of names whose messages are kept

_Message: TypeAlias = tuple[Any, tuple[Any, ...]]
"""An event, and the values in it."""


@final
class ScalarEvents:
    """Fills in the event that was made for an earlier row of the same names. Thread-safe.

    An event is taken out of those that are kept while it is filled in, so that another thread, or a signal handler that
    logs meanwhile, makes one of its own.
    """

    def __init__(self, tags: Tags) -> None:
        """Keep the values under *tags*."""
        self._tags = tags
        self._kept: dict[tuple[str, ...], _Message] = {}

    def of(self, row: Row, step: int, time: float) -> bytes | None:
        """Return the serialised event of *row*; None where it is empty, or has a value that is to be looked at."""
        for value in row.values():
            if type(value) is float:
                if value != 0.0 and not LEAST < abs(value) < GREATEST:
                    return None
            elif type(value) is not int or not -EXACT <= value <= EXACT:
                return None
        names = tuple(row)
        if not names:
            return None
        message = self._kept.pop(names, None) or self._made(names)
        event, slots = message
        event.step, event.wall_time = step, time
        for slot, value in zip(slots, row.values(), strict=True):
            slot.simple_value = value
        data: bytes = event.SerializeToString()
        if len(self._kept) < _MOST:
            self._kept[names] = message
        return data

    def _made(self, names: tuple[str, ...]) -> _Message:
        event = _event_class()()
        return event, tuple(event.summary.value.add(tag=self._tags.tag(name, "scalar")) for name in names)


@functools.cache
def _event_class() -> Any:
    from tensorboardX.proto.event_pb2 import Event

    return Event
