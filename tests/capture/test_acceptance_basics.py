"""Values logged in compiled code: what one call, several calls and an inner jit make of them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, run, tap

import trackway
from trackway import capture


def test_a_value_comes_back_beside_the_result():
    """What a compiled function logs is returned next to its result, which stays as it is."""
    out, logs = run(lambda x: tap(2 * x, {"a": x}), 3.0)
    assert out == 6.0
    assert_logs(logs, a=3.0)


def test_without_a_log_there_are_no_logs():
    """A function that logs nothing gives its result and an empty set of logs."""
    out, logs = run(lambda x: x * 2, 3.0)
    assert out == 6.0
    assert logs == {}


def test_a_value_that_nothing_else_uses_is_logged():
    """A metric whose computation feeds no output is computed all the same."""

    def f(x):
        trackway.log({"n": jnp.sum(x**2)})
        return x

    assert_logs(run(f, jnp.arange(3.0))[1], n=5.0)


def test_jit_log_is_log():
    """`jit_log` captures as `log` does."""

    def f(x):
        trackway.jit_log({"a": x})
        trackway.jit_log({"a": x + 2}, reduce="mean")
        return x

    assert_logs(run(f, 1.0)[1], a=2.0)


@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
def test_one_name_logged_three_times_is_reduced(jit):
    """Several samples of one name are combined as their reduction says."""

    def f(x):
        for k in range(3):
            trackway.log({"m": x + k})
            trackway.log({"s": x + k}, reduce="sum")
            trackway.log({"l": x + k}, reduce="last")
            trackway.log({"X": x - k}, reduce="max")
            trackway.log({"i": x - k}, reduce="min")
        return x

    assert_logs(run(f, 1.0, jit=jit)[1], m=2.0, s=6.0, l=3.0, X=1.0, i=-1.0)


def test_each_name_may_have_its_own_reduction():
    """A mapping of names to reductions serves several metrics of one call; the others take the mean."""

    def f(x):
        for k in range(2):
            trackway.log({"a": x + k, "b": x + k, "c": x + k}, reduce={"a": "sum", "b": "max"})
        return x

    assert_logs(run(f, 1.0)[1], a=3.0, b=2.0, c=1.5)


def test_one_name_with_two_reductions_is_an_error():
    """A metric logged as a mean and as a sum has no meaning; the error names it."""

    def f(x):
        trackway.log({"m": x})
        trackway.log({"m": x}, reduce="sum")
        return x

    with capture.settings(on_error="raise"), pytest.raises(capture.CaptureError, match="'m'"):
        run(f, 1.0)


def test_a_cached_inner_jit_is_counted_at_every_call():
    """One traced inner function gives a sample for each of its calls, and shares its names with the caller."""

    @jax.jit
    def g(x):
        trackway.log({"g": x})
        return x + 1

    assert_logs(run(lambda x: g(g(g(x))), 1.0)[1], g=2.0)

    def f(x):
        trackway.log({"g": 10.0 * x})
        return g(x)

    assert_logs(run(f, 1.0)[1], g=5.5)


def test_an_inner_jit_may_donate_and_have_static_arguments():
    """The options of an inner jit stay in force; a static argument may choose the metric."""

    @functools.partial(jax.jit, static_argnums=1, donate_argnums=0)
    def g(x, n):
        trackway.log({f"g{n}": x})
        return x + n

    out, logs = run(lambda x: g(g(x, 1), 2), jnp.float32(1.0))
    assert out == 4.0
    assert_logs(logs, g1=1.0, g2=2.0)


def test_types_of_numbers():
    """Every type of number has its reduction: means are floats, sums and extremes of integers stay integers."""

    def f(x):
        trackway.log({"bf": x.astype(jnp.bfloat16), "i": jnp.int32(3), "b": x > 0, "weak": 2.5, "nan": x * jnp.nan})
        trackway.log({"int_sum": jnp.int32(7), "bool_sum": x > 0}, reduce="sum")
        trackway.log({"int_max": jnp.int8(5), "bool_max": x > 0, "inf": x / 0}, reduce="max")
        trackway.log({"int_last": 3, "complex": jnp.complex64(1j)}, reduce="last")
        return x

    logs = run(f, 1.0)[1]
    assert_logs(
        logs,
        {"bf": 1.0, "i": 3.0, "b": 1.0, "weak": 2.5, "nan": np.nan, "int_sum": 7, "bool_sum": 1, "int_max": 5},
        bool_max=True,
        inf=np.inf,
        int_last=3,
        complex=1j,
    )
    whole = {name for name in logs if np.asarray(logs[name]).dtype.kind == "i"}
    assert whole == {"int_sum", "bool_sum", "int_max", "int_last"}


def test_vectors_are_reduced_entry_by_entry():
    """A metric may have any shape; means, sums and extremes keep it."""

    def body(carry, row):
        trackway.log({"v": row})
        trackway.log({"vs": row}, reduce="sum")
        trackway.log({"vm": row}, reduce="max")
        return carry, None

    rows = jnp.array([[0.5, 1.5], [3.5, 1.0]])
    assert_logs(run(lambda x: jax.lax.scan(body, 0.0, x), rows)[1], v=[2.0, 1.25], vs=[4.0, 2.5], vm=[3.5, 1.5])


def test_a_typed_random_key_may_stand_in_the_carry():
    """Keys of either kind pass through loops, gradients and rematerialization that log."""

    def f(key):
        def body(key, _):
            key, sub = jax.random.split(key)
            trackway.log({"u": jax.random.uniform(sub)})
            return key, None

        return jax.lax.scan(body, key, None, length=3)[0]

    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        keys = [jax.random.split(key)]
        for _ in range(2):
            keys.append(jax.random.split(keys[-1][0]))
        assert_logs(run(f, key)[1], u=np.mean([jax.random.uniform(sub) for _, sub in keys]))

    def differentiated(key):
        def h(x):
            trackway.log({"x": x})
            return jnp.sum(jax.random.normal(key, (3,)) * x)

        return jax.grad(jax.checkpoint(h))(1.0)

    assert_logs(run(differentiated, jax.random.key(0))[1], x=1.0)


def test_arguments_that_are_no_arrays_pass_through():
    """Text, functions and Python flags among the arguments and results stay what they are."""

    def f(x: Any, options: dict[str, Any]):
        if options["flag"]:
            trackway.log({"x": options["fn"](x)})
        return {"y": x * 2, "name": options["name"]}

    out, logs = trackway.capture_logging(f)(jnp.float32(3), {"flag": True, "fn": jnp.sqrt, "name": "n"})
    assert out == {"y": 6.0, "name": "n"}
    assert_logs(logs.to_host(), x=np.sqrt(3.0))


def test_keyword_arguments_and_nested_results():
    """Keyword arguments and results of any structure are those of the function."""

    def f(x, *, y=1.0):
        trackway.log({"y": y})
        return {"a": (x, [x + y])}, None

    (out, nothing), logs = jax.jit(trackway.capture_logging(f))(1.0, y=2.0)
    assert out == {"a": (1.0, [3.0])}
    assert nothing is None
    assert_logs(logs.to_host(), y=2.0)


def test_a_function_may_be_captured_and_not_captured():
    """The same function serves a plain jit and a captured one, in either order."""

    def f(x):
        trackway.log({"x": x})
        return x + 1

    with capture.settings(uncaptured="drop"):
        plain = jax.jit(f)
        assert plain(1.0) == 2.0
        assert_logs(run(plain, 1.0)[1], x=1.0)
        assert plain(1.0) == 2.0


def test_capture_inside_a_capture_takes_what_it_sees():
    """An inner `capture_logging` keeps its logs for its caller; the outer one gets the rest."""

    def f(x):
        y, inner = trackway.capture_logging(lambda v: tap(v + 1, {"inner": v}))(x)
        trackway.log({"outer": inner["inner"] * 10})
        return y

    out, logs = run(f, 1.0)
    assert out == 2.0
    assert_logs(logs, outer=10.0)


@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_mistakes_of_the_caller_raise_at_the_call(on_error):
    """An unknown reduction, `commit=True`, a payload that is no mapping and a step in fractions always raise."""

    def traced(metrics, **options):
        return lambda x: run(lambda v: tap(v, metrics(v), **options), x)

    wrong = [
        (traced(lambda x: {"x": x}, reduce="median"), ValueError, "median"),
        (traced(lambda x: {"x": x}, reduce={"x": "median"}), ValueError, "median"),
        (traced(lambda x: {"x": x}, commit=True), ValueError, "commit"),
        (traced(lambda x: [x]), TypeError, "mapping"),
        (traced(lambda x: {"x": x}, step=0.5), ValueError, "step"),
    ]
    with capture.settings(on_error=on_error):
        for call, error, match in wrong:
            with pytest.raises(error, match=match):
                call(1.0)
        with pytest.raises(ValueError, match="step"):
            run(lambda x: tap(x, {"x": x}, step=x), 1.0)
