"""Values logged in functions that are differentiated: the forward pass counts once."""

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

SIN_2 = 0.9092974268256817


def product(x):
    """Logs its argument and the sine of it, and returns their product."""
    trackway.log({"x": x}, reduce="sum")
    y = jnp.sin(x)
    trackway.log({"y": y}, reduce="sum")
    return y * x


def linearize(f):
    """Linearize *f* once and apply the result twice."""

    def both(x):
        _, push = jax.linearize(f, x)
        return push(1.0), push(2.0)

    return both


FIRST_ORDER = {
    "plain": lambda f: f,
    "grad": jax.grad,
    "value_and_grad": jax.value_and_grad,
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](1.0),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (1.0,)),
    "linearize": linearize,
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
}
SECOND_ORDER = {
    "grad of grad": lambda f: jax.grad(jax.grad(f)),
    "hessian": jax.hessian,
    "jacfwd of grad": lambda f: jax.jacfwd(jax.grad(f)),
    "jacrev of grad": lambda f: jax.jacrev(jax.grad(f)),
}


@pytest.mark.parametrize("transform", FIRST_ORDER.values(), ids=FIRST_ORDER)
@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
def test_differentiation_logs_the_forward_pass_once(transform, jit):
    """Under each way to differentiate, what the function logs has one sample."""
    assert_logs(run(transform(product), 2.0, jit=jit)[1], x=2.0, y=SIN_2)


@pytest.mark.parametrize("transform", FIRST_ORDER.values(), ids=FIRST_ORDER)
def test_differentiation_of_an_inner_jit(transform):
    """A jitted function that is differentiated logs once too."""
    assert_logs(run(transform(jax.jit(product)), 2.0)[1], x=2.0, y=SIN_2)


@pytest.mark.parametrize("transform", SECOND_ORDER.values(), ids=SECOND_ORDER)
def test_second_derivatives(transform):
    """Differentiating twice still runs the forward pass once."""
    assert_logs(run(transform(product), 2.0)[1], x=2.0, y=SIN_2)


def test_jacobians_run_once_for_each_basis_vector_forward():
    """`jacrev` runs the forward pass once; the mean under `jacfwd`, a vmap over basis vectors, is the same."""

    def f(x):
        trackway.log({"mean": x.sum()})
        return jnp.sin(x)

    assert_logs(run(jax.jacrev(f), jnp.arange(3.0))[1], mean=3.0)
    assert_logs(run(jax.jacfwd(f), jnp.arange(3.0))[1], mean=3.0)


def recurrence(x):
    """Replace c, which is 1 at first, by c * x + t for t = 0, 1, 2; log c."""
    return lax.scan(lambda c, t: tap((c * x + t, None), {"c": c}), 1.0, jnp.arange(3.0))[0]


def test_logs_as_the_auxiliary_output_of_a_gradient():
    """A captured function under `value_and_grad(has_aux=True)` gives value, gradient and logs."""
    (value, logs), grad = jax.jit(jax.value_and_grad(trackway.capture_logging(recurrence), has_aux=True))(2.0)
    assert_logs(logs.to_host(), c=8 / 3)
    assert value == 12.0
    assert grad == 13.0  # of x**3 + x + 2 at 2


def test_a_captured_function_in_a_scan():
    """Captured in the body of a scan, the logs are outputs of each iteration."""

    def body(c, t):
        return trackway.capture_logging(lambda c: tap(c + t, {"c": c}))(c)

    c, logs = jax.jit(lambda x: lax.scan(body, x, jnp.arange(3.0)))(0.0)
    assert c == 3.0
    assert np.asarray(logs["c"]).tolist() == [0.0, 0.0, 1.0]


def test_gradient_accumulation():
    """The microbatches of an accumulated gradient are samples of one mean; a stack lists them."""

    def loss(w, x):
        value = (w * x) ** 2
        trackway.log({"loss": value})
        trackway.log({"losses": value}, reduce="stack")
        return value

    def step(w, xs):
        grad, _ = lax.scan(lambda g, x: (g + jax.grad(loss)(w, x), None), 0.0, xs)
        trackway.log({"grad": grad})
        return w - 0.1 * grad

    out, logs = run(step, 1.0, jnp.array([1.0, 2.0, 3.0]))
    assert np.isclose(out, -1.8)
    assert_logs(logs, loss=14 / 3, losses=[1.0, 4.0, 9.0], grad=28.0)


def test_gradients_for_each_example():
    """Under `vmap(grad)` each example is a sample."""

    def loss(w, x):
        return tap((w * x) ** 2, {"loss": (w * x) ** 2})

    grads, logs = run(jax.vmap(jax.grad(loss), (None, 0)), 1.0, jnp.array([1.0, 2.0, 3.0]))
    assert grads.tolist() == [2.0, 8.0, 18.0]
    assert_logs(logs, loss=14 / 3)


def test_gradient_of_vmap():
    """Under `grad(vmap)` each lane is a sample of the forward pass."""

    def loss(w):
        return jax.vmap(lambda x: tap((w * x) ** 2, {"loss": (w * x) ** 2}))(jnp.array([1.0, 2.0, 3.0])).sum()

    grad, logs = run(jax.grad(loss), 1.0)
    assert grad == 28.0
    assert_logs(logs, loss=14 / 3)


def test_logging_changes_no_gradient():
    """Value and gradient are those of the same function without logs, to the last bit."""

    def f(x, *, logged):
        def body(c, t):
            c = jnp.sin(c * x) + t
            if logged:
                trackway.log({"c": c})
                trackway.log({"cs": c}, reduce="stack")
            return c, c

        return lax.scan(body, x, jnp.linspace(0, 1, 5))[1].sum()

    expected = jax.jit(jax.value_and_grad(lambda x: f(x, logged=False)))(0.3)
    captured = trackway.capture_logging(jax.value_and_grad(lambda x: f(x, logged=True)))
    assert jax.jit(captured)(0.3)[0] == expected


def test_library_functions_with_rules_of_their_own():
    """Functions with custom derivatives that do not log differentiate as ever beside a log."""

    def f(x):
        trackway.log({"x": x.sum()})
        return jnp.sum(jax.nn.relu(x) + jax.nn.softplus(x)) + jax.nn.logsumexp(x)

    def silent(x):
        return jnp.sum(jax.nn.relu(x) + jax.nn.softplus(x)) + jax.nn.logsumexp(x)

    grad, logs = run(jax.grad(f), jnp.arange(3.0))
    assert_logs(logs, x=3.0)
    assert grad.tolist() == jax.jit(jax.grad(silent))(jnp.arange(3.0)).tolist()


def test_a_logged_value_stops_no_gradient_and_carries_none():
    """The value that is logged takes part in the gradient as if it were not logged."""

    def f(x):
        y = x**2
        trackway.log({"y": y, "tangent": jax.grad(lambda v: v**3)(x)})
        return y * 3

    grad, logs = run(jax.grad(f), 2.0)
    assert grad == 12.0
    assert_logs(logs, y=4.0, tangent=12.0)


def test_an_eager_gradient_of_a_scan_delivers_one_row():
    """Without a jit and without a capture, the scan's row arrives once, reduced."""
    with current_tracker(RecordingTracker()) as tracker:
        grad = jax.grad(recurrence)(2.0)
    assert grad == 13.0
    assert_rows(tracker.rows, [(0, {"c": 8 / 3})])
