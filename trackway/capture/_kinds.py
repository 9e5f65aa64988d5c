"""Reductions: how the samples of one metric become one value.

Every reduction is a monoid. Its *state* is a list of arrays, beside which the number of samples is kept: a Python int
while it is known from tracing, else an int32 array. One set of rules (the identity, combining two states, reducing an
axis of states, many identical ones) serves loops, branches, `vmap`, `shard_map` and a name that is logged twice.

A state of no samples equals the identity of its reduction; whoever makes one keeps to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from trackway.capture import _jaxcompat as compat
from trackway.capture._sums import State, add, float_type, over, total_of, wide

__all__ = ["Last", "Max", "Mean", "Min", "Reduction", "State", "Std", "Sum"]


class Reduction:
    """One way to combine samples; compares by its parameters.

    Counts (`na`, `count`, ...) are Python ints or int32 arrays. `xp` is `numpy` or `jax.numpy`.
    """

    name: ClassVar[str]
    stacked: ClassVar[bool] = False
    """Whether samples are put side by side, so that the shape tells how many there are."""
    keeps_lanes: ClassVar[bool] = False
    """Whether the lanes of `vmap` and the devices of `shard_map` stay apart as well."""
    counts: ClassVar[bool] = False
    """Whether `combine` needs the number of samples on its left."""

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        """Return the state of one sample, and its count: None for a plain 1."""
        raise NotImplementedError

    def identity(self, avals: list[Any]) -> State:
        """Return the state of no samples for arrays like *avals*."""
        return [compat.fill(aval, 0) for aval in avals]

    def widen(self, state: State) -> State:
        """Return *state* in the form that loops carry."""
        return state

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        """Return the state of the samples of *a* followed by those of *b*."""
        raise NotImplementedError

    def lanes(self, state: State, count: Any) -> State:
        """Return the state of all samples of states that lie along axis 0; *count* is that of each, or an array."""
        size = state[0].shape[0]
        counts = jnp.full(size, count, jnp.int32) if isinstance(count, int) else count
        first = [x[0] for x in state]
        wide = self.widen(first)
        start = self.identity([jax.typeof(x) for x in wide]), jnp.int32(0)

        def step(total: Any, lane: Any) -> Any:
            return (self.combine(*total, *lane), total[1] + lane[1]), None

        total: State = lax.scan(step, start, (state, counts))[0][0]
        return total

    def repeat(self, state: State, count: Any, size: int) -> State:
        """Return the state of *size* times the same samples, *count* of them each time."""
        del count, size
        return state

    def finish(self, xp: Any, state: State, count: Any) -> tuple[list[Any], Any]:
        """Return the arrays that go to the host, and whether there is a value at all: None for always."""
        del xp
        return list(state), _present(count)

    def value(self, arrays: list[Any]) -> Any:
        """Return the value that users see, from the finished arrays on the host."""
        return arrays[0]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.items()))

    def __repr__(self) -> str:
        return f"{self.name!r}"


def _present(count: Any) -> Any:
    return None if isinstance(count, int) else count > 0


def weighted_sample(x: Any, weight: Any) -> tuple[Any, Any]:
    """Return *x* with what a weight of zero excludes, NaN even, set to zero; and the count of the sample."""
    counts = ~(weight <= 0)  # a weight that is NaN counts, to be seen
    return jnp.where(counts, x, jnp.zeros_like(x)), counts.astype(jnp.int32)


class _Summed(Reduction):
    """A reduction whose state is sums."""

    def lanes(self, state: State, count: Any) -> State:
        del count
        return [jnp.sum(x, 0, dtype=x.dtype) for x in state]

    def repeat(self, state: State, count: Any, size: int) -> State:
        del count
        return [x * size for x in state]


@dataclass(frozen=True, eq=False, repr=False)
class Sum(_Summed):
    """The sum of all samples, each times its weight. Sums of ints and bools are ints."""

    name: ClassVar[str] = "sum"

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        if jnp.issubdtype(x.dtype, jnp.bool_):
            x = x.astype(jnp.int32)
        elif jnp.issubdtype(x.dtype, jnp.inexact):
            x = x.astype(float_type(x.dtype))
        elif jnp.iinfo(x.dtype).bits < 32:  # noqa: PLR2004
            x = x.astype(jnp.int32)
        if weight is None:
            return [x], None
        counts = weight != 0
        return [jnp.where(counts, x * weight, 0)], counts.astype(jnp.int32)

    def widen(self, state: State) -> State:
        return wide(state[0]) if len(state) == 1 else state

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        del na, nb
        return add(a, b)

    def finish(self, xp: Any, state: State, count: Any) -> tuple[list[Any], Any]:
        return [total_of(xp, state)], _present(count)


@dataclass(frozen=True, eq=False, repr=False)
class Mean(_Summed):
    """The mean of all samples; with weights, the weighted mean.

    State: the sum, and with weights the sum of the weights.
    """

    name: ClassVar[str] = "mean"
    weighted: bool = False

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        x = x.astype(float_type(x.dtype))
        if not self.weighted:
            return [x], None
        x, count = weighted_sample(x, weight)
        weight = jnp.where(count > 0, weight, 0)
        return [x * weight, weight], count

    def _split(self, state: State) -> tuple[State, State]:
        half = len(state) // 2 if self.weighted else len(state)
        return state[:half], state[half:]

    def widen(self, state: State) -> State:
        return [y for part in self._split(state) for y in (wide(part[0]) if len(part) == 1 else part)]

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        del na, nb
        return [y for pair in zip(self._split(a), self._split(b), strict=True) if pair[0] for y in add(*pair)]

    def finish(self, xp: Any, state: State, count: Any) -> tuple[list[Any], Any]:
        sums, weights = self._split(state)
        total = total_of(xp, sums)
        if not self.weighted:
            whole = count if isinstance(count, int) else xp.maximum(over(xp, count, total), 1)
            return [_divided(xp, total, whole)], _present(count)
        weight = total_of(xp, weights)
        safe = xp.where(weight == 0, 1, weight)
        return [total / over(xp, safe, total)], weight != 0


def _divided(xp: Any, total: Any, count: Any) -> Any:
    if isinstance(count, int):
        return total if count == 1 else total / count
    return total / count.astype(xp.result_type(total.dtype, xp.float32))


@dataclass(frozen=True, eq=False, repr=False)
class Std(Reduction):
    """The standard deviation of all samples from their mean, not that of a sample: with one sample it is 0.

    State: the mean, the sum of squared deviations from it, and with weights their sum; states are combined as by T. F.
    Chan, G. H. Golub and R. J. LeVeque (1983), which stays exact where the mean is large.
    """

    name: ClassVar[str] = "std"
    counts: ClassVar[bool] = True
    weighted: bool = False

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        x = x.astype(float_type(x.dtype))
        if not self.weighted:
            return [x, jnp.zeros_like(x)], None
        x, count = weighted_sample(x, weight)
        return [x, jnp.zeros_like(x), jnp.where(count > 0, weight, 0)], count

    def _split(self, state: State) -> list[State]:
        parts = 3 if self.weighted else 2
        size = len(state) // parts
        return [state[at * size : (at + 1) * size] for at in range(parts)]

    def widen(self, state: State) -> State:
        return [y for part in self._split(state) for y in (wide(part[0]) if len(part) == 1 else part)]

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        a_parts, b_parts = self._split(a), self._split(b)
        weights = add(a_parts[2], b_parts[2]) if self.weighted else []
        wa, wb = (total_of(jnp, a_parts[2]), total_of(jnp, b_parts[2])) if self.weighted else (na, nb)
        mean = a_parts[0][0]
        wa, wb = (over(jnp, jnp.asarray(w, mean.dtype), mean) for w in (wa, wb))
        share = jnp.where(wb > 0, wb / jnp.where(wb > 0, wa + wb, 1), 0)
        apart = total_of(jnp, b_parts[0]) - total_of(jnp, a_parts[0])
        means = add(a_parts[0], [apart * share])
        squares = add(add(a_parts[1], b_parts[1]), [jnp.abs(apart) ** 2 * (wa * share)])
        if len(a_parts[0]) < len(b_parts[0]):  # both in the wider form
            means, squares = self._as_wide(means), self._as_wide(squares)
        return [*means, *squares, *weights]

    @staticmethod
    def _as_wide(part: State) -> State:
        return part if len(part) > 1 else wide(part[0])

    def lanes(self, state: State, count: Any) -> State:
        parts = [[total_of(jnp, part)] for part in self._split(state)]
        means, squares = parts[0][0], parts[1][0]
        weight = parts[2][0] if self.weighted else jnp.full(means.shape[0], 1, means.dtype) * count
        spread = over(jnp, weight.astype(means.dtype), means)
        total = jnp.sum(spread, 0)
        mean = jnp.sum(spread * means, 0) / jnp.where(total > 0, total, 1)
        square = jnp.sum(squares, 0) + jnp.sum(spread * jnp.abs(means - mean) ** 2, 0)
        result = [mean, square, *([jnp.sum(weight, 0)] if self.weighted else [])]
        return result if len(state) == len(result) else self.widen(result)

    def repeat(self, state: State, count: Any, size: int) -> State:
        del count
        parts = self._split(state)
        return [*parts[0], *(x * size for part in parts[1:] for x in part)]

    def finish(self, xp: Any, state: State, count: Any) -> tuple[list[Any], Any]:
        parts = self._split(state)
        square = total_of(xp, parts[1])
        if self.weighted:
            weight = total_of(xp, parts[2])
            return [xp.sqrt(square / over(xp, xp.where(weight == 0, 1, weight), square))], weight != 0
        whole = count if isinstance(count, int) else xp.maximum(over(xp, count, square), 1)
        return [xp.sqrt(_divided(xp, square, whole))], _present(count)


def _limit(dtype: Any, *, least: bool) -> Any:
    if jnp.issubdtype(dtype, jnp.bool_):
        return not least
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min if least else jnp.iinfo(dtype).max
    info = jnp.finfo(dtype)
    if dtype.itemsize == 1:  # some types of 8 bits have no infinity
        return info.min if least else info.max
    return -math.inf if least else math.inf


class _Extreme(Reduction):
    """The greatest or least sample. A NaN among them stays: it is a signal."""

    greatest: ClassVar[bool]

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        if weight is None:
            return [x], None
        counts = ~(weight <= 0)
        return [jnp.where(counts, x, compat.fill(jax.typeof(x), self._none(x.dtype)))], counts.astype(jnp.int32)

    def _none(self, dtype: Any) -> Any:
        return _limit(dtype, least=self.greatest)

    def identity(self, avals: list[Any]) -> State:
        return [compat.fill(aval, self._none(aval.dtype)) for aval in avals]

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        del na, nb
        return [(jnp.maximum if self.greatest else jnp.minimum)(a[0], b[0])]

    def lanes(self, state: State, count: Any) -> State:
        del count
        return [(jnp.max if self.greatest else jnp.min)(state[0], 0)]


class Max(_Extreme):
    """The greatest sample."""

    name: ClassVar[str] = "max"
    greatest: ClassVar[bool] = True


class Min(_Extreme):
    """The least sample."""

    name: ClassVar[str] = "min"
    greatest: ClassVar[bool] = False


class Last(Reduction):
    """The sample that was taken last: in program order, across `vmap` that of the last lane."""

    name: ClassVar[str] = "last"

    def init(self, x: Any, weight: Any) -> tuple[State, Any]:
        if weight is None:
            return [x], None
        x, count = weighted_sample(x, weight)
        return [x], count

    def combine(self, a: State, na: Any, b: State, nb: Any) -> State:
        del na
        if isinstance(nb, int):
            return [(y if nb else x).astype(jnp.promote_types(x.dtype, y.dtype)) for x, y in zip(a, b, strict=True)]
        return [jnp.where(over(jnp, nb, y) > 0, y, x) for x, y in zip(a, b, strict=True)]

    def lanes(self, state: State, count: Any) -> State:
        if isinstance(count, int):
            return [x[-1] for x in state]
        last = jnp.max(jnp.where(count > 0, jnp.arange(count.shape[0]), 0))
        return [jnp.take(x, last, axis=0) for x in state]
