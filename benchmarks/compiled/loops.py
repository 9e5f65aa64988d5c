"""The comparisons of one long loop, of compilation, and of the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import trackway

from .groups import Discard
from .measure import Figure, Turns, Variant, ratios

EPOCH = 200
LAYERS = 48
WIDTH = 64


def _epoch(count: int, *, logged: bool) -> Callable[[jax.Array, jax.Array], Any]:
    """Return an epoch of gradient descent in one scan that has a row of metrics for every step; not compiled."""

    def loss(weights: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        hidden = jnp.tanh(inputs @ weights)
        return jnp.mean((hidden - inputs) ** 2), hidden.mean(axis=0)

    def body(carry: tuple[jax.Array, jax.Array], step: jax.Array) -> Any:
        weights, inputs = carry
        (value, units), grads = jax.value_and_grad(loss, has_aux=True)(weights, inputs)
        metrics = {"loss": value, **{f"unit/{index}": units[index] for index in range(count - 1)}}
        if logged:
            trackway.log(metrics, step=step)
        return (weights - 0.01 * grads, jnp.roll(inputs, 1, axis=0)), None if logged else metrics

    return lambda weights, inputs: jax.lax.scan(body, (weights, inputs), jnp.arange(EPOCH))


def rows_of_a_scan(turns: Turns) -> Iterator[Figure]:
    """Compare rows logged from a scan to outputs stacked by hand."""
    weights = jax.random.normal(jax.random.key(0), (WIDTH, WIDTH)) / 8
    inputs = jax.random.normal(jax.random.key(1), (32, WIDTH))

    def running(epoch: Callable[[jax.Array, jax.Array], Any]) -> Variant:
        def run(steps: int) -> float:
            state = weights
            started = time.perf_counter()
            for _ in range(steps):
                (state, _), _ = epoch(state, inputs)
            jax.block_until_ready(state)
            return (time.perf_counter() - started) / steps

        return run

    def captured(count: int) -> Callable[[jax.Array, jax.Array], Any]:
        epoch = jax.jit(trackway.capture_logging(_epoch(count, logged=True)))
        return lambda weights, inputs: epoch(weights, inputs)[0]

    for count in (1, 10):
        seconds = turns.compare(
            {"hand": running(jax.jit(_epoch(count, logged=False))), "captured": running(captured(count))}
        )
        name = f"scan of {EPOCH} steps, {count} metrics: log(step=i), captured / outputs stacked by hand"
        yield Figure(name, ratios(seconds["captured"], seconds["hand"]), at_most=1.05)


def _layer(hidden: jax.Array, weights: dict[str, jax.Array]) -> jax.Array:
    """Return the output of a transformer layer with one head."""
    query, key, value = (hidden @ weights[name] for name in ("query", "key", "value"))
    attention = jax.nn.softmax(query @ key.T / 8)
    hidden += attention @ value @ weights["out"]
    hidden = (hidden - hidden.mean(-1, keepdims=True)) / jnp.sqrt(hidden.var(-1, keepdims=True) + 1e-5)
    return hidden + jax.nn.gelu(hidden @ weights["up"]) @ weights["down"]


def _deep_step(*, logged: bool) -> Callable[[Any, jax.Array], Any]:
    """Return a training step of many unrolled layers, each of which logs one metric; not compiled."""

    def loss(layers: dict[str, jax.Array], hidden: jax.Array) -> jax.Array:
        for index in range(LAYERS):
            hidden = _layer(hidden, {name: stacked[index] for name, stacked in layers.items()})
            if logged:
                trackway.log({f"layer_{index}/activation": jnp.abs(hidden).mean()})
        value = jnp.mean(hidden**2)
        if logged:
            trackway.log({"loss": value})
        return value

    def step(layers: dict[str, jax.Array], hidden: jax.Array) -> Any:
        grads = jax.grad(loss)(layers, hidden)
        return jax.tree.map(lambda weight, grad: weight - 0.1 * grad, layers, grads)

    return trackway.capture_logging(step) if logged else step


def compilation(turns: Turns) -> Iterator[Figure]:
    """Compare how long a deep model with logs takes to trace, lower and compile, to the same without logs."""
    wide = 4 * WIDTH
    sizes = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH)) | {
        "up": (WIDTH, wide),
        "down": (wide, WIDTH),
    }
    layers = {name: jnp.full((LAYERS, *size), 0.01) for name, size in sizes.items()}
    hidden = jnp.ones((16, WIDTH))
    tracing: dict[bool, list[float]] = {False: [], True: []}

    def compiling(*, logged: bool) -> Variant:
        def run(_steps: int) -> float:
            jax.clear_caches()
            started = time.perf_counter()
            traced = jax.jit(_deep_step(logged=logged)).trace(layers, hidden)
            tracing[logged].append(time.perf_counter() - started)
            traced.lower().compile()
            return time.perf_counter() - started

        return run

    variants = {"silent": compiling(logged=False), "captured": compiling(logged=True)}
    for variant in variants.values():
        variant(1)  # whatever happens once in a process
    for times in tracing.values():
        times.clear()
    seconds = turns.compare(variants, calibrated=False)
    name = f"{LAYERS} unrolled layers: trace, lower and compile with a metric each / without"
    yield Figure(name, ratios(seconds["captured"], seconds["silent"]), at_most=1.08)
    yield Figure(f"{LAYERS} unrolled layers: trace alone", ratios(tracing[True], tracing[False]))


def host(turns: Turns) -> Iterator[Figure]:
    """Measure what logging a Python float costs while JAX is loaded."""

    def run(steps: int) -> float:
        started = time.perf_counter()
        for step in range(steps):
            trackway.log({"loss": 0.5}, step=step)
        return (time.perf_counter() - started) / steps

    with trackway.current_tracker(Discard()):
        seconds = turns.compare({"log": run})["log"]
    yield Figure("host: trackway.log of one Python float while JAX is loaded", [s * 1e6 for s in seconds], unit=" us")
