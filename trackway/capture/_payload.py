"""What `log` is given in traced code becomes a group of metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from trackway import _notices
from trackway.capture._collections import Constant, Distribution, Hist, Latest, Ring, Stack
from trackway.capture._combine import step_type
from trackway.capture._kinds import Last, Max, Mean, Min, Reduction, Std, Sum
from trackway.capture._primitive import TRACED, Group, Metric, Path, parts
from trackway.capture._settings import problem
from trackway.errors import StepError
from trackway.tracker._steps import check_step
from trackway.tracker._verbs import check_reduce
from trackway.values import Histogram, normalise

__all__ = [
    "at_step",
    "group_of",
    "reduction",
]

_KINDS: dict[str, Reduction] = {kind.name: kind for kind in (Mean(), Sum(), Max(), Min(), Last(), Std(), Stack())}
_INT32 = np.iinfo(np.int32)


class _Slot(int):
    """Stands in a row for an array that was put aside."""


def reduction(reduce: Any, name: str) -> tuple[Reduction | Hist, bool]:
    """Return the reduction that *reduce* asks for, for the metric *name*, and whether it asks for rows.

    Raises:
        ValueError: if it names none.
    """
    if isinstance(reduce, Mapping):
        reduce = reduce.get(name, "mean")
    if reduce == "rows":
        return _KINDS["mean"], True
    if isinstance(reduce, str) and reduce in _KINDS:
        return _KINDS[reduce], False
    if isinstance(reduce, Ring):
        return Latest(reduce.size), False
    if isinstance(reduce, Hist):
        return reduce, False
    check_reduce(reduce)
    raise ValueError(f"reduce must be a reduction, got a mapping for {name!r}")


def group_of(metrics: Mapping[str, Any], *, step: Any, reduce: Any, weight: Any) -> tuple[Group, list[Any]]:
    """Return the metrics of one `log` and their arrays.

    Raises:
        ValueError: if *reduce* is unknown or *weight* is not one number.
        TypeError: if *metrics* is not a mapping.
        StepError: if *step* is not an integer.
    """
    static_step, traced_step = _step(step)
    weight = None if weight is None else _weight(weight)
    kept: list[Any] = []

    def keep(value: Any) -> _Slot:
        kept.append(value)
        return _Slot(len(kept) - 1)

    row = normalise(metrics, arrays=keep)
    group, arrays = [], []
    for path, item in _leaves(row, ()):
        value = kept[item] if type(item) is _Slot else item
        made = _metric(path, value, reduce, weight)
        if made is None:
            continue
        metric, state = made
        if static_step is not None:
            metric = replace(metric, step=static_step)
        group.append(metric)
        arrays += [*state, *([traced_step] if static_step is TRACED else [])]
    return tuple(group), arrays


def at_step(group: Group, arrays: list[Any], step: Any) -> tuple[Group, list[Any]]:
    """Return *group* with *step* for the metrics that have none; raises `StepError` as `group_of` does."""
    static_step, traced_step = _step(step)
    if static_step is None:
        return group, arrays
    metrics, values = [], []
    for metric, share in parts(group, arrays):
        if metric.step is None and not metric.kind.stacked:
            metrics.append(replace(metric, step=static_step))
            values += [*share, *([traced_step] if static_step is TRACED else [])]
        else:
            metrics.append(metric)
            values += share
    return tuple(metrics), values


def _leaves(row: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for key, item in row.items():
        here: Path = (*path, key)
        if isinstance(item, dict) and item:
            yield from _leaves(item, here)
        elif isinstance(item, list) and _holds_slot(item):
            yield from _leaves(dict(enumerate(item)), here)  # type: ignore[arg-type]  # ints are places in lists
        else:
            yield here, item


def _holds_slot(item: Any) -> bool:
    if isinstance(item, dict):
        return any(map(_holds_slot, item.values()))
    return any(map(_holds_slot, item)) if isinstance(item, list) else type(item) is _Slot


def _metric(path: Path, value: Any, reduce: Any, weight: Any) -> tuple[Metric, list[Any]] | None:
    """Return one metric and its state, with the count if that is traced; None if it cannot be had."""
    name = "/".join(map(str, path))
    kind, rows = reduction(reduce, name)
    try:
        sample, chosen = _sample(name, value, kind, weighted=weight is not None)
        state, count = chosen.init(sample, weight)
    except Exception as error:
        problem(name, f"cannot be taken: {type(error).__name__}: {error}", _caller())
        return None
    metric = Metric(path, chosen, len(state), 1 if count is None else None, rows=rows, line=_caller())
    return metric, [*state, *([] if count is None else [count])]


def _sample(name: str, value: Any, kind: Any, *, weighted: bool) -> tuple[Any, Reduction]:
    """Return the sample that *value* is, and the reduction for it."""
    if isinstance(value, Histogram):
        return value.map(_stopped), Distribution()
    if not isinstance(value, bool | int | float | jax.Array | np.ndarray | np.generic):
        _warn_of_text(name, value)
        return jnp.uint32(Constant.code(value)), Constant()
    x = jnp.asarray(_in_range(value))
    if not isinstance(x.dtype, np.dtype) or x.dtype == jax.dtypes.float0:
        raise TypeError(f"values of type {x.dtype} are no numbers")
    x = _stopped(x)
    if isinstance(kind, Hist):
        return kind.sample(x), Distribution()
    return x, replace(kind, weighted=True) if weighted and isinstance(kind, Mean | Std) else kind


_PACKAGE = __name__.partition(".")[0]


def _caller() -> str:
    """Return the line outside of trackway that logs."""
    frame: Any = sys._getframe(1)  # noqa: SLF001 - the documented way to walk the stack cheaply
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _stopped(x: Any) -> Any:
    """Return *x* as an array that carries no gradient and no weak type, so that it fits with others of its name."""
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.inexact):
        x = lax.stop_gradient(x)
    return lax.convert_element_type(x, x.dtype) if getattr(x, "weak_type", False) else x


def _in_range(value: Any) -> Any:
    """An int that JAX cannot hold counts as a float."""
    is_long = isinstance(value, int) and not isinstance(value, bool) and not _INT32.min <= value <= _INT32.max
    return float(value) if is_long and not jax.config.jax_enable_x64 else value


def _warn_of_text(name: str, value: Any) -> None:
    """An f-string of a traced value is the text of the tracer, which nobody wants to log."""
    if isinstance(value, str) and ("Tracer(" in value or "Traced<" in value):
        _notices.warn_once(
            ("text of a tracer", name),
            f"metric {name!r} is the text of a traced JAX value ({value[:60]!r}), not of its number; log the value "
            "itself, and format it where the row is read",
        )


def _weight(weight: Any) -> Any:
    x = _stopped(jnp.asarray(weight, jnp.float32))
    if x.size != 1:
        raise ValueError(
            f"weight must be one number, got an array of shape {x.shape}; log each value under its own weight in "
            "`jax.vmap`, or log the weighted mean and the sum of the weights as its weight"
        )
    return x if x.shape == () else x.reshape(())


def _step(step: Any) -> tuple[Any, Any]:
    """Return the step as far as it is known, and the array that holds it."""
    if not isinstance(step, jax.core.Tracer):
        return check_step(step), None
    if not jnp.issubdtype(step.dtype, jnp.integer) or step.size != 1:
        raise StepError(
            f"step must be one integer, got a traced value of type {step.dtype} and shape {step.shape}; "
            "pass an integer such as `state.step`, progress in fractions is a metric"
        )
    step = step if step.shape == () else step.reshape(())
    return TRACED, lax.convert_element_type(step, step_type())
