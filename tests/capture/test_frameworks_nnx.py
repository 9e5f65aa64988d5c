"""Values logged in functions that change objects of flax nnx in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, flat

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker

nnx = pytest.importorskip("flax.nnx")
optax = pytest.importorskip("optax")

pytestmark = pytest.mark.frameworks

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def captured(function):
    """Return *function* captured by the adapter for nnx."""
    from trackway.capture.nnx import capture_logging

    return capture_logging(function)


class Model(nnx.Module):
    """A layer with dropout, that counts its calls and logs."""

    def __init__(self, rngs):
        """Draw the weights."""
        self.linear = nnx.Linear(3, 3, rngs=rngs)
        self.calls = nnx.Variable(jnp.zeros((), jnp.int32))
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        """Return `[N, 3]` for `[N, 3]`."""
        self.calls[...] = self.calls[...] + 1
        y = nnx.tanh(self.dropout(self.linear(x)))
        trackway.log({"y": y.mean()})
        return y


def step(model, optimizer, x):
    """Change model and optimizer by one step; return the loss."""

    def loss_fn(model):
        loss = (model(x) ** 2).mean()
        trackway.log({"loss": loss})
        return loss

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


def fresh():
    """Return a new model and its optimizer, the same each time."""
    model = Model(nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)


def arrays(*nodes):
    """Return all arrays of the state of *nodes*; keys as their bits."""
    leaves = jax.tree.leaves(nnx.state(list(nodes)))
    return [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x) for x in leaves]


@pytest.fixture(scope="module")
def expected():
    """Return the losses of three steps without any capture, and the state after them."""
    with trackway.mute():
        nodes = fresh()
        plain = nnx.jit(step)
        return [float(plain(*nodes, X)) for _ in range(3)], arrays(*nodes)


def require_state(nodes, expected):
    """Require that *nodes* hold the arrays *expected*."""
    for got, wanted in zip(arrays(*nodes), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("jit", [nnx.jit, lambda f: f], ids=["nnx.jit", "eager"])
def test_objects_are_changed_in_place(expected, jit):
    """Parameters, optimizer, random numbers and a counter change as without capture, and each step has its logs."""
    nodes = fresh()
    wrapped = jit(captured(step))
    losses, state = expected
    for k in range(3):
        loss, logs = wrapped(*nodes, X)
        host = logs.to_host()
        assert sorted(host) == ["loss", "y"]
        np.testing.assert_allclose([float(loss), float(host["loss"])], [losses[k]] * 2, rtol=1e-5)
    assert int(nodes[0].calls[...]) == 3
    require_state(nodes, state)


def test_a_function_of_state(expected):
    """The functional form, `nnx.split` and `nnx.merge`, needs no adapter."""
    graph, state = nnx.split(fresh())

    @jax.jit
    @trackway.capture_logging
    def pure(state, x):
        nodes = nnx.merge(graph, state)
        loss = step(*nodes, x)
        return nnx.state(nodes), loss

    losses = []
    for _ in range(3):
        (state, _), logs = pure(state, X)
        losses.append(float(logs.to_host()["loss"]))
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
    require_state(nnx.merge(graph, state), expected[1])


def test_delivery_to_a_tracker(expected):
    """The logs of each step are a row under the step they are logged at."""
    nodes = fresh()
    wrapped = nnx.jit(captured(step))
    with current_tracker(RecordingTracker()) as tracker:
        for k in range(3):
            _, logs = wrapped(*nodes, X)
            trackway.log(logs, step=10 * k)
    assert [int(step) for step, _ in tracker.rows] == [0, 10, 20]
    np.testing.assert_allclose([row["loss"] for _, row in tracker.rows], expected[0], rtol=1e-5)


def test_without_capture(expected):
    """Under plain `nnx.jit` a callback delivers the same values, and the state is the same."""
    nodes = fresh()
    plain = nnx.jit(step)
    with current_tracker(RecordingTracker()) as tracker:
        for _ in range(3):
            plain(*nodes, X)
            jax.effects_barrier()
    losses = [row["loss"] for row in (flat(row) for _, row in tracker.rows) if "loss" in row]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
    require_state(nodes, expected[1])


def test_a_step_that_nnx_compiles_for_trackway(expected):
    """`trackway.jit(jit=nnx.jit)` delivers each step, and changes model and optimizer as `nnx.jit` does."""
    nodes = fresh()
    compiled = trackway.jit(step, jit=nnx.jit)
    with current_tracker(RecordingTracker()) as tracker:
        for _ in range(3):
            compiled(*nodes, X)
    np.testing.assert_allclose([row["loss"] for _, row in tracker.rows], expected[0], rtol=1e-5)
    require_state(nodes, expected[1])


@pytest.mark.parametrize("jit", [nnx.jit, lambda f: f], ids=["nnx.jit", "eager"])
def test_no_change_is_lost_by_the_plain_transformation(expected, jit):
    """`trackway.capture_logging` itself changes nnx objects in place as the function does."""
    nodes = fresh()
    wrapped = jit(trackway.capture_logging(step))
    losses = [wrapped(*nodes, X)[1].to_host()["loss"] for _ in range(3)]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
    require_state(nodes, expected[1])


@pytest.fixture
def stack():
    """Return a module of three scanned, rematerialized layers."""

    class Stack(nnx.Module):
        def __init__(self, rngs):
            @nnx.split_rngs(splits=3)
            @nnx.vmap(in_axes=0, out_axes=0)
            def make(rngs):
                return nnx.Linear(3, 3, rngs=rngs)

            self.layers = make(rngs)

        def __call__(self, x):
            @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            @nnx.remat
            def layer(h, linear):
                h = nnx.tanh(linear(h))
                trackway.log({"h": h.mean()}, reduce="stack")
                trackway.log({"n": 1}, reduce="sum")
                return h

            return layer(x, self.layers)

    return Stack(nnx.Rngs(0))


def test_scan_and_remat(stack):
    """Layers in `nnx.scan` of `nnx.remat` log once each in the gradient, with the values of a loop in NumPy."""

    def value_and_grad(model, x):
        return nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)

    (loss, _), logs = nnx.jit(captured(value_and_grad))(stack, X)
    kernels, biases = np.asarray(stack.layers.kernel[...]), np.asarray(stack.layers.bias[...])
    h, means = X, []
    for kernel, bias in zip(kernels, biases, strict=True):
        h = np.tanh(h @ kernel + bias)
        means.append(h.mean())
    host = logs.to_host()
    assert host["n"] == 3
    np.testing.assert_allclose(host["h"], means, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(loss, np.mean(h**2), rtol=1e-4)


def test_backward_statistics(stack):
    """`watch_grad` on the output logs the cotangent in the backward pass."""

    def gradient(model, x):
        def loss_fn(model):
            y = trackway.watch_grad(model(x), "bwd")
            return (y * jnp.array([3.0, 0.0, 4.0])).sum()

        return nnx.grad(loss_fn)(model)

    _, logs = nnx.jit(captured(gradient))(stack, X[:1])
    host = logs.to_host()
    assert_logs({"bwd": host["bwd"]}, bwd=5.0)


def test_batch_statistics():
    """Running statistics of batch normalisation change in place."""

    def forward(norm, x):
        y = norm(x)
        trackway.log({"y": y.std()})
        return y

    plain, logged = (nnx.BatchNorm(3, momentum=0.5, rngs=nnx.Rngs(0)) for _ in range(2))
    with trackway.mute():
        wanted = nnx.jit(forward)(plain, X)
    got, logs = nnx.jit(captured(forward))(logged, X)
    np.testing.assert_allclose(got, wanted)
    np.testing.assert_allclose(logs.to_host()["y"], np.std(wanted), rtol=1e-5)
    np.testing.assert_allclose(logged.mean[...], plain.mean[...])
    np.testing.assert_allclose(logged.mean[...], X.mean(0) / 2, atol=1e-6)


def test_one_module_given_twice():
    """A module that two arguments share stays one: both names see the change."""

    def double(first, second):
        first.calls[...] = first.calls[...] + 1
        second.calls[...] = second.calls[...] * 10
        trackway.log({"calls": first.calls[...]})

    model, _ = fresh()
    _, logs = captured(double)(model, model)
    assert_logs(logs.to_host(), calls=10)
    assert int(model.calls[...]) == 10


def test_modules_inside_containers_and_keywords():
    """Modules in a tuple, a dict or a keyword argument are changed in place as well."""

    def count(pair, *, named):
        for model in (*pair, named["one"]):
            model.calls[...] = model.calls[...] + 1
        trackway.log({"calls": named["one"].calls[...]})

    models = [fresh()[0] for _ in range(3)]
    _, logs = nnx.jit(captured(count))((models[0], models[1]), named={"one": models[2]})
    assert_logs(logs.to_host(), calls=1)
    assert [int(model.calls[...]) for model in models] == [1, 1, 1]


def test_arguments_that_are_no_modules():
    """Other arguments stay what they are: a flag decides in Python, a string is passed on."""

    def forward(model, x, flag, name):
        trackway.log({name: model(x).sum() if flag else x.sum()})

    model, _ = fresh()
    _, logs = captured(forward)(model, X, False, "total")
    np.testing.assert_allclose(logs.to_host()["total"], 0, atol=1e-6)
    assert int(model.calls[...]) == 0
