"""Values logged in functions that are rematerialized: recomputation never counts."""

from __future__ import annotations

import functools

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, run, tap
from jax import lax

import trackway

POLICIES = {
    "none": None,
    "everything": jax.checkpoint_policies.everything_saveable,
    "dots": jax.checkpoint_policies.dots_saveable,
    "nothing": jax.checkpoint_policies.nothing_saveable,
}
TRANSFORMS = {
    "plain": lambda f: f,
    "grad": jax.grad,
    "value_and_grad": jax.value_and_grad,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (1.0,)),
    "grad of grad": lambda f: jax.grad(jax.grad(f)),
}


def record(v):
    """Log a sum of *v*, and how often this was executed."""
    trackway.log({"v": v, "n": 1}, reduce="sum")


COMBINATIONS = [("none", transform) for transform in TRANSFORMS]
COMBINATIONS += [
    (policy, transform) for policy in list(POLICIES)[1:] for transform in ("value_and_grad", "grad of grad")
]


@pytest.mark.parametrize(("policy", "transform"), COMBINATIONS)
def test_a_checkpointed_function_logs_once(policy, transform):
    """Whatever is saved or recomputed, the forward pass is logged once."""

    @functools.partial(jax.checkpoint, policy=POLICIES[policy])
    def g(x):
        y = jnp.sin(x)
        record(y)
        return jnp.sin(y)

    assert_logs(run(TRANSFORMS[transform](lambda x: g(x) * 2), 1.0)[1], v=0.8414709848, n=1)


@pytest.mark.parametrize("inner_jit", [False, True], ids=["plain layer", "jitted layer"])
def test_scan_over_checkpointed_layers(inner_jit):
    """A network of stacked layers logs each layer once, in the gradient too."""

    def layer(h, w):
        h = jnp.tanh(h @ w)
        trackway.log({"act": jnp.mean(h)}, reduce="stack")
        trackway.log({"n": 1}, reduce="sum")
        return h, None

    body = jax.checkpoint(jax.jit(layer) if inner_jit else layer, prevent_cse=False)

    def loss(ws, x):
        return jnp.sum(lax.scan(body, x, ws)[0])

    ws = jnp.stack([jnp.eye(2) * k for k in (1.0, 2.0, 3.0)])
    for f in (loss, jax.value_and_grad(loss)):
        assert_logs(run(f, ws, jnp.ones((1, 2)))[1], act=[0.76159416, 0.90925163, 0.99149143], n=3)


def in_scan(x):
    """Three iterations."""

    def body(c, t):
        c = jnp.sin(c)
        record(c)
        return c * t, None

    return lax.scan(body, x, jnp.ones(3))[0]


def in_cond(x):
    """The branch taken."""
    return lax.cond(x > 0, lambda x: tap(jnp.sin(x), {"v": jnp.sin(x), "n": 1}, reduce="sum"), lambda x: x, x)


def in_while(x):
    """Three iterations of a loop whose carry is not differentiated."""
    start = 0 * lax.stop_gradient(x)
    n = lax.while_loop(lambda s: s < 3.0, lambda s: tap(s + 1, {"v": s, "n": 1}, reduce="sum"), start)
    return x * n


def in_fori(x):
    """Three iterations."""
    return lax.fori_loop(0, 3, lambda i, c: tap(jnp.sin(c), {"v": c, "n": 1}, reduce="sum"), x)


def in_jit(x):
    """One call."""
    return jax.jit(lambda x: tap(jnp.sin(x), {"v": x, "n": 1}, reduce="sum"))(x)


def in_vmap(x):
    """Three lanes."""
    return jax.vmap(lambda k: tap(jnp.sin(x * k), {"v": x * k, "n": 1}, reduce="sum"))(jnp.arange(3.0)).sum()


def in_remat(x):
    """Rematerialized by itself."""
    return jax.checkpoint(lambda x: tap(jnp.sin(x), {"v": x, "n": 1}, reduce="sum"))(jnp.cos(x))


def in_custom_vjp(x):
    """A function with a rule that calls it."""

    @jax.custom_vjp
    def c(x):
        record(x)
        return jnp.sin(x)

    c.defvjp(lambda x: (c(x), x), lambda residual, ct: (ct * jnp.cos(residual),))
    return c(jnp.sin(x))


def in_custom_jvp(x):
    """A function with a rule that calls it."""

    @jax.custom_jvp
    def c(x):
        record(x)
        return jnp.sin(x)

    c.defjvp(lambda primals, tangents: (c(primals[0]), jnp.cos(primals[0]) * tangents[0]))
    return c(jnp.sin(x))


SIN = 0.963558185
INSIDE = {  # name: function, the sum and the number of the values that it logs at 1.3
    "scan": (in_scan, SIN + 0.821227069 + 0.731982411, 3),
    "cond": (in_cond, SIN, 1),
    "while": (in_while, 3.0, 3),
    "fori": (in_fori, 1.3 + SIN + 0.821227069, 3),
    "jit": (in_jit, 1.3, 1),
    "vmap": (in_vmap, 3.9, 3),
    "remat": (in_remat, 0.2674988, 1),
    "custom_vjp": (in_custom_vjp, SIN, 1),
    "custom_jvp": (in_custom_jvp, SIN, 1),
}


@pytest.mark.parametrize(("g", "total", "times"), INSIDE.values(), ids=INSIDE)
def test_what_a_checkpointed_function_may_contain(g, total, times):
    """Loops, branches, lanes, calls and rules inside a checkpoint are logged as without it, and so is its gradient."""
    variants = {
        "plain": g,
        "grad": jax.grad(g),
        "grad of checkpoint": jax.grad(jax.checkpoint(g)),
        "computed argument": jax.grad(jax.checkpoint(lambda x: g(jnp.sin(x * 0 + x + 1e-9) * 0 + x))),
    }
    for name, f in variants.items():
        logs = run(f, 1.3)[1]
        assert sorted(logs) == ["n", "v"], name
        assert logs["n"] == times, name
        assert np.isclose(logs["v"], total, rtol=1e-5), name


def test_a_backward_rule_in_a_checkpoint_runs_once():
    """Recomputation for a backward rule that logs adds no sample of it, nor of the forward pass."""

    @jax.custom_vjp
    def watched(x):
        return x

    watched.defvjp(lambda x: (x, None), lambda _, ct: tap((ct,), {"ct": ct, "n": 1}, reduce="sum"))

    def f(x):
        y = jnp.sin(x)
        trackway.log({"f": y}, reduce="sum")
        return jnp.sin(watched(y))

    expected = {"ct": 0.6663667, "n": 1, "f": 0.8414709848}  # cos(sin(1)), sin(1)
    assert_logs(run(jax.grad(f), 1.0)[1], expected)
    assert_logs(run(jax.grad(jax.checkpoint(f)), 1.0)[1], expected)

    def loop(x):
        return lax.scan(lambda c, _: (jax.checkpoint(f)(c), None), x, None, length=3)[0]

    assert run(jax.grad(loop), 1.0)[1]["n"] == 3
    assert run(jax.vmap(jax.grad(loop)), jnp.ones(2))[1]["n"] == 6


def test_vmap_of_the_gradient_of_a_scan_of_checkpoints():
    """Three layers in four lanes are twelve samples."""

    def layer(h, w):
        h = jnp.tanh(h * w)
        trackway.log({"n": 1}, reduce="sum")
        trackway.log({"h": h}, reduce="max")
        return h, None

    def loss(ws, x):
        return lax.scan(jax.checkpoint(layer), x, ws)[0]

    logs = run(jax.vmap(jax.grad(loss), (None, 0)), jnp.ones(3), jnp.ones(4))[1]
    assert_logs(logs, n=12, h=0.76159416)


def test_a_log_saves_no_residual(capsys):
    """What is kept for the backward pass is the same with and without a log."""

    def f(x, *, logged):
        y = jnp.sin(x)
        if logged:
            trackway.log({"y": y, "z": y * 2})
        return jnp.sin(jnp.sin(y))

    def residuals(logged, wrap):
        jax.ad_checkpoint.print_saved_residuals(wrap(functools.partial(f, logged=logged)), 1.0)
        return [line.split(" ")[0] for line in capsys.readouterr().out.splitlines()]

    for wrap in (lambda g: g, jax.checkpoint, jax.jit):
        assert residuals(True, wrap) == residuals(False, wrap)
        assert residuals(False, wrap) != []
