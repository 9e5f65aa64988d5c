"""What capturing leaves alone: imports, other programs, the compiled program itself, and its cache."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from captured import tap
from jax import lax

import trackway

WS = np.stack([np.eye(2, dtype=np.float32) * k for k in (1.0, 2.0, 3.0)])
X = np.ones((1, 2), np.float32)


def layers(ws, x, *, log):
    """A scan over checkpointed layers; *log* gets the mean of each layer's output."""

    @jax.checkpoint
    def layer(h, w):
        h = jnp.tanh(h @ w)
        return h, log(jnp.mean(h))

    h, logged = lax.scan(layer, x, ws)
    return jnp.sum(h), logged


def instructions(compiled):
    """Count the operations of a compiled program."""
    return Counter(re.findall(r"= \S+ ([a-z][\w-]*)\(", compiled.as_text()))


def in_subprocess(program, **env):
    """Run *program* in a fresh interpreter and return what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_the_program_is_that_of_metrics_threaded_by_hand():
    """The optimized program has the operations of one that returns the metrics by hand, and no callback."""

    def logged(ws, x):
        return layers(ws, x, log=lambda v: trackway.log({"act": v}, reduce="stack"))[0]

    captured = jax.jit(trackway.capture_logging(jax.value_and_grad(logged))).lower(WS, X).compile()
    by_hand = jax.jit(jax.value_and_grad(lambda ws, x: layers(ws, x, log=lambda v: v), has_aux=True))
    assert instructions(captured) == instructions(by_hand.lower(WS, X).compile())
    assert sum(instructions(captured).values()) > 10
    assert "callback" not in captured.as_text()


def test_many_metrics_cost_no_operation_more_than_by_hand():
    """Scalars of a straight program are plain outputs."""

    def by_hand(x):
        y = jnp.tanh(x @ x)
        return y, {"mean": y.mean(), "max": y.max(), "norm": jnp.linalg.norm(y)}

    def logged(x):
        y, metrics = by_hand(x)
        trackway.log(metrics)
        return y

    x = np.ones((8, 8), np.float32)
    captured = jax.jit(trackway.capture_logging(logged)).lower(x).compile()
    assert instructions(captured) == instructions(jax.jit(by_hand).lower(x).compile())


def test_logs_that_are_not_used_are_not_computed():
    """Where a caller drops the logs, the compiler drops their cost."""

    def logged(x):
        trackway.log({"svd": jnp.linalg.svd(x)[1].max()})
        return x * 2

    x = np.ones((8, 8), np.float32)
    dropped = jax.jit(lambda x: trackway.capture_logging(logged)(x)[0]).lower(x).compile()
    assert instructions(dropped) == instructions(jax.jit(lambda x: x * 2).lower(x).compile())


def test_a_function_without_a_log_keeps_its_program():
    """Captured, a function that logs nothing has the same equations, and its inner functions are the same objects."""
    inner = jax.jit(lambda x: jnp.sin(x) * 2)

    def f(x):
        y = lax.scan(lambda c, t: (inner(c) * t, None), x, jnp.ones(3))[0]
        return lax.cond(y > 0, lambda y: inner(y), lambda y: y, inner(y))  # noqa: PLW0108

    plain = jax.make_jaxpr(f)(1.0)
    captured = jax.make_jaxpr(lambda x: trackway.capture_logging(f)(x)[0])(1.0)
    assert str(captured) == str(plain)

    def calls(jaxpr):
        return [eqn.params["jaxpr"] for eqn in jaxpr.eqns if eqn.primitive.name in ("jit", "pjit")]

    for mine, theirs in zip(calls(captured), calls(plain), strict=True):
        assert mine is theirs
    assert len(calls(plain)) == 1


def test_capturing_changes_no_traced_function():
    """A cached inner function has the same equations before and after it was captured."""
    inner = jax.jit(lambda x: tap(x + 1, {"x": x}))

    def equations():
        return str(jax.make_jaxpr(inner)(1.0))

    before = equations()
    jax.jit(trackway.capture_logging(lambda x: inner(inner(x))))(1.0)
    assert equations() == before


def test_importing_trackway_imports_no_jax_and_patches_nothing():
    """After the import the control flow of JAX binds by its own class, and JAX was not even loaded."""
    printed = in_subprocess("""
        import sys
        import trackway, trackway.capture, trackway.capture as capture
        with capture.settings(on_error="raise"):
            capture.losses(), capture.CaptureError
        print("jax" in sys.modules)
        import jax
        from jax.extend.core.primitives import cond_p, scan_p, while_p
        print(["bind" not in vars(p) for p in (scan_p, while_p, cond_p)] == [True] * 3)
    """)
    assert printed == ["False", "True"]


def test_the_host_halves_need_no_jax():
    """Where JAX is not installed, scopes, silence, steps and `jit_log` serve on the host."""
    printed = in_subprocess("""
        import sys
        sys.modules["jax"] = None
        import trackway
        from trackway.testing import RecordingTracker
        with trackway.current_tracker(RecordingTracker()) as tracker:
            with trackway.scope("a"), trackway.at_step(3):
                trackway.log({"x": 1})
                trackway.jit_log({"y": 2})
            with trackway.mute():
                trackway.log({"z": 3})
        print(*sorted(name for step, row in tracker.rows for name in row if step == 3))
    """)
    assert printed == ["a/x", "a/y"]


def test_programs_without_a_log_are_the_same_once_capturing_is_in_use():
    """What JAX traces and lowers for a program that does not log is the same before and after the first capture."""
    printed = in_subprocess("""
        import jax, jax.numpy as jnp
        from jax import lax

        def program(x):
            c = lax.scan(lambda c, t: (jnp.sin(c) * t, c), x, jnp.ones(3))[0]
            c = lax.while_loop(lambda c: c < 3, lambda c: c + 1, c)
            return lax.cond(c > 0, lambda c: c * 2, lambda c: c, c)

        def texts():
            jax.clear_caches()
            scan = jax.grad(lambda x: lax.scan(lambda c, t: (jnp.sin(c) * t, c), x, jnp.ones(3))[0])
            checkpoint = jax.vmap(jax.grad(jax.checkpoint(scan)))
            return [
                str(jax.make_jaxpr(program)(1.0)),
                jax.jit(program).lower(1.0).as_text(),
                jax.jit(jax.vmap(program)).lower(jnp.ones(2)).as_text(),
                jax.jit(checkpoint).lower(jnp.ones(2)).as_text(),
            ]

        before = texts()
        import trackway
        def logged(x):
            return lax.scan(lambda c, t: (c + t, trackway.log({"c": c})), x, jnp.ones(3))[0]
        trackway.jit(jax.grad(logged), enabled=False)(1.0)
        print(float(jax.jit(trackway.capture_logging(logged))(1.0)[1].to_host()["c"]))
        print(texts() == before)
    """)
    assert printed == ["2.0", "True"]


def test_the_persistent_cache_holds_captured_programs(tmp_path):
    """A captured step is written to the compilation cache on disk; one with a host callback cannot be."""
    printed = in_subprocess(
        """
        import os
        import jax, numpy as np
        import trackway
        from trackway.testing import RecordingTracker

        def entries():
            return sum(name.endswith("cache") for name in os.listdir(os.environ["JAX_COMPILATION_CACHE_DIR"]))

        def f(x):
            trackway.log({"x": x.sum()})
            return x * 2

        x = np.ones(3, np.float32)
        with trackway.current_tracker(RecordingTracker()) as tracker:
            trackway.jit(f)(x)
            captured = entries()
            jax.jit(f)(x)
            jax.effects_barrier()
        print(captured > 0, entries() == captured, len(tracker.rows))
        """,
        JAX_COMPILATION_CACHE_DIR=str(tmp_path),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
        JAX_ENABLE_COMPILATION_CACHE="true",
    )
    assert printed == ["True", "True", "2"]
