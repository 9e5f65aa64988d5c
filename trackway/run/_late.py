"""A call whose values are on a device, as one of the rows that a compiled function brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from trackway.tracker import Call
from trackway.values import Pending

__all__ = ["LateCall"]


@final
class LateCall:
    """Late rows that are one known call of `log`; several of them that follow one another are delivered together."""

    __slots__ = ("_call", "parts", "small")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.parts = call.waits_for()
        self.small = all(part.small for part in self.parts if isinstance(part, Pending))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(self._call.payload or ())

    def calls(self) -> Sequence[Call]:
        """Return the call with its values, waiting for them if need be."""
        try:
            return (self._call.resolved(),)
        except Exception:  # of the step; raised, and counted, once more where the call is made
            return (self._call,)
