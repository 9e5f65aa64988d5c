"""Names and silence: `scope` and `mute`, in traces and on the host."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import pytest
from captured import assert_logs, assert_rows, run, tap
from jax import lax

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


def test_scopes_prefix_names():
    """Names logged in a scope begin with it; scopes nest."""

    def f(x):
        trackway.log({"x": x})
        with trackway.scope("a"):
            trackway.log({"x": x + 1})
            with trackway.scope("b"):
                trackway.log({"x": x + 2, "y": {"z": x + 3}})
        with trackway.scope("c/d"):
            trackway.log({"x": x + 4})
        return x

    assert_logs(run(f, 0.0)[1], {"x": 0.0, "a/x": 1.0, "a/b/x": 2.0, "a/b/y/z": 3.0, "c/d/x": 4.0})


def test_a_cached_inner_jit_takes_the_scope_of_each_call():
    """One traced inner function logs under the scope of its caller, whatever the first one was."""

    @jax.jit
    def g(x):
        return lax.scan(lambda c, t: tap((c + t, None), {"v": c}), x, jnp.ones(2))[0]

    def f(x):
        with trackway.scope("A"):
            y = g(x)
        with trackway.scope("B"), trackway.scope("C"):
            z = g(y)

        def body(c, _):
            with trackway.scope("L"):
                return g(c), None

        with trackway.scope("S"):
            return lax.scan(body, z, None, length=2)[0]

    assert_logs(run(f, 0.0)[1], {"A/v": 0.5, "B/C/v": 2.5, "S/L/v": 5.5})


def test_scopes_inside_loops_branches_and_lanes():
    """A scope may be opened around and inside of every construct."""

    def branch(x):
        with trackway.scope("branch"):
            trackway.log({"x": x})
        return x

    def f(xs):
        with trackway.scope("loop"):
            lax.scan(lambda c, x: (c, lax.cond(x > 0, branch, lambda x: x, x)), 0.0, xs)
        with trackway.scope("lanes"):
            jax.vmap(branch)(xs)
        with trackway.scope("grad"):
            jax.grad(jax.checkpoint(lambda x: branch(x) ** 2))(xs[0])
        with trackway.scope("while"):
            lax.while_loop(lambda x: x < 3, lambda x: branch(x) + 1, xs[0])

    expected = {"loop/branch/x": 2.0, "lanes/branch/x": 0.0, "grad/branch/x": 1.0, "while/branch/x": 1.5}
    assert_logs(run(f, jnp.array([1.0, -4.0, 3.0]))[1], expected)


def test_scopes_of_rules():
    """The rules of a function with custom derivatives log under the scope in which they run."""

    @jax.custom_vjp
    def f(x):
        return x

    f.defvjp(lambda x: tap((x, None), {"fwd": x}), lambda _, ct: tap((ct,), {"bwd": ct}))

    def loss(x):
        with trackway.scope("s"):
            return f(x) * 3

    logs = run(jax.grad(loss), 2.0)[1]
    assert logs["s/fwd"] == 2.0
    assert [float(value) for name, value in logs.items() if name.endswith("bwd")] == [3.0]


def test_named_scopes_of_jax_are_no_prefix():
    """`jax.named_scope` names operations, not metrics."""

    def f(x):
        with jax.named_scope("layer"), trackway.scope("a"), jax.named_scope("inner"):
            trackway.log({"x": x})
        return x

    assert_logs(run(f, 1.0)[1], {"a/x": 1.0})


def test_a_compiled_call_takes_the_scope_of_each_call(tracker):
    """The scope around a compiled step prefixes its row, once, whatever it was when the step was traced."""
    step = trackway.jit(lambda x: tap(x, {"x": x}))
    step(1.0)
    with trackway.scope("a"):
        step(2.0)
        trackway.log({"host": 3.0})
    with trackway.scope("b"), trackway.scope("c"):
        step(4.0)
    step(5.0)
    assert_rows(
        tracker.rows, [(0, {"x": 1.0}), (1, {"a/x": 2.0}), (2, {"a/host": 3.0}), (3, {"b/c/x": 4.0}), (4, {"x": 5.0})]
    )


def test_a_step_traced_in_a_scope(tracker):
    """A step that is first called in a scope has no prefix outside of it."""
    step = trackway.jit(lambda x: tap(x, {"x": x}))
    with trackway.scope("a"):
        step(1.0)
    step(2.0)
    assert_rows(tracker.rows, [(0, {"a/x": 1.0}), (1, {"x": 2.0})])


def test_mute_in_a_trace():
    """Nothing is logged in a muted block, by whatever construct."""

    def f(x):
        with trackway.mute():
            trackway.log({"a": x})
            lax.scan(lambda c, t: tap((c, None), {"a": t}), x, jnp.ones(2))
            jax.grad(lambda x: tap(x**2, {"a": x}))(x)
        trackway.log({"b": x})
        return x

    assert_logs(run(f, 1.0)[1], b=1.0)


@pytest.mark.parametrize("muted_first", [True, False])
def test_mute_silences_a_cached_inner_jit(muted_first):
    """A traced inner function is silent in a muted block and heard outside, in either order."""
    g = jax.jit(lambda x: tap(x * 2, {"g": x}))

    def f(x):
        if muted_first:
            with trackway.mute():
                g(x)
        y = g(x + 1)
        with trackway.mute():
            g(x + 5)
        return y

    out, logs = run(f, 1.0)
    assert out == 4.0
    assert_logs(logs, g=2.0)


def test_mute_around_a_captured_and_a_compiled_function(tracker):
    """Muted on the host, a compiled step delivers nothing; heard again afterwards, without a new trace."""
    traces = []

    @trackway.jit
    def step(x):
        traces.append(1)
        trackway.log({"x": x})
        return x

    with trackway.mute():
        step(1.0)
        trackway.log({"host": 1.0})
    step(2.0)
    with trackway.mute():
        step(3.0)
    assert_rows(tracker.rows, [(0, {"x": 2.0})])
    assert len(traces) <= 2


def test_mute_without_a_tracker_says_nothing():
    """A muted log is silent also where no tracker is set."""
    with warnings.catch_warnings(record=True) as caught, trackway.mute():
        warnings.simplefilter("always")
        trackway.log({"x": 1})
        jax.vmap(lambda x: tap(x, {"x": x}))(jnp.ones(2))
    assert [w for w in caught if issubclass(w.category, trackway.TrackwayWarning)] == []


def test_mute_of_a_plain_jit(tracker):
    """A muted program compiled without a capture delivers nothing."""

    def f(x):
        with trackway.mute():
            trackway.log({"x": x})
        return x

    jax.jit(f)(1.0)
    jax.effects_barrier()
    assert tracker.rows == []


def names_and_values(tracker):
    """All metrics of all rows."""
    return {name: value for _, row in tracker.rows for name, value in row.items()}


def test_scope_of_a_plain_jit(tracker):
    """The rows of a program that nothing captures have the names of their scopes too."""

    @jax.jit
    def f(x):
        with trackway.scope("a"):
            trackway.log({"x": x})
            with trackway.scope("b"):
                lax.scan(lambda c, t: tap((c, None), {"x": t}), x, jnp.arange(3.0) * 2)

    f(1.0)
    jax.effects_barrier()
    assert names_and_values(tracker) == {"a/x": 1.0, "a/b/x": 2.0}


def test_scope_of_a_cached_function_in_a_plain_jit(tracker):
    """Without a capture, a cached inner function delivers under the scope of each call as well."""
    g = jax.jit(lambda x: tap(x, {"x": x}))

    @jax.jit
    def f(x):
        with trackway.scope("a"):
            g(x)
        with trackway.scope("b"):
            return g(x + 1)

    f(1.0)
    jax.effects_barrier()
    assert names_and_values(tracker) == {"a/x": 1.0, "b/x": 2.0}


def test_scope_names_are_checked():
    """A scope without a name, or that is no text, is an error."""
    for wrong in ("", "/", 3, None):
        with pytest.raises(ValueError, match="scope"), trackway.scope(wrong):
            pass


@pytest.mark.parametrize("compiled", [False, True])
def test_a_checkpoint_in_a_scope_has_its_name_once(compiled):
    """Going back through it, where JAX names it a second time, too; scopes of one name in one another do add up."""

    def loss(x):
        def inner(y):
            with trackway.scope("b"):
                return trackway.watch_grad(y, "gradient", stat="mean") * 2

        with trackway.scope("a"):
            x = jax.checkpoint(inner)(x)
            with trackway.scope("a"):
                return jax.checkpoint(lambda z: jax.checkpoint(inner)(z) + 1)(x)

    gradient = trackway.capture_logging(jax.grad(loss))
    _, logs = (jax.jit(gradient) if compiled else gradient)(jnp.float32(3.0))
    assert {name: float(value) for name, value in logs.items()} == {"a/b/gradient": 4.0, "a/a/b/gradient": 2.0}


@pytest.mark.parametrize("compiled", [False, True])
def test_so_has_one_in_a_loop(compiled):
    """There JAX does not note that it goes back."""

    def body(_, x):
        with trackway.scope("a"):
            x = jax.checkpoint(lambda y: trackway.watch_grad(y, "gradient", stat="mean") * 2)(x)
            with trackway.scope("a"):
                return jax.checkpoint(lambda y: jnp.sin(trackway.watch_grad(y, "sine", stat="mean")))(x)

    gradient = trackway.capture_logging(jax.grad(lambda x: jax.lax.fori_loop(0, 2, body, x)))
    _, logs = (jax.jit(gradient) if compiled else gradient)(jnp.float32(3.0))
    assert set(logs) == {"a/gradient", "a/a/sine"}
