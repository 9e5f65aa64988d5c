"""Steps: what counts as one, and the counter of a tracker that was given none."""

from __future__ import annotations

import operator
from typing import Any, final

import numpy as np

from trackway._locks import new_lock
from trackway.errors import StepError, TracerError
from trackway.values import Pending
from trackway.values._pending import Unreachable, hold, is_device_class

__all__ = ["MAX_STEP", "PendingStep", "StepCounter", "check_step", "held_step"]

_MIN, MAX_STEP = -(2**63), 2**63 - 1
_CURE = "pass an integer such as `step=int(step)`; progress in fractions is a metric, not a step"


def check_step(step: Any) -> int | None:
    """Return *step* as a Python int (or None), whatever integer type it has.

    Raises:
        StepError: for bool, float, text and anything else without `__index__`, and for integers beyond 64 bits.
        TracerError: for a traced JAX value.
    """
    if type(step) is int and _MIN <= step <= MAX_STEP:
        return step
    if step is None:
        return None
    return _converted(step)


def _converted(step: Any) -> int:
    kind = type(step).__name__
    if isinstance(step, bool) or str(getattr(step, "dtype", "")) == "bool":
        raise StepError(f"step must be an integer, got {step!r} ({kind}); {_CURE}")
    try:
        number = operator.index(step)
    except StepError:  # of a step that was pending
        raise
    except Exception as error:
        if "Tracer" in kind:
            raise TracerError(
                "step is a traced JAX value here; only `trackway.log` and `trackway.jit_log` take one"
            ) from None
        raise StepError(f"step must be an integer, got {_short(step)} ({kind}); {_CURE}") from error
    return _in_range(number)


def held_step(step: Any) -> int | PendingStep | None:
    """Return *step* as `check_step` does, but without waiting for one that a device is still computing.

    Raises:
        StepError: for what `check_step` refuses, and for an array on a device that is not one integer.
        TracerError: for a traced JAX value.
    """
    if type(step) is PendingStep:
        return step
    if type(step) is int or step is None or not is_device_class(type(step)) or "Tracer" in type(step).__name__:
        return check_step(step)
    if not isinstance(step.dtype, np.dtype) or step.dtype.kind not in "iu" or step.size != 1:
        raise StepError(
            f"step must be one integer, got an array of type {step.dtype} and shape {tuple(step.shape)}; {_CURE}"
        )
    try:
        held = hold(step)
    except Unreachable as error:
        raise StepError(f"step {error}") from error
    return PendingStep(held) if is_device_class(type(held)) else check_step(held.item())


@final
class PendingStep:
    """A step whose number is still on a device; `operator.index` waits for it. May be used from several threads.

    Args:
        value: An array of one integer whose transfer to the host has begun.
    """

    __slots__ = ("_pending",)

    def __init__(self, value: Any) -> None:
        self._pending = Pending(value, name="step")

    def is_ready(self) -> bool:
        """Tell whether `resolve` would return without waiting."""
        return self._pending.is_ready()

    def resolve(self) -> int:
        """Return the step, waiting for it if need be.

        Raises:
            StepError: if it cannot be read, or does not fit in 64 bits.
        """
        number, reason = self._pending.outcome()
        if reason is not None:
            raise StepError(f"step {reason}")
        return _in_range(number)

    __index__ = resolve


def _in_range(number: int) -> int:
    if not _MIN <= number <= MAX_STEP:
        raise StepError(f"step must fit in 64 bits, got an integer of {number.bit_length()} bits")
    return number


def _short(step: Any) -> str:
    try:
        text = repr(step)
    except Exception:
        return "a value that cannot be printed"
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - one line of an error message


@final
class StepCounter:
    """The step of rows that come without one: the last step + 1, starting at *first*. Thread-safe."""

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._lock = new_lock()

    def take(self, step: Any) -> int:
        """Return *step* as an int, or the counter's own where it is None, and count on from there."""
        number = check_step(step)
        with self._lock:
            if number is None:
                number = _in_range(self._next)
            self._next = number + 1
        return number
