"""What people log: ordinary values, and those that have broken a tracker somewhere."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import importlib.util
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from trackway.values import Audio, Histogram, Html, Image, Table, Text

__all__ = ["AWKWARD_NAMES", "VALUES"]

AWKWARD_NAMES = (
    "train/loss",
    "a.b",
    "with space",
    "per cent %",
    "at@here",
    "equals=sign",
    "brackets[0](x)",
    'quote"s',
    "new\nline",
    "tab\tbed",
    "ünïcödé",
    "损失",
    "🙂",
    "\x1b[31mred",
    "/leading",
    "trailing/",
    "double//slash",
    "..",
    "",
    "x" * 500,
)
"""Metric names that backends, file systems and terminals stumble over."""


class _Stage(enum.Enum):
    TRAIN = "train"


@dataclasses.dataclass
class _Settings:
    rate: float = 0.1
    layers: tuple[int, ...] = (1, 2)


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr for this one")


def _cycle() -> dict[str, Any]:
    value: dict[str, Any] = {"n": 1}
    value["self"] = value
    return value


def _pydantic() -> Any:
    import pydantic

    return pydantic.create_model("Settings", rate=(float, 0.1))()


def _jax(dtype: str, value: float = 1.5, shape: tuple[int, ...] = ()) -> Callable[[], Any]:
    def make() -> Any:
        import jax.numpy as jnp

        return jnp.full(shape, value, dtype)

    return make


_NUMPY_TYPES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128", "bool"),
)
_JAX_TYPES = (
    *("float16", "float32", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "bool"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32)),
)


def _numpy(dtype: str) -> Any:
    return np.ones((), dtype)[()]


def _numbers() -> dict[str, Callable[[], Any]]:
    kinds: dict[str, Callable[[], Any]] = {
        "int": lambda: 3,
        "float": lambda: 0.25,
        "bool": lambda: True,
        "int beyond 64 bits": lambda: 2**70,
        "int of 5001 digits": lambda: 10**5000,
        "nan": lambda: float("nan"),
        "inf": lambda: float("inf"),
        "-inf": lambda: float("-inf"),
        "array of shape (1,)": lambda: np.ones(1),
        "array of shape (1, 1)": lambda: np.ones((1, 1), np.float32),
    }
    for dtype in _NUMPY_TYPES:
        kinds[f"numpy {dtype}"] = functools.partial(_numpy, dtype)
    return kinds


def _device_numbers() -> dict[str, Callable[[], Any]]:
    if importlib.util.find_spec("jax") is None:
        return {}
    kinds = {f"jax {dtype}": _jax(dtype, 1) for dtype in _JAX_TYPES}
    kinds["jax nan"] = _jax("bfloat16", float("nan"))
    kinds["jax array of shape (1,)"] = _jax("float32", 1, (1,))
    kinds["jax array of shape (1, 1)"] = _jax("bfloat16", 1, (1, 1))
    kinds["jax 2-D array"] = _jax("float32", 1, (2, 3))
    return kinds


def _structures() -> dict[str, Callable[[], Any]]:
    kinds: dict[str, Callable[[], Any]] = {
        "1-D array": lambda: np.arange(3.0),
        "2-D array": lambda: np.arange(6).reshape(2, 3),
        "list": lambda: [1, 2.5, "x"],
        "generator": lambda: (i for i in range(3)),
        "nested dict": lambda: {"a": {"b": 1}},
        "empty dict": dict,
        "cycle": _cycle,
        "dataclass": _Settings,
    }
    if importlib.util.find_spec("pydantic") is not None:
        kinds["pydantic model"] = _pydantic
    return kinds


def _others() -> dict[str, Callable[[], Any]]:
    return {
        "text": lambda: "some text",
        "text of several lines": lambda: "one\ntwo\r\n\x1b[31mred",
        "text of 10 MB": lambda: "x" * 10_000_000,
        "lone surrogate": lambda: "a\udc80b",
        "None": lambda: None,
        "path": lambda: PurePosixPath("runs/a"),
        "datetime": lambda: dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "enum": lambda: _Stage.TRAIN,
        "object": object,
        "object whose repr raises": _Unprintable,
    }


def _media() -> dict[str, Callable[[], Any]]:
    return {
        "Histogram": lambda: Histogram.from_array(np.linspace(-1, 1, 100)),
        "Image": lambda: Image(np.zeros((4, 5, 3), np.uint8)),
        "Table": lambda: Table(["a", "b"], [[1, "x"], [2, "y"]]),
        "Text": lambda: Text("some text"),
        "Html": lambda: Html("<b>bold</b>"),
        "Audio": lambda: Audio(np.zeros(800, np.float32), 8000),
    }


VALUES: dict[str, Callable[[], Any]] = {
    **_numbers(),
    **_device_numbers(),
    **_structures(),
    **_others(),
    **_media(),
}
"""Kind of value to a function that makes one. Kinds that need an absent package are left out."""
