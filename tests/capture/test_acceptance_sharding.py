"""Values logged under shard_map, pmap and automatic sharding, on eight host devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, run, tap
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="the meshes have eight devices")

P = PartitionSpec
X = np.arange(8.0, dtype=np.float32)


def make_mesh(axis_type=AxisType.Auto):
    """Four by two devices."""
    return jax.make_mesh((4, 2), ("i", "j"), axis_types=(axis_type, axis_type))


def body(x):
    """Logs its shard of two entries under every reduction."""
    trackway.log({"m": x.mean()})
    trackway.log({"s": x.sum(), "tot": lax.psum(x.sum(), "i"), "const": 1.0}, reduce="sum")
    trackway.log({"mx": x.max()}, reduce="max")
    trackway.log({"mn": x.min()}, reduce="min")
    trackway.log({"st": x.sum()}, reduce="stack")
    trackway.log({"last": x[0]}, reduce="last")
    trackway.log({"std": x[0]}, reduce="std")
    return x * 2


EXPECTED = {
    "m": 3.5,
    "s": 28.0,
    "tot": 28.0,  # the same on all devices: one value of the program
    "const": 1.0,
    "mx": 7.0,
    "mn": 0.0,
    "st": [1.0, 5.0, 9.0, 13.0],
    "last": 6.0,
    "std": 5.0**0.5,  # of 0, 2, 4, 6
}


def over_i(f, mesh, **options):
    """Map *f* over the axis `i`."""
    return jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), **options)


@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
def test_devices_are_samples(jit):
    """Each device along the axes that a value varies with is one sample of it."""
    out, logs = run(over_i(body, make_mesh()), X, jit=jit)
    np.testing.assert_array_equal(out, X * 2)
    assert_logs(logs, EXPECTED)


def test_a_mesh_from_the_context():
    """The mesh may be the one that is set."""
    with jax.set_mesh(make_mesh()):
        assert_logs(run(jax.shard_map(body, in_specs=P("i"), out_specs=P("i")), X)[1], EXPECTED)


def test_an_explicit_mesh():
    """Axes of explicit type give the same values."""
    mesh = make_mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("i")))
        assert_logs(run(jax.shard_map(body, in_specs=P("i"), out_specs=P("i")), x)[1], EXPECTED)


def test_two_axes():
    """A value that varies with both axes has a sample for each of the eight devices."""

    def f(x):
        trackway.log({"s": x.sum()}, reduce="sum")
        trackway.log({"m": x.mean()})
        return x

    both = P(("i", "j"))
    assert_logs(run(jax.shard_map(f, mesh=make_mesh(), in_specs=both, out_specs=both), X)[1], s=28.0, m=3.5)


def test_without_the_check_of_varying_axes():
    """Where JAX does not track what varies, every device counts."""

    def f(x):
        trackway.log({"m": x.mean()})
        trackway.log({"s": x.sum(), "const": 1.0}, reduce="sum")
        trackway.log({"mx": x.max()}, reduce="max")
        return x * 2

    both = P(("i", "j"))
    mapped = jax.shard_map(f, mesh=make_mesh(), in_specs=both, out_specs=both, check_vma=False)
    assert_logs(run(mapped, X)[1], m=3.5, s=28.0, const=8.0, mx=7.0)


def test_partially_manual():
    """Only the axes that are mapped by hand are reduced by hand."""

    def f(x):
        trackway.log({"m": x.mean()})
        trackway.log({"s": x.sum()}, reduce="sum")
        return x * 2

    assert_logs(run(over_i(f, make_mesh(), axis_names={"i"}), X)[1], m=3.5, s=28.0)


def test_scan_in_shard_map():
    """Iterations and devices are samples of one metric; a stack is [devices, iterations]."""

    def f(x):
        def step(c, t):
            trackway.log({"c": c.sum()}, reduce="sum")
            trackway.log({"st": c.sum()}, reduce="stack")
            trackway.log({"t": t})
            trackway.log({"mx": c.max()}, reduce="max")
            return c + t, None

        return lax.scan(step, x, jnp.arange(3.0))[0]

    stack = [[1.0, 1.0, 3.0], [5.0, 5.0, 7.0], [9.0, 9.0, 11.0], [13.0, 13.0, 15.0]]
    assert_logs(run(over_i(f, make_mesh()), X)[1], c=92.0, st=stack, t=1.0, mx=8.0)


def test_cond_in_shard_map():
    """Devices that take the other branch do not log."""

    def f(x):
        def high(x):
            trackway.log({"hi": x.sum(), "n": 1}, reduce="sum")
            return x

        return lax.cond(lax.axis_index("i") > 1, high, lambda x: x, x)

    assert_logs(run(over_i(f, make_mesh()), X)[1], hi=22.0, n=2)


def test_while_in_shard_map():
    """Each device counts its own iterations."""

    def f(x):
        def step(c):
            trackway.log({"c": c[0]}, reduce="max")
            trackway.log({"n": 1}, reduce="sum")
            return c + 1

        return lax.while_loop(lambda c: c[0] < 5, step, x)

    assert_logs(run(over_i(f, make_mesh()), X)[1], c=4.0, n=9)


@pytest.mark.parametrize("remat", [False, True], ids=["plain", "checkpoint"])
def test_gradient_of_shard_map(remat):
    """The forward pass on each device is logged once."""

    def f(w, x):
        y = jnp.sin(x * w)
        trackway.log({"y": y.sum()}, reduce="sum")
        return y

    inner = jax.checkpoint(f) if remat else f

    def loss(w, x):
        return jax.shard_map(inner, mesh=make_mesh(), in_specs=(P(), P("i")), out_specs=P("i"))(w, x).sum()

    (value, _), logs = run(jax.value_and_grad(loss), 2.0, X)
    expected = np.sin(2 * np.arange(8.0)).sum()
    assert np.isclose(value, expected, rtol=1e-5)
    assert sorted(logs) == ["y"]
    assert np.isclose(logs["y"], expected, rtol=1e-5)


def test_gradient_inside_shard_map():
    """A training step on each device logs its loss and its gradient."""

    def loss(w, x):
        value = jnp.mean((w * x) ** 2)
        trackway.log({"loss": value})
        return value

    def step(w, x):
        grad = jax.grad(loss)(lax.pcast(w, "i", to="varying") if hasattr(lax, "pcast") else lax.pvary(w, "i"), x)
        trackway.log({"grad": jnp.abs(grad)}, reduce="max")
        return w - 0.1 * lax.pmean(grad, "i")

    mapped = jax.shard_map(step, mesh=make_mesh(), in_specs=(P(), P("i")), out_specs=P())
    out, logs = run(mapped, 1.0, X)
    assert np.isclose(out, -2.5)
    assert_logs(logs, loss=17.5, grad=85.0)


def test_a_backward_rule_in_shard_map():
    """A backward rule that logs runs once on each device."""

    @jax.custom_vjp
    def watched(x):
        return x

    watched.defvjp(lambda x: (x, None), lambda _, ct: tap((ct,), {"ct": ct.sum()}, reduce="sum"))

    def loss(x):
        return over_i(lambda x: watched(x) * 3, make_mesh())(x).sum()

    assert_logs(run(jax.grad(loss), X)[1], ct=24.0)


def test_vmap_and_shard_map():
    """Lanes and devices multiply, whichever is outside."""
    summed = over_i(lambda x: tap(x, {"s": x.sum()}, reduce="sum"), make_mesh())
    assert_logs(run(jax.vmap(summed), jnp.stack([X, X]))[1], s=56.0)
    inside = over_i(jax.vmap(lambda x: tap(x, {"s": x}, reduce="sum")), make_mesh())
    assert_logs(run(inside, X)[1], s=28.0)


def test_scan_of_shard_map():
    """A shard_map in a loop: a stack is [iterations, devices]."""

    def f(x):
        trackway.log({"s": x.sum()}, reduce="sum")
        trackway.log({"st": x.sum()}, reduce="stack")
        return x + 1

    mapped = over_i(f, make_mesh())
    logs = run(lambda x: lax.scan(lambda c, _: (mapped(c), None), x, None, length=2), X)[1]
    assert_logs(logs, s=64.0, st=[[1.0, 5.0, 9.0, 13.0], [3.0, 7.0, 11.0, 15.0]])


def test_automatic_sharding_with_donation():
    """Values of sharded arrays arrive whole, also where the next call is given the buffer."""
    sharding = NamedSharding(make_mesh(), P("i"))

    def f(x):
        trackway.log({"m": x.mean()})
        trackway.log({"v": x}, reduce="last")
        return x * 2

    assert_logs(run(f, jax.device_put(X, sharding))[1], m=3.5, v=X)
    step = trackway.jit(f, donate_argnums=0)
    with current_tracker(RecordingTracker()) as tracker:
        step(step(jax.device_put(X, sharding)))
    assert_rows(tracker.rows, [(0, {"m": 3.5, "v": X}), (1, {"m": 7.0, "v": 2 * X})])


def test_an_inner_jit_with_shardings():
    """Shardings of an inner jit stay in force."""
    sharding = NamedSharding(make_mesh(), P("i"))
    inner = jax.jit(lambda x: tap(x * 2, {"m": x.mean()}), in_shardings=sharding, out_shardings=sharding)
    out, logs = run(lambda x: inner(x) + 1, jax.device_put(X, sharding))
    np.testing.assert_array_equal(out, X * 2 + 1)
    assert_logs(logs, m=3.5)


def test_vectors_in_a_scan_on_an_explicit_mesh():
    """Accumulators of sharded vectors keep the sharding that the type asks for."""
    mesh = make_mesh(AxisType.Explicit)

    def step(c, row):
        trackway.log({"v": row})
        trackway.log({"s": row.sum()}, reduce="sum")
        trackway.log({"vs": row}, reduce="stack")
        trackway.log({"mx": row}, reduce="max")
        return c, None

    with jax.set_mesh(mesh):
        x = jax.device_put(np.ones((3, 8), np.float32), NamedSharding(mesh, P(None, "i")))
        logs = run(lambda x: lax.scan(step, 0.0, x), x)[1]
    assert_logs(logs, v=np.ones(8), s=24.0, vs=np.ones((3, 8)), mx=np.ones(8))


def test_vmap_on_an_explicit_mesh():
    """A mapped axis that is sharded is reduced as any other."""
    mesh = make_mesh(AxisType.Explicit)

    def f(v):
        trackway.log({"v": v})
        trackway.log({"st": v}, reduce="stack")
        return v

    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("i")))
        assert_logs(run(jax.vmap(f), x)[1], v=3.5, st=X)
