"""`defer_tracker_for_jit`: a block inside a compiled function whose metrics are returned by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, flat, tap
from jax import lax

import trackway
from trackway import capture
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


def deferred(f):
    """Return a compiled function that returns the result of *f* and the metrics of a block around it."""

    @jax.jit
    def step(*args):
        with trackway.defer_tracker_for_jit() as metrics:
            out = f(*args)
        return out, metrics

    return step


def test_the_block_yields_a_dictionary(tracker):
    """What is logged in the block is in the dictionary once it ends, and is not delivered by itself."""

    def f(x):
        trackway.log({"loss": x, "a": {"b": 2 * x}})
        trackway.jit_log({"loss": x + 2})
        return x * 3

    out, metrics = deferred(f)(1.0)
    jax.effects_barrier()
    assert out == 3.0
    assert type(metrics) is dict
    assert_logs(flat(metrics), {"loss": 2.0, "a/b": 2.0})
    assert tracker.rows == []
    trackway.log(metrics, step=5)
    assert [step for step, _ in tracker.rows] == [5]


def test_every_call_has_its_values():
    """The compiled function returns the metrics of each call."""
    step = deferred(lambda x: tap(x + 1, {"x": x}))
    assert [float(step(float(i))[1]["x"]) for i in range(3)] == [0.0, 1.0, 2.0]


def test_in_a_loss_that_is_differentiated():
    """Logs of the forward pass come out of a gradient taken in the block."""

    def loss(w, x):
        value = (w * x) ** 2
        trackway.log({"loss": value})
        return value

    def f(w, x):
        grad = jax.grad(loss)(w, x)
        trackway.log({"grad": grad})
        return w - 0.5 * grad

    out, metrics = deferred(f)(1.0, 3.0)
    assert out == -8.0
    assert_logs(metrics, loss=9.0, grad=18.0)


def test_in_scan_cond_vmap_while_and_an_inner_jit():
    """Loops, branches, lanes and cached functions in the block are reduced as ever."""
    inner = jax.jit(lambda x: tap(x * 2, {"inner": x}))

    def f(x):
        lax.scan(lambda c, t: tap((c, None), {"scan": t}), x, jnp.arange(3.0))
        lax.cond(x > 0, lambda x: tap(x, {"cond": x}), lambda x: x, x)
        lax.while_loop(lambda i: i < 4, lambda i: tap(i + 1, {"while": 1}, reduce="sum"), 0)
        jax.vmap(lambda v: trackway.log({"vmap": v}, reduce="max"))(jnp.arange(4.0))
        with trackway.scope("s"):
            inner(x)
        return inner(x + 1)

    out, metrics = deferred(f)(1.0)
    assert out == 4.0
    assert_logs(metrics, {"scan": 1.0, "cond": 1.0, "while": 4, "vmap": 3.0, "s/inner": 1.0, "inner": 2.0})


def test_in_a_checkpointed_function():
    """A rematerialized function in the block is logged once."""

    @jax.checkpoint
    def g(x):
        trackway.log({"n": 1}, reduce="sum")
        return jnp.sin(jnp.sin(x))

    assert_logs(deferred(jax.grad(g))(1.0)[1], n=1)


def test_two_blocks_and_nested_blocks():
    """Each block has its own metrics; an inner block keeps its own from the outer one."""

    @jax.jit
    def step(x):
        with trackway.defer_tracker_for_jit() as first:
            trackway.log({"a": x})
            with trackway.defer_tracker_for_jit() as inner:
                trackway.log({"b": x + 1})
        with trackway.defer_tracker_for_jit() as second:
            trackway.log({"a": x + 2})
        return first, inner, second

    first, inner, second = step(1.0)
    assert_logs(first, a=1.0)
    assert_logs(inner, b=2.0)
    assert_logs(second, a=3.0)


def test_metrics_may_be_used_after_the_block():
    """The values are traced values of the function that holds the block."""

    @jax.jit
    def step(x):
        with trackway.defer_tracker_for_jit() as metrics:
            trackway.log({"loss": x})
        return metrics["loss"] * 10

    assert step(2.0) == 20.0


def test_outside_of_a_trace_the_block_collects_too(tracker):
    """On the host, the dictionary holds what was logged in the block, which no tracker gets."""
    with trackway.defer_tracker_for_jit() as metrics:
        trackway.log({"a": 1.0})
    assert dict(metrics) == {"a": 1.0}
    assert tracker.rows == []


def test_a_block_without_logs_is_empty():
    """Nothing logged gives an empty dictionary."""
    assert deferred(lambda x: x)(1.0)[1] == {}


def test_an_error_in_the_block_is_the_callers(tracker):
    """An exception leaves the block as it is, and later logs go to the tracker again."""

    @jax.jit
    def step(x):
        with trackway.defer_tracker_for_jit():
            trackway.log({"a": x})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        step(1.0)
    trackway.log({"b": 2})
    assert [row for _, row in tracker.rows] == [{"b": 2}]


def custom_rule(x):
    """A function with a rule, which logs."""

    @jax.custom_vjp
    def f(x):
        trackway.log({"hidden": x})
        return x

    f.defvjp(lambda x: tap((x, None), {"hidden": x}), lambda _, ct: (ct,))
    return f(x)


def in_shard_map(x):
    """A shard_map that logs."""
    mesh = jax.make_mesh((jax.device_count(),), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("d")
    xs = jnp.zeros(jax.device_count()) + x
    return jax.shard_map(lambda x: tap(x, {"hidden": x.mean()}), mesh=mesh, in_specs=spec, out_specs=spec)(xs).sum()


HARD = {
    "custom_vjp": custom_rule,
    "grad of custom_vjp": jax.grad(custom_rule),
    "shard_map": in_shard_map,
    "custom_vjp in an inner jit": jax.jit(custom_rule),
    "custom_vjp in checkpoint": jax.grad(jax.checkpoint(custom_rule)),
}


@pytest.mark.parametrize("f", HARD.values(), ids=HARD)
def test_what_a_block_cannot_collect_is_an_error(tracker, f):
    """A log in the block is collected, or is an error that names what can: it is never lost silently."""
    step = deferred(f)
    with capture.settings(on_error="raise"):
        try:
            _, metrics = step(2.0)
        except capture.CaptureError as error:
            message = str(error)
            assert "capture_logging" in message
            assert "hidden" in message
        else:
            assert_logs(metrics, hidden=2.0)
    jax.effects_barrier()
    assert tracker.rows == []


def test_a_block_inside_a_captured_function():
    """What a block collects is not captured once more."""

    def f(x):
        trackway.log({"outer": x})
        with trackway.defer_tracker_for_jit() as metrics:
            trackway.log({"inner": x + 1})
        return metrics

    metrics, logs = jax.jit(trackway.capture_logging(f))(1.0)
    assert_logs(metrics, inner=2.0)
    assert_logs(logs.to_host(), outer=1.0)


def test_gradients_pass_through_a_block():
    """A block in a function that is differentiated changes no gradient."""

    def f(x):
        with trackway.defer_tracker_for_jit() as metrics:
            y = jnp.sin(x)
            trackway.log({"y": y})
            z = y**2
        return z, metrics

    (value, metrics), grad = jax.jit(jax.value_and_grad(f, has_aux=True))(1.0)
    assert np.isclose(value, np.sin(1.0) ** 2)
    assert np.isclose(grad, np.sin(2.0))
    assert_logs(metrics, y=np.sin(1.0))
