"""What may stand in a payload inside compiled code."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trackway
from trackway.capture._packing import pack
from trackway.capture._payload import group_of
from trackway.errors import TracerError
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


@dataclasses.dataclass
class Stats:
    """A dataclass that JAX does not know."""

    mean: jax.Array
    name: str = "x"


class Pair(NamedTuple):
    """A named tuple."""

    low: jax.Array
    high: jax.Array


def run(make, tracker, times=2):
    """Log what *make* returns inside a compiled function; return the rows' values."""

    @jax.jit
    def step_fn(x):
        trackway.log({"value": make(x), "beside": x})

    for i in range(times):
        step_fn(jnp.float32(i))
    jax.effects_barrier()
    assert [row["beside"] for _, row in tracker.rows] == [float(i) for i in range(times)]
    return [row["value"] for _, row in tracker.rows]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: Stats(x + 1), {"mean": 2.0, "name": "x"}),
        (lambda x: Pair(x, x + 1), {"low": 1.0, "high": 2.0}),
        (lambda x: deque([x, 2]), [1.0, 2]),
        (lambda x: [x, (x, {"a": x})], [1.0, [1.0, {"a": 1.0}]]),
        (lambda x: (x * k for k in range(2)), [0.0, 1.0]),
        (lambda x: jnp.stack([x, x]).reshape(1, 2), [[1.0, 1.0]]),
        (lambda x: {1: x, "b": x}, {"1": 1.0, "b": 1.0}),
        (lambda x: x.reshape(1, 1), 1.0),
        (lambda x: None, None),
        (lambda x: jnp.zeros((0, 3)) * x, []),
        (lambda x: (i for i in range(3)), [0, 1, 2]),
        (lambda x: np.float64(1) / 3, float(np.float32(1 / 3))),
        (lambda x: 2**70, 2.0**70),
    ],
    ids=[
        "dataclass",
        "tuple",
        "deque",
        "nested",
        "generator",
        "array",
        "names",
        "one",
        "none",
        "empty",
        "numbers",
        "numpy",
        "huge",
    ],
)
def test_structures_with_traced_values_arrive_whole(tracker, make, expected):
    """Whatever holds the traced values, the row has them, at the second execution too."""
    assert run(make, tracker)[1] == expected


def test_a_cycle_is_cut(tracker):
    """A payload that contains itself is cut where it does, with a warning when tracing, and the rest arrives."""

    def make(x):
        payload = {"x": x}
        payload["self"] = payload
        return payload

    with pytest.warns(trackway.TrackwayWarning, match="contains itself"):
        values = run(make, tracker)
    assert values[1]["x"] == 1.0


def test_numbers_travel_packed(tracker):
    """Numbers of one type travel as one array, because JAX takes time for each; order and types are kept."""
    buffers = []

    @jax.jit
    def step_fn(x, i):
        metrics = {f"m{k}": x + k for k in range(100)} | {f"i{k}": i + k for k in range(100)} | {"flag": x > 0}
        buffers.extend(pack(*group_of(metrics, step=i, reduce="last", weight=None))[1])
        trackway.log(metrics, step=i, reduce="last")

    step_fn(jnp.float32(0.5), 7)
    jax.effects_barrier()
    assert len(buffers) == 2
    [(step, row)] = tracker.rows
    assert step == 7
    assert row["m0"] == 0.5
    assert row["m99"] == 99.5
    assert (row["i0"], row["i99"], row["flag"]) == (7, 106, True)
    assert [type(row[key]) for key in ("m0", "i0", "flag")] == [float, int, bool]
    assert list(row)[:2] == ["m0", "m1"]


def test_devices_of_a_shard_map_deliver_one_row(tracker):
    """Under shard_map the values of the devices are reduced, and those that all devices share count once."""
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def local(x):
        trackway.log({"x": x.sum(), "total": jax.lax.psum(x.sum(), "d")}, reduce={"total": "sum"})
        return x

    spec = jax.sharding.PartitionSpec("d")
    trackway.jit(jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec))(jnp.arange(8.0))
    tracker.flush()
    assert tracker.rows == [(0, {"x": 7.0, "total": 28.0})]


@pytest.mark.parametrize("transform", [jax.eval_shape, lambda f, x: jax.make_jaxpr(f)(x)], ids=["eval_shape", "jaxpr"])
def test_tracing_alone_logs_nothing(tracker, transform):
    """Where a function is traced and not run, no row is made."""
    transform(lambda x: trackway.log({"x": x}), jnp.float32(1))
    jax.effects_barrier()
    assert tracker.rows == []


def test_the_text_of_a_tracer_is_told(tracker):
    """An f-string of a traced value is a text without the number: a warning when tracing says so."""
    with pytest.warns(trackway.TrackwayWarning, match="'value' is the text of a traced JAX value"):
        run(lambda x: f"loss {x}", tracker)


@pytest.mark.parametrize("wrap", [trackway.Image, lambda x: trackway.Audio(x, 8000)], ids=["image", "audio"])
def test_media_are_wrapped_outside(tracker, wrap):
    """A picture or a sound of traced values is an error that says to wrap the array outside."""
    with pytest.raises(TracerError, match="wrap it outside"):
        jax.jit(lambda x: trackway.log({"m": wrap(x)}))(jnp.zeros((8, 8)))
