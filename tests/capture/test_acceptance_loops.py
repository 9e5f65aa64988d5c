"""Values logged in scan, map, fori and while loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, own, run, tap
from jax import lax

import trackway
from trackway import capture

XS = np.array([3.0, 1.0, 4.0, 1.0, 5.0])


def every_reduction(carry, t):
    """A scan body that logs under every plain reduction."""
    trackway.log({"mean": carry})
    trackway.log({"sum": carry}, reduce="sum")
    trackway.log({"max": t}, reduce="max")
    trackway.log({"min": t}, reduce="min")
    trackway.log({"last": carry}, reduce="last")
    trackway.log({"stack": carry}, reduce="stack")
    trackway.log({"std": t}, reduce="std")
    return carry + t, carry


@pytest.mark.parametrize("unroll", [1, 2, 5])
@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
def test_scan(unroll, jit):
    """A loop gives one value for each name, however it is unrolled."""
    (carry, ys), logs = run(lambda x: lax.scan(every_reduction, x, jnp.asarray(XS), unroll=unroll), 2.0, jit=jit)
    assert carry == 16.0
    assert ys.tolist() == [2.0, 5.0, 6.0, 10.0, 11.0]
    stack = [2.0, 5.0, 6.0, 10.0, 11.0]
    assert_logs(logs, mean=6.8, sum=34.0, max=5.0, min=1.0, last=11.0, stack=stack, std=1.6)


@pytest.mark.parametrize("unroll", [1, 2])
def test_reverse_scan(unroll):
    """Stacked values lie as the inputs do; the last one is that of the iteration executed last."""
    stack = [13.0, 12.0, 8.0, 7.0, 2.0]
    logs = run(lambda x: lax.scan(every_reduction, x, jnp.asarray(XS), reverse=True, unroll=unroll), 2.0)[1]
    assert_logs(logs, mean=8.4, sum=42.0, max=5.0, min=1.0, last=13.0, stack=stack, std=1.6)


def test_a_loop_that_never_runs_logs_nothing():
    """Metrics of a scan of length zero are absent."""
    assert_logs(run(lambda x: lax.scan(lambda c, t: tap((c, None), {"a": c}), x, jnp.zeros((0,))), 2.0)[1])


def test_scan_in_scan():
    """Loops nest: a mean is one over all iterations, a stack gets an axis for each loop, the outer one first."""

    def inner(c, t):
        trackway.log({"i": t})
        trackway.log({"st": t}, reduce="stack")
        return c + t, None

    def outer(c, t):
        c, _ = lax.scan(inner, c, t * jnp.arange(3.0))
        trackway.log({"o": c}, reduce="last")
        return c, None

    (carry, _), logs = run(lambda x: lax.scan(outer, x, jnp.array([1.0, 2.0])), 0.0)
    assert carry == 9.0
    assert_logs(logs, i=1.5, st=[[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]], o=9.0)


def test_one_name_in_a_loop_and_beside_it():
    """A name logged once before a loop and three times in it has four samples."""

    def f(x):
        trackway.log({"a": 10.0 * x})
        return lax.scan(lambda c, t: tap((c, None), {"a": t}), x, jnp.array([1.0, 2.0, 3.0]))

    assert_logs(run(f, 1.0)[1], a=4.0)


def loop_invariant(w, xs):
    """Logs a value that does not vary with the loop, and a constant."""

    def body(c, x):
        trackway.log({"w": w * 1.0}, reduce="sum")
        trackway.log({"k": 1.0}, reduce="sum")
        trackway.log({"ws": w}, reduce="stack")
        return c * w + x, None

    return lax.scan(body, 0.0, xs)[0]


@pytest.mark.parametrize(
    "transform",
    [lambda f: f, jax.grad, jax.value_and_grad, lambda f: lambda w, x: jax.vjp(f, w, x)[0]],
    ids=["plain", "grad", "value_and_grad", "vjp"],
)
def test_loop_invariant_values_count_once_an_iteration(transform):
    """What a compiler or differentiation may move out of the loop is still logged in every iteration."""
    logs = run(transform(loop_invariant), 2.0, jnp.ones(5))[1]
    assert_logs(logs, w=10.0, k=5.0, ws=[2.0] * 5)


def test_map():
    """`lax.map` is a scan; a batch size makes it a vmap in a scan and changes no reduction."""

    def each(x):
        trackway.log({"x": x})
        trackway.log({"s": x}, reduce="stack")
        return x * 2

    assert_logs(run(lambda xs: lax.map(each, xs), jnp.arange(6.0))[1], x=2.5, s=np.arange(6.0))

    def batched(x):
        trackway.log({"x": x})
        trackway.log({"m": x}, reduce="max")
        return x * 2

    assert_logs(run(lambda xs: lax.map(batched, xs, batch_size=4), jnp.arange(6.0))[1], x=2.5, m=5.0)


def count_up(i, c):
    """A fori body that logs its index and counts."""
    trackway.log({"i": i})
    trackway.log({"n": 1}, reduce="sum")
    return c + i


def test_fori():
    """Bounds may be known or not; a loop that did not run logged nothing."""
    assert_logs(run(lambda x: lax.fori_loop(0, 5, count_up, x), 0)[1], i=2.0, n=5)
    assert_logs(run(lambda n: lax.fori_loop(0, n, count_up, 0), 4)[1], i=1.5, n=4)
    assert_logs(run(lambda n: lax.fori_loop(0, n, count_up, 0), 0)[1])


def test_while_body_and_condition():
    """The body is counted once an iteration, the condition once more often."""

    def cond(c):
        trackway.log({"cond": c, "nc": 1}, reduce="sum")
        return c < 5

    def body(c):
        trackway.log({"body": c})
        trackway.log({"last": c}, reduce="last")
        return c + 1

    out, logs = run(lambda x: lax.while_loop(cond, body, x), 2.0)
    assert out == 5.0
    assert_logs(logs, cond=14.0, nc=4, body=3.0, last=4.0)
    out, logs = run(lambda x: lax.while_loop(cond, body, x), 9.0)
    assert out == 9.0
    assert_logs(logs, cond=9.0, nc=1)


def stacking_while(x):
    """Logs a stack where the number of iterations is not known, and a mean."""
    return lax.while_loop(lambda c: c < 3, lambda c: tap(tap(c + 1, {"deep": c}, reduce="stack"), {"kept": c}), x)


def test_a_stack_in_a_while_loop_is_an_error():
    """A stack needs a known number of entries; the error names the metric."""
    with capture.settings(on_error="raise"), pytest.raises(ValueError, match="deep"):
        run(stacking_while, 0.0)


def test_a_stack_in_a_while_loop_costs_only_itself():
    """By default the metric is left out with one warning; the result and the other metrics are there."""
    with pytest.warns(trackway.TrackwayWarning, match="deep") as caught:
        out, logs = run(stacking_while, 0.0)
    assert len(own(caught)) == 1
    assert out == 3.0
    assert_logs(logs, kept=1.0)


def test_while_in_scan():
    """A while loop with constants of its own may stand in a scan."""

    def f(x, k):
        def body(c, t):
            c = lax.while_loop(lambda s: s < t, lambda s: tap(s + k, {"s": s * k}), c)
            trackway.log({"c": c}, reduce="stack")
            return c, None

        return lax.scan(body, x, jnp.array([1.0, 1.0, 3.0]))

    assert_logs(run(f, 0.0, 1.0)[1], s=1.0, c=[1.0, 1.0, 3.0])


def test_scan_in_while():
    """A scan may stand in a while loop."""

    def body(c):
        return lax.scan(lambda c, t: tap((c + t, None), {"c": c}, reduce="sum"), c, jnp.ones(2))[0]

    out, logs = run(lambda x: lax.while_loop(lambda c: c < 5, body, x), 0.0)
    assert out == 6.0
    assert_logs(logs, c=15.0)


def test_associative_scan_and_vectorize():
    """Functions that are built of vmap, slices and calls are logged as they run."""

    def add(a, b):
        trackway.log({"pairs": a.size}, reduce="sum")
        return a + b

    out, logs = run(lambda x: lax.associative_scan(add, x), jnp.arange(4.0))
    assert out.tolist() == [0.0, 1.0, 3.0, 6.0]
    assert_logs(logs, pairs=4)
    assert_logs(run(jnp.vectorize(lambda v: tap(v, {"v": v})), jnp.arange(4.0))[1], v=1.5)


def test_a_loop_without_log_is_left_alone():
    """A scan without a log beside one with a log keeps its equation."""

    def quiet(x):
        return lax.scan(lambda c, t: (c * t, c), x, jnp.ones(3))

    def f(x):
        trackway.log({"x": x})
        return quiet(x)

    def scan_of(function):
        equations = jax.make_jaxpr(function)(1.0).eqns
        if [eqn.primitive.name for eqn in equations] == ["closed_call"]:
            equations = equations[0].params["call_jaxpr"].eqns
        [scan] = [eqn for eqn in equations if eqn.primitive.name == "scan"]
        return str(scan.params["jaxpr"]), scan.params["num_carry"], len(scan.outvars)

    assert scan_of(lambda x: trackway.capture_logging(f)(x)[0]) == scan_of(quiet)
