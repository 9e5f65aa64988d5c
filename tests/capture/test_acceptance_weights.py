"""Weighted samples: token means, masked samples, totals of zero."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, run
from jax import lax

import trackway

REDUCTIONS = ("mean", "sum", "std", "max", "min", "last")


def log_each_way(x, weight):
    """Log *x* under every plain reduction."""
    trackway.log(dict.fromkeys(REDUCTIONS, x), reduce={name: name for name in REDUCTIONS}, weight=weight)


def in_scan(values, weights):
    """Log in a scan."""

    def body(c, sample):
        log_each_way(*sample)
        return c, None

    return lax.scan(body, 0.0, (values, weights))


def in_while(values, weights):
    """Log in a while loop."""

    def body(i):
        log_each_way(values[i], weights[i])
        return i + 1

    return lax.while_loop(lambda i: i < len(values), body, 0)


def in_vmap(values, weights):
    """Log in lanes."""
    return jax.vmap(log_each_way)(values, weights)


def in_calls(values, weights):
    """Log by one call for each."""
    for x, w in zip(values, weights, strict=True):
        log_each_way(x, w)


def logged(way, values, weights):
    """Return what was logged."""
    return run(way, jnp.asarray(values), jnp.asarray(weights))[1]


WAYS = [in_scan, in_while, in_vmap, in_calls]


@pytest.mark.parametrize("way", WAYS)
def test_weighted_reductions(way):
    """Mean and deviation are weighted, a sum has every value times its weight, a sample of weight zero is ignored."""
    expected = {"mean": 2.5, "sum": 10.0, "std": 0.75**0.5, "max": 3.0, "min": 1.0, "last": 3.0}
    assert_logs(logged(way, [1.0, 2.0, 3.0], [1.0, 0.0, 3.0]), expected)
    assert_logs(logged(way, [1.0, 2.0, 3.0], [1, 0, 3]), expected)


@pytest.mark.parametrize("way", WAYS)
def test_a_sample_of_weight_zero_is_ignored(way):
    """The greatest, the least and the last are those of the samples that weigh something, however little."""
    expected = {"mean": 2.2, "sum": 5.5, "std": 0.4, "max": 3.0, "min": 2.0, "last": 2.0}
    assert_logs(logged(way, [3.0, 2.0, 9.0, 1.0], [0.5, 2.0, 0.0, 0.0]), expected)


@pytest.mark.parametrize("way", WAYS)
def test_a_total_weight_of_zero_is_absent(way):
    """Where no sample weighs anything there is no metric."""
    assert_logs(logged(way, [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]))


@pytest.mark.parametrize("way", WAYS)
def test_a_sample_of_weight_zero_may_be_nan(way):
    """What a weight of zero masks may be anything."""
    expected = {"mean": 2.5, "sum": 10.0, "std": 0.75**0.5, "max": 3.0, "min": 1.0, "last": 3.0}
    assert_logs(logged(way, [1.0, np.nan, 3.0, np.inf], [1.0, 0.0, 3.0, 0.0]), expected)


def test_a_weight_that_is_a_number():
    """A weight known when tracing is a weight all the same."""

    def f(x):
        trackway.log({"l": x}, weight=3)
        trackway.log({"l": x + 4}, weight=1.0)
        trackway.log({"none": x}, weight=0)
        return x

    assert_logs(run(f, 1.0)[1], l=2.0)


def test_fractions_as_weights():
    """Weights below one count for what they are."""

    def f(x):
        trackway.log({"l": x}, weight=0.25)
        trackway.log({"l": x + 4}, weight=0.75)
        return x

    assert_logs(run(f, 1.0)[1], l=4.0)


def test_weighted_and_plain_samples_of_one_name():
    """A sample without a weight has the weight 1."""

    def f(x):
        trackway.log({"l": x})
        trackway.log({"l": x + 4}, weight=3.0)
        return x

    assert_logs(run(f, 1.0)[1], l=4.0)


def test_a_token_mean_over_microbatches_and_devices_of_a_branch():
    """Weights hold through loops, branches and lanes at once."""

    def body(c, sample):
        x, tokens = sample
        lax.cond(x < 10, lambda: trackway.log({"nll": x}, weight=tokens), lambda: None)
        return c, None

    f = jax.vmap(lambda xs, tokens: lax.scan(body, 0.0, (xs, tokens)))
    xs, tokens = jnp.array([[1.0, 2.0], [11.0, 4.0]]), jnp.array([[1.0, 2.0], [9.0, 5.0]])
    assert_logs(run(f, xs, tokens)[1], nll=(1 + 4 + 20) / 8)


def test_weights_in_a_gradient():
    """A weight takes no part in the gradient and is counted once."""

    def loss(w):
        trackway.log({"l": w}, weight=w * 2)
        trackway.log({"l": w * 4}, weight=w)
        return w**2

    grad, logs = run(jax.grad(jax.checkpoint(loss)), 3.0)
    assert grad == 6.0
    assert_logs(logs, l=6.0)


def test_weights_of_vectors():
    """One weight serves all entries of a vector, and all metrics of a call."""

    def body(c, sample):
        trackway.log({"v": sample[0], "n": 1.0}, weight=sample[1], reduce={"n": "sum"})
        return c, None

    xs = jnp.array([[1.0, 2.0], [5.0, 6.0]])
    assert_logs(run(lambda x, w: lax.scan(body, 0.0, (x, w)), xs, jnp.array([1.0, 3.0]))[1], v=[4.0, 5.0], n=4.0)
