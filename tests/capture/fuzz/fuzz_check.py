"""Runs a program both ways, compares, and makes what fails smaller."""

from __future__ import annotations

import dataclasses
import time
import traceback
import types
from typing import Any

import jax
import numpy as np
from fuzz_build import arguments, build
from fuzz_generate import generate
from fuzz_nodes import Program, simpler
from fuzz_oracle import AmbiguousError, samples
from fuzz_reduce import dtype_kinds, expected

QUICK = {"xla_backend_optimization_level": 0}  # what is compiled runs once
TOLERANCE = {"rtol": 5e-5, "atol": 2e-5}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a program went: "right", "wrong", "crash", "illegal" (not legal JAX) or "ambiguous"; *detail* says what."""

    kind: str
    detail: str = ""
    exact: bool = True  # outputs are the same bits as without logs
    metrics: int = 0


def library() -> Any:
    """Return what programs call: the verbs of trackway."""
    import trackway
    from trackway import capture

    names = ("log", "scope", "mute", "watch_grad", "capture_logging")
    return types.SimpleNamespace(settings=capture.settings, **{name: getattr(trackway, name) for name in names})


def captured(program: Program, api: Any, x: Any, k: Any) -> tuple[Any, Any]:
    """Run *program* with its logs; return its output and its logs."""
    f = build(program, api)
    if program.delivery == "capture_jit":
        return api.capture_logging(jax.jit(f))(x, k)
    if program.delivery == "capture":
        return api.capture_logging(f)(x, k)
    return jax.jit(api.capture_logging(f), compiler_options=QUICK)(x, k)


def check(program: Program, api: Any, *, outputs: bool = True) -> Outcome:
    """Compare *program* with the oracle and, for *outputs*, with itself without logs."""
    try:
        wanted, rows = expected(samples(program))
    except AmbiguousError:
        return Outcome("ambiguous")
    x, k = arguments(program)
    plain: Any = None
    if outputs and (plain := _plain(program, x, k)) is None:
        return Outcome("illegal", _last_line())
    try:
        with api.settings(on_error="raise"):
            out, logs = captured(program, api, x, k)
        got, got_rows = logs.to_host(), logs.rows() if rows else []
    except Exception:
        if not outputs and _plain(program, x, k) is None:
            return Outcome("illegal")
        return Outcome("crash", traceback.format_exc(limit=-3))
    faults = compare(wanted, {name: value for name, value in got.items() if "step_" not in name})
    faults += compare_dtypes(program, got) + compare_rows(rows, got_rows)
    exact, apart = (True, []) if plain is None else same(plain, out)
    return Outcome("wrong" if faults or apart else "right", "\n".join(faults + apart), exact, len(wanted) + len(rows))


def _plain(program: Program, x: Any, k: Any) -> Any:
    """Return the output of *program* without logs; None where JAX refuses it."""
    f = build(program, None)
    try:
        return f(x, k) if program.delivery == "capture" else jax.jit(f, compiler_options=QUICK)(x, k)
    except Exception:
        _failed.append(traceback.format_exc(limit=-1))
        return None


_failed: list[str] = []


def _last_line() -> str:
    return _failed.pop().strip().splitlines()[-1]


def compare(wanted: dict[str, Any], got: dict[str, Any], where: str = "") -> list[str]:
    """Say how two mappings of metrics differ."""
    faults = [f"{where}{name} is missing, expected {wanted[name]}" for name in wanted.keys() - got.keys()]
    faults += [f"{where}{name} should be absent, got {got[name]}" for name in got.keys() - wanted.keys()]
    for name in sorted(wanted.keys() & got.keys()):
        if not _close(wanted[name], got[name]):
            faults.append(f"{where}{name} is {got[name]!r}, expected {wanted[name]}")
    return faults


def _close(wanted: Any, got: Any) -> bool:
    if np.shape(wanted) != np.shape(got):
        return False
    if not np.array_equal(np.ma.getmaskarray(wanted), np.ma.getmaskarray(got)):
        return False
    filled = (np.ma.filled(np.ma.asarray(value).astype(np.float64), 0.0) for value in (wanted, got))
    return bool(np.allclose(*filled, **TOLERANCE))


def compare_dtypes(program: Program, got: dict[str, Any]) -> list[str]:
    """Say which metrics are no integers though they should be, or the reverse."""
    kinds = dtype_kinds(program.body)
    found = {name: np.asarray(value).dtype for name, value in got.items()}
    return [
        f"{name} has dtype {dtype}, expected kind {kinds[base]}"
        for name, dtype in found.items()
        if (base := name.rpartition("/")[2]) in kinds and dtype.kind not in kinds[base]
    ]


def compare_rows(wanted: dict[int, dict[str, Any]], got: list[tuple[Any, dict[str, Any]]]) -> list[str]:
    """Say how rows by step differ."""
    merged: dict[Any, dict[str, Any]] = {}
    for step, row in got:
        named = {name: value for name, value in flat(row).items() if "step_" in name}
        if named:
            merged.setdefault(None if step is None else int(step), {}).update(named)
    faults = []
    for step in wanted.keys() | merged.keys():
        faults += compare(wanted.get(step, {}), merged.get(step, {}), f"step {step}: ")
    return faults


def flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a row with the names of nested mappings joined by "/"."""
    result: dict[str, Any] = {}
    for name, value in row.items():
        result |= flat(value, f"{prefix}{name}/") if isinstance(value, dict) else {prefix + name: value}
    return result


def same(plain: Any, out: Any) -> tuple[bool, list[str]]:
    """Compare outputs: the same bits, and how they differ by more than rounding."""
    left, right = jax.tree.leaves(plain), jax.tree.leaves(out)
    if len(left) != len(right):
        return False, [f"{len(right)} outputs, without logs {len(left)}"]
    exact, faults = True, []
    for a, b in zip(map(np.asarray, left), map(np.asarray, right), strict=True):
        exact &= a.dtype == b.dtype and np.array_equal(a, b)
        if a.dtype != b.dtype or not np.allclose(a, b, rtol=1e-5, atol=1e-6):
            faults.append(f"output {b!r}, without logs {a!r}")
    return exact, faults


def shrink(program: Program, api: Any, outcome: Outcome, *, seconds: float = 60.0) -> tuple[Program, Outcome]:
    """Return a smaller program that fails in the same way."""
    end = time.monotonic() + seconds
    traced = outcome.kind == "crash" and _gist(_trace(program, api)) == _gist(outcome)
    found = True
    while found and time.monotonic() < end:
        found = False
        for variant in simpler(program):
            if time.monotonic() > end:
                break
            try:
                smaller = _trace(variant, api) if traced else check(variant, api, outputs="output" in outcome.detail)
            except Exception:
                continue  # the variant is no program
            if smaller.kind == outcome.kind and _gist(smaller) == _gist(outcome):
                program, outcome, found = variant, smaller, True
                break
    return program, outcome


def _trace(program: Program, api: Any) -> Outcome:
    """Say whether tracing *program* crashes, which takes a tenth of the time of running it."""
    x, k = arguments(program)
    try:
        with api.settings(on_error="raise"):
            jax.eval_shape(api.capture_logging(build(program, api)), x, k)
    except Exception:
        return Outcome("crash", traceback.format_exc(limit=-3))
    return Outcome("right")


def _gist(outcome: Outcome) -> str:
    """Name the failure without its numbers: another failure is not what is being shrunk."""
    last = (outcome.detail.strip().splitlines() or [""])[-1]
    return last.partition(":")[0] if outcome.kind == "crash" else ""


def check_seed(seed: int, api: Any, *, shard: bool, outputs: bool = True) -> tuple[Program, Outcome]:
    """Make the program of *seed* and check it."""
    program = generate(seed, shard=shard, devices=jax.device_count())
    return program, check(program, api, outputs=outputs)
