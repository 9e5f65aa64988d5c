"""Logging leaves the program as it is: its errors, arguments, results and steps."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, assert_rows, run, tap
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec

import trackway
from trackway import capture
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


@pytest.fixture(autouse=True)
def hooked():
    """Something has been logged in a trace, so that the hooks are set."""
    jax.make_jaxpr(lambda x: trackway.log({"x": x}))(1.0)


class TroubleError(Exception):
    """An error of the program's own."""


def failing_once():
    """Return a host function that raises at its first call, and the list of its calls."""
    calls = []

    def call():
        calls.append(1)
        if len(calls) == 1:
            raise TroubleError

    return call, calls


@pytest.mark.parametrize("logged", [False, True])
def test_an_error_of_the_program_is_raised_once_and_not_run_over(logged, tracker):
    """A loop whose own host callback fails is not run a second time, with or without a log in it."""
    call, calls = failing_once()

    def body(c, _):
        io_callback(call, None)
        if logged:
            trackway.log({"c": c})
        return c + 1, None

    before = capture.losses()
    with pytest.raises(Exception, match="TroubleError"):
        jax.block_until_ready(lax.scan(body, 0.0, None, length=1))
    assert len(calls) == 1
    assert capture.losses() == before


def test_static_arguments_stay_numpy_values():
    """What is static is handed on as it is, a NumPy number too."""

    def f(x, n, flag):
        trackway.log({"n": n}, reduce="last")
        return sum(x for _ in range(n)) if flag else x

    step = trackway.jit(f, static_argnums=(1, 2))
    with current_tracker(RecordingTracker()) as tracker:
        assert step(2.0, np.int64(3), np.bool_(True)) == 6.0
    assert_rows(tracker.rows, [(0, {"n": 3})])


def test_results_of_an_eager_call_are_arrays():
    """A constant that the function makes comes back as an array."""
    out, _ = trackway.capture_logging(lambda x: (jnp.asarray(2.0), jnp.zeros(2), x + tap(0.0, {"x": x})))(
        jnp.float32(1)
    )
    assert all(isinstance(x, jax.Array) for x in out)


@pytest.mark.parametrize("tree", [lambda s: s, lambda s: (s, s), lambda s: {"a": s, "b": (s, s)}])
def test_the_shardings_of_the_results_are_those_of_the_results(tree, tracker):
    """`out_shardings` speak of what the function returns, whatever it logs."""
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("d"))
    step = trackway.jit(lambda x: (trackway.log({"x": x.sum()}), tree(x * 2))[1], out_shardings=tree(sharding))
    leaves = jax.tree.leaves(step(jnp.arange(8.0)))
    assert all(leaf.sharding.is_equivalent_to(sharding, 1) for leaf in leaves)
    silent = trackway.jit(tree, enabled=False, out_shardings=tree(sharding))
    assert jax.tree.leaves(silent(jnp.arange(8.0)))[0].sharding.is_equivalent_to(sharding, 1)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda t: (t + 0.5).astype(jnp.int32), 3),
        (lambda t: jnp.uint8(250) + (t * 0 + 10).astype(jnp.uint8), 4),
        (lambda t: (t * 0 + 4).astype(jnp.int32).reshape(1), 4),
        (lambda t: (t * 0 + 4).astype(jnp.int8) - 1, 3),
    ],
    ids=["rounded", "overflowing", "of shape (1,)", "narrow"],
)
def test_a_step_is_the_same_inside_a_loop_and_outside(make, expected):
    """What a step is computed from is followed only as far as the numbers stay the same."""
    programs = [
        lambda t: trackway.log({"a": 1.0}, step=make(t)),
        lambda t: lax.scan(lambda c, _: (c, trackway.log({"a": 1.0}, step=make(t))), 0, None, length=2),
        lambda t: lax.cond(t > 0, lambda: trackway.log({"a": 1.0}, step=make(t)), lambda: None),
        lambda t: lax.while_loop(lambda i: i < 2, lambda i: tap(i + 1, {"a": 1.0}, step=make(t)), 0),
    ]
    for program in programs:
        _, logs = jax.jit(trackway.capture_logging(program))(jnp.float32(2.7))
        assert_rows(logs.rows(), [(expected, {"a": 1.0})])


def test_a_step_beyond_32_bits_is_kept_or_told():
    """A known step of any size is that of its row; where a branch decides, it is left out with a warning."""
    far = 2**40
    _, logs = jax.jit(trackway.capture_logging(lambda x: trackway.log({"a": x}, step=far)))(1.0)
    assert_rows(logs.rows(), [(far, {"a": 1.0})])

    def branch(x):
        trackway.log({"kept": x})
        lax.cond(x > 0, lambda: trackway.log({"a": x}, step=far), lambda: None)

    with pytest.warns(trackway.TrackwayWarning, match="beyond 32 bits"):
        assert_logs(run(branch, 1.0)[1], kept=1.0)


def test_names_that_get_in_each_others_way():
    """A number and a mapping of one name are both kept, the second under its joined name."""

    def f(x):
        trackway.log({"a": x, "z": x})
        trackway.log({"a": {"b": x + 1}, "l": [x, x]})
        trackway.log({"l": {"0": x + 2}})

    _, logs = jax.jit(trackway.capture_logging(f))(1.0)
    [(_, row)] = logs.rows()
    assert row["a"] == 1.0
    assert row["a/b"] == 2.0
    assert row["z"] == 1.0


def test_the_open_row_is_that_of_the_time_of_delivery():
    """A row without a step joins the row that is open once all before it is delivered."""

    class WithRows(RecordingTracker):
        opened = None

        def log(self, metrics, *, step, commit=None):
            self.opened = step if commit is False else None
            super().log(metrics, step=step, commit=commit)

        def open_step(self):
            return self.opened

    slow = jax.jit(lambda x: lax.fori_loop(0, 300, lambda _, v: jnp.sin(v) @ v * 1e-3, x))
    step = trackway.jit(lambda x: tap(x, {"inside": x[0, 0] * 0}))
    tracker = WithRows()
    with current_tracker(tracker):
        y = slow(jnp.ones((100, 100)))
        trackway.log({"before": y[0, 0] * 0}, step=5, commit=False)
        step(y)
    assert [step for step, _ in tracker.rows] == [5, 5]


def test_a_ring_of_equal_lanes():
    """Lanes that log the same are so many samples."""
    _, logs = run(jax.vmap(lambda x: tap(x, {"c": 7.0}, reduce=capture.Ring(4))), jnp.arange(3.0))
    assert logs["c"].tolist() == [7.0, 7.0, 7.0]


def test_weights_that_are_no_weights():
    """A negative weight excludes a sample from a mean, and counts in a sum; a NaN is seen."""

    def f(w):
        for name in ("mean", "std", "sum"):
            trackway.log({name: 3.0}, weight=2.0, reduce=name)
            trackway.log({name: 13.0}, weight=w, reduce=name)

    assert_logs(run(f, -1.0)[1], mean=3.0, std=0.0, sum=-7.0)
    assert np.isnan(run(f, np.nan)[1]["mean"])


@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.bfloat16, jnp.int4, jnp.uint8])
def test_extremes_of_small_types(dtype):
    """The greatest and the least value of types without infinities are right, in loops and branches."""

    def f(x):
        def body(c, v):
            lax.cond(
                v > 0, lambda: trackway.log({"max": v, "min": v}, reduce={"max": "max", "min": "min"}), lambda: None
            )
            return c, None

        lax.scan(body, 0, x)

    assert_logs(run(f, jnp.array([0, 2, 3], dtype))[1], max=3.0, min=2.0)


def test_statistics_of_complex_gradients():
    """Complex gradients count by their absolute values."""

    def f(x):
        return jnp.abs(trackway.watch_grad(x, "g", "max") * (3 + 4j)) ** 2

    _, logs = run(jax.grad(f), jnp.complex64(1))
    assert_logs(logs, g=50.0)


def test_a_transfer_guard_does_not_reach_the_bookkeeping(tracker):
    """Where the program forbids transfers, logging needs none of it, and takes its own leave for its constants."""
    x = jnp.arange(4.0)
    with jax.transfer_guard("disallow"):
        jax.vmap(lambda v: trackway.log({"x": v}))(x)
        lax.scan(lambda c, v: (c, trackway.log({"y": v})), None, x)
    assert_rows(tracker.rows, [(0, {"x": 1.5}), (1, {"y": 1.5})])


def test_the_rule_of_a_custom_vmap_still_holds():
    """A captured function under vmap follows the rule of a custom_vmap inside, which logs for itself."""

    @custom_vmap
    def f(x):
        trackway.log({"f": x})
        return x

    @f.def_vmap
    def _(axis_size, in_batched, x):
        del axis_size
        return x + 100, in_batched[0]

    out, _ = jax.vmap(trackway.capture_logging(lambda x: f(x) * 1))(jnp.arange(2.0))
    assert out.tolist() == [100.0, 101.0]
    assert_logs(run(f, 3.0)[1], f=3.0)


def test_logs_can_be_pickled():
    """Logs come back from a file as they were, with their steps and texts."""
    f = trackway.capture_logging(lambda x: trackway.log({"x": x, "note": "warm"}, step=jnp.int32(x) + 3))
    _, logs = jax.jit(f)(1.0)
    again = pickle.loads(pickle.dumps(logs))
    assert again.rows() == logs.rows() == [(4, {"x": 1.0, "note": "warm"})]


def test_stacked_logs_are_the_rows_of_each():
    """Logs that a scan has stacked are one row after the other, each at its own step."""
    f = trackway.capture_logging(lambda i: trackway.log({"i": i, "note": "warm"}, step=i))
    _, logs = jax.jit(lambda: lax.scan(lambda c, i: (c, f(i)[1]), 0, jnp.arange(3)))()
    assert logs.rows() == [(i, {"i": float(i), "note": "warm"}) for i in range(3)]
    host = logs.to_host()
    assert host["i"].tolist() == [0.0, 1.0, 2.0]
    assert host["note"] == ["warm"] * 3


def test_lanes_without_a_value_are_masked():
    """Logs of a vmap hold each lane; those that logged nothing are masked, and have no row."""

    def f(x):
        lax.cond(x > 0, lambda: trackway.log({"x": x}, reduce="max"), lambda: None)

    _, logs = jax.vmap(trackway.capture_logging(f))(jnp.array([-1.0, 2.0, 3.0]))
    assert logs.to_host()["x"].mask.tolist() == [True, False, False]
    assert_rows(logs.rows(), [(None, {"x": 2.0}), (None, {"x": 3.0})])


def test_logging_logs_again_in_a_trace():
    """Logs are handed on by a trace around, at the step that is given there; what makes no sense is an error."""
    inner = trackway.capture_logging(lambda x: trackway.log({"x": x}))
    _, logs = jax.jit(trackway.capture_logging(lambda x: trackway.log(inner(x)[1], step=9)))(1.0)
    assert_rows(logs.rows(), [(9, {"x": 1.0})])
    with pytest.raises(ValueError, match="reduce must be one of"):
        jax.make_jaxpr(lambda x: trackway.log(inner(x)[1], reduce="nonsense"))(1.0)
    with pytest.raises(ValueError, match="reduced already"):
        jax.make_jaxpr(lambda x: trackway.log(inner(x)[1], weight=2.0))(1.0)


def test_what_cannot_be_merged_is_left_out():
    """Logs of one name with two reductions merge without it, with a warning that is true."""
    one = run_logs(lambda x: trackway.log({"a": x, "b": x}))
    other = run_logs(lambda x: trackway.log({"a": x, "b": x}, reduce={"b": "max"}))
    with pytest.warns(trackway.TrackwayWarning, match="'b'"):
        merged = one.merge(other)
    assert set(merged) == {"a"}


def run_logs(f):
    """Return the logs of *f* at 1.0."""
    return jax.jit(trackway.capture_logging(f))(1.0)[1]


def test_a_text_is_not_deferred_as_a_number():
    """What is no number cannot be returned by the compiled function; it is told, and the rest is there."""

    @jax.jit
    def f(x):
        with trackway.defer_tracker_for_jit() as metrics:
            trackway.log({"note": "warm", "x": x})
        return metrics

    with pytest.warns(trackway.TrackwayWarning, match="'note'.*is no number"):
        assert f(1.0) == {"x": 1.0}


def test_a_function_that_is_switched_off_is_silent_everywhere(tracker):
    """With `enabled=False` nothing is logged inside other transformations either."""
    silent = trackway.jit(lambda x: tap(x, {"x": x}), enabled=False)
    jax.vmap(silent)(jnp.arange(3.0))
    jax.grad(silent)(1.0)
    trackway.jit(lambda x: silent(x) * 2)(1.0)
    assert tracker.rows == []


def test_a_scope_has_any_name():
    """A scope in traced code has the name that it has outside."""

    def f(x):
        with trackway.scope("p|q/r s%"):
            trackway.log({"x": x})

    assert_logs(run(f, 1.0)[1], **{"p|q/r s%/x": 1.0})


def test_a_condition_and_the_body_of_a_loop_log_lane_after_lane():
    """The last sample of the last lane is that of its condition where its loop did not run."""

    def f(x):
        return lax.while_loop(lambda v: tap(v < 3, {"a": v}, reduce="last"), lambda v: v + 1, x)

    assert_logs(run(jax.vmap(f), jnp.array([0.0, 5.0]))[1], a=5.0)


def test_a_rule_may_weigh_what_its_function_does_not():
    """Samples of a function and of the rule for its derivative are put together, with weights and without."""

    @jax.custom_jvp
    def f(x):
        trackway.log({"m": x})
        return x

    @f.defjvp
    def _(primals, tangents):
        trackway.log({"m": 8.0}, weight=3.0)
        return f(*primals), tangents[0]

    assert_logs(run(jax.grad(f), 4.0)[1], m=7.0)
    assert_logs(run(jax.grad(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]), 4.0)[1], m=7.0)


def test_what_a_rule_cannot_do_costs_the_loop_its_logs_only(monkeypatch):
    """An error that no rule has dealt with is told, and the loop runs; in tests it is raised."""

    def refuse(_params):
        raise capture.CaptureError("cannot be carried")

    monkeypatch.setattr("trackway.capture._rules.loops.scan_plan", refuse)

    def f(x):
        return lax.scan(lambda c, _: (tap(c + 1, {"c": c}), None), x, None, length=3)[0]

    with pytest.warns(trackway.TrackwayWarning, match="cannot be carried"):
        out, logs = run(f, 1.0)
    assert (out, logs) == (4.0, {})
    with capture.settings(on_error="raise"), pytest.raises(capture.CaptureError, match="cannot be carried"):
        run(f, 1.0)
