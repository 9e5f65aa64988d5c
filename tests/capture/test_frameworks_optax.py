"""Values logged around and inside optimizers of optax."""

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

optax = pytest.importorskip("optax")

pytestmark = pytest.mark.frameworks


def log_updates(name):
    """Return a transformation that passes updates on, and logs their norm and that it ran."""

    def update(updates, state, params=None):
        norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(updates)))
        trackway.log({f"{name}/norm": norm})
        trackway.log({f"{name}/n": 1}, reduce="sum")
        return updates, state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


GRADS = {"w": jnp.array([3.0, 4.0])}


def logged_by(optimizer, steps, grads=GRADS):
    """Apply *optimizer* a few times, compiled; return what each call logged and the parameters."""

    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    compiled = jax.jit(trackway.capture_logging(step))
    params, logs = {"w": jnp.ones(2)}, []
    state = optimizer.init(params)
    for _ in range(steps):
        (params, state), new = compiled(params, state, grads)
        logs.append(new.to_host())
    return logs, params


def test_a_transformation_that_logs():
    """A transformation in a chain logs the updates as they are at its place."""
    chain = optax.chain(log_updates("raw"), optax.clip_by_global_norm(1.0), log_updates("clipped"), optax.sgd(0.1))
    logs, params = logged_by(chain, 2)
    for one in logs:
        assert_logs(one, {"raw/norm": 5.0, "raw/n": 1, "clipped/norm": 1.0, "clipped/n": 1})
    np.testing.assert_allclose(params["w"], [0.88, 0.84], rtol=1e-6)


def test_multi_steps():
    """Inside `MultiSteps`, which computes the update in each micro-step, it logs the gradient accumulated so far."""
    logs, params = logged_by(optax.MultiSteps(optax.chain(log_updates("u"), optax.sgd(0.1)), 3), 6)
    for one in logs:
        assert_logs(one, {"u/norm": 5.0, "u/n": 1})
    np.testing.assert_allclose(params["w"], [0.4, 0.2], rtol=1e-6)


@pytest.mark.parametrize(
    "grads", [GRADS, {"w": jnp.array([jnp.nan, 1.0])}], ids=["finite gradients", "gradients that are not finite"]
)
def test_apply_if_finite(grads):
    """Inside `apply_if_finite` it logs as the same optimizer does without the log: updates and results are equal."""
    logs, params = logged_by(optax.apply_if_finite(optax.chain(log_updates("u"), optax.sgd(0.1)), 3), 2, grads)
    with trackway.mute():
        _, expected = logged_by(optax.apply_if_finite(optax.chain(log_updates("u"), optax.sgd(0.1)), 3), 2, grads)
    np.testing.assert_array_equal(params["w"], expected["w"])
    norm = np.sqrt(np.sum(np.square(grads["w"])))
    for one in logs:
        assert_logs(one, {"u/norm": norm, "u/n": 1} if one else {})
    assert bool(logs[0]) or not np.isfinite(norm)


def test_masked():
    """Inside `masked` it logs what the mask lets through."""
    grads = {"w": jnp.array([3.0, 4.0]), "b": jnp.array([100.0, 100.0])}

    def step(grads):
        optimizer = optax.masked(log_updates("u"), {"w": True, "b": False})
        return optimizer.update(grads, optimizer.init(grads))[0]

    updates, logs = run(step, grads)
    np.testing.assert_array_equal(updates["b"], grads["b"])
    assert_logs(logs, {"u/norm": 5.0, "u/n": 1})


def test_conditionally_transform():
    """A transformation that applies every other step logs in those only."""
    every_other = optax.conditionally_transform(log_updates("u"), lambda step: step % 2 == 0)
    logs, _ = logged_by(optax.chain(every_other, optax.sgd(0.1)), 4)
    assert [sorted(one) for one in logs] == [["u/n", "u/norm"], [], ["u/n", "u/norm"], []]


def test_schedules_and_injected_hyperparameters():
    """The learning rate that an injected schedule has is logged out of the optimizer's state."""
    optimizer = optax.inject_hyperparams(optax.sgd)(optax.linear_schedule(1.0, 0.0, 4))

    def step(state, grads):
        updates, state = optimizer.update(grads, state)
        trackway.log({"lr": state.hyperparams["learning_rate"]})
        return updates, state

    compiled = jax.jit(trackway.capture_logging(step))
    state, rates = optimizer.init(GRADS), []
    for _ in range(3):
        (_, state), logs = compiled(state, GRADS)
        rates.append(logs.to_host()["lr"])
    np.testing.assert_allclose(rates, [1.0, 0.75, 0.5])


def loss_fn(params, x):
    """Return the mean square, and log it once as a mean and once in full."""
    loss = jnp.mean((params["w"] * x) ** 2)
    trackway.log({"loss": loss})
    trackway.log({"losses": loss}, reduce="stack")
    return loss


OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), log_updates("u"), optax.adam(0.1))


def train(params, xs):
    """Take one step for each of *xs* in one scan; return the losses."""

    def step(carry, x):
        params, state = carry
        loss, grads = jax.value_and_grad(loss_fn)(params, x)
        updates, state = OPTIMIZER.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), loss

    return lax.scan(step, (params, OPTIMIZER.init(params)), xs)[1]


def test_a_scan_of_steps():
    """A loop of optimizer steps in one compiled function logs the losses that it returns."""
    losses, logs = run(train, {"w": jnp.ones(3)}, jnp.ones((4, 3)))
    assert np.all(np.diff(losses) < 0)
    np.testing.assert_allclose(logs["losses"], losses, rtol=1e-6)
    np.testing.assert_allclose(logs["loss"], np.mean(losses), rtol=1e-6)
    assert logs["u/n"] == 4
    assert logs["u/norm"] <= 1.0 + 1e-6


def test_several_trainings_at_once():
    """A training loop mapped over starting points logs a stack of lanes and steps."""
    starts = {"w": jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])}
    losses, logs = run(jax.vmap(train, (0, None)), starts, jnp.ones((4, 2)))
    np.testing.assert_allclose(logs["losses"], losses, rtol=1e-6)
    assert logs["losses"].shape == (3, 4)
    assert logs["u/n"] == 12


def test_gradient_accumulation():
    """The gradient of micro-batches in a scan logs the mean of their losses and all of them."""
    xs, params = jnp.arange(6.0).reshape(3, 2), {"w": jnp.ones(2)}

    def accumulated(params, xs):
        def add(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(loss_fn)(params, x)), None

        grads, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, params), xs)
        return OPTIMIZER.update(grads, OPTIMIZER.init(params), params)[0]

    _, logs = run(accumulated, params, xs)
    expected = np.mean(np.square(np.asarray(xs)), axis=1)
    np.testing.assert_allclose(logs["losses"], expected, rtol=1e-6)
    np.testing.assert_allclose(logs["loss"], expected.mean(), rtol=1e-6)
    assert logs["u/n"] == 1


def test_a_line_search():
    """A loss that an optimizer evaluates again in its own loop is logged as often as it is evaluated."""
    optimizer = optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(15, decrease_factor=0.5))

    def value(w):
        trackway.log({"n": 1}, reduce="sum")
        return jnp.sum(w**2) * 8

    def step(w):
        state = optimizer.init(w)
        loss, grad = jax.value_and_grad(value)(w)
        updates, state = optimizer.update(grad, state, w, value=loss, grad=grad, value_fn=value)
        return optax.apply_updates(w, updates), state[1].info.num_linesearch_steps

    (w, searches), logs = run(step, jnp.ones(2))
    assert np.all(np.abs(w) < 1)
    assert logs["n"] > searches >= 3


def test_delivery_of_each_step():
    """`trackway.jit` with donated parameters and optimizer state delivers a row for each step."""

    def step(params, state, x):
        _, grads = jax.value_and_grad(loss_fn)(params, x)
        updates, state = OPTIMIZER.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    compiled = trackway.jit(step, donate_argnums=(0, 1))
    params = {"w": jnp.ones(3)}
    state = OPTIMIZER.init(params)
    with trackway.mute():
        losses = np.asarray(train(params, jnp.ones((3, 3))))
    with current_tracker(RecordingTracker()) as tracker:
        for _ in range(3):
            params, state = compiled(params, state, jnp.ones(3))
    rows = [(step, {"losses": row["losses"], "loss": row["loss"]}) for step, row in tracker.rows]
    assert_rows(rows, [(k, {"losses": losses[k], "loss": losses[k]}) for k in range(3)])
