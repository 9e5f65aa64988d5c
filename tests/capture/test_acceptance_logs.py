"""`Logs`: what a captured function returns beside its result."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, flat, tap
from jax import lax

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


def every_kind(x):
    """Logs *x* and twice *x* under the plain reductions."""
    for v in (x, 2 * x):
        for reduce in ("mean", "sum", "max", "min", "last", "std"):
            trackway.log({reduce: v}, reduce=reduce)
    return x


def captured(f, *args):
    """Return the logs of one compiled call."""
    return jax.jit(trackway.capture_logging(f))(*args)[1]


def test_logs_are_a_mapping():
    """Names give values; the usual operations of a mapping work."""
    logs = captured(lambda x: tap(x, {"loss": x, "a": {"b": x + 1}}), 3.0)
    assert isinstance(logs, trackway.Logs)
    assert isinstance(logs, Mapping)
    assert sorted(logs) == ["a/b", "loss"]
    assert len(logs) == 2
    assert "loss" in logs
    assert "other" not in logs
    assert float(logs["loss"]) == 3.0
    assert {name: float(value) for name, value in logs.items()} == {"loss": 3.0, "a/b": 4.0}
    assert logs.get("other") is None
    with pytest.raises(KeyError, match="other"):
        _ = logs["other"]


def test_logs_are_a_pytree():
    """Logs pass through compiled functions, loops and tree operations."""
    logs = captured(lambda x: tap(x, {"loss": x}), 3.0)
    again = jax.jit(lambda logs: logs)(logs)
    assert float(again["loss"]) == 3.0
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(logs))
    assert jax.tree.structure(again) == jax.tree.structure(logs)
    jax.block_until_ready(logs)


def test_values_inside_a_trace():
    """Inside a compiled function a value can be used for something else."""

    @jax.jit
    def f(x):
        out, logs = trackway.capture_logging(lambda x: tap(x, {"loss": x * 2}))(x)
        return out + logs["loss"], logs

    out, logs = f(3.0)
    assert out == 9.0
    assert_logs(logs.to_host(), loss=6.0)


def test_absent_metrics_are_left_out_on_the_host():
    """In a trace every name is there; on the host those that were not logged are not."""
    logs = captured(lambda x: lax.cond(x > 0, lambda x: tap(x, {"a": x}), lambda x: tap(x, {"b": x}), x), 1.0)
    assert_logs(logs.to_host(), a=1.0)


def test_host_values_are_numpy():
    """On the host numbers and arrays are NumPy's."""
    host = captured(lambda x: tap(x, {"v": x, "s": x.sum()}), jnp.arange(3.0)).to_host()
    assert isinstance(host["v"], np.ndarray)
    assert isinstance(host["s"], np.generic | np.ndarray | float)
    assert not isinstance(host["s"], jax.Array)


def test_merge():
    """The logs of two calls combine as if both had been one."""
    first, second = captured(every_kind, 1.0), captured(every_kind, 3.0)
    merged = first.merge(second)
    expected = {"mean": 3.0, "sum": 12.0, "max": 6.0, "min": 1.0, "last": 6.0, "std": 3.5**0.5}  # of 1, 2, 3, 6
    assert_logs(merged.to_host(), expected)
    assert_logs(jax.jit(lambda a, b: a.merge(b))(first, second).to_host(), expected)
    assert_logs(first.to_host(), mean=1.5, sum=3.0, max=2.0, min=1.0, last=2.0, std=0.5)


def test_merge_of_different_names():
    """A metric that only one of the two has is kept."""
    merged = captured(lambda x: tap(x, {"a": x}), 1.0).merge(captured(lambda x: tap(x, {"b": x, "a": x}), 3.0))
    assert_logs(merged.to_host(), a=2.0, b=3.0)


def test_merge_over_a_loop_on_the_host():
    """Logs of many calls are merged into a window."""
    f = jax.jit(trackway.capture_logging(lambda x: tap(x, {"x": x, "n": 1}, reduce={"n": "sum"})))
    window = f(1.0)[1]
    for x in (2.0, 6.0):
        window = window.merge(f(x)[1])
    assert_logs(window.to_host(), x=3.0, n=3)


def test_logs_as_stacked_outputs():
    """Mapped over a loop, logs are those of each iteration."""
    f = trackway.capture_logging(lambda x: tap(x, {"x": x}))
    logs = jax.jit(lambda xs: lax.map(lambda x: f(x)[1], xs))(jnp.array([1.0, 2.0, 6.0]))
    assert np.asarray(logs["x"]).tolist() == [1.0, 2.0, 6.0]


def test_log_takes_logs(tracker):
    """`trackway.log(logs, step=i)` makes a row of them."""
    step = jax.jit(trackway.capture_logging(lambda x: tap(x + 1, {"loss": x, "a": {"b": x}})))
    x = jnp.float32(0)
    for i in range(3):
        x, logs = step(x)
        trackway.log(logs, step=10 * i)
    assert_rows(tracker.rows, [(10 * i, {"loss": float(i), "a/b": float(i)}) for i in range(3)])
    assert [type(flat(row)["loss"]) for _, row in tracker.rows] == [float] * 3


def test_log_takes_logs_as_a_value(tracker):
    """Logs may stand in a payload beside other metrics."""
    logs = captured(lambda x: tap(x, {"loss": x}), 3.0)
    trackway.log({"train": logs, "lr": 0.5}, step=1)
    assert_rows(tracker.rows, [(1, {"train/loss": 3.0, "lr": 0.5})])


def test_log_of_logs_leaves_absent_metrics_out(tracker):
    """A metric of a branch not taken is not in the row."""
    f = trackway.capture_logging(lambda x: lax.cond(x > 0, lambda x: tap(x, {"a": x}), lambda x: tap(x, {"b": x}), x))
    trackway.log(jax.jit(f)(-1.0)[1], step=0)
    assert_rows(tracker.rows, [(0, {"b": -1.0})])


def test_logs_that_hold_their_own_step(tracker):
    """Rows with steps of their own are logged at these steps."""

    def f(xs):
        return lax.scan(lambda i, x: (i + 1, trackway.log({"x": x}, step=i)), 4, xs)

    logs = captured(f, jnp.array([1.0, 2.0]))
    assert_rows(logs.rows(), [(4, {"x": 1.0}), (5, {"x": 2.0})])
    trackway.log(logs)
    assert_rows(tracker.rows, [(4, {"x": 1.0}), (5, {"x": 2.0})])


def test_rows_are_what_log_would_deliver(tracker):
    """`rows()` shows the rows before they are logged."""
    logs = captured(lambda x: tap(x, {"a": x, "note": "text"}), 1.0)
    [(step, row)] = logs.rows()
    assert step is None
    assert row == {"a": 1.0, "note": "text"}


def test_logs_in_a_trace_are_logged_again():
    """Captured logs may be logged anew, for example under a scope, in an outer capture."""

    def outer(x):
        _, logs = trackway.capture_logging(lambda x: tap(x, {"loss": x}))(x)
        with trackway.scope("inner"):
            trackway.log(dict(logs))
        return x

    assert_logs(captured(outer, 3.0).to_host(), {"inner/loss": 3.0})


def test_host_logs_can_be_kept():
    """What `to_host` returns is a plain mapping that can be pickled."""
    host = captured(every_kind, 1.0).to_host()
    assert pickle.loads(pickle.dumps(dict(host))) == dict(host)


def test_repr_names_the_metrics():
    """A set of logs shows what is in it, in a trace too."""
    seen = []

    def outer(x):
        _, logs = trackway.capture_logging(lambda x: tap(x, {"loss": x}))(x)
        seen.append(repr(logs))
        return logs

    logs = jax.jit(outer)(3.0)
    assert "loss" in repr(logs)
    assert "loss" in seen[0]
