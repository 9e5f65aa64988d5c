"""The primitive behind every `log` in traced code.

`log_p` takes the states of a group of metrics and has no outputs, so nothing can depend on it: differentiation,
`jax.checkpoint` and XLA see the program that they would see without it. An unordered effect of its own keeps the
equation alive, and tells everyone who looks at a jaxpr whether there is a log in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

import jax.numpy as jnp
from jax.interpreters import ad, batching

from trackway.capture import _jaxcompat as compat
from trackway.capture._collections import Series
from trackway.capture._kinds import Reduction

__all__ = [
    "TRACED",
    "Group",
    "LogEffect",
    "Metric",
    "Path",
    "Traced",
    "bind",
    "has_log",
    "log_effect",
    "log_p",
    "merged_lanes",
    "offer_to",
    "parts",
    "set_rules",
    "without_log",
]


class Traced(Enum):
    """Its one member stands for a step that an array of the program holds; an enumeration survives pickling."""

    TRACED = "traced"


TRACED: Final = Traced.TRACED

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Metric:
    """What is known of a metric while tracing.

    Its arrays are those of the state, then the count where that is not known, then the step where that is traced.
    """

    path: Path
    """The names that lead to it in a row; ints are places in lists."""
    kind: Reduction
    arrays: int
    """Arrays of the state."""
    count: int | None = 1
    """Samples; None where that is known at run time only. Of a `Series`: of each row."""
    step: int | Traced | None = None
    """The step of its row; `TRACED`; or None where none was given."""
    rows: bool = False
    """Whether each iteration of a loop is to have a row of its own, also where no step says so."""
    line: str = field(default="", compare=False)
    """Where it was logged, `file:line`."""

    @property
    def name(self) -> str:
        """The names joined by `/`."""
        return "/".join(map(str, self.path))

    @property
    def width(self) -> int:
        """The number of its arrays."""
        return self.arrays + (self.count is None) + (self.step is TRACED)

    def split(self, arrays: Sequence[Any]) -> tuple[list[Any], Any, Any]:
        """Return the state, the count and the step of `width` arrays."""
        rest = list(arrays[self.arrays :])
        count = rest.pop(0) if self.count is None else self.count
        step = rest.pop(0) if self.step is TRACED else self.step
        return list(arrays[: self.arrays]), count, step

    def join(self, state: Sequence[Any], count: Any, step: Any) -> list[Any]:
        """Return the arrays in order: what `split` takes apart."""
        return [*state, *([count] if self.count is None else []), *([step] if self.step is TRACED else [])]

    def prefixed(self, prefix: str) -> Metric:
        """Return the metric under a name that begins with *prefix*."""
        return replace(self, path=(f"{prefix}{self.path[0]}", *self.path[1:])) if prefix else self


Group = tuple[Metric, ...]


def parts(group: Group, arrays: Sequence[Any]) -> list[tuple[Metric, list[Any]]]:
    """Return each metric of *group* with its share of *arrays*."""
    result, at = [], 0
    for metric in group:
        result.append((metric, list(arrays[at : at + metric.width])))
        at += metric.width
    return result


class LogEffect(compat.Effect):  # type: ignore[misc]  # its base has no types
    """Marks what holds a log. There is one, equal to every other."""

    def __str__(self) -> str:
        return "TrackwayLog"

    def __eq__(self, other: object) -> bool:
        return type(other) is LogEffect

    def __hash__(self) -> int:
        return hash(LogEffect)


log_effect = LogEffect()
compat.allow_effect(LogEffect)


def has_log(effects: Any) -> bool:
    """Tell whether one of *effects* is that of a log."""
    return any(type(effect) is LogEffect for effect in effects)


def without_log(effects: Any) -> set[Any]:
    """Return the other effects."""
    return {effect for effect in effects if type(effect) is not LogEffect}


log_p = compat.Primitive("trackway_log")
log_p.multiple_results = True


def bind(group: Group, arrays: Sequence[Any]) -> None:
    """Log *group* at this point of the program."""
    if group:
        log_p.bind(*arrays, group=group)


def offer_to(receiver: Callable[[Any, Group, Sequence[Any]], bool]) -> None:
    """Offer to *receiver* every group with the trace in which it becomes an equation; it returns whether it takes it.

    Not in `bind`: what JAX does with a log inside of a transformation goes to the trace around by other ways, too.
    """
    original = log_p.bind_with_trace

    def bind_with_trace(
        trace: Any, arrays: Sequence[Any], *rest: Any
    ) -> Any:  # what the rest is depends on the version
        return [] if receiver(trace, rest[-1]["group"], arrays) else original(trace, arrays, *rest)

    log_p.bind_with_trace = bind_with_trace


@log_p.def_effectful_abstract_eval  # type: ignore[untyped-decorator]
def _abstract(*avals: Any, group: Group) -> tuple[list[Any], set[Any]]:
    del avals, group
    return [], {log_effect}


def _jvp(primals: Sequence[Any], tangents: Any, *, group: Group) -> tuple[list[Any], list[Any]]:
    del tangents
    bind(group, primals)
    return [], []


def _transpose(cotangents: Any, *arrays: Any, group: Group) -> list[None]:
    del cotangents, group
    return [None] * len(arrays)


ad.primitive_jvps[log_p] = _jvp
ad.primitive_transposes[log_p] = _transpose


def _batch(axis: Any, arrays: Sequence[Any], dims: Sequence[Any], *, group: Group) -> tuple[list[Any], list[Any]]:
    """A batch of lanes logs what a loop over them would."""
    metrics, states = [], []
    at = 0
    for metric in group:
        end = at + metric.width
        one, state = _lanes(axis.size, metric, arrays[at:end], dims[at:end])
        metrics.append(one)
        states += state
        at = end
    bind(tuple(metrics), states)
    return [], []


batching.fancy_primitive_batchers[log_p] = _batch


def _lanes(size: int, metric: Metric, arrays: Sequence[Any], dims: Sequence[Any]) -> tuple[Metric, list[Any]]:
    """Return one metric for *size* lanes of it, and its arrays."""
    if all(dim is None for dim in dims) and not metric.kind.keeps_lanes:
        return _repeated(size, metric, list(arrays))
    step_varies = metric.step is TRACED and dims[-1] is not None
    fronts = [_front(x, dim, size) for x, dim in zip(arrays, dims, strict=True)]
    if metric.step is TRACED and not step_varies:
        fronts[-1] = arrays[-1]  # the same step in every lane
    return merged_lanes(size, metric, fronts, by_step=step_varies)


def _front(x: Any, dim: Any, size: int) -> Any:
    return jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)


def _repeated(size: int, metric: Metric, arrays: list[Any]) -> tuple[Metric, list[Any]]:
    state, count, step = metric.split(arrays)
    state = metric.kind.repeat(state, count, size)
    if metric.count is not None:
        metric = replace(metric, count=metric.count * size)
    return metric, metric.join(state, count * size, step)


def merged_lanes(size: int, metric: Metric, arrays: list[Any], *, by_step: bool) -> tuple[Metric, list[Any]]:
    """Return one metric for lanes that lie along axis 0 of its arrays; the step has that axis only if *by_step*."""
    state, count, step = metric.split(arrays)
    if by_step:
        return _rows_of_lanes(size, metric, state, count, step)
    if metric.kind.keeps_lanes:
        return metric, arrays
    state = metric.kind.lanes(state, count)
    total = jnp.sum(count, 0, dtype=count.dtype) if metric.count is None else None
    known = None if metric.count is None else metric.count * size
    metric = replace(metric, arrays=len(state), count=known)
    return metric, metric.join(state, total, step)


def _rows_of_lanes(size: int, metric: Metric, state: list[Any], count: Any, step: Any) -> tuple[Metric, list[Any]]:
    """Lanes whose steps differ are rows; those of a series interleave, so that each iteration stays together."""
    if not isinstance(metric.kind, Series):
        return replace(metric, kind=Series(metric.kind)), metric.join(state, count, step)

    def interleaved(x: Any) -> Any:
        return jnp.swapaxes(x, 0, 1).reshape(size * x.shape[1], *x.shape[2:])

    return metric, [interleaved(x) for x in metric.join(state, count, step)]


def set_rules(impl: Callable[..., list[Any]], lowering: Callable[..., Any]) -> None:
    """Say what happens to a log that nothing captured: run at once, or compiled."""
    log_p.def_impl(impl)
    compat.register_lowering(log_p, lowering)
