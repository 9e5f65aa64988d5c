"""How a captured function becomes a part of the program around it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trackway
from trackway.capture import _jaxcompat as compat

X = jnp.arange(3.0)


def logging_fn(x):
    """Log the mean of x, and return twice x."""
    trackway.log({"mean": x.mean()})
    return 2 * x


@pytest.fixture(params=["one call", "equations"])
def evaluation(request, monkeypatch):
    """Evaluate as this version of JAX allows, and as any does."""
    if request.param == "equations":
        monkeypatch.setattr(compat, "_evaluation", None)


def test_results_and_metrics_are_the_same(evaluation):
    """Whether the equations are added one by one or as one call."""
    result, logs = jax.jit(trackway.capture_logging(logging_fn))(X)
    np.testing.assert_array_equal(result, 2 * X)
    assert logs["mean"] == 1.0


def test_what_is_handed_through_is_not_computed(evaluation):
    """An argument that is returned as it is, and a constant, are no results of an equation; twins are one."""

    def fn(x, kept):
        doubled = logging_fn(x)
        return doubled, doubled, kept, 1.0

    jaxpr = jax.make_jaxpr(lambda *xs: trackway.capture_logging(fn)(*xs)[0])(X, X).jaxpr
    first, twin, kept, one = jaxpr.outvars
    assert first is twin
    assert kept is jaxpr.invars[1]
    assert one.val == 1.0


def test_a_captured_function_uses_values_of_the_trace_around(evaluation):
    """What it closes over may be traced, and may be differentiated."""

    @jax.jit
    def outer(scale):
        def inner(x):
            trackway.log({"scale": scale})
            return (scale * x).sum()

        return trackway.capture_logging(inner)(X)

    result, logs = outer(jnp.float32(3))
    assert (result, logs["scale"]) == (9.0, 3.0)
    assert jax.grad(lambda scale: outer(scale)[0])(jnp.float32(3)) == 3.0


@pytest.mark.parametrize("ordered", [False, True])
def test_effects_happen_once_and_in_order(evaluation, capfd, ordered):
    """A function that prints prints as it does without capture."""

    @jax.jit
    @trackway.capture_logging
    def fn(x):
        jax.debug.print("first {}", x[0], ordered=ordered)
        x = logging_fn(x)
        jax.debug.print("second {}", x[2], ordered=ordered)
        return x

    result, logs = fn(X)
    jax.effects_barrier()
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == ["first 0.0", "second 4.0"]
    assert lines == sorted(lines) or not ordered
    assert (result[1], logs["mean"]) == (2.0, 1.0)


@pytest.mark.parametrize("transform", [jax.vmap, jax.jacfwd, jax.jacrev, jax.checkpoint, jax.jit])
@pytest.mark.parametrize("compiled", [False, True])
def test_it_may_be_transformed(evaluation, transform, compiled):
    """The captured function is a function like any other, compiled around or not."""
    plain = transform(lambda x: jnp.sin(x) * x)
    captured = transform(lambda x: trackway.capture_logging(lambda y: jnp.sin(y) * logging_fn(y) / 2)(x)[0])
    around = jax.jit if compiled else lambda fn: fn
    np.testing.assert_allclose(around(captured)(X), plain(X), rtol=1e-6)


def test_one_call_is_inlined_by_the_compiler():
    """The compiled program has no call in it."""
    lowered = jax.jit(trackway.capture_logging(logging_fn)).lower(X)
    assert " call(" not in lowered.compile().as_text()
