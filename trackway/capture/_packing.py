"""Metrics on their way to the host: finished where they are computed, and packed so that a row costs one transfer.

All small arrays of one type travel as one vector: fetching a hundred scalars one by one takes longer than many a
training step. Divisions and the like are done on the device, so that the host has only names to put to numbers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from trackway.capture import _jaxcompat as compat
from trackway.capture._collections import Series
from trackway.capture._kinds import Reduction
from trackway.capture._primitive import TRACED, Group, Path, Traced, parts
from trackway.capture._reading import RowReader, Slot, row_reader
from trackway.capture._settings import Loss, report
from trackway.tracker._dispatch import Call
from trackway.values import Downgrade, Row, to_plain
from trackway.values._pending import Unreachable, local_view

__all__ = ["Finished", "Layout", "Packed", "Rows", "finish", "pack", "row_of", "rows_of"]

_SMALL = 1024  # elements up to which an array travels with others, and up to which all of them are little
_VECTORS = (  # for types of up to 32 bits
    (jnp.bool_, "int32"),
    (jnp.signedinteger, "int32"),
    (jnp.unsignedinteger, "uint32"),
    (jnp.floating, "float32"),
)


@dataclass(frozen=True)
class Finished:
    """A metric whose value is computed, but for what the host does to show it."""

    path: Path
    kind: Reduction
    arrays: int
    """Arrays of the value, in front of those that say whether it is there, and at which step."""
    maybe: bool
    """Whether an array tells if there is a value at all."""
    step: int | Traced | None
    """The step, `TRACED`, or None."""

    @property
    def width(self) -> int:
        """The number of its arrays."""
        return self.arrays + self.maybe + (self.step is TRACED)

    @property
    def is_series(self) -> bool:
        """Whether the arrays have an axis of rows in front."""
        return isinstance(self.kind, Series)

    @property
    def name(self) -> str:
        """The names that lead to it, joined by `/`."""
        return "/".join(map(str, self.path))


def finish(xp: Any, group: Group, arrays: Sequence[Any]) -> tuple[tuple[Finished, ...], list[Any]]:
    """Return the values of *group* as far as *xp* (NumPy or `jax.numpy`) can compute them.

    What is known to have no samples is left out.
    """
    found, values = [], []
    for metric, share in parts(group, arrays):
        if metric.count == 0:
            continue
        state, count, step = metric.split(share)
        value, present = metric.kind.finish(xp, state, count)
        found.append(Finished(metric.path, metric.kind, len(value), present is not None, metric.step))
        values += [*value, *([] if present is None else [present]), *([step] if metric.step is TRACED else [])]
    return tuple(found), values


Rows = Sequence[tuple[int | None, dict[str, Any]]]


@dataclass(frozen=True)
class Layout:
    """What lies in the buffers that a compiled function returns beside its results."""

    metrics: tuple[Finished, ...]
    slots: tuple[Slot, ...]
    """One for each array of the metrics."""
    lost: tuple[Any, ...] = ()
    """Metrics that are missing, each a `Loss`."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the metrics."""
        return tuple(metric.name for metric in self.metrics)

    @cached_property
    def small(self) -> bool:
        """Whether the buffers take so little memory that many of them may wait for their tracker."""
        return sum(math.prod(slot.shape) for slot in self.slots) <= _SMALL

    def without(self, buffers: Sequence[int]) -> Layout:
        """Return the layout of the metrics that have nothing in *buffers*."""
        metrics: list[Finished] = []
        slots: list[Slot] = []
        at = 0
        for metric in self.metrics:
            own = self.slots[at : at + metric.width]
            at += metric.width
            if not any(slot.buffer in buffers for slot in own):
                metrics.append(metric)
                slots += own
        return replace(self, metrics=tuple(metrics), slots=tuple(slots))

    def rows(self, buffers: Sequence[Any]) -> Rows:
        """Return the rows in *buffers*, which are on the host or are fetched: pairs of a step, if known, and values."""
        if self.row_reader is not None:
            return (self.row_reader(buffers),)
        hosts = [np.asarray(buffer) for buffer in buffers]
        return rows_of(self.metrics, [slot.read(hosts) for slot in self.slots])

    @cached_property
    def row_reader(self) -> RowReader | None:
        """Reads the row, where all metrics are numbers that are always there, with one step at most."""
        step = self.metrics[0].step if self.metrics else None
        if not self.metrics or not all(_is_number(metric) and metric.step == step for metric in self.metrics):
            return None
        if any(slot.shape or slot.start is None or slot.is_bool for slot in self.slots):
            return None
        values = self.slots[:: self.metrics[0].width]
        names = tuple(str(metric.path[0]) for metric in self.metrics)
        if not isinstance(step, Traced):
            return row_reader(names, values, step)
        one, *others = set(self.slots[1::2])
        return None if others else row_reader(names, values, one)


def _is_number(metric: Finished) -> bool:
    shown_as_is = type(metric.kind).value is Reduction.value
    return metric.width == 1 + (metric.step is TRACED) and shown_as_is and len(metric.path) == 1


def rows_of(metrics: Sequence[Finished], arrays: Sequence[np.ndarray]) -> Rows:
    """Return the rows that finished *arrays*, on the host, stand for; in the order in which they were logged.

    Metrics without a step belong to the step of the others, the last one if there are several.
    """
    rows: dict[Hashable, dict[str, Any]] = {}
    loose: list[tuple[Finished, list[np.ndarray]]] = []
    at = 0
    for metric in metrics:
        share = list(arrays[at : at + metric.width])
        at += metric.width
        if metric.is_series:
            _put_series(rows, metric, share)
        elif metric.step is None:
            loose.append((metric, share))
        else:
            _put(rows, int(share[-1]) if metric.step is TRACED else metric.step, metric, share)
    steps = [key for key in rows if not isinstance(key, tuple)]
    for metric, share in loose:
        _put(rows, steps[-1] if steps else None, metric, share)
    return [(None if isinstance(key, tuple) else key, row) for key, row in rows.items() if row]  # type: ignore[misc]


def _put_series(rows: dict[Hashable, dict[str, Any]], metric: Finished, share: list[np.ndarray]) -> None:
    for number in range(share[0].shape[0]):
        one = [x[number] for x in share]
        key: Hashable = ("row", number) if metric.step is None else metric.step
        _put(rows, int(one[-1]) if metric.step is TRACED else key, metric, one)


def _put(rows: dict[Hashable, dict[str, Any]], key: Hashable, metric: Finished, share: list[np.ndarray]) -> None:
    row = rows.setdefault(key, {})
    if metric.maybe and not share[metric.arrays].any():
        return
    value = to_plain(metric.kind.value([np.asarray(x) for x in share[: metric.arrays]]))
    _place(row, metric.path, value)


def _place(row: Any, path: Path, value: Any) -> None:
    """Put *value* where *path* leads; ints in it are places in lists. Where a number is in the way, under its name."""
    top = row
    key: Any
    for key, following in zip(path, [*path[1:], None], strict=True):
        if not isinstance(row, list if isinstance(key, int) else dict):
            top["/".join(map(str, path))] = value
            return
        if isinstance(row, list):
            row.extend([None] * (key + 1 - len(row)))
        if following is None:
            row[key] = value
        else:
            held = row[key] if isinstance(row, list) else row.get(key)
            row[key] = held = ([] if isinstance(following, int) else {}) if held is None else held
            row = held


def pack(group: Group, arrays: Sequence[Any], lost: tuple[Any, ...] = ()) -> tuple[Layout, list[Any]]:
    """Return where everything lies, and the buffers to return from a compiled function.

    Buffers are never arguments of the function themselves, which the caller may donate to another.
    """
    with compat.usual_promotion():
        metrics, values = finish(jnp, group, arrays)
        slots, buffers = _pack([jnp.asarray(value) for value in values])
    return Layout(metrics, slots, lost), buffers


def _pack(values: list[Any]) -> tuple[tuple[Slot, ...], list[Any]]:
    vectors: dict[str, list[Any]] = {}
    lengths: dict[str, int] = {}
    whole: list[Any] = []
    places: dict[int, tuple[str | int, int | None]] = {}  # vector and start in it, or number of a whole buffer
    for value in values:
        if id(value) in places:
            continue
        vector = _vector_for(value)
        if vector is None:
            places[id(value)] = len(whole), None
            whole.append(jnp.copy(value))
            continue
        places[id(value)] = vector, lengths.get(vector, 0)
        lengths[vector] = lengths.get(vector, 0) + value.size
        vectors.setdefault(vector, []).append(value.astype(vector).reshape(-1))
    numbers = {vector: number for number, vector in enumerate(vectors)}
    slots = []
    for value in values:
        where, start = places[id(value)]
        buffer = numbers[where] if isinstance(where, str) else len(numbers) + where
        slots.append(Slot(buffer, start, tuple(value.shape), value.dtype == bool))
    joined = [jnp.concatenate(vector) if len(vector) > 1 else jnp.copy(vector[0]) for vector in vectors.values()]
    return tuple(slots), [*joined, *whole]


def _vector_for(value: Any) -> str | None:
    """Return the type of the vector with which *value* travels; None if it goes by itself."""
    if value.size > _SMALL or compat.is_explicitly_sharded(value) or jnp.iscomplexobj(value):
        return None
    if value.size > 1 and jax.process_count() > 1:  # it may be spread over processes, which must not cost the others
        return None
    if value.dtype.itemsize > 4:  # noqa: PLR2004 - bytes
        return str(value.dtype)
    return next(vector for family, vector in _VECTORS if jnp.issubdtype(value.dtype, family))


@final
class Packed:
    """Packed metrics as a result of a compiled function: a tree of the buffers; the layout is static.

    One is made at every call, in as little time as possible. They are `LateRows` as they stand, for a tracker that
    keeps no row open, where nothing surrounds the call.
    """

    __slots__ = ("buffers", "layout", "lost", "parts", "small")

    def __init__(self, layout: Layout, buffers: Sequence[Any]) -> None:
        self.layout = layout
        self.buffers = self.parts = buffers
        self.lost = layout.lost
        self.small = layout.small

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return self.layout.names

    def calls(self) -> Sequence[Call]:
        """Return one call of `log` for each row."""
        read = self.layout.row_reader
        if read is not None and not self.lost:  # the usual row, with nothing in between
            try:
                step, row = read(self.buffers)
                return (Call.of_row(row, step, None),)
            except RuntimeError:  # `rows` knows what can be done
                pass
        return [Call.of_row(row_of(values, self.lost), step, None) for step, values in self.rows()]

    def rows(self) -> Rows:
        """Return the rows, waiting for the buffers; a metric that is spread over several processes is left out."""
        try:
            return self.layout.rows(self.buffers)
        except RuntimeError:
            away = {number: why for number, buffer in enumerate(self.buffers) if (why := _unreachable(buffer))}
            if not away:
                raise
        layout = self.layout.without(tuple(away))
        reason = next(iter(away.values()))
        missing = tuple(Loss(name, reason, "") for name in self.names if name not in layout.names)
        for loss in missing:
            report(loss)
        self.lost = (*self.layout.lost, *missing)
        return layout.rows([np.zeros(0) if number in away else one for number, one in enumerate(self.buffers)])


def row_of(values: dict[str, Any], lost: tuple[Any, ...] = (), prefix: str = "") -> Row:
    """Return the row of *values* as `rows` gives them, with *prefix* before the names.

    Args:
        values: Numbers and the like.
        lost: Metrics that are missing in it, each a `Loss`.
        prefix: Goes before every name.
    """
    if type(values) is Row and not prefix:
        row = values
    else:
        row = Row({f"{prefix}{name}": value for name, value in values.items()} if prefix else values)
        row.flat = type(values) is Row and values.flat
    if lost:
        row.downgrades = tuple([Downgrade(loss.name, loss.reason, lost=True) for loss in lost])
    return row


def _unreachable(buffer: Any) -> str | None:
    """Why this process cannot read *buffer*; None if it can."""
    try:
        local_view(buffer)
    except Unreachable as error:
        return str(error)
    return None


jax.tree_util.register_pytree_node(Packed, lambda packed: (packed.buffers, packed.layout), Packed)
