"""What a captured function logged, as data."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from trackway.capture import _jaxcompat as compat
from trackway.capture._collections import Constant, Distribution, Latest, Series, Stack
from trackway.capture._combine import combine
from trackway.capture._packing import Finished, Rows, finish, rows_of
from trackway.capture._primitive import Group, parts
from trackway.capture._settings import Loss, problem
from trackway.errors import CaptureError
from trackway.values import Histogram, Pending, to_plain

__all__ = ["Logs"]


@final
@jax.tree_util.register_pytree_node_class
class Logs(Mapping[str, Any]):
    """The metrics of one call of a captured function; made by `capture_logging`.

    A mapping of names (nested ones joined by `/`) to values, and a JAX tree of the reduced states behind them, so it
    may be returned from compiled functions, stacked by `scan`, batched by `vmap`. `trackway.log(logs, step=i)` logs it,
    without waiting for the device. Immutable, hence safe in any thread.

    Inside a trace every name is there, also of what a branch that was not taken would have logged; `to_host` knows
    better and leaves it out.
    """

    def __init__(self, group: Group, arrays: Sequence[Any], lost: tuple[Loss, ...] = ()) -> None:
        """Hold the *arrays* of *group*; *lost* are the metrics that could not be captured."""
        self._group = group
        self._arrays = list(arrays)
        self._lost = lost

    @property
    def group(self) -> Group:
        """The static half."""
        return self._group

    @property
    def arrays(self) -> list[Any]:
        """The states, counts and steps, flat."""
        return list(self._arrays)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, nested ones joined by `/`."""
        return tuple(self)

    @property
    def buffers(self) -> list[Any]:
        """The arrays that have to be there before the values are."""
        return self._arrays

    @property
    def small(self) -> bool:
        """Whether they take so little memory that many such logs may wait for their tracker."""
        return False

    @property
    def lost(self) -> tuple[Loss, ...]:
        """The metrics that could not be captured."""
        return self._lost

    def tree_flatten(self) -> tuple[list[Any], Any]:
        """Return the arrays, and the rest."""
        return self._arrays, (self._group, self._lost)

    @classmethod
    def tree_unflatten(cls, static: Any, arrays: Sequence[Any]) -> Logs:
        """Make it up again."""
        return cls(static[0], arrays, static[1])

    def __len__(self) -> int:
        return len(self._group)

    def __iter__(self) -> Iterator[str]:
        return iter(_places(self._group))

    def __getitem__(self, name: str) -> Any:
        """Return the value of *name*: an array where the states are arrays, computed by this call."""
        metric, share = parts(self._group, self._arrays)[_places(self._group)[name]]
        with compat.usual_promotion():
            found, values = finish(jnp, (metric,), share)
        if not found:
            return jnp.nan
        value = values[: found[0].arrays]
        if isinstance(metric.kind, Distribution):
            return Histogram(*value[:11])
        if any(isinstance(x, jax.core.Tracer) for x in value):
            return value[0]
        return value[0] if len(value) == 1 and not _is_code(metric.kind) else metric.kind.value(jax.device_get(value))

    def to_host(self) -> dict[str, Any]:
        """Return the values on the host, waiting for them; names that were not logged in the end are left out.

        Numbers are NumPy scalars and arrays; a `stack` some entries of which were not logged is a masked array; a
        metric with a row per iteration is an array (or list) of these. Logs that were batched by `vmap` or stacked by
        `scan` give arrays with that axis in front, masked where nothing was logged, and lists of what is no number.
        """
        found, values = self._finished()
        result: dict[str, Any] = {}
        at = 0
        for metric in found:
            share = values[at : at + metric.width]
            at += metric.width
            value, present = share[: metric.arrays], share[metric.arrays] if metric.maybe else np.True_
            if np.any(present):
                result[metric.name] = _host_value(metric, value, present)
        return result

    def rows(self) -> Rows:
        """Return the rows as they would be logged, waiting for the values: pairs of a step (or None) and a dict.

        Logs that were batched by `vmap` or stacked by `scan` give the rows of each in turn, as far as it can be told
        that they were: where a metric has a traced step, or may not have been logged.
        """
        batch = batch_size(self._group, self._arrays)
        if batch is None:
            return rows_of(*self._finished())
        arrays = jax.device_get(self._arrays)
        return [row for at in range(batch) for row in Logs(self._group, [x[at] for x in arrays]).rows()]

    def _finished(self) -> tuple[tuple[Finished, ...], list[Any]]:
        arrays = [np.asarray(x) for x in jax.device_get(self._arrays)]
        with np.errstate(all="ignore"):
            found, values = finish(np, self._group, arrays)
        return found, [np.asarray(value) for value in values]

    def __getstate__(self) -> dict[str, Any]:
        arrays = [np.asarray(x) for x in jax.device_get(self._arrays)]
        codes = [share[0] for metric, share in parts(self._group, arrays) if _is_code(metric.kind)]
        texts = {code: Constant.known(code) for array in codes for code in np.ravel(array).tolist()}
        return {"group": self._group, "arrays": arrays, "lost": self._lost, "texts": texts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Constant.learn(state["texts"])
        self._group, self._arrays, self._lost = state["group"], state["arrays"], state["lost"]

    def merge(self, other: Logs) -> Logs:
        """Return the logs of both: of what was logged first here and then in *other*; traced or not.

        Raises:
            CaptureError: if a name has different reductions, shapes or steps, and `settings(on_error="raise")` holds;
                otherwise it is left out, with a warning.
        """
        found = {metric.name: (metric, share) for metric, share in parts(self._group, self._arrays)}
        for metric, share in parts(other._group, other._arrays):
            earlier = found.get(metric.name)
            try:
                with compat.usual_promotion():
                    found[metric.name] = combine(*earlier, metric, share) if earlier else (metric, share)
            except CaptureError as error:
                del found[metric.name]
                problem(metric.name, str(error), metric.line)
        group = tuple(metric for metric, _ in found.values())
        return Logs(group, [x for _, share in found.values() for x in share], (*self._lost, *other._lost))

    def __trackway_late__(self, step: int | None, commit: bool | None) -> None:
        """Log this to the current tracker without waiting for the values; rows without a step of theirs get *step*."""
        from trackway.capture._delivery import deliver

        deliver(self, step=step, commit=commit)

    def __trackway_row__(self) -> Mapping[str, Any]:
        """Return the values for a tracker that is given this directly, as one row."""
        return self._plain()

    def __trackway_pending__(self) -> Pending:
        """Return what stands for this inside of a row until the values are there."""
        return Pending(self, lambda logs: logs._plain(), parts=tuple(self._arrays))  # noqa: SLF001

    def _plain(self) -> dict[str, Any]:
        return {name: to_plain(value) for name, value in self.to_host().items()}

    def __repr__(self) -> str:
        return f"Logs({', '.join(self)})"


@functools.lru_cache(maxsize=256)
def _places(group: Group) -> dict[str, int]:
    """Return the place of each name; logs are made up at every call of a compiled function, and seldom asked."""
    return {metric.name: number for number, metric in enumerate(group)}


def _is_code(kind: Any) -> bool:
    return isinstance(getattr(kind, "base", kind), Constant)


def batch_size(group: Group, arrays: Sequence[Any]) -> int | None:
    """Return the length of an axis in front of all *arrays* that `vmap` or `scan` has added; None for no such."""
    for metric, share in parts(group, arrays):
        _, count, step = metric.split(share)
        known = [x for x in (count, step) if hasattr(x, "shape")] or _scalars_of(metric.kind, share)
        for x in known:
            if x.ndim > isinstance(metric.kind, Series) and not metric.kind.keeps_lanes:
                return int(x.shape[0])
    return None


def _scalars_of(kind: Any, share: list[Any]) -> list[Any]:
    """Return an array that is a scalar unless it was batched, for reductions that have one."""
    base = getattr(kind, "base", kind)
    return [share[4]] if isinstance(base, Distribution) else [share[0]] if isinstance(base, Constant) else []


def _host_value(metric: Finished, value: list[Any], present: Any) -> Any:
    if not isinstance(metric.kind, Series):
        if np.ndim(present) or (not isinstance(metric.kind, Stack) and _batched(metric, value)):
            return _each(metric, value, present)
        return metric.kind.value(value)
    rows = [metric.kind.value([x[number] for x in value]) for number in range(len(value[0]))]
    if not all(isinstance(row, np.ndarray | np.generic) for row in rows):
        return [row for row, there in zip(rows, np.broadcast_to(present, len(rows)), strict=True) if there]
    return _masked(np.stack(rows), present) if rows else np.zeros(0)


def _batched(metric: Finished, value: list[Any]) -> bool:
    return any(x.ndim for x in _scalars_of(metric.kind, value))


def _each(metric: Finished, value: list[Any], present: Any) -> Any:
    """Return the values of a batch: an array, masked where there is none, or a list."""
    if isinstance(metric.kind, Constant | Distribution | Latest):
        there = np.broadcast_to(present, value[0].shape[:1])
        return [metric.kind.value([x[at] for x in value]) for at in range(len(there)) if there[at]]
    return _masked(metric.kind.value(value), present)


def _masked(value: Any, present: Any) -> Any:
    missing = ~np.asarray(present)
    if not missing.any():
        return value
    return np.ma.masked_array(
        value, np.broadcast_to(missing.reshape(missing.shape + (1,) * (value.ndim - missing.ndim)), value.shape)
    )
