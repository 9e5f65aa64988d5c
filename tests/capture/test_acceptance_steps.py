"""Steps logged in compiled code: a row for each iteration, and which step a call's row has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_rows, own, tap
from jax import lax

import trackway
from trackway import capture
from trackway.errors import TracerError
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


def rows_of(f, *args, jit=True):
    """Return the rows that *f* logs, captured."""
    captured = trackway.capture_logging(f)
    _, logs = (jax.jit(captured) if jit else captured)(*args)
    return logs.rows()


def log_each(xs, reduce):
    """Log each entry of *xs* at its own step."""
    return lax.scan(lambda i, x: (i + 1, trackway.log({"x": x, "y": 2 * x}, step=i, reduce=reduce)), 0, xs)


@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("reduce", ["mean", "sum", "max", "min", "last", "rows"])
def test_a_step_that_varies_in_a_scan_gives_a_row_for_each_iteration(jit, reduce):
    """One row for each step, in order, whatever the reduction within a step."""
    rows = rows_of(lambda xs: log_each(xs, reduce), jnp.array([5.0, 7.0, 6.0]), jit=jit)
    assert_rows(rows, [(0, {"x": 5.0, "y": 10.0}), (1, {"x": 7.0, "y": 14.0}), (2, {"x": 6.0, "y": 12.0})])


def test_rows_of_a_scan_reach_the_tracker_in_order(tracker):
    """A compiled step with a loop of steps delivers all of its rows, at every call."""

    @trackway.jit
    def three(xs, start):
        return lax.scan(lambda i, x: (i + 1, trackway.log({"x": x}, step=i)), start, xs)[0]

    start = 0
    for k in range(2):
        start = three(jnp.array([1.0, 2.0, 3.0]) + 10 * k, start)
    expected = [(i, {"x": x}) for i, x in enumerate([1.0, 2.0, 3.0, 11.0, 12.0, 13.0])]
    assert_rows(tracker.rows, expected)
    assert [type(row["x"]) for _, row in tracker.rows] == [float] * 6
    assert [type(step) for step, _ in tracker.rows] == [int] * 6


def test_a_whole_epoch_in_one_scan(tracker):
    """An epoch compiled into one call logs every training step, with its loss and gradient."""

    def train(w, xs, start):
        def step(carry, x):
            w, i = carry
            value, grad = jax.value_and_grad(lambda w: (w - x) ** 2)(w)
            trackway.log({"loss": value, "grad": grad}, step=i)
            return (w - 0.25 * grad, i + 1), None

        return lax.scan(step, (w, start), xs)[0]

    step = trackway.jit(train, donate_argnums=0)
    w, i = step(jnp.float32(0), jnp.array([4.0, 4.0, 4.0]), 10)
    assert (float(w), int(i)) == (3.5, 13)
    assert_rows(
        tracker.rows,
        [(10, {"loss": 16.0, "grad": -8.0}), (11, {"loss": 4.0, "grad": -4.0}), (12, {"loss": 1.0, "grad": -2.0})],
    )


def test_fori_with_known_bounds():
    """The index of a fori loop is a step."""

    def f(x):
        return lax.fori_loop(0, 3, lambda i, c: tap(c * 2, {"c": c}, step=i), x)

    assert_rows(rows_of(f, 1.0), [(0, {"c": 1.0}), (1, {"c": 2.0}), (2, {"c": 4.0})])


def test_steps_computed_from_the_index():
    """A step may be any function of what varies: an offset, every tenth, counted down, or given as data."""
    xs = jnp.array([5.0, 7.0])

    def scan_with(step_of, reverse=False):
        def f(xs, base):
            return lax.scan(lambda i, x: (i + 1, trackway.log({"x": x}, step=step_of(i, base))), 0, xs, reverse=reverse)

        return rows_of(f, xs, 100)

    assert_rows(scan_with(lambda i, base: base + i), [(100, {"x": 5.0}), (101, {"x": 7.0})])
    assert_rows(scan_with(lambda i, base: i * 10), [(0, {"x": 5.0}), (10, {"x": 7.0})])
    rows = scan_with(lambda i, base: base + i, reverse=True)
    assert sorted((int(step), float(row["x"])) for step, row in rows) == [(100, 7.0), (101, 5.0)]

    def given(steps, xs):
        return lax.scan(lambda c, sx: (c, trackway.log({"x": sx[1]}, step=sx[0])), 0, (steps, xs))

    assert_rows(rows_of(given, jnp.array([3, 9]), xs), [(3, {"x": 5.0}), (9, {"x": 7.0})])


def test_vmap_of_a_scan_of_steps():
    """Lanes that share their steps are samples within a step."""

    def f(xs):
        return lax.scan(lambda i, x: (i + 1, trackway.log({"x": x}, step=i)), 0, xs)

    rows = rows_of(jax.vmap(f), jnp.array([[1.0, 2.0, 3.0], [3.0, 6.0, 9.0]]))
    assert_rows(rows, [(0, {"x": 2.0}), (1, {"x": 4.0}), (2, {"x": 6.0})])


def test_steps_that_differ_between_lanes():
    """A step that varies across the lanes of a vmap gives a row for each."""
    rows = rows_of(jax.vmap(lambda i, x: trackway.log({"x": x}, step=i)), jnp.array([4, 5]), jnp.array([1.0, 2.0]))
    assert_rows(rows, [(4, {"x": 1.0}), (5, {"x": 2.0})])


def test_what_is_reduced_are_the_samples_within_a_step():
    """Several logs of one name in an iteration are combined; so are those of an inner loop with the outer step."""

    def outer(i, x):
        lax.scan(lambda c, k: (c, trackway.log({"s": x * k}, step=i, reduce="sum")), 0, jnp.arange(3.0))
        for k in range(2):
            trackway.log({"m": x + k}, step=i)
        return i + 1, None

    rows = rows_of(lambda xs: lax.scan(outer, 0, xs), jnp.array([1.0, 10.0]))
    assert_rows(rows, [(0, {"s": 3.0, "m": 1.5}), (1, {"s": 30.0, "m": 10.5})])


def test_gradient_accumulation_reduces_to_the_one_step():
    """In a loop whose step does not vary, the values are reduced over the loop."""

    def step(i, w, xs):
        def micro(g, x):
            value, grad = jax.value_and_grad(lambda w: (w * x) ** 2)(w)
            trackway.log({"loss": value}, step=i)
            return g + grad, None

        return lax.scan(micro, 0.0, xs)[0]

    assert_rows(rows_of(step, 7, 1.0, jnp.array([1.0, 2.0, 3.0])), [(7, {"loss": 14 / 3})])
    assert_rows(rows_of(lambda w, xs: step(7, w, xs), 1.0, jnp.array([1.0, 2.0, 3.0])), [(7, {"loss": 14 / 3})])


def test_accumulation_within_an_epoch():
    """Microbatches inside a scan of steps are reduced to one row for each step."""

    def train(xs):
        def step(i, batch):
            lax.scan(lambda c, x: (c, trackway.log({"loss": x}, step=i)), 0.0, batch)
            return i + 1, None

        return lax.scan(step, 0, xs)

    assert_rows(rows_of(train, jnp.array([[1.0, 3.0], [5.0, 7.0]])), [(0, {"loss": 2.0}), (1, {"loss": 6.0})])


def test_rows_in_a_branch():
    """Steps whose branch does not log have no row."""

    def body(i, x):
        lax.cond(x > 0, lambda: trackway.log({"x": x}, step=i), lambda: None)
        return i + 1, None

    rows = rows_of(lambda xs: lax.scan(body, 0, xs), jnp.array([1.0, -2.0, 3.0, -4.0]))
    assert_rows(rows, [(0, {"x": 1.0}), (2, {"x": 3.0})])


def test_rows_in_a_branch_of_some_metrics():
    """A metric of a branch stands in the rows of the steps that took it, beside those of every step."""

    def body(i, x):
        trackway.log({"x": x}, step=i)
        lax.cond(i % 2 == 0, lambda: trackway.log({"even": x}, step=i), lambda: None)
        return i + 1, None

    rows = rows_of(lambda xs: lax.scan(body, 0, xs), jnp.array([1.0, 2.0, 3.0]))
    assert_rows(rows, [(0, {"x": 1.0, "even": 1.0}), (1, {"x": 2.0}), (2, {"x": 3.0, "even": 3.0})])


def test_rows_of_vectors():
    """A row may hold vectors."""

    def body(i, x):
        trackway.log({"v": jnp.array([x, -x])}, step=i)
        return i + 1, None

    rows = rows_of(lambda xs: lax.scan(body, 0, xs), jnp.array([1.0, 2.0]))
    assert_rows(rows, [(0, {"v": [1.0, -1.0]}), (1, {"v": [2.0, -2.0]})])


def test_rows_under_checkpoint_and_grad():
    """Rematerialization repeats no row."""

    def f(x):
        @jax.checkpoint
        def body(carry, _):
            c, i = carry
            trackway.log({"c": c}, step=i)
            return (jnp.sin(c) * 2, i + 1), None

        return lax.scan(body, (x, 0), None, length=2)[0][0]

    assert_rows(rows_of(jax.grad(f), 0.5), [(0, {"c": 0.5}), (1, {"c": 2 * np.sin(0.5)})])


def test_rows_without_a_step(tracker):
    """`reduce="rows"` gives a row for each iteration, numbered by the tracker."""

    def f(xs):
        return lax.scan(lambda c, x: (c, trackway.log({"x": x}, reduce="rows")), 0, xs)

    xs = jnp.array([5.0, 7.0, 6.0])
    assert_rows(rows_of(f, xs), [(None, {"x": 5.0}), (None, {"x": 7.0}), (None, {"x": 6.0})])
    step = trackway.jit(f)
    step(xs)
    step(xs)
    assert_rows(tracker.rows, [(i, {"x": x}) for i, x in enumerate([5.0, 7.0, 6.0] * 2)])


def test_one_row_without_a_step():
    """What is logged without a step is one row, of no step."""
    assert_rows(rows_of(lambda x: tap(x, {"a": x, "b": {"c": x}}), 3.0), [(None, {"a": 3.0, "b/c": 3.0})])


def test_nothing_logged_is_no_row():
    """Where nothing was executed there is no row."""
    assert rows_of(lambda x: x, 3.0) == []
    assert rows_of(lambda x: lax.cond(x > 0, lambda: trackway.log({"x": x}), lambda: None), -1.0) == []


def test_the_step_of_one_log_serves_the_call(tracker):
    """A traced step given once is the step of everything logged in the call."""

    @trackway.jit
    def step(x, i):
        trackway.log({"a": x})
        trackway.log({"b": x}, step=i)
        trackway.log({"c": x}, step=i)
        return i + 1

    i = 3
    for _ in range(2):
        i = step(1.0, i)
    assert_rows(tracker.rows, [(3, {"a": 1.0, "b": 1.0, "c": 1.0}), (4, {"a": 1.0, "b": 1.0, "c": 1.0})])


@pytest.mark.parametrize(
    "steps",
    [lambda s: (1, 2), lambda s: (s, s + 1), lambda s: (jnp.int32(1), np.int64(2))],
    ids=["numbers", "s and s + 1", "arrays"],
)
def test_two_steps_in_one_call_are_an_error(steps):
    """Steps that are known to differ raise when tracing."""

    def f(x, s):
        first, second = steps(s)
        trackway.log({"a": x}, step=first)
        trackway.log({"b": x}, step=second)

    with capture.settings(on_error="raise"), pytest.raises(ValueError, match="step"):
        rows_of(f, 1.0, 5)


def test_equal_steps_are_one_step():
    """The same step under two names is no conflict."""

    def f(x, s):
        trackway.log({"a": x}, step=3)
        trackway.log({"b": x}, step=np.int32(3))
        return s

    assert_rows(rows_of(f, 1.0, 5), [(3, {"a": 1.0, "b": 1.0})])


def test_a_step_that_varies_in_a_while_loop():
    """Where the number of rows is not known, the values are reduced to the last step, with one warning."""

    def f(n):
        return lax.while_loop(lambda i: i < n, lambda i: tap(i + 1, {"i": i}, step=i), 0)

    with pytest.warns(trackway.TrackwayWarning, match="while") as caught:
        rows = rows_of(f, 3)
    assert len(own(caught)) == 1
    assert_rows(rows, [(2, {"i": 1.0})])


def test_at_step_serves_compiled_code(tracker):
    """Inside `at_step` the rows of compiled calls and of the host go to that step."""

    @trackway.jit
    def step(x):
        trackway.log({"x": x})
        return x * 2

    for i in (5, 6):
        with trackway.at_step(i):
            step(float(i))
            trackway.log({"host": i})
    got = {}
    for i, row in tracker.rows:
        got.setdefault(i, {}).update(row)
    assert got == {5: {"x": 5.0, "host": 5}, 6: {"x": 6.0, "host": 6}}


def test_at_step_inside_compiled_code_names_the_argument():
    """In a trace a step is an argument of `log`; the error says so."""

    def f(x):
        with trackway.at_step(x):
            trackway.log({"x": x})

    with pytest.raises(TracerError, match="step="):
        jax.jit(f)(1)
