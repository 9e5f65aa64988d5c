"""How a tracker in the background is treated when it is slow, or fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trackway.errors import ConfigError

__all__ = ["BackgroundPolicy"]

OnFull = Literal["spill", "drop_newest", "drop_oldest", "block"]
_ON_FULL = ("spill", "drop_newest", "drop_oldest", "block")


@dataclass(frozen=True)
class BackgroundPolicy:
    """Limits of a `BackgroundTracker`.

    Attributes:
        queue_size: Rows that may wait for the tracker before *on_full* applies.
        on_full: What happens to a row when the queue is full. "drop_newest" drops that row, "drop_oldest" the one
            that waited longest, "block" waits up to *block_timeout* and then drops the row. "spill" leaves it to the
            run directory, from which the tracker reads it; without one it acts as "drop_newest".
        block_timeout: Seconds that a caller waits at most under "block".
        disable_after: Failed calls in a row after which the rows wait in the run directory, and the tracker is tried
            again now and then. Without one it is given up, and later rows are counted as dropped.
        finish_timeout: Seconds that `flush` and `finish` wait at most for what is queued.

    Raises:
        ConfigError: if a limit is not positive or *on_full* is none of the four.
    """

    queue_size: int = 10_000
    on_full: OnFull = "spill"
    block_timeout: float = 10.0
    disable_after: int = 20
    finish_timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in ("queue_size", "block_timeout", "disable_after", "finish_timeout"):
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(f"BackgroundPolicy.{name} must be greater than 0, got {value!r}")
        if self.on_full not in _ON_FULL:
            raise ConfigError(f"BackgroundPolicy.on_full must be one of {', '.join(_ON_FULL)}, got {self.on_full!r}")
