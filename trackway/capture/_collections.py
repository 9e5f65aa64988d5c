"""Reductions that keep samples apart, or describe how they are distributed."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from trackway.capture._kinds import Last, Reduction, State
from trackway.capture._sums import add, promoted, total_of
from trackway.errors import CaptureError
from trackway.values import Histogram

__all__ = ["Constant", "Distribution", "Hist", "Latest", "Ring", "Series", "Stack"]


class Stack(Reduction):
    """Every sample, side by side: each loop and `vmap` around the call adds an axis, the outermost first."""

    name: ClassVar[str] = "stack"
    stacked: ClassVar[bool] = True
    keeps_lanes: ClassVar[bool] = True

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        return [x], None if weight is None else (~(weight <= 0)).astype(jnp.int32)

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        del a, na, b, nb
        raise CaptureError("is logged twice in one scope with reduce='stack'; give the second one another name")

    def finish(self, xp: Any, state: State, count: Any) -> tuple[list[Any], Any]:
        return (list(state), None) if isinstance(count, int) else ([*state, count], xp.any(count > 0))

    def value(self, arrays: list[Any]) -> Any:
        if len(arrays) == 1:
            return arrays[0]
        x, count = arrays
        missing = np.reshape(count == 0, count.shape + (1,) * (x.ndim - count.ndim))
        return x if not missing.any() else np.ma.masked_array(x, np.broadcast_to(missing, x.shape))


@dataclass(frozen=True, eq=False)
class Series(Reduction):
    """States of *base* in a row, `[rows, ...]`: what becomes of a metric whose step varies in a loop."""

    base: Reduction
    name: ClassVar[str] = "rows"
    stacked: ClassVar[bool] = True

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        """Return the rows of *a* and then those of *b*."""
        del na, nb
        return [jnp.concatenate(promoted(x, y)) for x, y in zip(a, b, strict=True)]

    def lanes(self, state: State, count: Any) -> State:
        reduce: Any = jax.vmap(self._reduced, in_axes=1)
        known = isinstance(count, int)
        rows: State = reduce(jnp.full(state[0].shape[:2], count) if known else count, *state)
        return rows

    def _reduced(self, count: Any, *state: Any) -> State:
        return self.base.lanes(list(state), count)

    def repeat(self, state: State, count: Any, size: int) -> State:
        rows = state[0].shape[0]
        counts = jnp.full(rows, count, jnp.int32) if isinstance(count, int) else count
        repeated: State = jax.vmap(lambda n, *x: self.base.repeat(list(x), n, size))(counts, *state)
        return repeated

    def finish(self, xp: Any, state: State, count: Any) -> tuple[list[Any], Any]:
        return self.base.finish(xp, state, count)

    def value(self, arrays: list[Any]) -> Any:
        """Return the value of one row."""
        return self.base.value(arrays)


@dataclass(frozen=True)
class Ring:
    """`reduce=` for the last *size* samples, oldest first; also where `stack` cannot know how many there will be."""

    size: int

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise ValueError(f"Ring takes the number of samples to keep, an integer of at least 1, got {self.size!r}")


@dataclass(frozen=True, eq=False, repr=False)
class Latest(Reduction):
    """The last *size* samples. State: `[size, ...]`, the newest last."""

    size: int
    name: ClassVar[str] = "ring"

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        kept = [jnp.zeros((self.size, *x.shape), x.dtype).at[-1].set(x)]
        return kept, None if weight is None else (~(weight <= 0)).astype(jnp.int32)

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        del na
        arriving = jnp.minimum(nb, self.size)
        slots = jnp.arange(self.size)
        x, y = promoted(a[0], b[0])
        chosen = jnp.where(slots >= self.size - arriving, slots + self.size, slots + arriving)
        return [jnp.take(jnp.concatenate([x, y]), chosen, axis=0)]

    def repeat(self, state: State, count: Any, size: int) -> State:
        kept = jnp.clip(jnp.asarray(count), 1, self.size)
        newest_first = jnp.arange(self.size)[::-1] % kept  # the samples over and over again
        del size
        return [jnp.take(state[0], self.size - 1 - newest_first, axis=0)]

    def finish(self, xp: Any, state: State, count: Any) -> tuple[list[Any], Any]:
        whole = xp.asarray(count, "int32")
        return [*state, whole], None if isinstance(count, int) else count > 0

    def value(self, arrays: list[Any]) -> Any:
        x, count = arrays
        return x[self.size - min(int(count), self.size) :]


_FIELDS = 11  # of a Histogram
_SUMS = (5, 6, 10)  # sum, sum_squares, squared_deviations


class Distribution(Reduction):
    """A `Histogram` of all samples, which are histograms themselves.

    All moments and the counts of non-finite values are those of all values. So are the counts of the bins where every
    sample has the same edges; otherwise the edges of the first one hold, what lies in another's bins goes to where
    their middle is, and the result says that it is approximate.
    """

    name: ClassVar[str] = "histogram"
    counts: ClassVar[bool] = True

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        parts = [jnp.asarray(part) for part in x.parts()]
        state = [part.astype(jnp.int32) if part.dtype.kind == "u" else part for part in parts]
        state.append(jnp.int32(0))
        if weight is None:
            return state, None
        counts = ~(weight <= 0)
        return [jnp.where(counts, part, jnp.zeros_like(part)) for part in state], counts.astype(jnp.int32)

    def widen(self, state: State) -> State:
        if len(state) > _FIELDS + 1:
            return state
        return [*state, *(jnp.zeros_like(state[at]) for at in _SUMS)]

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        mine, theirs = jnp.asarray(na) > 0, jnp.asarray(nb) > 0
        edges = jnp.where(mine, a[0], b[0])
        counts = a[1] + jnp.where(jnp.all(b[0] == edges), b[1], _rebinned(b[0], b[1], edges))
        differ = mine & theirs & jnp.any(a[0] != b[0])
        least = _of_present(jnp.minimum, a[2], a[4], b[2], b[4])
        greatest = _of_present(jnp.maximum, a[3], a[4], b[3], b[4])
        sums = {at: add(_sum_part(a, at), _sum_part(b, at)) for at in _SUMS}
        sums[10] = add(sums[10], [_spread_between(a, b)])
        whole = {at: a[at] + b[at] for at in (4, 7, 8, 9)}
        fields = [
            edges,
            counts,
            least,
            greatest,
            *(sums[at][0] if at in sums else whole[at] for at in range(4, _FIELDS)),
        ]
        fields.append(a[_FIELDS] | b[_FIELDS] | differ.astype(jnp.int32))
        wide = len(a) > _FIELDS + 1 or len(b) > _FIELDS + 1
        return [*fields, *(sums[at][1] for at in _SUMS)] if wide else fields

    def repeat(self, state: State, count: Any, size: int) -> State:
        del count
        edges, counts, least, greatest, *rest = state
        flag = rest.pop(_FIELDS - 4)
        scaled = [part * size for part in rest]
        return [edges, counts * size, least, greatest, *scaled[: _FIELDS - 4], flag, *scaled[_FIELDS - 4 :]]

    def finish(self, xp: Any, state: State, count: Any) -> tuple[list[Any], Any]:
        fields = list(state[: _FIELDS + 1])
        for at in _SUMS:
            fields[at] = total_of(xp, _sum_part(state, at))
        return fields, None if isinstance(count, int) else count > 0

    def value(self, arrays: list[Any]) -> Any:
        histogram = Histogram(*(np.asarray(part) for part in arrays[:_FIELDS])).to_host()
        return replace(histogram, approximate=True) if arrays[_FIELDS] else histogram


def _sum_part(state: State, at: int) -> State:
    wide = len(state) > _FIELDS + 1
    return [state[at], state[_FIELDS + 1 + _SUMS.index(at)]] if wide else [state[at]]


def _of_present(choose: Any, x: Any, nx: Any, y: Any, ny: Any) -> Any:
    return jnp.where(nx > 0, jnp.where(ny > 0, choose(x, y), x), jnp.where(ny > 0, y, jnp.nan)).astype(x.dtype)


def _rebinned(edges: Any, counts: Any, target: Any) -> Any:
    middle = edges[:-1] / 2 + edges[1:] / 2
    place = jnp.clip(jnp.searchsorted(target, middle, side="right") - 1, 0, counts.shape[0] - 1)
    return jnp.zeros_like(counts).at[place].add(counts)


def _spread_between(a: State, b: State) -> Any:
    """What the squared deviations of two sets of values lack when the sets become one."""
    na, nb = a[4].astype(a[5].dtype), b[4].astype(b[5].dtype)
    apart = total_of(jnp, _sum_part(a, 5)) / jnp.maximum(na, 1) - total_of(jnp, _sum_part(b, 5)) / jnp.maximum(nb, 1)
    both = (na > 0) & (nb > 0)
    return jnp.where(both, apart * (apart * na * (nb / jnp.maximum(na + nb, 1))), 0)


@dataclass(frozen=True)
class Hist:
    """`reduce=` for a histogram of numbers or arrays, with *bins* even bins from *lo* to *hi*.

    The same as logging `Histogram.from_array(x, edges=numpy.linspace(lo, hi, bins + 1))`.
    """

    lo: float
    hi: float
    bins: int

    def __post_init__(self) -> None:
        if not (self.lo < self.hi and type(self.bins) is int and self.bins >= 1):
            raise ValueError(f"Hist takes lo < hi and a number of bins of at least 1, got {self!r}")

    def sample(self, x: Any) -> Histogram:
        """Return the histogram of one sample."""
        return Histogram.from_array(x, edges=np.linspace(self.lo, self.hi, self.bins + 1))


_constants: dict[int, Any] = {}


class Constant(Last):
    """A value that is no number, such as a text: it travels as its checksum, and the last one wins."""

    name: ClassVar[str] = "constant"

    @staticmethod
    def code(value: Any) -> int:
        """Return the number that stands for *value*; for texts the same in every process, as compiled programs are."""
        is_plain = isinstance(value, str | list | dict | None)
        text = value if isinstance(value, str) else repr(value) if is_plain else f"{value!r} at {id(value)}"
        code = zlib.crc32(text.encode("utf-8", "surrogatepass"))
        while code in _constants and _constants[code] is not value and _constants[code] != value:
            code = (code + 1) % 2**32
        _constants[code] = value
        return code

    @staticmethod
    def known(code: int) -> Any:
        """Return the value for which *code* stands."""
        return _constants.get(code, "<a constant of a program that was traced in another process>")

    @staticmethod
    def learn(values: dict[int, Any]) -> None:
        """Take over the values of another process."""
        for code, value in values.items():
            _constants.setdefault(code, value)

    def value(self, arrays: list[Any]) -> Any:
        return self.known(int(arrays[0]))
