"""Values logged in functions with derivative rules of their own, and in those rules."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from captured import assert_logs, run, tap
from jax import lax

import trackway

SIN_2 = 0.9092974268256817
COS_2 = -0.4161468365471424


@jax.custom_vjp
def double(x):
    """2x, with a log in the function itself and in both of its rules."""
    trackway.log({"primal": x})
    return x * 2


def double_fwd(x):
    """Forward rule."""
    trackway.log({"fwd": x})
    return x * 2, x


def double_bwd(residual, ct):
    """Backward rule."""
    trackway.log({"bwd": ct * residual})
    return (ct * 2,)


double.defvjp(double_fwd, double_bwd)


@jax.custom_vjp
def watched(x):
    """Identity whose cotangent is logged as a stack."""
    return x


def watched_bwd(_, ct):
    """Backward rule."""
    trackway.log({"ct": ct}, reduce="stack")
    return (ct,)


watched.defvjp(lambda x: (x, None), watched_bwd)


@jax.custom_jvp
def sine(x):
    """The sine, with a log in the function itself and in its rule."""
    trackway.log({"p": x})
    return jnp.sin(x)


@sine.defjvp
def sine_jvp(primals, tangents):
    """Derivative rule, which calls the function."""
    (x,) = primals
    trackway.log({"rule": x})
    return sine(x), jnp.cos(x) * tangents[0]


def products(x):
    """Multiply by 2t for t = 1, 2, 3."""
    return lax.scan(lambda c, t: (double(c) * t, None), x, jnp.array([1.0, 2.0, 3.0]))[0]


@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
def test_custom_vjp_logs_what_runs(jit):
    """Undifferentiated, the function itself logs; differentiated, its two rules do."""
    assert_logs(run(double, 3.0, jit=jit)[1], primal=3.0)
    grad, logs = run(jax.grad(lambda x: double(x) * 5), 3.0, jit=jit)
    assert grad == 10.0
    assert_logs(logs, fwd=3.0, bwd=15.0)


def test_custom_vjp_under_vmap_and_vjp():
    """The lanes of `vmap(grad)` are samples of both rules; a vjp that is never applied runs no backward rule."""
    xs = jnp.array([1.0, 3.0])
    assert_logs(run(jax.vmap(jax.grad(lambda x: double(x) * 5)), xs)[1], fwd=2.0, bwd=10.0)
    assert_logs(run(jax.vmap(double), xs)[1], primal=2.0)
    assert_logs(run(lambda x: jax.vjp(double, x)[0], 3.0)[1], fwd=3.0)


def test_custom_vjp_in_a_scan():
    """In a loop each iteration runs the rules once."""
    # c is 1, 2, 8; the cotangents of the doublings are 48, 12, 3 times t already taken: 1*48/2, 2*12/2, 8*3
    assert_logs(run(products, 1.0)[1], primal=11 / 3)
    grad, logs = run(jax.grad(products), 1.0)
    assert grad == 48.0
    assert_logs(logs, fwd=11 / 3, bwd=24.0)


def test_the_stack_of_a_backward_pass():
    """A stack of cotangents lies in the order of the forward loop."""

    def f(x):
        return lax.scan(lambda c, t: (watched(c) * t, None), x, jnp.array([1.0, 2.0, 3.0]))[0]

    assert_logs(run(jax.grad(f), 1.0)[1], ct=[6.0, 6.0, 3.0])
    assert_logs(run(f, 1.0)[1])


def test_the_gradient_of_a_captured_custom_vjp():
    """Differentiated from outside the capture, the forward rule's logs are in the auxiliary output."""
    f = trackway.capture_logging(lambda x: double(x) * 5)
    (value, logs), grad = jax.jit(jax.value_and_grad(f, has_aux=True))(3.0)
    assert value == 30.0
    assert grad == 10.0
    assert set(logs.to_host()) <= {"primal", "fwd"}


def test_nondiff_argnums():
    """A rule with arguments that are not differentiated may log."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
    def scale(x, n):
        return x * n

    scale.defvjp(lambda x, n: (x * n, None), lambda n, _, ct: tap((ct * n,), {"ct": ct, "n": n}))
    grad, logs = run(jax.grad(lambda x: scale(x, 3)), 2.0)
    assert grad == 3.0
    assert_logs(logs, ct=1.0, n=3.0)


def test_custom_vjp_with_integer_and_unused_arguments():
    """Arguments without a derivative stand beside those with one."""

    @jax.custom_vjp
    def pick(x, i):
        trackway.log({"primal": x[i]})
        return x[i]

    pick.defvjp(
        lambda x, i: tap((x[i], (x, i)), {"fwd": x[i]}),
        lambda res, ct: tap((jnp.zeros_like(res[0]).at[res[1]].set(ct), None), {"bwd": ct}),
    )
    grad, logs = run(jax.grad(lambda x: pick(x, 1) ** 2), jnp.array([1.0, 3.0]))
    assert grad.tolist() == [0.0, 6.0]
    assert_logs(logs, fwd=3.0, bwd=6.0)
    assert_logs(run(lambda x: pick(x, 1), jnp.array([1.0, 3.0]))[1], primal=3.0)


def test_custom_jvp_logs_the_function_and_the_rule():
    """Differentiated, the rule logs, and the function that it calls."""
    assert_logs(run(sine, 2.0)[1], p=2.0)
    grad, logs = run(jax.grad(sine), 2.0)
    assert jnp.isclose(grad, COS_2)
    assert_logs(logs, p=2.0, rule=2.0)
    assert_logs(run(lambda x: jax.jvp(sine, (x,), (1.0,)), 2.0)[1], p=2.0, rule=2.0)


def test_custom_jvp_under_vmap():
    """Lanes are samples of function and rule."""
    xs = jnp.array([1.0, 2.0])
    assert_logs(run(jax.vmap(sine), xs)[1], p=1.5)
    assert_logs(run(jax.vmap(jax.grad(sine)), xs)[1], p=1.5, rule=1.5)


def test_the_gradient_of_a_captured_custom_jvp():
    """Value and gradient are right where the capture is inside the gradient."""
    f = trackway.capture_logging(lambda x: sine(x) * 5)
    (value, logs), grad = jax.jit(jax.value_and_grad(f, has_aux=True))(2.0)
    assert jnp.isclose(value, SIN_2 * 5)
    assert jnp.isclose(grad, COS_2 * 5)
    assert "p" in logs.to_host()


def test_custom_jvp_in_a_scan():
    """In a loop each iteration runs function and rule once."""

    def f(x):
        return lax.scan(lambda c, t: (sine(c) + t, None), x, jnp.ones(3))[0]

    # c is 0, 1, 1 + sin(1)
    expected = (0.0 + 1.0 + 1.8414709848) / 3
    assert_logs(run(f, 0.0)[1], p=expected)
    assert_logs(run(jax.grad(f), 0.0)[1], p=expected, rule=expected)


def test_rules_in_branches():
    """A function with a rule that logs may stand in a branch."""

    def f(x):
        return lax.cond(x > 0, lambda x: double(x) * 5, lambda x: x, x)

    grad, logs = run(jax.grad(f), 3.0)
    assert grad == 10.0
    assert_logs(logs, fwd=3.0, bwd=15.0)
    assert_logs(run(f, -3.0)[1])


def test_custom_vmap():
    """A function with a batching rule of its own logs where it is called."""

    @jax.custom_batching.custom_vmap
    def f(x):
        trackway.log({"x": x})
        return x * 2

    @f.def_vmap
    def f_rule(axis_size, in_batched, xs):
        trackway.log({"batched": xs.sum(), "size": axis_size}, reduce="sum")
        return xs * 2, in_batched[0]

    assert_logs(run(f, 3.0)[1], x=3.0)
    out, logs = run(jax.vmap(f), jnp.arange(3.0))
    assert out.tolist() == [0.0, 2.0, 4.0]
    assert_logs(logs, batched=3.0, size=3)


def test_custom_root():
    """A solver found by iteration may log, and differentiates."""

    def f(a):
        def solve(g, x0):
            return lax.while_loop(
                lambda x: jnp.abs(g(x)) > 1e-6, lambda x: tap(x - g(x) / (2 * x), {"iterations": 1}, reduce="sum"), x0
            )

        return lax.custom_root(lambda x: x**2 - a, 1.0, solve, lambda g, y: y / g(1.0))

    value, logs = run(f, 4.0)
    assert jnp.isclose(value, 2.0)
    # 1 -> 2.5 -> 2.05 -> 2.0006 -> 2.0000001
    assert_logs(logs, iterations=4)
    assert jnp.isclose(run(jax.grad(f), 4.0)[0], 0.25)
