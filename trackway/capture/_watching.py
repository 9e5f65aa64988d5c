"""Statistics of the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from trackway.capture._log import traced_log
from trackway.values import Histogram

__all__ = ["watch_grad"]

T = TypeVar("T")


def _leaves(cotangent: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(cotangent) if leaf.dtype != jax.dtypes.float0]


def _flat(cotangent: Any) -> Any:
    real = [jnp.abs(leaf) if jnp.iscomplexobj(leaf) else leaf for leaf in _leaves(cotangent)]
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in real])


_STATS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda ct: jnp.sqrt(sum(jnp.sum(jnp.square(jnp.abs(leaf).astype(jnp.float32))) for leaf in _leaves(ct))),
    "mean": lambda ct: jnp.mean(_flat(ct)),
    "std": lambda ct: jnp.std(_flat(ct)),
    "max": lambda ct: jnp.max(jnp.abs(_flat(ct))),
    "histogram": lambda ct: Histogram.from_array(_flat(ct)),
}


def watch_grad(x: T, name: str, stat: str | Callable[[Any], Any] = "norm", reduce: Any = "mean") -> T:
    """Return *x*, and log a statistic of the gradient with respect to it when that is computed.

    Where nothing is differentiated, nothing is logged. Works wherever `jax.grad` does: in scanned layers under
    `jax.checkpoint`, say, where `reduce="stack"` gives one value per layer.

    Args:
        x: An array, or a tree of arrays.
        name: The name of the metric.
        stat: What is logged of the gradient, all its arrays taken together: `"norm"` (Euclidean), `"mean"`, `"std"`,
            `"max"` (of absolute values), `"histogram"`, or a function from the gradient to something that can be
            logged. Complex gradients count by their absolute values.
        reduce: As for `trackway.log`.

    Raises:
        ValueError: if *stat* is none of these.
    """
    statistic = stat if callable(stat) else _STATS.get(stat)
    if statistic is None:
        raise ValueError(f"watch_grad: stat must be one of {', '.join(_STATS)} or a function, got {stat!r}")

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def watched(x: T) -> T:
        return x

    def forward(x: T) -> tuple[T, None]:
        return x, None

    def backward(_: None, cotangent: Any) -> tuple[Any]:
        traced_log({name: statistic(cotangent)}, step=None, commit=None, reduce=reduce, weight=None)
        return (cotangent,)

    watched.defvjp(forward, backward)
    result: T = watched(x)
    return result
