"""One training step, with its metrics recorded in each of the ways that are compared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import trackway

from .measure import Variant

Params = dict[str, jax.Array]
Metrics = dict[str, jax.Array]
Record = Callable[[Metrics], None]

WIDTHS = sorted(unit * 2**power for unit in (64, 96) for power in range(9))
"""Of the hidden layers; with both layers at least 99 units, for a loss and 99 further metrics."""


@dataclass(frozen=True)
class Work:
    """A three-layer network of one size, with a batch of data that stays the same.

    Attributes:
        width: Units of each hidden layer, a power of two or three halves of one.
    """

    width: int

    def params(self) -> Params:
        """Return the same weights every time."""
        shapes = {"first": (64, self.width), "second": (self.width, self.width), "last": (self.width, 16)}
        return {name: _normal(shape) / math.sqrt(shape[0]) for name, shape in shapes.items()}

    def batch(self) -> tuple[jax.Array, jax.Array]:
        """Return inputs and targets, half as many as the width."""
        size = max(32, self.width // 2)
        return _normal((size, 64)), _normal((size, 16))

    def running(self, advance: Callable[[Params, Any], Params], *, host_seconds: float = 0.0) -> Variant:
        """Return a loop over *advance* in which every step needs the weights that the one before it made.

        The host looks at nothing until the last step, where it waits for the weights and for callbacks under way.
        """
        params, batch = jax.block_until_ready((self.params(), self.batch()))

        def run(steps: int) -> float:
            state = params
            started = time.perf_counter()
            for _ in range(steps):
                if host_seconds:
                    _be_busy(host_seconds)
                state = advance(state, batch)
            jax.block_until_ready(state)
            jax.effects_barrier()
            return (time.perf_counter() - started) / steps

        return run


def _normal(shape: tuple[int, ...]) -> jax.Array:
    # by NumPy: JAX would compile a generator for every shape
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))


def _be_busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def _loss(params: Params, batch: tuple[jax.Array, jax.Array], count: int, record: Record) -> jax.Array:
    """Return the loss, and record it and *count* - 1 mean activations on the way."""
    inputs, targets = batch
    first = jnp.tanh(inputs @ params["first"])
    second = jnp.tanh(first @ params["second"])
    loss = jnp.mean((second @ params["last"] - targets) ** 2)
    if count:
        record({"loss": loss})
    if count > 1:
        units = jnp.concatenate([first.mean(axis=0), second.mean(axis=0)])
        record({f"unit/{index}": units[index] for index in range(count - 1)})
    return loss


def _update(params: Params, grads: Params) -> Params:
    return jax.tree.map(lambda weight, grad: weight - 0.01 * grad, params, grads)


def step_logging(count: int) -> Callable[[Params, Any], Params]:
    """Return a step that logs *count* metrics from inside its loss function; not compiled."""

    def step(params: Params, batch: Any) -> Params:
        return _update(params, jax.grad(lambda weights: _loss(weights, batch, count, trackway.log))(params))

    return step


def step_by_hand(count: int) -> Callable[[Params, Any], tuple[Params, Metrics]]:
    """Return a step that hands *count* metrics out as a dictionary; not compiled."""

    def step(params: Params, batch: Any) -> tuple[Params, Metrics]:
        def loss_and_metrics(weights: Params) -> tuple[jax.Array, Metrics]:
            metrics: Metrics = {}
            return _loss(weights, batch, count, metrics.update), metrics

        grads, metrics = jax.grad(loss_and_metrics, has_aux=True)(params)
        return _update(params, grads), metrics

    return step


def without_metrics() -> Callable[[Params, Any], Params]:
    """Return the compiled step that records nothing."""
    step = jax.jit(step_by_hand(0))
    return lambda params, batch: step(params, batch)[0]


def by_hand(count: int) -> Callable[[Params, Any], Params]:
    """Return the compiled step whose metrics nobody looks at."""
    step = jax.jit(step_by_hand(count))
    return lambda params, batch: step(params, batch)[0]


def captured(count: int) -> Callable[[Params, Any], Params]:
    """Return the compiled step whose captured metrics nobody looks at."""
    step = jax.jit(trackway.capture_logging(step_logging(count)))
    return lambda params, batch: step(params, batch)[0]


def tracked(count: int) -> Callable[[Params, Any], Params]:
    """Return the step compiled by `trackway.jit`, whose metrics go to the current tracker."""
    return trackway.jit(step_logging(count))


def with_callback(count: int, callback: Callable[[Metrics], None]) -> Callable[[Params, Any], Params]:
    """Return the compiled step that hands its metrics to *callback*, which may do so with a host callback of JAX."""

    def step(params: Params, batch: Any) -> Params:
        params, metrics = step_by_hand(count)(params, batch)
        callback(metrics)
        return params

    return jax.jit(step)


def _ignore(_values: Any) -> None:
    """Stand for the least that a callback can do."""


def debug_callback(metrics: Metrics) -> None:
    """Hand *metrics* to a function that does nothing, by `jax.debug.callback`."""
    jax.debug.callback(_ignore, metrics)


def plain_io_callback(metrics: Metrics) -> None:
    """Hand *metrics* to a function that does nothing, by `io_callback`."""
    io_callback(_ignore, None, metrics)


def work_of(seconds: float) -> tuple[Work, float]:
    """Return the work whose step on this device is closest to *seconds*, and how long it really is."""
    found: tuple[Work, float] | None = None
    for width in WIDTHS:
        work = Work(width)
        run = work.running(by_hand(1))
        run(3)
        step = min(run(10) for _ in range(5))
        if found is None or abs(math.log(step / seconds)) < abs(math.log(found[1] / seconds)):
            found = work, step
        if step > seconds:
            break
    assert found is not None
    return found
