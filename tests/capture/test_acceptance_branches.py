"""Values logged in the branches of cond and switch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, run, tap
from jax import lax

import trackway


def choose(pred, x):
    """Logs `t` and `both` in one branch, `both` in the other."""

    def then(x):
        trackway.log({"t": x})
        trackway.log({"both": x}, reduce="sum")
        return x * 2

    def otherwise(x):
        trackway.log({"both": -x}, reduce="sum")
        return x

    return lax.cond(pred, then, otherwise, x)


def test_the_branch_not_taken_logged_nothing():
    """Only what the branch taken logged is there."""
    out, logs = run(choose, True, 3.0)
    assert out == 6.0
    assert_logs(logs, t=3.0, both=3.0)
    out, logs = run(choose, False, 3.0)
    assert out == 3.0
    assert_logs(logs, both=-3.0)


def test_cond_in_scan_counts_the_times_it_was_taken():
    """A mean over a loop is one over the iterations whose branch logged."""

    def f(xs):
        return lax.scan(lambda c, x: (c, choose(x > 0, x)), 0.0, xs)

    assert_logs(run(f, jnp.array([1.0, -2.0, 3.0, -4.0]))[1], t=2.0, both=10.0)
    assert_logs(run(f, jnp.array([-1.0, -2.0]))[1], both=3.0)


def test_cond_under_vmap_counts_the_lanes_that_took_it():
    """Lanes that take the other branch do not log, though both branches are computed for all lanes."""
    xs = jnp.array([1.0, -2.0, 3.0, -4.0])
    f = jax.vmap(lambda x: choose(x > 0, x))
    assert_logs(run(f, xs)[1], t=2.0, both=10.0)
    assert_logs(run(f, -jnp.abs(xs))[1], both=10.0)
    assert_logs(run(jax.vmap(choose, (None, 0)), True, xs)[1], t=-0.5, both=-2.0)


def switch(i, x):
    """Logs `a` in branch 0, `b` in branch 1, nothing in branch 2."""
    return lax.switch(i, [lambda x: tap(x, {"a": x}), lambda x: tap(x, {"b": x}), lambda x: x], x)


@pytest.mark.parametrize(("i", "expected"), [(0, {"a": 2.0}), (1, {"b": 2.0}), (2, {})])
def test_switch(i, expected):
    """Any number of branches may log, each its own metrics."""
    assert_logs(run(switch, i, 2.0)[1], expected)


def test_switch_under_vmap():
    """Each lane logs by its own branch."""
    logs = run(jax.vmap(switch), jnp.array([0, 1, 1, 2]), jnp.array([1.0, 2.0, 4.0, 8.0]))[1]
    assert_logs(logs, a=1.0, b=3.0)


@pytest.mark.parametrize("transform", [lambda f: f, jax.grad], ids=["plain", "grad"])
def test_last_and_stack_in_a_branch_of_a_loop(transform):
    """The last value is the last one logged; a stack is masked where the branch was not taken."""

    def f(scale, xs):
        def body(c, x):
            x = x * scale
            lax.cond(x > 0, lambda: trackway.log({"l": x}, reduce="last"), lambda: None)
            lax.cond(x > 0, lambda: trackway.log({"s": x}, reduce="stack"), lambda: None)
            return c + x, None

        return lax.scan(body, 0.0, xs)[0]

    logs = run(transform(f), 1.0, jnp.array([1.0, 5.0, -3.0]))[1]
    assert sorted(logs) == ["l", "s"]
    assert logs["l"] == 5.0
    assert np.ma.getmaskarray(logs["s"]).tolist() == [False, False, True]
    assert logs["s"][:2].tolist() == [1.0, 5.0]


def test_branches_of_different_types_are_promoted():
    """One name logged with an integer in one branch and a float in the other is a float in both."""

    def f(pred, x):
        return lax.cond(
            pred,
            lambda x: tap(x, {"v": jnp.int32(3), "h": x.astype(jnp.bfloat16)}, reduce="last"),
            lambda x: tap(x, {"v": x, "h": x}, reduce="last"),
            x,
        )

    assert_logs(run(f, True, 0.5)[1], v=3.0, h=0.5)
    assert_logs(run(f, False, 0.5)[1], v=0.5, h=0.5)


@pytest.mark.parametrize("reduce", ["mean", "sum", "max", "min", "last", "std"])
def test_promotion_across_the_branches_under_vmap(reduce):
    """Promotion holds for every reduction, also where the predicate differs between lanes."""

    def f(x):
        return lax.cond(
            x > 0,
            lambda x: tap(x, {"v": jnp.int32(3)}, reduce=reduce),
            lambda x: tap(x, {"v": x}, reduce=reduce),
            x,
        )

    expected = {"mean": 1.25, "sum": 2.5, "max": 3.0, "min": -0.5, "last": -0.5, "std": 1.75}
    assert_logs(run(jax.vmap(f), jnp.array([1.0, -0.5]))[1], v=expected[reduce])


def test_cond_in_cond():
    """Branches nest; a metric is there only if all predicates on its way held."""

    def f(x):
        def inner(x):
            return lax.cond(x > 2, lambda x: tap(x, {"deep": x}), lambda x: x, x)

        return lax.cond(x > 1, inner, lambda x: tap(x, {"shallow": x}), x)

    assert_logs(run(f, 3.0)[1], deep=3.0)
    assert_logs(run(f, 1.5)[1])
    assert_logs(run(f, 0.0)[1], shallow=0.0)
    assert_logs(run(jax.vmap(f), jnp.array([0.0, 1.5, 3.0, 5.0]))[1], deep=4.0, shallow=0.0)


def test_cond_under_grad():
    """The forward pass of a differentiated branch is logged once, by the branch taken."""
    (value, grad), logs = run(jax.value_and_grad(lambda x: choose(x > 0, x) ** 2), 3.0)
    assert (value, grad) == (36.0, 24.0)
    assert_logs(logs, t=3.0, both=3.0)


def test_platform_dependent():
    """The branch of the platform that runs is logged."""

    def f(x):
        return lax.platform_dependent(x, cpu=lambda x: tap(x, {"cpu": x}), default=lambda x: tap(x, {"other": x}))

    assert_logs(run(f, 1.0)[1], cpu=1.0)


def test_a_branch_that_ran_beside_one_that_did_not():
    """One name logged outside and in a branch not taken has the outer sample only."""

    def f(x):
        trackway.log({"a": x})
        return lax.cond(x > 0, lambda x: tap(x, {"a": x * 10}), lambda x: x, x)

    assert_logs(run(f, -1.0)[1], a=-1.0)
    assert_logs(run(f, 1.0)[1], a=5.5)
