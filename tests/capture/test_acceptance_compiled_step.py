"""`trackway.jit`: a compiled step whose metrics reach the current tracker."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_rows, tap

import trackway
from trackway.errors import FatalTrackerError, TrackwayWarning
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import CompositeTracker, RequiredTracker, current_tracker


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


def test_each_call_is_a_row(tracker):
    """Each call of a compiled step delivers one row, in order, and returns what the function returns."""

    @trackway.jit
    def step(x):
        trackway.log({"x": x, "twice": 2 * x})
        trackway.log({"more": x.astype(jnp.int32)}, reduce="last")
        return {"next": x + 1}

    x = jnp.float32(0)
    for _ in range(3):
        x = step(x)["next"]
    assert x == 3.0
    assert_rows(tracker.rows, [(i, {"x": float(i), "twice": 2.0 * i, "more": i}) for i in range(3)])


def test_donated_and_static_arguments(tracker):
    """Buffers that the next call is given stay readable in the rows; a static flag chooses the metrics."""

    @functools.partial(trackway.jit, donate_argnums=0, static_argnums=2)
    def step(state, x, flag):
        trackway.log({"s": state["w"].sum()})
        trackway.log({"raw": state["w"]}, reduce="last")
        if flag:
            trackway.log({"flag": 1.0})
        return {"w": state["w"] + x}

    state = {"w": jnp.zeros(3)}
    for k in range(3):
        state = step(state, 1.0, k == 1)
    expected = [
        (0, {"s": 0.0, "raw": [0.0] * 3}),
        (1, {"s": 3.0, "raw": [1.0] * 3, "flag": 1.0}),
        (2, {"s": 6.0, "raw": [2.0] * 3}),
    ]
    assert_rows(tracker.rows, expected)


def test_the_decorator_takes_options(tracker):
    """`@trackway.jit(...)` with the options of `jax.jit` decorates."""

    @trackway.jit(donate_argnums=0, static_argnames="n")
    def step(x, *, n):
        """Step once."""
        trackway.log({f"x{n}": x})
        return x + n

    assert step.__name__ == "step"
    assert step.__doc__ == "Step once."
    x = step(jnp.float32(1), n=2)
    assert x == 3.0
    assert_rows(tracker.rows, [(0, {"x2": 1.0})])


def test_a_value_that_is_also_a_donated_output(tracker):
    """A logged array that is the result too, and is then donated elsewhere, was kept for the row."""
    step = trackway.jit(lambda x: tap(x, {"w": x}, reduce="last"))
    eat = jax.jit(lambda x: x + 1, donate_argnums=0)
    for k in range(4):
        eat(step(jnp.arange(3.0) + k))
    assert_rows(tracker.rows, [(k, {"w": [k, k + 1, k + 2]}) for k in range(4)])


def test_a_tracker_changes_no_trace():
    """A step is traced once for each type of its arguments, with and without a tracker."""
    traces = []

    @trackway.jit
    def step(x):
        traces.append(1)
        trackway.log({"x": x.sum()})
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrackwayWarning)  # that no tracker is set may be said
        for _ in range(3):
            step(jnp.ones(3))
    with current_tracker(RecordingTracker()) as tracker:
        for _ in range(3):
            step(jnp.ones(3))
        assert len(traces) == 1
        step(jnp.ones(4))
    assert len(traces) == 2
    assert_rows(tracker.rows, [(0, {"x": 3.0}), (1, {"x": 3.0}), (2, {"x": 3.0}), (3, {"x": 4.0})])


def test_without_a_tracker_the_result_is_the_same():
    """A step that logs runs where no tracker is set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrackwayWarning)
        assert trackway.jit(lambda x: tap(x * 2, {"x": x}))(3.0) == 6.0


def test_every_k_calls(tracker):
    """`every` delivers the first call and every k-th after it; the results of all calls are the same."""

    @trackway.jit(every=3)
    def step(x, i):
        trackway.log({"x": x}, step=i)
        return x * 2, i + 1

    state = (jnp.float32(1), 0)
    for _ in range(7):
        state = step(*state)
    assert state == (128.0, 7)
    assert_rows(tracker.rows, [(0, {"x": 1.0}), (3, {"x": 8.0}), (6, {"x": 64.0})])


def test_every_must_be_a_positive_integer():
    """Another period is an error where the step is made."""
    for wrong in (0, -1, 1.5):
        with pytest.raises((TypeError, ValueError), match="every"):
            trackway.jit(lambda x: x, every=wrong)


def test_disabled(tracker):
    """`enabled=False` delivers nothing and compiles the function without its metrics."""

    def f(x):
        trackway.log({"x": jnp.linalg.svd(x)[1].sum()})
        return x * 2

    step = trackway.jit(f, enabled=False)
    np.testing.assert_array_equal(step(jnp.eye(3)), 2 * np.eye(3))
    jax.effects_barrier()
    assert tracker.rows == []
    hlo = step.lower(jnp.eye(3)).compile().as_text()
    assert "custom-call" not in hlo
    assert "callback" not in hlo


def test_ahead_of_time_compilation(tracker):
    """What `.lower(...).compile()` returns delivers at each call, as the step itself does."""
    step = trackway.jit(lambda x, i: tap(x + 1, {"x": x}, step=i))
    compiled = step.lower(jnp.float32(1), 7).compile()
    assert tracker.rows == []
    assert compiled(jnp.float32(1), 7) == 2.0
    assert compiled(jnp.float32(5), 8) == 6.0
    assert_rows(tracker.rows, [(7, {"x": 1.0}), (8, {"x": 5.0})])


def test_ahead_of_time_compilation_of_a_captured_function():
    """A captured function is lowered and compiled as any other."""
    compiled = jax.jit(trackway.capture_logging(lambda x: tap(x + 1, {"x": x}))).lower(1.0).compile()
    out, logs = compiled(1.0)
    assert out == 2.0
    assert logs.to_host() == {"x": 1.0}


def test_lowering_shows_the_program():
    """The lowered program can be read and its cost analysed."""
    step = trackway.jit(lambda x: tap(x + 1, {"x": x}))
    lowered = step.lower(jnp.ones(3))
    assert "stablehlo" in lowered.as_text()
    assert lowered.compile().cost_analysis() is not None


def test_attributes_of_the_jitted_function():
    """Other attributes are those of the jitted function."""
    step = trackway.jit(lambda x: tap(x, {"x": x}))
    assert callable(step.clear_cache)
    step.clear_cache()
    assert step.eval_shape(jnp.ones(3)) is not None
    with pytest.raises(AttributeError, match="no_such_attribute"):
        _ = step.no_such_attribute


def test_another_jit(tracker):
    """The function that compiles may be another one, which gets the options."""
    seen = {}

    def my_jit(f, **options):
        seen.update(options)
        return jax.jit(f, **options)

    assert trackway.jit(lambda x: tap(x, {"x": x}), jit=my_jit, donate_argnums=0)(jnp.float32(1)) == 1.0
    assert seen == {"donate_argnums": 0}
    assert_rows(tracker.rows, [(0, {"x": 1.0})])


def test_a_compiled_step_inside_another_trace(tracker):
    """A step called in a trace takes part in it: whoever captures outside gets the logs, once."""
    inner = trackway.jit(lambda x: tap(x + 1, {"inner": x}))

    @trackway.jit
    def outer(x):
        trackway.log({"outer": x})
        return inner(inner(x))

    assert outer(1.0) == 3.0
    assert_rows(tracker.rows, [(0, {"outer": 1.0, "inner": 1.5})])
    assert jax.vmap(inner)(jnp.arange(2.0)).tolist() == [1.0, 2.0]
    assert jax.grad(inner)(5.0) == 1.0
    jax.effects_barrier()
    assert [row["inner"] for _, row in tracker.rows[1:]] == [0.5, 5.0]


def test_all_members_of_a_composite_get_the_row():
    """Several trackers get the same rows; one that fails takes nothing from the others."""
    first, second = RecordingTracker("first"), RecordingTracker("second")
    step = trackway.jit(lambda x: tap(x, {"x": x}))
    with current_tracker(CompositeTracker([first, FailingTracker(), second])):
        step(1.0)
        step(2.0)
    expected = [(0, {"x": 1.0}), (1, {"x": 2.0})]
    assert_rows(first.rows, expected)
    assert_rows(second.rows, expected)


def test_a_failing_tracker_does_not_reach_the_step():
    """What a tracker raises is kept from training."""
    step = trackway.jit(lambda x: tap(x * 2, {"x": x}))
    with current_tracker(FailingTracker()):
        assert step(3.0) == 6.0


def test_a_required_tracker_that_fails_stops_the_loop():
    """The failure of a tracker that the run cannot do without is raised from a later call, or from the block."""
    step = trackway.jit(lambda x: tap(x * 2, {"x": x}))
    with pytest.raises(FatalTrackerError), current_tracker(RequiredTracker(FailingTracker())):
        [step(3.0) for _ in range(20)]


def test_rows_of_the_host_and_of_steps_keep_their_order(tracker):
    """Rows logged on the host between two calls stand between them."""
    step = trackway.jit(lambda x, i: tap(x, {"x": x}, step=i))
    for i in range(3):
        step(float(i), 2 * i)
        trackway.log({"host": i}, step=2 * i + 1)
    steps = [row_step for row_step, _ in tracker.rows]
    assert steps == [0, 1, 2, 3, 4, 5]


def test_the_tracker_at_the_call_gets_the_row():
    """Two runs one after the other that share a compiled step get their own rows."""
    step = trackway.jit(lambda x: tap(x, {"x": x}))
    with current_tracker(RecordingTracker()) as first:
        step(1.0)
    with current_tracker(RecordingTracker()) as second:
        step(2.0)
    assert_rows(first.rows, [(0, {"x": 1.0})])
    assert_rows(second.rows, [(0, {"x": 2.0})])


def test_a_step_that_raises_delivers_nothing(tracker):
    """An error of the function is the caller's; the next call is served."""

    @trackway.jit
    def step(x):
        trackway.log({"x": x})
        if x.shape:
            raise ZeroDivisionError
        return x

    with pytest.raises(ZeroDivisionError):
        step(jnp.ones(3))
    step(1.0)
    assert_rows(tracker.rows, [(0, {"x": 1.0})])


def test_a_method_as_a_step(tracker):
    """A method may be decorated, with its object as a static argument."""

    class Model:
        @trackway.jit(static_argnums=0)
        def step(self, x):
            trackway.log({"x": x})
            return x * 3

    assert Model().step(2.0) == 6.0
    assert_rows(tracker.rows, [(0, {"x": 2.0})])
