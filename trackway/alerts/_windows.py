"""Statistics of the newest points of a metric, kept up to date point by point.

Each keeps the points that it needs. Points enter by `push`; the oldest leaves by `drop`, of itself where the window is
one of so many points. Nobody asks for a value before the window is filled. None of it is thread-safe.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Protocol, final

__all__ = ["Ends", "Line", "Lowest", "Moments", "Ordered", "Statistic", "TimeWindow"]

_MAX_POINTS = 1_000_000
_ILL = 1e-6  # of the squares, below which a difference of sums has lost too many digits
_INF = math.inf


class Statistic(Protocol):
    """What a window in time has its points taken out of."""

    def drop(self) -> None:
        """Forget the oldest point."""


class Moments:
    """Sum, mean, standard deviation and z-score of the newest *size* points (-1: until they are dropped).

    Sums are those of the deviations from one of the values, so that few digits are lost. They are summed up afresh now
    and then, and whenever a point leaves beside which the others are small.
    """

    __slots__ = ("_due", "_k", "_others", "_others_q", "_others_s", "_q", "_ring", "_s", "_size")

    def __init__(self, size: int = -1) -> None:
        self._size = size
        self._ring: deque[float] = deque()
        self._k = self._s = self._q = 0.0
        self._others = 0  # points besides the newest, of which the sums are known; 0: they are not
        self._others_s = self._others_q = 0.0
        self._due = 256  # points until the sums are made afresh

    def push(self, x: float) -> None:
        """Take the newest point."""
        ring = self._ring
        count = len(ring)
        if count == self._size:
            self.drop()
            count -= 1
        if not count:
            self._k = x
        d = x - self._k
        self._others = count
        self._others_s = s = self._s
        self._others_q = q = self._q
        self._s = s + d
        self._q = q + d * d
        ring.append(x)
        self._due -= 1
        if self._due < 0:
            self._refresh()

    def drop(self) -> None:
        """Forget the oldest point."""
        d = self._ring.popleft() - self._k
        square = d * d
        self._s -= d
        self._q -= square
        self._others = 0
        if not square * _ILL <= self._q < _INF:
            self._refresh()

    def _refresh(self) -> None:
        ring = self._ring
        self._due = 256 + 2 * len(ring)
        self._others = 0
        self._k = k = sorted(ring)[len(ring) // 2] if ring else 0.0  # near which the mean is, whatever else there is
        self._s = _sum([x - k for x in ring])
        self._q = _sum([(x - k) * (x - k) for x in ring])

    def sum(self) -> float:
        """Return the sum."""
        self._squares()
        return len(self._ring) * self._k + self._s

    def mean(self) -> float:
        """Return the mean."""
        self._squares()
        count = len(self._ring)
        return (count * self._k + self._s) / count

    def std(self) -> float:
        """Return the standard deviation, of the points themselves and not of what they are a sample of."""
        squares = self._squares()
        return math.sqrt(squares) / len(self._ring) if squares > 0.0 else 0.0 * squares

    def _squares(self) -> float:
        """Return the square of the number of points times their variance, having seen to it that it is exact."""
        square = self._s * self._s
        squares = len(self._ring) * self._q - square
        if squares < _ILL * square:
            self._refresh()
            return len(self._ring) * self._q - self._s * self._s
        return squares

    def zscore(self) -> float:
        """Return how many standard deviations of the others the newest point lies off their mean."""
        count, s, q = self._others, self._others_s, self._others_q
        squares = count * q - s * s
        d = self._ring[-1] - self._k
        if squares > _ILL * s * s and count:
            return (count * d - s) / math.sqrt(squares)
        if count and not s and not q:
            return math.copysign(_INF, d) if d else 0.0
        return self._zscore_afresh()

    def _zscore_afresh(self) -> float:
        base = self._ring[0]  # so that equal points have no spread, whatever their mean is rounded to
        others = [x - base for x in self._ring]
        newest = others.pop()
        self._refresh()
        mean = _sum(others) / len(others)
        spread = math.sqrt(_sum([(x - mean) * (x - mean) for x in others]) / len(others))
        off = newest - mean
        if spread:
            return off / spread
        return math.copysign(_INF, off) if off else 0.0


@final
class Line(Moments):
    """The slope, per step, of the straight line with the least squares."""

    __slots__ = ("_origin", "_products", "_steps", "_u", "_uu")

    def __init__(self, size: int = -1) -> None:
        super().__init__(size)
        self._steps: deque[int] = deque()
        self._origin = self._u = self._uu = 0  # whole numbers, of which sums are exact
        self._products = 0.0

    def put(self, x: float, step: int) -> None:
        """Take the newest point and its step."""
        if len(self._ring) == self._size:
            self.drop()
        if not self._ring:
            self._k, self._origin = x, step
        self._steps.append(step)
        u, d = step - self._origin, x - self._k
        self._u += u
        self._uu += u * u
        self._products += u * d
        self.push(x)

    def drop(self) -> None:
        """Forget the oldest point."""
        u, d = self._steps.popleft() - self._origin, self._ring[0] - self._k
        self._u -= u
        self._uu -= u * u
        self._products -= u * d
        super().drop()

    def _refresh(self) -> None:
        super()._refresh()
        self._origin = self._steps[-1] if self._steps else 0
        steps = [step - self._origin for step in self._steps]
        self._u, self._uu = sum(steps), sum(u * u for u in steps)
        self._products = _sum([u * (x - self._k) for u, x in zip(steps, self._ring, strict=True)])

    def slope(self) -> float | None:
        """Return the slope; None where all points are of one step."""
        self._squares()
        spread = self._spread()
        return (len(self._ring) * self._products - self._u * self._s) / spread if spread else None

    def _spread(self) -> int:
        return len(self._ring) * self._uu - self._u * self._u


@final
class Lowest:
    """The smallest of the newest *size* points; with the sign -1, the largest."""

    __slots__ = ("_begin", "_end", "_falling", "_sign", "_size")

    def __init__(self, size: int = -1, sign: int = 1) -> None:
        self._size, self._sign = size, sign
        self._falling: deque[tuple[int, float]] = deque()  # from the back: each smaller than all that came before it
        self._begin = self._end = 0

    def push(self, x: float) -> None:
        """Take the newest point."""
        if self._end - self._begin == self._size:
            self.drop()
        x *= self._sign
        falling = self._falling
        while falling and falling[-1][1] >= x:
            falling.pop()
        falling.append((self._end, x))
        self._end += 1

    def drop(self) -> None:
        """Forget the oldest point."""
        if self._falling[0][0] == self._begin:
            self._falling.popleft()
        self._begin += 1

    def value(self) -> float:
        """Return it."""
        return self._falling[0][1] * self._sign


@final
class Ordered:
    """The median of the newest *size* points."""

    __slots__ = ("_order", "_ring", "_size")

    def __init__(self, size: int = -1) -> None:
        self._size = size
        self._ring: deque[float] = deque()
        self._order: list[float] = []

    def push(self, x: float) -> None:
        """Take the newest point."""
        if len(self._ring) == self._size:
            self.drop()
        self._ring.append(x)
        insort(self._order, x)

    def drop(self) -> None:
        """Forget the oldest point."""
        del self._order[bisect_left(self._order, self._ring.popleft())]

    def median(self) -> float:
        """Return the middle one, or the mean of the two."""
        order = self._order
        half = len(order) // 2
        return order[half] if len(order) % 2 else order[half - 1] / 2 + order[half] / 2


@final
class Ends:
    """The oldest and the newest of *size* points, with their times."""

    __slots__ = ("_ring", "_size")

    def __init__(self, size: int = -1) -> None:
        self._size = size
        self._ring: deque[tuple[float, float]] = deque()

    def put(self, x: float, time: float) -> None:
        """Take the newest point and its time."""
        if len(self._ring) == self._size:
            self._ring.popleft()
        self._ring.append((x, time))

    def drop(self) -> None:
        """Forget the oldest point."""
        self._ring.popleft()

    def first(self) -> float:
        """Return the oldest."""
        return self._ring[0][0]

    def last(self) -> float:
        """Return the newest."""
        return self._ring[-1][0]

    def diff(self) -> float:
        """Return the newest minus the oldest."""
        return self._ring[-1][0] - self._ring[0][0]

    def rate(self) -> float | None:
        """Return that per second; None if they are of one time."""
        seconds = self._ring[-1][1] - self._ring[0][1]
        return self.diff() / seconds if seconds > 0.0 else None

    def pct_change(self) -> float | None:
        """Return that in percent of the oldest; None if it is 0."""
        first = abs(self._ring[0][0])
        return self.diff() / first * 100.0 if first else None


@final
class TimeWindow:
    """The points of the newest *seconds*, for the statistics in *kept*.

    Attributes:
        times: When each point was, oldest first.
    """

    __slots__ = ("_kept", "_seconds", "times")

    def __init__(self, seconds: float, kept: list[Statistic]) -> None:
        self._seconds, self._kept = seconds, kept
        self.times: deque[float] = deque()

    def push(self, time: float) -> None:
        """Take the time of the newest point, before the statistics take the point; memory is bounded."""
        if len(self.times) >= _MAX_POINTS:
            self._drop()
        self.times.append(time)

    def trim(self, now: float) -> None:
        """Forget what is as old as the window is long."""
        begin = now - self._seconds
        while self.times and self.times[0] <= begin:
            self._drop()

    def _drop(self) -> None:
        self.times.popleft()
        for statistic in self._kept:
            statistic.drop()


def _sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond what floats can hold, or infinities of both signs
        return math.nan
