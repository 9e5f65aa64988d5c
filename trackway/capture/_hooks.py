"""Control flow that logs is made into control flow that returns metrics, before JAX does anything else with it.

`scan`, `while_loop` and `cond` are rewritten where they are bound: what differentiates, batches or rematerializes them
then sees pure functions, whose metrics are logged again in the trace around. Later it would be too late: `vmap` of a
`cond` runs both branches for every lane, and differentiation moves equations out of loops.

The hooks are set when something is logged in a trace for the first time. What holds no log passes by a look at its
effects.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp

from trackway._locks import new_lock
from trackway.capture import _jaxcompat as compat
from trackway.capture._primitive import Metric, bind, has_log
from trackway.capture._rewrite import stripped_params
from trackway.capture._rules import branches, calls, loops, whiles
from trackway.capture._settings import failed
from trackway.errors import CaptureError, FatalTrackerError, TrackwayWarning

__all__ = ["install"]

Share = tuple[Metric, list[Any]]
Bind = Callable[..., Any]


def _log(shares: Sequence[Share]) -> None:
    bind(tuple(metric for metric, _ in shares), [_array(x) for _, share in shares for x in share])


def _array(x: Any) -> Any:
    return jnp.asarray(x.val) if isinstance(x, compat.Literal) else x


def _scan(original: Bind, *args: Any, **params: Any) -> Any:
    if not has_log(params["jaxpr"].effects):
        return original(*args, **params)
    plan = loops.scan_plan(params)
    carried = params["num_carry"]
    split = params["num_consts"] + carried
    start = plan.accumulators.start()
    outputs = original(*args[:split], *start, *args[split:], **loops.scan_params(plan, params))
    after = carried + len(start)
    stacked = len(outputs) - len(plan.outputs)
    _log(plan.shares(outputs[carried:after], outputs[stacked:], args[:split], params))
    return [*outputs[:carried], *outputs[after:stacked]]


def _while(original: Bind, *args: Any, **params: Any) -> Any:
    if not (has_log(params["body_jaxpr"].effects) or has_log(params["cond_jaxpr"].effects)):
        return original(*args, **params)
    outputs, shares = whiles.run(original, args, params)
    _log(shares)
    return outputs


def _cond(original: Bind, *args: Any, **params: Any) -> Any:
    if not any(has_log(branch.effects) for branch in params["branches"]):
        return original(*args, **params)
    results = len(params["branches"][0].jaxpr.outvars)
    predicate = compat.varying_axes(compat.type_of(args[0]))
    merged = branches.merged_branches(params["branches"], predicate)
    outputs = original(*args, **dict(params, branches=merged.branches))
    _log(merged.shares(outputs[results:], args[1:]))
    return outputs[:results]


_deferring = threading.local()


@contextlib.contextmanager
def calls_too() -> Iterator[None]:
    """Have calls of compiled functions on this thread return their metrics to the trace around, in the block."""
    before = getattr(_deferring, "on", False)
    _deferring.on = True
    try:
        yield
    finally:
        _deferring.on = before


def _jit(original: Bind, *args: Any, **params: Any) -> Any:
    if not getattr(_deferring, "on", False) or not has_log(params["jaxpr"].effects):
        return original(*args, **params)
    extra = len(calls.returning(params["jaxpr"])[2].kept)
    return returning_call(params["jaxpr"], lambda new: original(*args, **calls.jit_params(params, new, extra)), args)


def returning_call(jaxpr: Any, call: Callable[[Any], Any], args: Sequence[Any] = ()) -> Any:
    """Make a call with *jaxpr* rewritten, and log what it returns of metrics."""
    new, group, crossing = calls.returning(jaxpr)
    outputs = call(new)
    results = len(jaxpr.jaxpr.outvars)
    bind(group, [_array(x) for x in crossing.outer(outputs[results:], args)])
    return outputs[:results]


def _guarded(name: str, hook: Callable[..., Any], original: Bind) -> Bind:
    """Return *hook*, after a failure of which the loop or branch runs without its logs: training comes first."""

    def bind(*args: Any, **params: Any) -> Any:
        try:
            return hook(original, *args, **params)
        except (CaptureError, FatalTrackerError, TrackwayWarning):
            raise
        except Exception as error:
            outputs = original(*args, **stripped_params(params))  # raises again what is the program's own fault
            failed(f"a {name}", error)
            return outputs

    return bind


_lock = new_lock()


@functools.cache
def _installed() -> None:
    primitives = compat.control_flow()
    for name, hook in {"scan": _scan, "while": _while, "cond": _cond, "jit": _jit}.items():
        primitive = primitives.get(name)
        if primitive is not None:
            primitive.bind = _guarded(name, hook, primitive.bind)
    compat.hook_hidden_remat(returning_call, has_log)
    compat.hook_hoisting(has_log)


def install() -> None:
    """Set the hooks, once."""
    with _lock:
        _installed()
