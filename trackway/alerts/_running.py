"""Statistics of all points of a metric, which keep none of them. None of it is thread-safe."""

from __future__ import annotations

import math
from typing import final

__all__ = ["Ema", "Trend", "Whole"]


@final
class Trend:
    """For how many points in succession each was larger, or smaller, than the one before."""

    __slots__ = ("_last", "down", "up")

    def __init__(self) -> None:
        self._last = math.nan
        self.up = self.down = 0

    def push(self, x: float) -> None:
        """Take the newest point."""
        self.up = self.up + 1 if x > self._last else 0
        self.down = self.down + 1 if x < self._last else 0
        self._last = x


@final
class Ema:
    """The exponential moving average, which begins with the first point."""

    __slots__ = ("_alpha", "_value")

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._value = math.nan

    def push(self, x: float) -> None:
        """Take the newest point."""
        value = self._value + self._alpha * (x - self._value)
        self._value = value if value - value == 0.0 else x  # the first one, or what floats cannot hold

    def value(self) -> float:
        """Return it."""
        return self._value


@final
class Whole:
    """Statistics of all points."""

    __slots__ = ("_count", "_lost", "_mean", "_squares", "_sum", "first", "high", "low")

    def __init__(self) -> None:
        self._count = 0
        self._sum = self._lost = self._mean = self._squares = 0.0
        self.first = math.nan
        self.low, self.high = math.inf, -math.inf

    def push(self, x: float) -> None:
        """Take the newest point."""
        if not self._count:
            self.first = x
        self._count += 1
        total = self._sum + x
        taken = total - self._sum
        self._lost += (self._sum - (total - taken)) + (x - taken)
        self._sum = total
        off = x - self._mean
        self._mean += off / self._count
        self._squares += off * (x - self._mean)
        self.low, self.high = min(self.low, x), max(self.high, x)

    def sum(self) -> float:
        """Return the sum."""
        return self._sum + self._lost

    def mean(self) -> float:
        """Return the mean."""
        return (self._sum + self._lost) / self._count

    def std(self) -> float:
        """Return the standard deviation."""
        return math.sqrt(self._squares / self._count) if self._squares > 0.0 else 0.0 * self._squares
