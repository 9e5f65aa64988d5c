"""Values logged in modules of flax linen and of haiku."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, run

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker

nn = pytest.importorskip("flax.linen")
hk = pytest.importorskip("haiku")

pytestmark = pytest.mark.frameworks

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
DEPTH = 4


def initialised(module, *args, seed=0, **options):
    """Return the variables of *module*; initialisation runs the module, so that it is muted."""
    with trackway.mute():
        return module.init(jax.random.key(seed), *args, **options)


def layers(params, x):
    """Apply the dense layers of *params*, `[layer, in, out]` and `[layer, out]`, in NumPy; yield what each returns."""
    for kernel, bias in zip(np.asarray(params["kernel"]), np.asarray(params["bias"]), strict=True):
        x = np.tanh(x @ kernel + bias)
        yield x


class Plain(nn.Module):
    """Two layers, one after the other."""

    @nn.compact
    def __call__(self, x):
        """Log after each layer."""
        for number in range(2):
            x = nn.tanh(nn.Dense(3, name=f"dense{number}")(x))
            trackway.log({f"layer{number}": x.mean()})
        return x


def test_a_module_under_grad():
    """A compact module logs its layers, and the loss around it, once in the gradient."""
    module = Plain()
    params = initialised(module, X)

    def loss_fn(params):
        loss = (module.apply(params, X) ** 2).mean()
        trackway.log({"loss": loss})
        return loss

    dense = [params["params"][f"dense{number}"] for number in range(2)]
    first, second = layers({name: np.stack([one[name] for one in dense]) for name in ("kernel", "bias")}, X)
    logs = run(jax.grad(loss_fn), params)[1]
    assert sorted(logs) == ["layer0", "layer1", "loss"]
    np.testing.assert_allclose(logs["layer0"], first.mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(logs["layer1"], second.mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(logs["loss"], np.mean(second**2), rtol=1e-4)


def test_initialisation_is_muted():
    """What a module logs while it is initialised reaches the tracker, unless it is muted."""
    module = Plain()
    with current_tracker(RecordingTracker()) as tracker:
        initialised(module, X)
        assert tracker.rows == []
        jax.eval_shape(module.init, jax.random.key(0), X)
        assert tracker.rows == []


class Layer(nn.Module):
    """A layer for `nn.scan`."""

    @nn.compact
    def __call__(self, h, _):
        """Log the mean of what it returns, that it ran, and the norm of its gradient."""
        h = nn.tanh(nn.Dense(3, name="dense")(h))
        trackway.log({"h": h.mean()}, reduce="stack")
        trackway.log({"n": 1}, reduce="sum")
        return trackway.watch_grad(h, "bwd", reduce="stack"), None


class Stack(nn.Module):
    """Scanned layers."""

    remat: bool

    @nn.compact
    def __call__(self, x):
        """Return what the last layer does."""
        layer = nn.remat(Layer) if self.remat else Layer
        # that the loop has invariants is checked by running its body once more, which logs what is constant in it
        options = {"length": DEPTH, "check_constancy_invariants": False}
        scanned = nn.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, **options)
        return scanned(name="layers")(x, None)[0]


@pytest.mark.parametrize("remat", [False, True], ids=["nn.scan", "nn.scan of nn.remat"])
def test_scanned_layers(remat):
    """Scanned layers log once each, rematerialized or not, with the values of a loop in NumPy."""
    module = Stack(remat)
    params = initialised(module, X)
    outputs = list(layers(params["params"]["layers"]["dense"], X))
    _, logs = run(module.apply, params, X)
    assert sorted(logs) == ["h", "n"]
    for f in (jax.grad, jax.value_and_grad):
        logs = run(f(lambda params: (module.apply(params, X) ** 2).sum()), params)[1]
        assert sorted(logs) == ["bwd", "h", "n"]
        assert logs["n"] == DEPTH
        np.testing.assert_allclose(logs["h"], [h.mean() for h in outputs], rtol=1e-4, atol=1e-6)
        assert logs["bwd"].shape == (DEPTH,)
        np.testing.assert_allclose(logs["bwd"][-1], 2 * np.linalg.norm(outputs[-1]), rtol=1e-4)


def test_scan_with_its_check_of_invariants():
    """Where `nn.scan` runs its body once more for a check, what depends on the loop is still logged once a layer."""

    class Checked(nn.Module):
        @nn.compact
        def __call__(self, x):
            axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
            return nn.scan(nn.remat(Layer), **axes, length=DEPTH)(name="layers")(x, None)[0]

    module = Checked()
    params = initialised(module, X)
    logs = run(jax.grad(lambda params: (module.apply(params, X) ** 2).sum()), params)[1]
    outputs = list(layers(params["params"]["layers"]["dense"], X))
    np.testing.assert_allclose(logs["h"], [h.mean() for h in outputs], rtol=1e-4, atol=1e-6)
    assert logs["bwd"].shape == (DEPTH,)


def test_outputs_and_gradients_are_untouched():
    """The gradient of a stack that logs is that of the same stack under `mute`."""
    module = Stack(remat=True)
    params = initialised(module, X)

    def gradient(params):
        return jax.grad(lambda params: (module.apply(params, X) ** 2).sum())(params)

    with trackway.mute():
        expected = jax.jit(gradient)(params)
    for got, wanted in zip(jax.tree.leaves(run(gradient, params)[0]), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


class Noisy(nn.Module):
    """A layer with batch statistics and dropout."""

    @nn.compact
    def __call__(self, x, *, train):
        """Log the share of zeros that dropout makes."""
        x = nn.BatchNorm(use_running_average=not train, momentum=0.5)(x)
        trackway.log({"mean": x.mean()})
        x = nn.Dropout(0.5, deterministic=not train)(x)
        trackway.log({"zeros": (x == 0).mean()})
        return x


def test_mutable_collections_and_random_numbers():
    """Batch statistics that a step returns and the random numbers of dropout are those of the step without logs."""
    module = Noisy()
    variables = initialised(module, X, train=False)

    def step(variables, key):
        return module.apply(variables, X, train=True, mutable=["batch_stats"], rngs={"dropout": key})

    with trackway.mute():
        y, updated = jax.jit(step)(variables, jax.random.key(1))
    (got, state), logs = run(step, variables, jax.random.key(1))
    np.testing.assert_allclose(got, y)
    np.testing.assert_allclose(state["batch_stats"]["BatchNorm_0"]["mean"], X.mean(0) / 2, atol=1e-6)
    assert jax.tree.structure(state) == jax.tree.structure(updated)
    np.testing.assert_allclose(logs["zeros"], np.mean(np.asarray(y) == 0))
    np.testing.assert_allclose(logs["mean"], 0, atol=1e-6)


class Recurrent(nn.Module):
    """A cell over time, with a branch inside."""

    @nn.compact
    def __call__(self, xs):
        """Scan over `[time, features]`."""

        def body(cell, carry, x):
            carry, y = cell(carry, x)
            trackway.log({"state": jnp.abs(carry).max()}, reduce="max")
            nn.cond(x[0] > 0, lambda _, y: trackway.log({"positive": 1}, reduce="sum"), lambda *_: None, cell, y)
            return carry, y

        cell = nn.GRUCell(features=3, parent=self)
        scan = nn.scan(body, variable_broadcast="params", split_rngs={"params": False})
        carry = cell.initialize_carry(jax.random.key(0), xs[0].shape)
        return scan(cell, carry, xs)[1]


def test_a_recurrent_cell_with_a_branch():
    """`nn.scan` over time and `nn.cond` inside log the steps that take the branch."""
    module, xs = Recurrent(), jnp.array([[1.0, 0], [-1.0, 0], [2.0, 0], [3.0, 0], [-5.0, 0]])
    params = initialised(module, xs)
    ys, logs = run(module.apply, params, xs)
    assert_logs(logs, state=np.abs(ys).max(), positive=3)


def test_a_mapped_module():
    """`nn.vmap` logs a stack of one entry for each lane."""
    module = nn.vmap(Plain, variable_axes={"params": 0}, split_rngs={"params": True})()
    xs = np.stack([X, 2 * X, 3 * X])
    params = initialised(module, xs)

    def apply(params, xs):
        ys = module.apply(params, xs)
        trackway.log({"all": ys.mean()})
        return ys

    ys, logs = run(apply, params, xs)
    assert sorted(logs) == ["all", "layer0", "layer1"]
    np.testing.assert_allclose(logs["layer1"], np.mean(ys), rtol=1e-4, atol=1e-6)


def test_delivery_of_linen_steps():
    """`trackway.jit` of a step with donated parameters delivers each step."""
    module = Stack(remat=True)
    params = initialised(module, X)

    @trackway.jit(donate_argnums=0)
    def step(params):
        loss, grads = jax.value_and_grad(lambda params: (module.apply(params, X) ** 2).sum())(params)
        trackway.log({"loss": loss})
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)

    with current_tracker(RecordingTracker()) as tracker:
        for _ in range(4):
            params = step(params)
    losses = [float(row["loss"]) for _, row in tracker.rows]
    assert losses == sorted(losses, reverse=True)
    assert_rows([(step, {"n": row["n"]}) for step, row in tracker.rows], [(k, {"n": DEPTH}) for k in range(4)])


def haiku_network(x):
    """A layer, a loop and a rematerialized function of haiku."""
    h = hk.Linear(3)(x)
    trackway.log({"linear": h.mean()})

    def body(c, _):
        trackway.log({"loop": c.mean()}, reduce="stack")
        return c * 2, None

    h, _ = hk.scan(body, h, None, length=2)

    def last(h):
        trackway.log({"n": 1}, reduce="sum")
        return jnp.tanh(h)

    return hk.remat(last)(h)


def test_haiku():
    """A transformed function of haiku logs its layer, its loop and its rematerialized part once in the gradient."""
    f = hk.without_apply_rng(hk.transform(haiku_network))
    with trackway.mute():
        params = f.init(jax.random.key(0), X)
    h = X @ np.asarray(params["linear"]["w"]) + np.asarray(params["linear"]["b"])
    for g in (lambda params: f.apply(params, X).sum(), jax.grad(lambda params: f.apply(params, X).sum())):
        logs = run(g, params)[1]
        assert sorted(logs) == ["linear", "loop", "n"]
        assert logs["n"] == 1
        np.testing.assert_allclose(logs["linear"], h.mean(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(logs["loop"], [h.mean(), 2 * h.mean()], rtol=1e-4, atol=1e-6)


def test_haiku_state():
    """State that a function of haiku keeps is updated beside what it logs."""

    def counted(x):
        count = hk.get_state("count", (), jnp.int32, init=jnp.zeros)
        hk.set_state("count", count + 1)
        trackway.log({"count": count})
        return x

    f = hk.without_apply_rng(hk.transform_with_state(counted))
    with trackway.mute():
        params, state = f.init(jax.random.key(0), X)
    step = jax.jit(trackway.capture_logging(lambda state: f.apply(params, state, X)[1]))
    counts = []
    for _ in range(3):
        state, logs = step(state)
        counts.append(int(logs.to_host()["count"]))
    assert counts == [0, 1, 2]
