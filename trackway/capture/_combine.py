"""Two states of one name become one; works on arrays, traced or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from trackway.capture import _jaxcompat as compat
from trackway.capture._collections import Series
from trackway.capture._kinds import Mean, Reduction, Std
from trackway.capture._primitive import TRACED, Metric
from trackway.capture._settings import problem
from trackway.errors import CaptureError

__all__ = [
    "Share",
    "absent",
    "as_kind",
    "check_traceable",
    "combine",
    "common_kind",
    "merged",
    "step_type",
    "traced_count",
    "traced_step",
    "varying",
    "weighted_kind",
    "widened",
    "with_step",
    "with_steps",
    "without_step",
]

Share = tuple[Metric, list[Any]]
"""A metric with its arrays, or variables for them."""


def common_kind(a: Reduction, b: Reduction) -> Reduction:
    """Return the reduction that serves both.

    Raises:
        CaptureError: if there is none.
    """
    if a == b:
        return a
    if isinstance(a, Series) or isinstance(b, Series):
        return Series(common_kind(getattr(a, "base", a), getattr(b, "base", b)))
    if type(a) is type(b) and isinstance(a, Mean | Std):
        return replace(a, weighted=True)
    raise CaptureError(f"is logged with two reductions, {a!r} and {b!r}; give one of them another name")


def weighted_kind(kind: Reduction) -> Reduction:
    """Return *kind* as one for samples with and without weights."""
    if isinstance(kind, Series):
        return Series(weighted_kind(kind.base))
    return replace(kind, weighted=True) if isinstance(kind, Mean | Std) else kind


def merged(shares: Sequence[Share]) -> list[Share]:
    """Return *shares* with those of one name combined; what cannot be is reported and left out."""
    found: dict[str, Share] = {}
    given_up: set[str] = set()
    for metric, arrays in shares:
        name = metric.name
        if name in given_up:
            continue
        try:
            found[name] = combine(*found[name], metric, arrays) if name in found else (metric, arrays)
        except CaptureError as error:
            del found[name]
            given_up.add(name)
            problem(name, str(error), metric.line)
    return list(found.values())


def as_kind(metric: Metric, arrays: list[Any], kind: Reduction) -> tuple[Metric, list[Any]]:
    """Return *metric* as one of the reduction *kind*, which `common_kind` named."""
    if isinstance(kind, Series) and not isinstance(metric.kind, Series):
        metric, arrays = as_kind(metric, arrays, kind.base)
        return _as_series(metric, arrays)
    if metric.kind == kind:
        return metric, arrays
    state, count, step = metric.split(arrays)
    base = getattr(kind, "base", kind)
    earlier = getattr(metric.kind, "base", metric.kind)
    if getattr(earlier, "weighted", False) and not getattr(base, "weighted", False):
        raise CaptureError("is logged with weights where it was logged without; give one of them another name")
    if getattr(base, "weighted", False) and not getattr(earlier, "weighted", False):
        shape = state[0].shape[:1] if isinstance(kind, Series) else ()
        weight = jnp.broadcast_to(jnp.asarray(count, jnp.float32), shape)
        state = [*state, weight, *([jnp.zeros_like(weight)] if len(base.widen(list(state))) == len(state) > 1 else [])]
        state = _even(base, state)
    metric = replace(metric, kind=kind, arrays=len(state))
    return metric, metric.join(state, count, step)


def _even(kind: Any, state: list[Any]) -> list[Any]:
    """Give all parts of a weighted state the same form."""
    return state if len(state) % (3 if isinstance(kind, Std) else 2) == 0 else [*state, jnp.zeros_like(state[-1])]


def _as_series(metric: Metric, arrays: list[Any]) -> tuple[Metric, list[Any]]:
    """Return a metric as a series of one row."""
    return replace(metric, kind=Series(metric.kind)), [x[None] for x in arrays]


def traced_count(metric: Metric, arrays: list[Any]) -> tuple[Metric, list[Any]]:
    """Return *metric* with its count as an array."""
    if metric.count is None:
        return metric, arrays
    state, count, step = metric.split(arrays)
    shape = _count_shape(metric, state)
    return (dynamic := replace(metric, count=None)), dynamic.join(state, jnp.full(shape, count, jnp.int32), step)


def _count_shape(metric: Metric, state: list[Any]) -> tuple[int, ...]:
    return state[0].shape[:1] if isinstance(metric.kind, Series) else ()


def traced_step(metric: Metric, arrays: list[Any]) -> tuple[Metric, list[Any]]:
    """Return *metric*, which has a step, with the step as an array."""
    if metric.step is TRACED or metric.step is None:
        return metric, arrays
    check_traceable(metric.step)
    state, count, step = metric.split(arrays)
    shape = _count_shape(metric, state)
    return (dynamic := replace(metric, step=TRACED)), dynamic.join(state, count, jnp.full(shape, step, step_type()))


def with_steps(found: list[Share], steps: Mapping[str, tuple[int, int]], inputs: Any) -> list[Share]:
    """Give the metrics that *steps* names the steps that were taken off them."""
    return [with_step(s, steps[s[0].name], inputs) if s[0].name in steps else s for s in found]


def without_step(entry: Any) -> Any:
    """Return an entry of a builder without its traced step."""
    return type(entry)(replace(entry.metric, step=None), entry.atoms[:-1])


def with_step(share: Share, source: tuple[int, int], arrays: Any) -> Share:
    """Give a metric the step that *source* says: an array among *arrays*, and what is added to it."""
    metric, own = share
    at, offset = source
    step = jnp.asarray(arrays[at], step_type()).reshape(())
    step = step + offset if offset else step
    if isinstance(metric.kind, Series):
        step = jnp.broadcast_to(step, own[0].shape[:1])
    return replace(metric, step=TRACED), [*own, step]


def check_traceable(step: Any) -> None:
    """Raise `CaptureError` if a known *step* is beyond what an array of the program can hold."""
    limits = jnp.iinfo(step_type())
    if isinstance(step, int) and not limits.min <= step <= limits.max:
        raise CaptureError(
            f"is logged at step {step}, beyond 32 bits, where it depends on the program whether it is logged at all; "
            "enable jax_enable_x64, or give the step where the compiled function is called"
        )


def step_type() -> Any:
    """Return the type of traced steps."""
    return jax.dtypes.canonicalize_dtype(jnp.int64)


def combine(a: Metric, xs: list[Any], b: Metric, ys: list[Any]) -> tuple[Metric, list[Any]]:
    """Return one metric for the samples of *a* and then those of *b*.

    Raises:
        CaptureError: if they cannot be combined.
    """
    kind = common_kind(a.kind, b.kind)
    a, xs = as_kind(a, xs, kind)
    b, ys = as_kind(b, ys, kind)
    if isinstance(kind, Series):
        return _joined_rows(a, xs, b, ys)
    axes = compat.same_on_all_axes([jax.typeof(x) for x in (*xs, *ys)])
    (state_a, na, step_a), (state_b, nb, step_b) = a.split(xs), b.split(ys)
    _check_shapes(state_a, state_b)
    state = kind.combine(state_a, na, state_b, nb)
    step, later = _later_step(a.step, step_a, b.step, step_b, nb)
    known = a.count is not None and b.count is not None
    metric = replace(
        a, kind=kind, arrays=len(state), count=na + nb if known else None, step=step, rows=a.rows or b.rows
    )
    arrays = metric.join(state, na + nb, later)
    return metric, varying(arrays, axes)


def _later_step(a: Any, step_a: Any, b: Any, step_b: Any, nb: Any) -> tuple[Any, Any]:
    """Return the static and the traced step of what was logged at two."""
    if b is None:
        return a, step_a
    if a is None:
        return b, step_b
    if a is not TRACED and b is not TRACED:
        if a != b:
            raise CaptureError(f"is logged at two different steps, {a} and {b}, in one call of a compiled function")
        return a, a
    if step_a is step_b:
        return TRACED, step_a
    if isinstance(nb, int):
        return TRACED, jnp.asarray(step_b if nb else step_a, step_type())
    return TRACED, jnp.where(nb > 0, jnp.asarray(step_b, step_type()), jnp.asarray(step_a, step_type()))


def _check_shapes(a: list[Any], b: list[Any]) -> None:
    if a[0].shape != b[0].shape:
        raise CaptureError(f"is logged with two shapes, {a[0].shape} and {b[0].shape}; give one of them another name")


def _joined_rows(a: Metric, xs: list[Any], b: Metric, ys: list[Any]) -> tuple[Metric, list[Any]]:
    if (a.step is None) != (b.step is None):
        raise CaptureError("is logged both with and without a step, which cannot be put into one order of rows")
    if a.count != b.count:
        (a, xs), (b, ys) = traced_count(a, xs), traced_count(b, ys)
    if a.step is not None and (TRACED in (a.step, b.step) or a.step != b.step):
        (a, xs), (b, ys) = traced_step(a, xs), traced_step(b, ys)
    if a.arrays != b.arrays:
        (a, xs), (b, ys) = widened(a, xs), widened(b, ys)
    (state_a, na, step_a), (state_b, nb, step_b) = a.split(xs), b.split(ys)
    if state_a[0].shape[1:] != state_b[0].shape[1:]:
        _check_shapes([x[0] for x in state_a], [x[0] for x in state_b])
    axes = compat.same_on_all_axes([jax.typeof(x) for x in (*xs, *ys)])
    state = a.kind.combine(state_a, na, state_b, nb)
    count = jnp.concatenate([na, nb]) if a.count is None else None
    step = jnp.concatenate([step_a, step_b]) if a.step is TRACED else None
    return a, varying(a.join(state, count, step), axes)


def widened(metric: Metric, arrays: list[Any]) -> tuple[Metric, list[Any]]:
    """Return *metric* with its state in the form that loops carry."""
    state, count, step = metric.split(arrays)
    kind = metric.kind
    if isinstance(kind, Series):
        base = kind.base
        state = list(jax.vmap(lambda *row: base.widen(list(row)))(*state))
    else:
        state = kind.widen(state)
    metric = replace(metric, arrays=len(state))
    return metric, metric.join(state, count, step)


def absent(metric: Metric, avals: list[Any]) -> list[Any]:
    """Return the arrays of *metric*, whose count is traced, for no samples; *avals* are theirs."""
    state, count, step = metric.split(avals)
    base = metric.kind.base if isinstance(metric.kind, Series) else metric.kind
    zeros = [compat.fill(aval, 0) for aval in (count, step) if hasattr(aval, "shape")]
    return [*base.identity(state), *zeros]


def varying(arrays: list[Any], axes: frozenset[Any]) -> list[Any]:
    """Return *arrays* as values that may differ over the mesh axes *axes*."""
    return [compat.to_varying(jnp.asarray(x), axes) for x in arrays]
