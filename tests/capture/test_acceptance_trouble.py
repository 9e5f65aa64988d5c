"""What cannot be captured: one warning with a place, a count, and nothing else changed."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, own, run, tap
from jax import lax
from jax.experimental import pallas

import trackway
from trackway import capture
from trackway.errors import TrackwayError, TrackwayWarning
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker

HERE = re.escape(Path(__file__).name)


def in_kernel(x, *, logged=True):
    """Doubles in a kernel that logs."""

    def kernel(x_ref, out_ref):
        if logged:
            trackway.log({"hidden": x_ref[0]})
        out_ref[...] = x_ref[...] * 2

    return pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)


def in_solver(b, *, logged=True):
    """Solves 2x = b by a linear solver whose operator logs."""

    def matvec(x):
        if logged:
            trackway.log({"hidden": x.sum()})
        return 2.0 * x

    return lax.custom_linear_solve(matvec, b, lambda _, b: b / 2, symmetric=True)


PLACES = {"kernel": in_kernel, "solver": in_solver}
X = np.array([1.0, 2.0, 3.0], np.float32)


def program(inner, *, logged=True):
    """A program with one metric that can be captured and one that cannot."""

    def f(x):
        if logged:
            trackway.log({"kept": x.sum()})
        return inner(x, logged=logged)

    return f


def lost(name):
    """How often *name* had to be left out so far."""
    return capture.losses().get(name, 0)


@pytest.mark.parametrize("inner", PLACES.values(), ids=PLACES)
def test_an_unknown_primitive_costs_its_own_metric_only(inner):
    """The metric is left out with one warning that has file and line; result and other metrics are there."""
    before = lost("hidden")
    with pytest.warns(TrackwayWarning, match=rf"hidden[\s\S]*{HERE}:\d+|{HERE}:\d+[\s\S]*hidden") as caught:
        out, logs = run(program(inner), X)
    assert len(own(caught)) == 1
    assert_logs(logs, kept=6.0)
    assert lost("hidden") == before + 1
    assert "kept" not in capture.losses()
    np.testing.assert_array_equal(out, jax.jit(program(inner, logged=False))(X))


@pytest.mark.parametrize("inner", PLACES.values(), ids=PLACES)
def test_an_unknown_primitive_raises_if_asked_to(inner):
    """With `on_error="raise"` the error names the metric, the primitive, the place and the cure."""
    with capture.settings(on_error="raise"), pytest.raises(capture.CaptureError) as caught:
        run(program(inner), X)
    message = str(caught.value)
    assert "hidden" in message
    assert re.search(rf"{HERE}:\d+", message)
    assert re.search("pallas_call|custom_linear_solve", message)
    assert isinstance(caught.value, TrackwayError)
    assert isinstance(caught.value, ValueError)


def test_gradients_through_an_unknown_primitive():
    """The gradient of a program that lost a metric is that of the program without logs."""

    def loss(logged):
        return lambda b: jnp.sum(program(in_solver, logged=logged)(b) ** 2)

    with pytest.warns(TrackwayWarning, match="hidden"):
        grad, logs = run(jax.grad(loss(True)), X)
    assert_logs(logs, kept=6.0)
    np.testing.assert_array_equal(grad, jax.jit(jax.grad(loss(False)))(X))


@pytest.mark.parametrize("inner", PLACES.values(), ids=PLACES)
def test_a_compiled_step_with_an_unknown_primitive(inner):
    """A compiled step delivers the other metrics, and warns once however often it runs."""
    step = trackway.jit(program(inner))
    with current_tracker(RecordingTracker()) as tracker:
        with pytest.warns(TrackwayWarning, match="hidden") as caught:
            step(X)
        step(X)
        step(X)
    assert len(own(caught)) == 1
    assert_rows(tracker.rows, [(k, {"kept": 6.0}) for k in range(3)])


def test_an_unknown_primitive_in_a_loop_and_an_inner_jit():
    """However deep the primitive is, the metric is reported and the rest is exact."""
    inner = jax.jit(lambda x: in_solver(x) + tap(0.0, {"n": 1}, reduce="sum"))

    def f(x):
        return lax.scan(lambda c, _: (inner(c), None), x, None, length=3)[0]

    with pytest.warns(TrackwayWarning, match="hidden"):
        out, logs = run(f, X)
    np.testing.assert_array_equal(out, X / 8)
    assert_logs(logs, n=3)


def test_kernels_beside_logs_are_untouched():
    """A kernel that does not log takes no part."""

    def f(x):
        y = in_kernel(x, logged=False)
        trackway.log({"y": y.sum()})
        return lax.scan(lambda c, _: (in_kernel(c, logged=False), trackway.log({"c": c[0]})), y, None, length=2)[0]

    out, logs = run(f, X)
    np.testing.assert_array_equal(out, X * 8)
    assert_logs(logs, y=12.0, c=3.0)


def conflict(x):
    """One name, two reductions."""
    trackway.log({"bad": x})
    trackway.log({"bad": x}, reduce="sum")


def shapes(x):
    """One name, two shapes."""
    trackway.log({"bad": jnp.ones(2) * x})
    trackway.log({"bad": jnp.ones(3) * x})


def stacked_twice(x):
    """A stack with two samples in one place."""
    trackway.log({"bad": x}, reduce="stack")
    trackway.log({"bad": x + 1}, reduce="stack")


def stack_in_while(x):
    """A stack of unknown length."""

    def body(i):
        trackway.log({"bad": x * i}, reduce="stack")
        return i + 1

    lax.while_loop(lambda i: i < 3, body, 0)


def branches(x):
    """One name, two reductions, in two branches."""
    lax.cond(x > 0, lambda: trackway.log({"bad": x}), lambda: trackway.log({"bad": x}, reduce="max"))


CONFLICTS = [conflict, shapes, stacked_twice, stack_in_while, branches]


@pytest.mark.parametrize("wrong", CONFLICTS)
def test_a_metric_without_a_meaning_is_left_out(wrong):
    """What cannot be combined is left out, counted and named with its place; the rest is logged."""

    def f(x):
        trackway.log({"kept": x})
        wrong(x)
        return x * 2

    before = lost("bad")
    with pytest.warns(TrackwayWarning, match=rf"bad[\s\S]*{HERE}:\d+|{HERE}:\d+[\s\S]*bad") as caught:
        (value, grad), logs = run(jax.value_and_grad(f), 3.0)
    assert len(own(caught)) == 1
    assert (value, grad) == (6.0, 2.0)
    assert_logs(logs, kept=3.0)
    assert lost("bad") == before + 1


@pytest.mark.parametrize("wrong", CONFLICTS)
def test_a_metric_without_a_meaning_raises_if_asked_to(wrong):
    """With `on_error="raise"` tracing fails and the error names the metric and the place."""
    with capture.settings(on_error="raise"), pytest.raises(capture.CaptureError, match="bad") as caught:
        run(wrong, 3.0)
    assert re.search(rf"{HERE}:\d+", str(caught.value))


def test_the_warning_points_at_the_metric_in_every_program():
    """Each program that loses the metric is counted; the message is said once."""
    before = lost("bad")
    with pytest.warns(TrackwayWarning, match="bad") as caught:
        run(conflict, 3.0)
        run(lambda x: conflict(x), 4.0)  # noqa: PLW0108 - another program
    assert len(own(caught)) == 1
    assert lost("bad") == before + 2


def test_losses_is_a_copy():
    """Changing what `losses` returned changes no count."""
    capture.losses()["never logged"] = 5
    assert "never logged" not in capture.losses()
