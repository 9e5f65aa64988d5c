"""Values that are still on a device, or still being computed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, final

import numpy as np

from trackway._notices import log_once
from trackway.values._arrays import array_to_plain, is_tracer_class
from trackway.values._text import describe_error

__all__ = [
    "Pending",
    "Unreachable",
    "compiled_copy",
    "hold",
    "is_device_class",
    "is_readable",
    "local_view",
    "place_of",
]


class Unreachable(Exception):  # noqa: N818 - a condition of an array, not of the program
    """An array whose values this process cannot read; the message says why and what to do."""


_SMALL = 1024  # elements


@final
class Pending:
    """A leaf of a row whose value is not on the host yet.

    `normalise` starts the transfer and puts a `Pending` in the array's place, so that logging never waits for a
    device. Whoever delivers the row calls `resolve`, or `trackway.values.resolve` for the whole row. May be used from
    several threads.

    Args:
        value: A device array, or an object such as a histogram that holds some.
        convert: Turns *value* into its host form; the default makes a number or nested lists of it.
        parts: The arrays whose arrival makes *value* ready; None stands for *value* itself.
        name: The metric's name, for the message about a value that could not be had.
    """

    __slots__ = ("_convert", "_name", "_outcome", "_parts", "_value")

    def __init__(
        self,
        value: Any,
        convert: Callable[[Any], Any] | None = None,
        *,
        parts: tuple[Any, ...] | None = None,
        name: str = "",
    ) -> None:
        self._value = value
        self._convert = convert or _to_plain
        self._parts = (value,) if parts is None else parts
        self._name = name
        self._outcome: tuple[Any, str | None] | None = None

    @property
    def small(self) -> bool:
        """Whether it takes so little memory of a device that many may wait."""
        try:
            return bool(sum(part.size for part in self._parts) <= _SMALL)
        except Exception:
            return False

    def is_ready(self) -> bool:
        """Tell whether `resolve` would return without waiting; also true where it has failed."""
        if self._outcome is not None:
            return True
        try:
            for part in self._parts:
                if not _is_ready(part):
                    return False
        except Exception:
            return True  # resolve has the reason
        return True

    def resolve(self) -> Any:
        """Return the host value, waiting for it if need be. Never raises.

        A computation that failed, or a buffer that was deleted meanwhile, gives a text that says so and one message
        in the `trackway` log. The result is kept and the device array let go, so a second call is free.
        """
        return self.outcome()[0]

    def outcome(self) -> tuple[Any, str | None]:
        """Return the host value and, where it could not be had, the reason."""
        settled = self._outcome
        if settled is None:
            settled = self._outcome = self._settle()
            self._value, self._parts = None, ()
        return settled

    def _settle(self) -> tuple[Any, str | None]:
        value = self._value
        try:
            return self._convert(value), None
        except Exception as error:
            if self._outcome is not None:  # another thread was faster and has let the array go
                return self._outcome
            reason = f"could not be read from the device: {describe_error(error)}"
            log_once(("pending", self._name), f"metric {self._name!r} {reason}. {_CURE}", error)
            return f"<unavailable: {describe_error(error)}>", reason

    def __repr__(self) -> str:
        return f"Pending({'resolved' if self._outcome is not None else 'on device'})"


_CURE = (
    "If its buffer was donated to a compiled function or deleted, log it before that, or log a copy; "
    "if the computation failed, the original error is raised where its result is used."
)


def _to_plain(value: Any) -> Any:
    return array_to_plain(value, _same)


def _same(value: Any) -> Any:
    return value


def is_device_class(cls: type) -> bool:
    """Tell whether instances of *cls* are arrays that may lie on a device, by protocol."""
    return callable(getattr(cls, "copy_to_host_async", None)) and callable(getattr(cls, "is_ready", None))


def local_view(array: Any) -> Any:
    """Return *array*, or this process's copy of one that is replicated over several processes.

    Raises:
        Unreachable: If the array is spread over processes, so that no single one has all of it.
    """
    if getattr(array, "is_fully_addressable", True):
        return array
    if getattr(array, "is_fully_replicated", False):
        return array.addressable_data(0)
    raise Unreachable(
        f"is spread over several processes (shape {tuple(array.shape)}), and this one holds a part of it only; "
        "log a reduction such as its mean, or gather it on all processes first"
    )


def hold(array: Any) -> Any:
    """Return the host array if it is at hand, else a device array whose transfer has begun.

    A pending array is copied on its device first: the training step that runs next may be given, and so overwrite,
    the buffer that was logged. The copy costs about 13 µs for a scalar and is not waited for.
    """
    array = local_view(array)
    on_cpu = place_of(array) == "cpu"
    if is_readable(array) and on_cpu:
        return np.asarray(array)
    copied = _copy(array)
    if is_tracer_class(type(copied)):  # a trace is active: copies would become part of it
        return np.asarray(array)
    if not on_cpu:  # from there it would be a second copy
        copied.copy_to_host_async()
    return copied


def is_readable(array: Any) -> bool:
    """Tell whether *array* is computed.

    Raises:
        Unreachable: If it never can be read.
    """
    try:
        return _is_ready(array)
    except Exception as error:
        raise Unreachable(f"cannot be read from the device: {describe_error(error)}. {_CURE}") from error


def _is_ready(array: Any) -> bool:
    is_deleted = getattr(array, "is_deleted", None)
    if is_deleted is not None and is_deleted():  # JAX 0.10 crashes the process if a deleted array is asked
        raise RuntimeError("the array has been deleted")
    return bool(array.is_ready())


_MAX_PLACES = 64
_places: dict[int, tuple[Any, str | None]] = {}  # with the sharding itself, so that no other one has its id


def place_of(array: Any) -> str | None:
    """Return "cpu" for an array of JAX on CPUs, "device" elsewhere; None if this process does not have all of it."""
    sharding = getattr(array, "sharding", None)
    known = _places.get(id(sharding))
    if known is None:
        if sharding is None:
            return "device"
        if len(_places) >= _MAX_PLACES:
            _places.clear()
        known = _places[id(sharding)] = sharding, _place(sharding)
    return known[1]


def _place(sharding: Any) -> str | None:
    if not sharding.is_fully_addressable:
        return None
    return "cpu" if all(device.platform == "cpu" for device in sharding.device_set) else "device"


def _copy(array: Any) -> Any:
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(array, jax.Array):
        return array
    try:
        if array.size == 1:
            return compiled_copy()(array)
        return jax.device_put(array, array.sharding, may_alias=False)  # no compilation for every new shape
    except Exception:  # a debugging mode of JAX forbids it; reading the array itself may still work
        return array


@functools.cache
def compiled_copy() -> Callable[[Any], Any]:
    """Return a compiled function that copies an array on its device."""
    import jax
    import jax.numpy as jnp

    compiled: Callable[[Any], Any] = jax.jit(jnp.copy)
    return compiled
