"""Values logged under pmap, and what shards deliver without a capture."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, run, tap
from jax import lax
from jax.sharding import AxisType, PartitionSpec

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="the meshes have eight devices")

X = np.arange(8.0, dtype=np.float32)


@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
def test_pmap(jit):
    """Every device is a sample."""

    def f(x):
        trackway.log({"x": x})
        trackway.log({"s": x}, reduce="sum")
        trackway.log({"st": x}, reduce="stack")
        return lax.pmean(x, "d")

    out, logs = run(jax.pmap(f, axis_name="d"), X, jit=jit)
    assert np.asarray(out).tolist() == [3.5] * 8
    assert_logs(logs, x=3.5, s=28.0, st=X)


def test_a_training_step_under_pmap():
    """The loss of a data parallel step is the mean over the devices."""

    def loss(w, x):
        return tap((w * x) ** 2, {"loss": (w * x) ** 2})

    def step(w, x):
        return w - 0.1 * lax.pmean(jax.grad(loss)(w, x), "d")

    logs = run(jax.pmap(step, axis_name="d"), jnp.ones(8), X)[1]
    assert_logs(logs, loss=17.5)


def sharded(x):
    """A shard_map over eight devices that logs each shard."""
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("d")

    def local(x):
        trackway.log({"x": x.sum(), "total": lax.psum(x.sum(), "d")})
        return x

    return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec)(x)


def test_a_compiled_step_delivers_one_row_for_all_devices():
    """`trackway.jit` of a shard_map gives one row, reduced over the devices."""
    with current_tracker(RecordingTracker()) as tracker:
        trackway.jit(sharded)(X)
    assert_rows(tracker.rows, [(0, {"x": 3.5, "total": 28.0})])


def test_without_a_capture_the_values_of_all_devices_arrive():
    """A plain jit of a shard_map loses no device: the mean over all that arrived is the mean over the devices."""
    with current_tracker(RecordingTracker()) as tracker:
        jax.jit(sharded)(X)
        jax.effects_barrier()
    assert len(tracker.rows) in (1, 8)
    assert np.mean([row["x"] for _, row in tracker.rows]) == 3.5
    assert {row["total"] for _, row in tracker.rows} == {28.0}
