"""Values logged under vmap: as if a loop ran over the lanes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, run, tap
from jax import lax

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker

A = jnp.arange(12.0).reshape(3, 4)


def test_lanes_are_samples():
    """Each lane is one sample, for values that do not vary with the lane and for constants too."""

    def f(x, y):
        trackway.log({"m": x})
        trackway.log({"s": x, "un": y, "const": 1.0}, reduce="sum")
        trackway.log({"mx": x}, reduce="max")
        trackway.log({"st": x}, reduce="stack")
        trackway.log({"last": x}, reduce="last")
        trackway.log({"std": x}, reduce="std")
        return x + y

    out, logs = run(jax.vmap(f, in_axes=(0, None)), jnp.arange(4.0), 10.0)
    assert out.tolist() == [10.0, 11.0, 12.0, 13.0]
    assert_logs(logs, m=1.5, s=6.0, un=40.0, const=4.0, mx=3.0, st=[0.0, 1.0, 2.0, 3.0], last=3.0, std=1.25**0.5)


def row_sum(row):
    """A scan over the entries of a row."""

    def body(c, x):
        trackway.log({"x": x})
        trackway.log({"xs": x}, reduce="stack")
        trackway.log({"c": c}, reduce="sum")
        return c + x, None

    return lax.scan(body, 0.0, row)[0]


def test_scan_under_vmap():
    """The stack of a scan under vmap is [lanes, iterations], whatever axis is mapped."""
    expected = {"x": 5.5, "xs": A, "c": 84.0}
    assert_logs(run(jax.vmap(row_sum), A)[1], expected)
    assert_logs(run(jax.vmap(row_sum, in_axes=1), A.T)[1], expected)


def test_vmap_in_vmap():
    """The outer vmap's axis comes first in a stack."""

    def f(x):
        trackway.log({"x": x}, reduce="stack")
        return x

    assert_logs(run(jax.vmap(jax.vmap(f)), A)[1], x=A)
    assert_logs(run(jax.vmap(jax.vmap(f, in_axes=0), in_axes=1), A)[1], x=A.T)


def test_vmap_in_scan():
    """The stack of a vmap in a scan is [iterations, lanes]."""

    def body(c, t):
        jax.vmap(lambda z: tap(z, {"z": z * t}, reduce="stack"))(jnp.arange(3.0))
        return c, None

    assert_logs(run(lambda x: lax.scan(body, x, jnp.array([1.0, 2.0])), 0.0)[1], z=[[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]])


def test_vmap_scan_vmap():
    """Lanes and iterations at three levels make one mean."""

    def f(x):
        def body(c, t):
            jax.vmap(lambda z: trackway.log({"z": z * t}))(c * jnp.arange(3.0))
            return c + t, None

        return lax.scan(body, x, jnp.array([1.0, 2.0]))[0]

    # c * t is 1, 2*2 in the first lane and 2, 3*2 in the second; the mean of arange(3) is 1
    assert_logs(run(jax.vmap(f), jnp.array([1.0, 2.0]))[1], z=(1 + 4 + 2 + 6) / 4)


def test_while_under_vmap():
    """A lane that has finished its while loop no longer logs, though it is computed until all have."""

    def f(n):
        def body(c):
            trackway.log({"c": c})
            trackway.log({"n": 1}, reduce="sum")
            trackway.log({"mx": c}, reduce="max")
            return c + 1

        return lax.while_loop(lambda c: c < n, body, 0.0)

    out, logs = run(jax.vmap(f), jnp.array([1.0, 3.0, 0.0]))
    assert out.tolist() == [1.0, 3.0, 0.0]
    assert_logs(logs, c=0.75, n=4, mx=2.0)


def test_the_condition_of_a_while_loop_under_vmap():
    """The condition counts once more often than the body, in each lane by itself."""

    def f(n):
        def cond(c):
            trackway.log({"k": 1}, reduce="sum")
            return c < n

        return lax.while_loop(cond, lambda c: c + 1, 0.0)

    assert_logs(run(jax.vmap(f), jnp.array([1.0, 3.0]))[1], k=6)


def test_a_named_axis():
    """Collectives over the mapped axis work beside logs."""

    def f(x):
        y = x - lax.pmean(x, "i")
        trackway.log({"y": jnp.abs(y)}, reduce="max")
        return y

    assert_logs(run(jax.vmap(f, axis_name="i"), jnp.arange(5.0))[1], y=2.0)


def test_vmap_of_a_captured_function():
    """A captured function is pure: mapped, it gives the logs of each lane."""
    f = trackway.capture_logging(lambda x: tap(x, {"x": x}))
    out, logs = jax.vmap(f)(jnp.arange(3.0))
    assert out.tolist() == [0.0, 1.0, 2.0]
    assert np.asarray(logs["x"]).tolist() == [0.0, 1.0, 2.0]


def test_jit_under_vmap():
    """A cached inner jit under vmap counts its lanes."""
    inner = jax.jit(lambda x: tap(x * 2, {"x": x}, reduce="sum"))
    assert_logs(run(lambda xs: jax.vmap(inner)(xs).sum() + inner(10.0), jnp.arange(4.0))[1], x=16.0)


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "jit"])
def test_what_nothing_captures_is_reduced_over_lanes_too(eager):
    """Without a capture one row arrives for the call, with the mean of the lanes."""
    f = jax.vmap(lambda x: tap(x, {"e": x}))
    with current_tracker(RecordingTracker()) as tracker:
        (f if eager else jax.jit(f))(jnp.arange(4.0))
    assert_rows(tracker.rows, [(0, {"e": 1.5})])
