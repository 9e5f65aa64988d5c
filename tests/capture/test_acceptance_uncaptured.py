"""Programs that nothing captures: one callback per execution of a log, and what else may be chosen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from captured import assert_rows, tap
from jax import lax

import trackway
from trackway import capture
from trackway.errors import TrackwayWarning
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


def rows_of(f, *args, calls=1):
    """Return the rows that a plain compiled *f* delivers."""
    compiled = jax.jit(f)
    with current_tracker(RecordingTracker()) as tracker:
        for _ in range(calls):
            jax.block_until_ready(compiled(*args))
        jax.effects_barrier()
    return tracker.rows


def test_every_execution_delivers_a_row():
    """Each call of a plain compiled function delivers a row with all metrics of its log."""
    rows = rows_of(lambda x: tap(x, {"x": x, "y": 2 * x, "note": "t"}), 3.0, calls=3)
    assert rows == [(i, {"x": 3.0, "y": 6.0, "note": "t"}) for i in range(3)]


def test_a_scan_delivers_one_row():
    """The five executions in a scan are reduced to one row."""
    rows = rows_of(lambda x: lax.scan(lambda c, t: tap((c, None), {"t": t}), x, jnp.arange(5.0)), 0.0)
    assert_rows(rows, [(0, {"t": 2.0})])


def test_a_while_loop_delivers_one_row():
    """The executions in a while loop are reduced to one row."""
    rows = rows_of(lambda n: lax.while_loop(lambda i: i < n, lambda i: tap(i + 1, {"n": 1}, reduce="sum"), 0), 1000)
    assert_rows(rows, [(0, {"n": 1000})])


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.nothing_saveable], ids=["default", "nothing"])
def test_rematerialization_repeats_nothing(policy):
    """A log in a checkpointed layer of a differentiated scan is delivered once."""

    def f(x):
        def body(c, t):
            trackway.log({"c": c})
            return jnp.sin(c) * t, None

        return lax.scan(jax.checkpoint(body, policy=policy), x, jnp.ones(3))[0]

    rows = rows_of(jax.grad(f), 2.0)
    assert_rows(rows, [(0, {"c": (2.0 + 0.9092974268 + 0.7890723435) / 3})])


def test_a_checkpointed_function_without_a_loop():
    """Recomputation delivers no second row."""
    f = jax.checkpoint(lambda x: tap(jnp.sin(jnp.sin(x)), {"x": x}))
    assert_rows(rows_of(jax.grad(f), 2.0), [(0, {"x": 2.0})])


def test_a_branch_not_taken_delivers_nothing():
    """The row of a branch arrives only where the branch was taken."""

    def f(x):
        return lax.cond(x > 0, lambda x: tap(x, {"x": x}), lambda x: x, x)

    assert_rows(rows_of(f, 3.0), [(0, {"x": 3.0})])
    assert rows_of(f, -3.0) == []


def test_lanes_are_reduced():
    """The lanes of a vmap are one row, also where the predicate differs between them."""

    def f(x):
        return lax.cond(x > 0, lambda x: tap(x, {"x": x}), lambda x: x, x)

    assert_rows(rows_of(jax.vmap(f), jnp.array([1.0, -2.0, 3.0])), [(0, {"x": 2.0})])


def test_steps_in_a_loop_are_rows():
    """A step that varies with the loop gives its rows in order."""

    def f(xs):
        return lax.scan(lambda i, x: (i + 1, trackway.log({"x": x}, step=i)), 4, xs)[0]

    assert_rows(rows_of(f, jnp.array([1.0, 2.0, 3.0])), [(4, {"x": 1.0}), (5, {"x": 2.0}), (6, {"x": 3.0})])


def test_rows_without_a_step_are_rows():
    """`reduce="rows"` delivers each iteration by itself."""

    def f(xs):
        return lax.scan(lambda c, x: (c, trackway.log({"x": x}, reduce="rows")), 0, xs)[0]

    assert_rows(rows_of(f, jnp.array([1.0, 2.0])), [(0, {"x": 1.0}), (1, {"x": 2.0})])


def test_a_custom_rule_delivers_what_runs():
    """The backward rule of a function delivers its row."""

    @jax.custom_vjp
    def f(x):
        trackway.log({"primal": x})
        return x

    f.defvjp(lambda x: tap((x, None), {"fwd": x}), lambda _, ct: tap((ct,), {"bwd": ct}))
    rows = rows_of(jax.grad(lambda x: f(x) * 3), 2.0)
    assert sorted((name, value) for _, row in rows for name, value in row.items()) == [("bwd", 3.0), ("fwd", 2.0)]


def test_results_are_those_without_a_log():
    """Values and gradients of a plain compiled function do not change by a log."""

    def f(x, *, logged):
        y = jnp.sin(x) ** 2
        if logged:
            trackway.log({"y": y})
        return y.sum()

    x = jnp.linspace(0, 1, 7)
    with current_tracker(RecordingTracker()):
        value, grad = jax.jit(jax.value_and_grad(lambda x: f(x, logged=True)))(x)
    expected_value, expected_grad = jax.jit(jax.value_and_grad(lambda x: f(x, logged=False)))(x)
    assert value == expected_value
    assert grad.tolist() == expected_grad.tolist()


def test_drop():
    """`uncaptured="drop"` leaves the logs out of programs that nothing captures."""
    with capture.settings(uncaptured="drop"):
        assert rows_of(lambda x: tap(x, {"x": x}), 3.0) == []
        assert "callback" not in jax.jit(lambda x: tap(x, {"x": x})).lower(3.0).as_text()
    assert_rows(rows_of(lambda x: tap(x, {"x": x}), 3.0), [(0, {"x": 3.0})])


def test_warn():
    """`uncaptured="warn"` leaves them out and says so."""
    with capture.settings(uncaptured="warn"), pytest.warns(TrackwayWarning, match="uncaptured_metric"):
        assert rows_of(lambda x: tap(x, {"uncaptured_metric": x}), 3.0) == []


def test_error():
    """`uncaptured="error"` refuses to compile them; captured programs compile as ever."""
    with capture.settings(uncaptured="error"):
        with pytest.raises(capture.CaptureError, match="uncaptured_metric"):
            jax.jit(lambda x: tap(x, {"uncaptured_metric": x}))(3.0)
        _, logs = jax.jit(trackway.capture_logging(lambda x: tap(x, {"x": x})))(3.0)
        assert logs.to_host() == {"x": 3.0}
        with current_tracker(RecordingTracker()) as tracker:
            trackway.jit(lambda x: tap(x, {"x": x}))(3.0)
        assert_rows(tracker.rows, [(0, {"x": 3.0})])


def test_settings_are_checked_and_restored():
    """An unknown choice is an error that lists the choices; a block restores what was set before it."""
    with pytest.raises(ValueError, match=r"callback.*drop.*warn.*error"):
        capture.settings(uncaptured="sometimes")
    with pytest.raises(ValueError, match=r"warn.*raise"):
        capture.settings(on_error="ignore")
    with capture.settings(uncaptured="drop"):
        with capture.settings(on_error="raise"), capture.settings(uncaptured="error"):
            pass
        assert rows_of(lambda x: tap(x, {"x": x}), 3.0) == []
    assert_rows(rows_of(lambda x: tap(x, {"x": x}), 3.0), [(0, {"x": 3.0})])


def test_settings_without_a_block_last():
    """Called as a function, the setting holds for the process until it is changed."""
    try:
        capture.settings(uncaptured="drop")
        assert rows_of(lambda x: tap(x, {"x": x}), 3.0) == []
    finally:
        capture.settings(uncaptured="callback")
    assert_rows(rows_of(lambda x: tap(x, {"x": x}), 3.0), [(0, {"x": 3.0})])


def test_lowering_for_reading_warns_of_nothing():
    """Looking at the program of a function that logs delivers nothing."""
    with current_tracker(RecordingTracker()) as tracker:
        jax.jit(lambda x: tap(x, {"x": x})).lower(3.0)
        jax.eval_shape(lambda x: tap(x, {"x": x}), 3.0)
        jax.make_jaxpr(lambda x: tap(x, {"x": x}))(3.0)
        jax.effects_barrier()
    assert tracker.rows == []
