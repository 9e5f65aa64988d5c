"""Capturing what is logged in functions that change flax nnx objects in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
from flax import nnx

from trackway.capture._capturing import capture_pure, named_like
from trackway.capture._logs import Logs

__all__ = [
    "capture_logging",
    "changing_in_place",
    "is_object",
]

P = ParamSpec("P")
T = TypeVar("T")


def capture_logging(function: Callable[P, T]) -> Callable[P, tuple[T, Logs]]:
    """Return a function that does what *function* does and returns `(result, logs)`, for functions of nnx objects.

    Modules, optimizers, random number generators and everything else among the arguments that `flax.nnx` calls a
    graph node are changed in place as *function* changes them, wherever they stand:

    ```python
    step = nnx.jit(trackway.capture.nnx.capture_logging(train_step))
    loss, logs = step(model, optimizer, batch)
    ```

    `trackway.capture_logging` does the same when it meets such an argument. Needs flax.
    """
    captured: Callable[P, tuple[T, Logs]] = named_like(changing_in_place(function), function)
    return captured


def is_object(value: Any) -> bool:
    """Tell whether *value* is an object of nnx that a function may change in place."""
    return nnx.graph.is_graph_node(value) and not isinstance(value, nnx.State | nnx.GraphDef)


def changing_in_place(function: Callable[P, T]) -> Callable[P, tuple[T, Logs]]:
    """Return *function* captured as a pure one of the state of its nnx objects, which is put back into them."""

    def captured(*args: P.args, **kwargs: P.kwargs) -> tuple[T, Logs]:
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=is_object)
        nodes = {at: leaf for at, leaf in enumerate(leaves) if is_object(leaf)}
        others = {at: leaf for at, leaf in enumerate(leaves) if at not in nodes}
        graph, state = nnx.split(list(nodes.values()))  # together, for what they share

        def pure(state: Any, others: dict[int, Any]) -> tuple[T, Any]:
            merged = nnx.merge(graph, state)
            known = {**dict(zip(nodes, merged, strict=True)), **others}
            own_args, own_kwargs = jax.tree.unflatten(structure, [known[at] for at in range(len(leaves))])
            return function(*own_args, **own_kwargs), nnx.state(merged)

        (result, state), logs = capture_pure(pure)(state, others)
        nnx.update(list(nodes.values()), state)
        return result, logs

    return captured
