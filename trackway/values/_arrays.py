"""Arrays of any library, recognised by protocol, to plain Python values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from trackway.errors import TracerError

__all__ = [
    "NUMBERS",
    "array_to_plain",
    "as_host",
    "is_jax_array",
    "is_numeric_array",
    "is_tracer_class",
    "is_user_defined",
    "looks_like_array",
    "reject_tracer",
]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"  # numpy.typing costs an import of its own

NUMBERS: dict[type, Callable[[Any], Any]] = {
    np.bool_: bool,
    **dict.fromkeys((np.float16, np.float32, np.float64, np.longdouble), float),
    **dict.fromkeys((np.int8, np.int16, np.int32, np.int64, np.longlong), int),
    **dict.fromkeys((np.uint8, np.uint16, np.uint32, np.uint64, np.ulonglong), int),
}
"""NumPy scalar types that one call turns into the Python number."""

_USER_DEFINED = 2  # what `dtype.isbuiltin` says of types that another package registered, such as bfloat16


def is_tracer_class(cls: type) -> bool:
    """Tell whether *cls* is the type of a traced JAX value; never imports jax."""
    jax = sys.modules.get("jax")
    tracer = getattr(getattr(jax, "core", None), "Tracer", None)
    return tracer is not None and issubclass(cls, tracer)


def is_jax_array(value: Any) -> bool:
    """Tell whether *value* is a JAX array, traced or not; never imports jax."""
    jax = sys.modules.get("jax")
    array = getattr(jax, "Array", None)
    return array is not None and isinstance(value, array)


def is_numeric_array(value: Any) -> bool:
    """Tell whether *value* is a NumPy array of numbers or booleans, with an axis, that a device can hold too."""
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray) or value.ndim == 0:
        return False
    dtype = value.dtype
    if dtype.kind in "biufc":
        return bool(dtype.itemsize <= (16 if dtype.kind == "c" else 8))  # no long doubles
    return is_user_defined(dtype)


def is_user_defined(dtype: np.dtype[Any]) -> bool:
    """Tell whether *dtype* is a type of numbers that another package registered, such as bfloat16."""
    return bool(dtype.kind == "V" and dtype.names is None and dtype.isbuiltin == _USER_DEFINED)


_LOG_IT = (
    "Inside jit, log it with `trackway.log` or `trackway.jit_log`, which send it to the host at run time, or return it "
    "from the function and log the result."
)
_WRAP_LATER = "Log the array itself, or return it from the function and wrap it outside."


def reject_tracer(value: Any, name: str, *, wrapping: bool = False) -> None:
    """Raise `TracerError` if *value*, which is to be the value of *name* or is to be wrapped in it, is traced."""
    if is_tracer_class(type(value)):
        shape = getattr(value, "aval", "unknown shape")
        what = f"{name} cannot be made of a traced JAX value" if wrapping else f"{name} is a traced JAX value"
        raise TracerError(
            f"{what} ({shape}): it has no numbers until the compiled function runs. "
            f"{_WRAP_LATER if wrapping else _LOG_IT}"
        )


def looks_like_array(value: Any) -> bool:
    """Tell whether *value* (or a class) follows the array protocol: `__array__`, or `dtype` with `shape`."""
    if getattr(value, "__array__", None) is not None:
        return True
    return getattr(value, "dtype", None) is not None and getattr(value, "shape", None) is not None


def as_host(value: Any) -> Array:
    """Return *value* as a NumPy array, by `__array__` where it works and by `tolist()` where it does not.

    The second way serves tensors that refuse the first: on an accelerator, with a gradient, or in bfloat16.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, list | tuple | int | float):
        return np.asarray(value)
    refusal: Exception | None = None
    if getattr(type(value), "__array__", None) is not None:
        try:
            return np.asarray(value)
        except Exception as error:
            refusal = error
    tolist = getattr(value, "tolist", None)
    if tolist is None:
        raise refusal or TypeError(f"{type(value).__qualname__} has a dtype and a shape but offers no values")
    return np.asarray(tolist())


def array_to_plain(value: Any, plain: Callable[[Any], Any]) -> Any:
    """Return a number for an array of one element whatever its rank, else nested lists; `[]` if it is empty.

    Args:
        value: An array-like object.
        plain: Converts elements that are not numbers: those of object, text and bytes arrays.
    """
    if isinstance(value, np.ma.MaskedArray):
        return plain(value.tolist())
    return _host_to_plain(as_host(value), plain)


def _host_to_plain(array: Array, plain: Callable[[Any], Any]) -> Any:
    if array.size == 0:
        return []
    if array.size == 1:
        array = array.reshape(())
    kind = array.dtype.kind
    if kind in "biu":
        return array.tolist()
    if kind == "f":
        return array.astype(np.float64).tolist()
    convert: Callable[..., Any] = _OTHER_KINDS.get(kind, _elements)
    return convert(array, plain)


def _elements(array: Array, plain: Callable[[Any], Any]) -> Any:
    return plain(array.tolist())


def _complex(array: Array, plain: Callable[[Any], Any]) -> Any:
    return {"real": _host_to_plain(array.real, plain), "imag": _host_to_plain(array.imag, plain)}


def _void(array: Array, plain: Callable[[Any], Any]) -> Any:
    dtype = array.dtype
    if dtype.names is not None:
        return {name: _host_to_plain(array[name], plain) for name in dtype.names}
    if dtype.isbuiltin == _USER_DEFINED:
        whole = dtype.name.startswith(("int", "uint"))
        return array.astype(np.int64 if whole else np.float64).tolist()
    return _elements(array, plain)


def _datetime(array: Array, _plain: Callable[[Any], Any]) -> Any:
    return np.datetime_as_string(array).tolist()


def _timedelta(array: Array, _plain: Callable[[Any], Any]) -> Any:
    try:
        return (array / np.timedelta64(1, "s")).tolist()
    except TypeError:  # months and years have no fixed length
        return array.astype(str).tolist()


_OTHER_KINDS: dict[str, Callable[..., Any]] = {
    "c": _complex,
    "V": _void,
    "M": _datetime,
    "m": _timedelta,
}
