"""`watch_grad`: statistics of the backward pass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, run
from jax import lax

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


def test_the_cotangent_is_logged_and_passed_on():
    """The function is the identity; in the backward pass the norm of the cotangent is logged."""

    def f(x):
        return jnp.sum(trackway.watch_grad(x * 2, "ct") * jnp.array([3.0, 4.0]))

    assert_logs(run(f, jnp.ones(2))[1])
    (value, grad), logs = run(jax.value_and_grad(f), jnp.ones(2))
    assert value == 14.0
    assert grad.tolist() == [6.0, 8.0]
    assert_logs(logs, ct=5.0)


def test_layers_of_a_scan():
    """In a loop of checkpointed layers a stack lists the layers in forward order, each once."""

    def layer(h, w):
        return trackway.watch_grad(h, "bwd", reduce="stack") * w, None

    def loss(ws, x):
        return jnp.sum(lax.scan(jax.checkpoint(layer), x, ws)[0])

    logs = run(jax.grad(loss), jnp.array([2.0, 3.0, 5.0]), jnp.ones(1))[1]
    assert_logs(logs, bwd=[30.0, 15.0, 5.0])


def test_lanes_and_calls_are_samples():
    """Lanes and repeated calls are reduced as told."""

    def f(x):
        return trackway.watch_grad(trackway.watch_grad(x, "ct", reduce="sum") * 2, "ct", reduce="sum") * 3

    assert_logs(run(jax.vmap(jax.grad(f)), jnp.arange(2.0))[1], ct=18.0)


def test_trees():
    """A tree of arrays is watched as a whole, and comes back as it was."""

    def f(params):
        params = trackway.watch_grad(params, "ct")
        return 3 * params["a"] + jnp.sum(params["b"] * jnp.array([0.0, 4.0]))

    params = {"a": jnp.float32(1), "b": jnp.ones(2)}
    grad, logs = run(jax.grad(f), params)
    assert jax.tree.map(lambda x: x.tolist(), grad) == {"a": 3.0, "b": [0.0, 4.0]}
    assert_logs(logs, ct=5.0)


def test_scopes():
    """The name is that of the scope in which the value is watched."""

    def f(x):
        with trackway.scope("layer"):
            return trackway.watch_grad(x, "ct") * 3

    logs = run(jax.grad(f), 1.0)[1]
    assert_logs(logs, {"layer/ct": 3.0})


def test_an_unknown_statistic_is_an_error():
    """The error names what was asked for."""
    with pytest.raises(ValueError, match="median"):
        run(jax.grad(lambda x: trackway.watch_grad(x, "ct", stat="median")), 1.0)


def test_types_of_the_watched_value():
    """A bfloat16 value keeps its type and gradient."""

    def f(x):
        y = trackway.watch_grad(x, "ct")
        assert y.dtype == x.dtype
        return jnp.sum(y.astype(jnp.float32) * 2)

    grad, logs = run(jax.grad(f), jnp.ones(4, jnp.bfloat16))
    assert grad.dtype == jnp.bfloat16
    assert_logs(logs, ct=4.0)


def test_through_a_compiled_step():
    """The statistic of each backward pass is in the row of its call."""
    step = trackway.jit(jax.grad(lambda x: trackway.watch_grad(x**2, "ct") * 3))
    with current_tracker(RecordingTracker()) as tracker:
        assert step(2.0) == 12.0
    assert_rows(tracker.rows, [(0, {"ct": 3.0})])


def test_eager_gradients():
    """Without a jit the value arrives as well."""
    with current_tracker(RecordingTracker()) as tracker:
        jax.grad(lambda x: trackway.watch_grad(x, "ct") * np.float32(3))(1.0)
        jax.effects_barrier()
    assert_rows(tracker.rows, [(0, {"ct": 3.0})])
