"""A payload taken apart at trace time: the arrays that go to the host, and a row with room for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from trackway import _notices
from trackway.values import Histogram, Row, normalise, to_plain

__all__ = ["Template"]


class Slot(NamedTuple):
    """Stands in the row for a traced value.

    Attributes:
        operand: Index of the array that arrives.
        place: Index in that array, for a number that travels packed with others; None where it is the whole array.
    """

    operand: int
    place: int | None


@final
class Template:
    """What one `log` in compiled code delivers, but for the values known only at run time.

    Args:
        metrics: The payload; every value that is not traced is normalised here, once.
        step: The step, traced or not.

    Raises:
        TypeError: if *metrics* is not a mapping.
    """

    def __init__(self, metrics: Mapping[str, Any], step: Any) -> None:
        self._values: list[Any] = []
        self._row = normalise(metrics, traced=self._keep)
        _warn_of_text(self._row)
        self._step = self._keep(step) if _is_traced(step) else step
        self._slots, self.operands = _packed(self._values)

    def _keep(self, value: Any) -> int:
        """Note a traced value; its index, marked by being of this class's own type, stands for it until packing."""
        self._values.append(value)
        return _Index(len(self._values) - 1)

    @property
    def names(self) -> tuple[str, ...]:
        """The names at the top of the payload."""
        return tuple(self._row)

    def filled(self, arrays: Sequence[np.ndarray]) -> tuple[Row, Any]:
        """Return the row and the step, with the values that arrived."""
        plain = [to_plain(array) for array in arrays]

        def value(index: int) -> Any:
            operand, place = self._slots[index]
            packed = plain[operand]
            # a vector of one number is that number in a row
            return packed if place is None or type(packed) is not list else packed[place]

        row = self._row.derive({key: _fill(item, value) for key, item in self._row.items()})
        return row, _fill(self._step, value)


class _Index(int):
    """An index into the traced values; a class of its own, to be told from a number of the payload."""


def _fill(item: Any, value: Any) -> Any:
    kind = type(item)
    if kind is _Index:
        return value(item)
    if kind is dict:
        return {key: _fill(inner, value) for key, inner in item.items()}
    if kind is list:
        return [_fill(inner, value) for inner in item]
    if kind is Histogram:
        return item.map(lambda part: np.asarray(value(part)) if type(part) is _Index else part).to_host()
    return item


def _warn_of_text(row: Row) -> None:
    """An f-string of a traced value is the text of the tracer, which nobody wants to log."""
    for key, value in row.items():
        if type(value) is str and ("Tracer(" in value or "Traced<" in value):
            _notices.warn_once(
                ("text of a tracer", key),
                f"metric {key!r} is the text of a traced JAX value ({value[:60]!r}), not of its number; log the value "
                "itself, and format it where the row is read",
            )


def _is_traced(value: Any) -> bool:
    import jax

    return isinstance(value, jax.core.Tracer)


def _packed(values: Sequence[Any]) -> tuple[list[Slot], list[Any]]:
    """Stack all numbers of one type into one vector: JAX takes longer per operand of a callback than per number."""
    import jax.numpy as jnp

    slots: list[Slot | None] = [None] * len(values)
    operands: list[Any] = []
    by_type: dict[Any, list[int]] = defaultdict(list)
    for index, value in enumerate(values):
        if value.size == 1 and isinstance(value.dtype, np.dtype):
            by_type[value.dtype].append(index)
        else:
            slots[index] = Slot(len(operands), None)
            operands.append(value)
    for indices in by_type.values():
        for place, index in enumerate(indices):
            slots[index] = Slot(len(operands), place)
        operands.append(jnp.stack([values[index].reshape(()) for index in indices]))
    return [slot for slot in slots if slot is not None], operands
