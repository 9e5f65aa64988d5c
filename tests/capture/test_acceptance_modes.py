"""Capturing under JAX's debugging modes, from several threads, and in other precisions."""

from __future__ import annotations

import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, run, tap
from jax import lax

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


def body(c, t):
    """A scan body that logs."""
    trackway.log({"mean": c})
    trackway.log({"max": c}, reduce="max")
    trackway.log({"n": 1}, reduce="sum")
    return jnp.sin(c) * t, c


def loop(x):
    """Three iterations of a checkpointed body."""
    return lax.scan(jax.checkpoint(body), x, jnp.ones(3))[0]


def everything(x):
    """A gradient of loops, branches and lanes."""

    @jax.custom_vjp
    def rule(x):
        trackway.log({"primal": x})
        return x

    rule.defvjp(lambda x: tap((x, None), {"fwd": x}), lambda _, ct: tap((ct,), {"bwd": ct}))

    def f(x):
        y = loop(x)
        y = lax.cond(y > 0, lambda y: tap(y * 2, {"branch": y}, reduce="last"), lambda y: y, y)
        trackway.log({"steps": lax.while_loop(lambda i: i < 3, lambda i: tap(i + 1, {"i": i}), 0)})
        return jax.vmap(lambda k: rule(tap(y * k, {"lane": k}, reduce="stack")))(jnp.arange(3.0)).sum()

    return jax.value_and_grad(f)(x)


def expected(x):
    """What `everything` logs at *x*."""
    c = [x, np.sin(x), np.sin(np.sin(x))]
    y = np.sin(c[2])
    logs = {"mean": np.mean(c), "max": np.max(c), "n": 3, "branch": y, "i": 1.0, "steps": 3.0}
    return {**logs, "lane": [0.0, 1.0, 2.0], "fwd": 2 * y, "bwd": 1.0}


def test_no_tracer_is_leaked():
    """Nothing of a trace stays behind."""
    with jax.checking_leaks():
        assert_logs(run(everything, 2.0)[1], expected(2.0))


def test_no_warning_of_jax_or_numpy():
    """Capturing uses nothing that JAX or NumPy warn about."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_logs(run(everything, 2.0)[1], expected(2.0))


def test_with_the_checks_of_jax_enabled():
    """The equations that capturing makes pass the internal type checks of JAX."""
    with jax.enable_checks(True):
        assert_logs(run(everything, 2.0)[1], expected(2.0))
        assert_logs(
            run(jax.vmap(loop), jnp.array([1.0, 1.0]))[1], mean=np.mean([1, np.sin(1), np.sin(np.sin(1))]), max=1.0, n=6
        )
        f = lambda n: lax.while_loop(lambda i: i < n, lambda i: tap(i + 1, {"i": i}), 0)  # noqa: E731
        assert_logs(run(f, 4)[1], i=1.5)
        assert_logs(run(jax.vmap(f), jnp.array([1, 3]))[1], i=0.75)


def test_without_compilation():
    """With `jax.disable_jit` the loops run in Python and the metrics are the same."""
    with jax.disable_jit():
        out, logs = run(lambda x: lax.scan(body, x, jnp.ones(3))[0], 2.0)
    c = [2.0, np.sin(2.0), np.sin(np.sin(2.0))]
    assert np.isclose(out, np.sin(c[2]))
    assert_logs(logs, mean=np.mean(c), max=2.0, n=3)


def test_without_compilation_a_step_delivers():
    """A compiled step under `jax.disable_jit` delivers its row."""
    step = trackway.jit(lambda x: tap(x * 2, {"x": x}))
    with jax.disable_jit(), current_tracker(RecordingTracker()) as tracker:
        assert step(3.0) == 6.0
    assert_rows(tracker.rows, [(0, {"x": 3.0})])


def test_nan_checks():
    """`jax.debug_nans` finds no NaN that capturing made."""
    with jax.debug_nans(True):
        logs = run(lambda x: lax.cond(x > 0, lambda x: x, lambda x: tap(x, {"a": x}), x), 1.0)[1]
        assert logs == {}
        assert_logs(run(everything, 2.0)[1], expected(2.0))


def test_double_precision():
    """With 64 bits enabled the reductions have them."""
    with jax.enable_x64(True):
        value = 1.0 + 2.0**-40

        def f(x):
            return lax.scan(lambda c, t: (c, trackway.log({"m": t})), 0.0, jnp.full(3, x))

        def g(x):
            return lax.scan(lambda c, t: (c, trackway.log({"s": t}, reduce="sum")), 0.0, jnp.full(3, 2**40) + x)

        assert run(f, jnp.float64(value))[1]["m"] == value
        assert run(g, jnp.int64(0))[1]["s"] == 3 * 2**40


def test_threads_trace_at_once():
    """Threads that trace and run at the same time each get their own metrics."""
    results, errors = {}, []
    start = threading.Barrier(4)

    def work(k):
        try:
            start.wait(20)
            for turn in range(3):
                x = float(k + turn / 10)
                results[k, turn] = run(everything, x)[1]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert errors == []
    assert len(results) == 12
    for (k, turn), logs in results.items():
        x = float(k + turn / 10)
        assert sorted(logs) in (sorted(expected(x)), sorted(set(expected(x)) - {"branch"}))
        assert np.isclose(logs["mean"], expected(x)["mean"], rtol=1e-5)
        assert logs["n"] == 3


def test_threads_share_a_compiled_step():
    """One compiled step called from four threads delivers every row to the tracker of its thread."""
    step = trackway.jit(lambda x, i: tap(x, {"x": x}, step=i))
    trackers = [RecordingTracker(str(k)) for k in range(4)]

    def work(k):
        with current_tracker(trackers[k]):
            for i in range(5):
                step(float(k), i)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for k, tracker in enumerate(trackers):
        assert_rows(tracker.rows, [(i, {"x": float(k)}) for i in range(5)])


@pytest.mark.parametrize("checked", ["checkify outside", "checkify inside"])
def test_checkify(checked):
    """Functional error checks and logs go together, in either order."""
    from jax.experimental import checkify

    def f(x):
        checkify.check(x > 0, "x must be positive")
        trackway.log({"x": x})
        return lax.scan(lambda c, t: tap((c + t, None), {"t": t}), x, jnp.arange(3.0))[0]

    if checked == "checkify inside":
        (error, out), logs = run(checkify.checkify(f), 2.0)
    else:
        error, (out, captured) = jax.jit(checkify.checkify(trackway.capture_logging(f)))(2.0)
        logs = captured.to_host()
    assert error.get() is None
    assert out == 5.0
    assert_logs(logs, x=2.0, t=1.0)
