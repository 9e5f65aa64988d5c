"""Values logged in functions and modules of equinox."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, flat, tap
from jax import lax

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker

eqx = pytest.importorskip("equinox")
optax = pytest.importorskip("optax")

pytestmark = pytest.mark.frameworks

DEPTH = 3
WIDTH = 4
LANES = 5


class Block(eqx.Module):
    """A layer that logs the mean of what it returns."""

    linear: eqx.nn.Linear
    activation: Callable = eqx.field(static=True)

    def __init__(self, key):
        """Draw the weights."""
        self.linear = eqx.nn.Linear(WIDTH, WIDTH, key=key)
        self.activation = jax.nn.tanh

    def __call__(self, x):
        """Return `[WIDTH]` for `[WIDTH]`."""
        y = self.activation(self.linear(x))
        trackway.log({"act": jnp.mean(y)})
        return y


class Net(eqx.Module):
    """Stacked blocks, beside leaves that are no arrays."""

    blocks: Block
    name: str
    function: Callable
    number: int

    def __init__(self, key):
        """Draw the weights of all blocks at once."""
        self.blocks = eqx.filter_vmap(Block)(jax.random.split(key, DEPTH))
        self.name, self.function, self.number = "net", jax.nn.relu, 7

    def __call__(self, x, *, remat):
        """Scan over the blocks."""
        arrays, others = eqx.partition(self.blocks, eqx.is_array)

        def layer(h, arrays):
            h = eqx.combine(arrays, others)(h)
            trackway.log({"h": jnp.sum(h)}, reduce="stack")
            return h, None

        return lax.scan(jax.checkpoint(layer) if remat else layer, x, arrays)[0]


def reference(net, xs):
    """Return what *net* logs for a batch, computed layer by layer in NumPy, and its loss."""
    weights, biases = np.asarray(net.blocks.linear.weight), np.asarray(net.blocks.linear.bias)
    acts, sums, outputs = [], [], []
    for x in np.asarray(xs):
        h, row = x, []
        for weight, bias in zip(weights, biases, strict=True):
            h = np.tanh(weight @ h + bias)
            acts.append(h.mean())
            row.append(h.sum())
        sums.append(row)
        outputs.append(h)
    return np.mean(acts), np.array(sums), np.mean(np.square(outputs))


OPTIMIZER = optax.adam(1e-3)


def make_step(remat):
    """Return a training step that logs in the model, in the loss and after the gradient."""

    def loss_fn(net, xs):
        loss = jnp.mean(jax.vmap(lambda x: net(x, remat=remat))(xs) ** 2)
        trackway.log({"loss": loss})
        return loss

    def step(net, state, xs):
        _, grads = eqx.filter_value_and_grad(loss_fn)(net, xs)
        trackway.log({"grad": jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(grads)))})
        updates, state = OPTIMIZER.update(grads, state, eqx.filter(net, eqx.is_inexact_array))
        return eqx.apply_updates(net, updates), state

    return step


def filter_jit_of_captured(step, *args):
    """The pure transformation inside."""
    (net, _), logs = eqx.filter_jit(trackway.capture_logging(step))(*args)
    return net, logs.to_host()


def captured_filter_jit(step, *args):
    """The pure transformation outside."""
    (net, _), logs = trackway.capture_logging(eqx.filter_jit(step))(*args)
    return net, logs.to_host()


def trackway_jit(step, *args):
    """The step that delivers to the tracker."""
    with current_tracker(RecordingTracker()) as tracker:
        net, _ = trackway.jit(step, jit=eqx.filter_jit, donate="none")(*args)
    ((_, row),) = tracker.rows
    return net, flat(row)


def plain_filter_jit(step, *args):
    """Nothing captures: a host callback delivers."""
    with current_tracker(RecordingTracker()) as tracker:
        net, _ = eqx.filter_jit(step)(*args)
    return net, {name: value for _, row in tracker.rows for name, value in flat(row).items()}


WAYS = [filter_jit_of_captured, captured_filter_jit, trackway_jit, plain_filter_jit]


@pytest.mark.parametrize("remat", [False, True], ids=["plain", "checkpoint"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_training_step(way, remat):
    """A step of a module with scanned layers logs what the layers do one by one, and changes the module alike."""
    net, xs = Net(jax.random.key(0)), jax.random.normal(jax.random.key(1), (LANES, WIDTH))
    state = OPTIMIZER.init(eqx.filter(net, eqx.is_inexact_array))
    with trackway.mute():
        expected, _ = eqx.filter_jit(make_step(remat))(net, state, xs)
    new, logs = way(make_step(remat), net, state, xs)

    act, sums, loss = reference(net, xs)
    assert sorted(logs) == ["act", "grad", "h", "loss"]
    np.testing.assert_allclose(logs["act"], act, rtol=1e-4)
    np.testing.assert_allclose(logs["h"], sums, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logs["loss"], loss, rtol=1e-5)
    assert logs["grad"] > 0
    assert (new.name, new.function, new.number) == ("net", jax.nn.relu, 7)
    assert jax.tree.structure(new) == jax.tree.structure(net)
    for got, wanted in zip(jax.tree.leaves(eqx.filter(new, eqx.is_array)), _arrays(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)


def _arrays(tree):
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def test_donated_modules():
    """A step may be given the buffers of the module and of the optimizer; each call is a row."""

    def swapped(xs, net, state):
        return make_step(remat=True)(net, state, xs)

    step = trackway.jit(swapped, jit=eqx.filter_jit, donate="all-except-first")
    net, xs = Net(jax.random.key(0)), jax.random.normal(jax.random.key(1), (LANES, WIDTH))
    state = OPTIMIZER.init(eqx.filter(net, eqx.is_inexact_array))
    losses = []
    with current_tracker(RecordingTracker()) as tracker:
        for _ in range(3):
            losses.append(reference(net, xs)[2])
            net, state = step(xs, net, state)
    assert [int(step) for step, _ in tracker.rows] == [0, 1, 2]
    np.testing.assert_allclose([row["loss"] for _, row in tracker.rows], losses, rtol=1e-5)


def test_filter_checkpoint():
    """A checkpointed function logs once in the gradient, and once for each lane under `filter_vmap`."""
    f = eqx.filter_checkpoint(lambda x: tap(jnp.sin(x), {"x": x, "n": 1}, reduce="sum"))
    _, logs = eqx.filter_jit(trackway.capture_logging(eqx.filter_grad(f)))(jnp.float32(1))
    assert_logs(logs.to_host(), x=1.0, n=1)
    _, logs = eqx.filter_jit(trackway.capture_logging(eqx.filter_vmap(f)))(jnp.arange(3.0))
    assert_logs(logs.to_host(), x=3.0, n=3)


def test_filter_value_and_grad_with_auxiliary_logs():
    """The logs of a captured loss are the auxiliary output of equinox's gradient."""
    linear = eqx.nn.Linear(2, 1, use_bias=False, key=jax.random.key(0))
    linear = eqx.tree_at(lambda one: one.weight, linear, jnp.array([[1.0, 2.0]]))
    loss_fn = trackway.capture_logging(lambda net, x: tap(net(x).sum(), {"out": net(x).sum()}))
    (loss, logs), grads = eqx.filter_jit(eqx.filter_value_and_grad(loss_fn, has_aux=True))(
        linear, jnp.array([3.0, 4.0])
    )
    assert loss == 11.0
    assert_logs(logs.to_host(), out=11.0)
    np.testing.assert_array_equal(grads.weight, [[3.0, 4.0]])


def test_filter_custom_vjp():
    """What the rules of a function log is logged when they run."""

    @eqx.filter_custom_vjp
    def double(x):
        return tap(x * 2, {"primal": x})

    @double.def_fwd
    def _(perturbed, x):
        return tap((x * 2, None), {"fwd": x})

    @double.def_bwd
    def _(residuals, ct, perturbed, x):
        return tap(ct * 2, {"bwd": ct})

    out, logs = eqx.filter_jit(trackway.capture_logging(double))(jnp.float32(5))
    assert out == 10.0
    assert_logs(logs.to_host(), primal=5.0)
    grad, logs = eqx.filter_jit(trackway.capture_logging(eqx.filter_grad(lambda x: double(x) * 3)))(jnp.float32(5))
    assert grad == 6.0
    assert_logs(logs.to_host(), fwd=5.0, bwd=3.0)


def test_filter_custom_jvp():
    """What a forward rule logs is logged under differentiation."""

    @eqx.filter_custom_jvp
    def sine(x):
        return tap(jnp.sin(x), {"primal": x})

    @sine.def_jvp
    def _(primals, tangents):
        (x,), (dx,) = primals, tangents
        trackway.log({"rule": x})
        return jnp.sin(x), jnp.cos(x) * dx

    assert_logs(eqx.filter_jit(trackway.capture_logging(sine))(jnp.float32(2))[1].to_host(), primal=2.0)
    grad, logs = eqx.filter_jit(trackway.capture_logging(eqx.filter_grad(sine)))(jnp.float32(2))
    assert np.isclose(grad, np.cos(2.0))
    assert_logs(logs.to_host(), rule=2.0)


@pytest.mark.parametrize("kind", ["lax", "checkpointed", "bounded"])
def test_while_loops_of_equinox(kind):
    """Its loops log each iteration once, whichever way they are made of JAX's."""
    from equinox.internal import while_loop

    def body(c):
        trackway.log({"c": c})
        trackway.log({"n": 1}, reduce="sum")
        return c + 1.0

    def loop(x):
        return while_loop(lambda c: c < 3.0, body, x, kind=kind, max_steps=None if kind == "lax" else 16)

    out, logs = eqx.filter_jit(trackway.capture_logging(loop))(jnp.float32(0))
    assert out == 3.0
    assert_logs(logs.to_host(), c=1.0, n=3)


def test_gradient_of_a_bounded_loop():
    """A loop that can be differentiated logs its iterations once in the gradient, and no iteration beyond its end."""
    from equinox.internal import while_loop

    def body(c):
        trackway.log({"c": c}, reduce="max")
        trackway.log({"n": 1}, reduce="sum")
        return c * 2.0

    def loop(x):
        return while_loop(lambda c: c < 5.0, body, x, kind="bounded", max_steps=16)

    grad, logs = eqx.filter_jit(trackway.capture_logging(jax.grad(loop)))(1.0)
    assert grad == 8.0
    assert_logs(logs.to_host(), c=4.0, n=3)


@pytest.mark.parametrize("kind", ["lax", "checkpointed", "bounded"])
def test_scans_of_equinox(kind):
    """Its scans log each iteration once, also those that save checkpoints."""
    from equinox.internal import scan

    def body(c, x):
        trackway.log({"c": c})
        return c + x, c

    options = {"checkpoints": "all"} if kind == "checkpointed" else {}
    function = trackway.capture_logging(lambda xs: scan(body, 0.0, xs, kind=kind, **options))
    (carry, ys), logs = eqx.filter_jit(function)(jnp.arange(4.0))
    assert carry == 6.0
    np.testing.assert_array_equal(ys, [0.0, 0.0, 1.0, 3.0])
    assert_logs(logs.to_host(), c=1.0)


def test_runtime_checks():
    """A value that passes through `error_if` is logged, and a branch that may fail takes no log away."""

    def f(x):
        x = eqx.error_if(x, x < 0, "negative")
        trackway.log({"x": x})
        return x

    out, logs = eqx.filter_jit(trackway.capture_logging(f))(jnp.float32(1))
    assert out == 1.0
    assert_logs(logs.to_host(), x=1.0)


def test_an_ensemble_of_modules():
    """A function mapped over modules logs the mean over them, and a stack of one entry for each."""
    models = eqx.filter_vmap(lambda key: eqx.nn.Linear(2, 1, key=key))(jax.random.split(jax.random.key(0), 3))
    x = jnp.array([1.0, -2.0])

    def apply(model, x):
        y = model(x)[0]
        trackway.log({"y": y})
        trackway.log({"ys": y}, reduce="stack")
        return y

    ensemble = eqx.filter_vmap(apply, in_axes=(eqx.if_array(0), None))
    ys, logs = eqx.filter_jit(trackway.capture_logging(ensemble))(models, x)
    expected = np.asarray(models.weight)[:, 0] @ np.asarray(x) + np.asarray(models.bias)[:, 0]
    np.testing.assert_allclose(ys, expected, rtol=1e-5)
    np.testing.assert_allclose(logs.to_host()["ys"], expected, rtol=1e-5)
    np.testing.assert_allclose(logs.to_host()["y"], expected.mean(), rtol=1e-5)


def test_layers_with_state():
    """A module with state, such as batch normalisation, goes through a captured step and keeps its statistics."""
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(2, axis_name="batch", mode="batch")
    xs = jnp.array([[1.0, 2.0], [3.0, 6.0]])

    def step(norm, state, xs):
        def one(x, state):
            y, state = norm(x, state)
            trackway.log({"y": y.sum()})
            trackway.log({"n": 1}, reduce="sum")
            return y, state

        return jax.vmap(one, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(xs, state)

    with trackway.mute():
        expected, expected_state = eqx.filter_jit(step)(norm, state, xs)
    (ys, new_state), logs = eqx.filter_jit(trackway.capture_logging(step))(norm, state, xs)
    np.testing.assert_allclose(ys, expected)
    np.testing.assert_allclose(logs.to_host()["y"], np.asarray(expected).sum(-1).mean(), atol=1e-6)
    assert logs.to_host()["n"] == 2
    for got, wanted in zip(jax.tree.leaves(new_state), jax.tree.leaves(expected_state), strict=True):
        np.testing.assert_allclose(got, wanted)


def test_a_method_as_the_step():
    """A method of a module is compiled with the module as its first argument, and delivers."""

    class Counter(eqx.Module):
        value: jax.Array

        @eqx.filter_jit
        def plain(self, by):
            return self.value + by

        def __call__(self, by):
            trackway.log({"value": self.value})
            return Counter(self.plain(by))

    step = trackway.jit(lambda counter, by: counter(by), jit=eqx.filter_jit)
    with current_tracker(RecordingTracker()) as tracker:
        counter = Counter(jnp.int32(1))
        for _ in range(3):
            counter = step(counter, 10)
    assert counter.value == 31
    assert_rows(tracker.rows, [(0, {"value": 1}), (1, {"value": 11}), (2, {"value": 21})])
