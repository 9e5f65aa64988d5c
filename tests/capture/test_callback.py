"""Logging from compiled code by host callback."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trackway
from trackway.errors import FatalTrackerError, StepError, TracerError
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import BackgroundTracker, CompositeTracker, RequiredTracker, current_tracker
from trackway.values import Histogram


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


LOGS = {"log": trackway.log, "jit_log": trackway.jit_log, "tracker.jit_log": trackway.tracker.jit_log}


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_values_of_a_compiled_step_arrive_in_order(log):
    """Each execution of a compiled step delivers one row, at the traced step, by the end of the block."""

    @jax.jit
    def step_fn(x, step):
        log({"loss": x.sum(), "nested": {"x": x}, "note": "text", "constant": 2**40}, step=step)
        return x * 2

    tracker = RecordingTracker()
    x = jnp.ones(2)
    with current_tracker(tracker):
        for step in range(5):
            x = step_fn(x, step)
    expected = [
        (i, {"loss": 2.0 * 2**i, "nested": {"x": [2.0**i] * 2}, "note": "text", "constant": 2**40}) for i in range(5)
    ]
    assert tracker.rows == expected


def test_rows_without_a_step_are_counted_on(tracker):
    """Without a step the tracker's own counter serves."""

    @jax.jit
    def step_fn(x):
        trackway.log({"x": x})
        return x + 1

    x = jnp.float32(0)
    for _ in range(3):
        x = step_fn(x)
    jax.effects_barrier()
    assert tracker.rows == [(0, {"x": 0.0}), (1, {"x": 1.0}), (2, {"x": 2.0})]


def test_low_precision_and_booleans_arrive_as_plain_numbers(tracker):
    """bfloat16, float8, int4 and bool come back as Python numbers."""

    @jax.jit
    def step_fn(x):
        dtypes = {"bf16": jnp.bfloat16, "f8": jnp.float8_e4m3fn, "i4": jnp.int4, "flag": jnp.bool_}
        trackway.log({name: x.astype(dtype) for name, dtype in dtypes.items()}, step=0, reduce="last")

    step_fn(jnp.float32(1))
    jax.effects_barrier()
    [(_, row)] = tracker.rows
    assert row == {"bf16": 1.0, "f8": 1.0, "i4": 1, "flag": True}
    assert [type(value) for value in row.values()] == [float, float, int, bool]


def test_a_histogram_made_inside_arrives_as_one(tracker):
    """A histogram built from traced values is a histogram on the host, with exact counts."""

    @jax.jit
    def step_fn(x):
        trackway.log({"grads": Histogram.from_array(x, num_bins=4)}, step=0)

    step_fn(jnp.array([0.0, 1.0, 2.0, 3.0, 4.0, jnp.nan]))
    jax.effects_barrier()
    histogram = tracker.rows[0][1]["grads"]
    assert isinstance(histogram, Histogram)
    assert np.asarray(histogram.counts).tolist() == [1, 1, 1, 2]
    assert histogram.nan == 1


def test_transformations(tracker):
    """What scan, cond, while, grad and vmap log is reduced, and arrives once for each execution of the function."""

    def body(carry, x):
        trackway.log({"scan": x})
        return carry + x, None

    def loss(x):
        trackway.log({"grad": x})
        return x**2

    def branch(x):
        trackway.log({"cond": x})
        return x

    @jax.jit
    def program(x):
        total, _ = jax.lax.scan(body, x, jnp.arange(3.0))
        jax.grad(loss)(x)
        jax.lax.cond(x > 0, branch, lambda v: v, x)
        jax.vmap(lambda v: trackway.log({"vmap": v}))(jnp.arange(2.0))
        jax.lax.while_loop(lambda i: i < 2, lambda i: (trackway.log({"while": i}), i + 1)[1], 0)
        return total

    program(jnp.float32(5))
    jax.effects_barrier()
    seen = [next(iter(row.items())) for _, row in tracker.rows]
    assert sorted(seen) == [("cond", 5.0), ("grad", 5.0), ("scan", 1.0), ("vmap", 0.5), ("while", 0.5)]


def test_eager_transformations_are_served_too(tracker):
    """`grad` without `jit` traces as well."""

    def loss(x):
        trackway.log({"x": x}, step=3)
        return x * 2

    jax.grad(loss)(1.0)
    jax.effects_barrier()
    assert tracker.rows == [(3, {"x": 1.0})]


def test_a_constant_payload_in_a_trace_is_logged_when_it_runs(tracker):
    """A payload without any traced value is delivered per execution, not once at tracing."""

    @jax.jit
    def step_fn(x):
        trackway.log({"calls": 1})
        return x

    assert tracker.rows == []
    for _ in range(3):
        step_fn(jnp.float32(1))
    jax.effects_barrier()
    assert len(tracker.rows) == 3


def test_a_host_buffer_reused_by_the_caller_does_not_change_the_row(tracker):
    """Host arrays in the payload are those of the time of tracing."""
    buffer = np.array([1.0, 2.0])

    @jax.jit
    def step_fn(x):
        trackway.log({"buffer": buffer, "x": x}, step=0)

    lowered = step_fn.lower(jnp.float32(1)).compile()
    buffer[:] = 99
    lowered(jnp.float32(1))
    jax.effects_barrier()
    assert tracker.rows[0][1]["buffer"] == [1.0, 2.0]


@pytest.mark.parametrize("error", [RuntimeError("down"), SystemExit(3)], ids=["error", "exit"])
def test_failures_do_not_reach_the_computation(caplog, error):
    """A tracker that raises, or calls sys.exit, harms neither the result nor the other trackers."""
    healthy = RecordingTracker()

    @jax.jit
    def step_fn(x):
        trackway.log({"x": x}, step=1)
        return x * 2

    with current_tracker(CompositeTracker([FailingTracker(error=error), healthy])):
        assert step_fn(jnp.float32(3)) == 6
        jax.effects_barrier()
    assert healthy.rows == [(1, {"x": 3.0})]
    assert "fail" in caplog.text or "lost" in caplog.text


def test_a_required_tracker_that_fails_in_a_callback_stops_the_run_at_the_next_call():
    """What may not be raised inside a callback is raised by the next call on the host, or at the end of the block."""

    @jax.jit
    def step_fn(x):
        trackway.log({"x": x}, step=1)
        return x

    with current_tracker(RequiredTracker(FailingTracker(methods=("log",)))):
        step_fn(jnp.float32(3))
        jax.effects_barrier()
        with pytest.raises(FatalTrackerError, match="required"):
            trackway.log_summary({"best": 1})
    with pytest.raises(FatalTrackerError), RequiredTracker(FailingTracker(methods=("log",))):
        step_fn(jnp.float32(3))


def test_mistakes_are_told_when_tracing(tracker):
    """What can be known at trace time is an error there."""

    def traced(**kwargs):
        jax.jit(lambda x: trackway.log({"x": x}, **kwargs))(1.0)

    with pytest.raises(ValueError, match=r"commit=True"):
        traced(commit=True)
    with pytest.raises(ValueError, match="reduce must be one of mean"):
        traced(reduce="median")
    with pytest.raises(StepError):
        traced(step=0.5)
    for bad in (lambda x: x, lambda x: x > 0, lambda x: jnp.arange(3)):
        with pytest.raises(StepError, match="one integer"):
            jax.jit(lambda x, bad=bad: trackway.log({"x": x}, step=bad(x)))(1.0)
    with pytest.raises(TypeError, match="mapping"):
        jax.jit(lambda x: trackway.log([x]))(1.0)


def test_a_tracker_called_directly_with_a_tracer_says_what_to_use(tracker):
    """Calling a tracker's own `log` with a traced value is an error that names the verb."""
    with pytest.raises(TracerError, match=r"trackway\.log"):
        jax.jit(lambda x: tracker.log({"x": x}, step=0))(1.0)
    with pytest.raises(TracerError, match=r"trackway\.log"):
        jax.jit(lambda x: tracker.log({"x": 1}, step=x))(1)


def test_outside_a_trace_jit_log_is_log(tracker):
    """Eager values are logged at once."""
    trackway.jit_log({"x": jnp.float32(1), "y": 2}, step=4)
    for log in (trackway.jit_log, trackway.log):
        with pytest.raises(ValueError, match="reduce must be one of"):
            log({"x": 1}, reduce="bogus")
    assert tracker.rows == [(4, {"x": 1.0, "y": 2})]


def test_flush_and_finish_wait_for_callbacks():
    """A program that still runs when `flush` is called has delivered afterwards."""
    inner = RecordingTracker()

    @jax.jit
    def slow(x):
        y = jax.lax.fori_loop(0, 200, lambda i, v: jnp.sin(v) @ v * 1e-3, x)
        trackway.log({"y": y[0, 0]}, step=1)
        return y

    with current_tracker(BackgroundTracker(inner)) as tracker:
        slow(jnp.ones((64, 64)))
        tracker.flush()
        assert len(inner.rows) == 1
        slow(jnp.ones((64, 64)))
        tracker.finish()
    assert len(inner.rows) == 2


def test_flush_from_inside_a_callback_does_not_wait_for_itself():
    """A tracker that flushes on every row works with callbacks."""

    class Flushing(trackway.NoopTracker.__base__):
        name = "flushing"
        rows = 0

        def log(self, metrics, *, step, commit=None):
            self.rows += 1
            current_tracker().flush()

        def log_hyperparameters(self, hparams): ...
        def log_summary(self, metrics): ...
        def log_artifact(self, artifact_path, *, name=None, type=None): ...
        def finish(self): ...

    tracker = Flushing()
    with current_tracker(CompositeTracker([tracker])):
        jax.jit(lambda x: trackway.log({"x": x}))(1.0)
    assert tracker.rows == 1


def test_a_long_loop_is_one_callback(tracker):
    """A while loop that logs in every iteration delivers once, after the loop."""

    @jax.jit
    def program(n):
        def body(i):
            trackway.log({"i": i})
            return i + 1

        return jax.lax.while_loop(lambda i: i < n, body, 0)

    for _ in range(5):
        program(500)
    jax.effects_barrier()
    assert [row["i"] for _, row in tracker.rows] == [249.5] * 5


def test_results_and_gradients_are_the_same_with_and_without_log(tracker):
    """Logging changes neither a function's value nor its gradient."""

    def f(x, *, logged):
        y = jnp.sin(x) ** 2
        if logged:
            trackway.log({"y": y})
        return y.sum()

    x = jnp.linspace(0, 1, 7)
    with_log = jax.jit(jax.value_and_grad(lambda v: f(v, logged=True)))(x)
    without = jax.jit(jax.value_and_grad(lambda v: f(v, logged=False)))(x)
    assert np.array_equal(with_log[0], without[0])
    assert np.array_equal(with_log[1], without[1])


def test_a_failure_kept_for_a_run_that_ends_otherwise_does_not_meet_the_next():
    """Where the block raises itself, what its required tracker failed at in a callback is forgotten with it."""

    @jax.jit
    def step_fn(x):
        trackway.log({"x": x}, step=1)
        return x

    with pytest.raises(ZeroDivisionError), RequiredTracker(FailingTracker(methods=("log",))):  # noqa: PT012
        step_fn(jnp.float32(3))
        jax.effects_barrier()
        raise ZeroDivisionError
    with RecordingTracker() as tracker:
        trackway.log({"a": 1})
    assert [row for _, row in tracker.rows] == [{"a": 1}]
