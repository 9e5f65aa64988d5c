"""How exact the reductions are: long loops, small types, NaN, values far from zero."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, run, tap
from jax import lax

import trackway

FAR = 1_000_000.0  # in float32 its square has a spacing of 65,536


def over(values, reduce, how):
    """Log *values* one by one under *reduce*, in one of several ways; return what was logged."""

    def scan(xs):
        return lax.scan(lambda c, x: (c, trackway.log({"v": x}, reduce=reduce)), 0.0, xs)

    def loop(xs):
        def body(i):
            trackway.log({"v": xs[i]}, reduce=reduce)
            return i + 1

        return lax.while_loop(lambda i: i < len(xs), body, 0)

    def lanes(xs):
        return jax.vmap(lambda x: trackway.log({"v": x}, reduce=reduce))(xs)

    def calls(xs):
        for x in xs:
            trackway.log({"v": x}, reduce=reduce)

    def branches(xs):
        for x in xs:
            lax.cond(x < jnp.inf, lambda x: trackway.log({"v": x}, reduce=reduce), lambda _: None, x)
            lax.cond(jnp.isnan(x), lambda x: trackway.log({"v": x}, reduce=reduce), lambda _: None, x)

    def rows(xs):
        return jax.vmap(lambda row: lax.scan(lambda c, x: (c, trackway.log({"v": x}, reduce=reduce)), 0.0, row))(
            xs.reshape(2, -1)
        )

    ways = {"scan": scan, "while": loop, "vmap": lanes, "calls": calls, "cond": branches, "scan in vmap": rows}
    return run(ways[how], jnp.asarray(values))[1]


WAYS = ["scan", "while", "vmap", "calls", "cond", "scan in vmap"]


def test_twenty_million_iterations():
    """Counts and means of a very long loop are exact, where a float32 sum stops growing at 2**24."""
    n = 20_000_000

    def body(i):
        trackway.log({"count": 1}, reduce="sum")
        trackway.log({"mean": 1.0, "tenth": jnp.where(i < 0, 0, jnp.float32(0.1))})
        return i + 1

    logs = run(lambda n: lax.while_loop(lambda i: i < n, body, 0), n)[1]
    assert logs["count"] == n
    assert logs["mean"] == 1.0
    assert np.isclose(logs["tenth"], 0.1, rtol=1e-6)


def test_a_long_sum_of_fractions():
    """The sum of a million terms has the precision of one addition."""

    def f(x):
        return lax.scan(lambda c, _: (c, trackway.log({"s": x}, reduce="sum")), 0.0, None, length=1_000_000)

    logs = run(f, np.float32(0.1))[1]
    assert np.isclose(logs["s"], 1e6 * float(np.float32(0.1)), rtol=1e-6)


def test_small_floats_accumulate_in_float32():
    """Means and sums of bfloat16 values do not stop at its eight bits."""

    def f(xs):
        def body(c, x):
            trackway.log({"m": x})
            trackway.log({"s": x}, reduce="sum")
            return c, None

        return lax.scan(body, 0.0, xs)

    assert_logs(run(f, jnp.full(4096, 1.0078125, jnp.bfloat16))[1], m=1.0078125, s=4128.0)
    assert_logs(run(jax.vmap(lambda x: tap(x, {"m": x})), jnp.full(4096, 1.0078125, jnp.float16))[1], m=1.0078125)


@pytest.mark.parametrize("how", WAYS)
def test_integer_sums_are_exact(how):
    """Sums of integers are integers, beyond what a float32 can count."""
    logs = over(np.array([2**24 + 1, 2, 2**24 + 1, 3], np.int32), "sum", how)
    assert logs["v"] == 2**25 + 7
    assert np.asarray(logs["v"]).dtype.kind == "i"


@pytest.mark.parametrize("how", WAYS)
def test_extremes_keep_a_nan(how):
    """One NaN among the samples shows in the greatest and in the least."""
    values = np.array([1.0, np.nan, 3.0, 2.0], np.float32)
    assert_logs(over(values, "max", how), v=np.nan)
    if how != "cond":  # slow to compile
        assert_logs(over(values, "min", how), v=np.nan)


@pytest.mark.parametrize("how", WAYS)
def test_extremes_of_infinities_and_negative_values(how):
    """The neutral element of an extreme is never seen."""
    assert_logs(over(np.array([-5.0, -np.inf, -7.0, -9.0], np.float32), "max", how), v=-5.0)
    if how != "cond":  # slow to compile
        assert_logs(over(np.array([5, 9, 7, 8], np.int32), "min", how), v=5)


@pytest.mark.parametrize("how", WAYS)
def test_the_deviation_of_values_far_from_zero(how):
    """The standard deviation is right where the mean is a million times as large."""
    logs = over(np.array([FAR, FAR + 1, FAR + 2, FAR + 1], np.float32), "std", how)
    assert sorted(logs) == ["v"]
    assert np.isclose(logs["v"], 0.5**0.5, rtol=1e-4)


def test_the_deviation_over_a_long_loop():
    """Ten thousand samples far from zero keep their spread."""
    values = (FAR + np.arange(10_000) % 7).astype(np.float32)
    logs = over(values, "std", "scan")
    assert np.isclose(logs["v"], values.astype(np.float64).std(), rtol=1e-3)


def test_the_deviation_of_one_sample_is_zero():
    """A single value has no spread."""
    assert_logs(run(lambda x: tap(x, {"v": x}, reduce="std"), FAR)[1], v=0.0)


def test_a_mean_of_values_that_cancel():
    """Large terms that cancel leave the small ones behind."""
    values = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    assert_logs(over(values, "mean", "scan"), v=0.5)
    assert_logs(over(values, "sum", "while"), v=2.0)


@pytest.mark.parametrize("how", ["scan", "while", "calls"])
def test_infinities_in_a_sum(how):
    """An infinity makes a sum infinite, not NaN; opposite ones make it NaN, as on the host."""
    assert_logs(over(np.array([1.0, np.inf, 2.0, 3.0], np.float32), "sum", how), v=np.inf)
    assert_logs(over(np.array([1.0, np.inf, -np.inf, 3.0], np.float32), "mean", how), v=np.nan)


def test_calls_of_different_types_are_promoted():
    """One name logged as an integer and as a float is a float."""

    def f(x):
        for reduce in ("sum", "max", "last", "mean"):
            trackway.log({reduce: jnp.int32(1)}, reduce=reduce)
            trackway.log({reduce: x}, reduce=reduce)
        return x

    assert_logs(run(f, 0.5)[1], sum=1.5, max=1.0, last=0.5, mean=0.75)
