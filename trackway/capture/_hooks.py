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
from typing import Any, TypeVar

import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from trackway._locks import new_lock
from trackway.capture import _jaxcompat as compat
from trackway.capture._combine import Share, merged
from trackway.capture._primitive import bind, has_log, parts
from trackway.capture._rewrite import stripped_params
from trackway.capture._rules import branches, calls, loops, whiles
from trackway.capture._settings import failed
from trackway.errors import FatalTrackerError, TrackwayWarning

__all__ = ["install"]

Bind = Callable[..., Any]
T = TypeVar("T")


def _log(what: str, shares: Callable[[], Sequence[Share]]) -> None:
    """Log what the loop or branch returned, in the trace around."""

    def log() -> None:
        found = shares()
        bind(tuple(metric for metric, _ in found), [_array(x) for _, share in found for x in share])

    _attempt(what, log)


def _attempt(what: str, function: Callable[[], T]) -> T | None:
    """Return what *function* returns; None after a failure of ours, which is told: training comes first."""
    try:
        with compat.usual_promotion():
            return function()
    except (FatalTrackerError, TrackwayWarning):
        raise
    except Exception as error:
        failed(what, error)
        return None


def _array(x: Any) -> Any:
    return jnp.asarray(x.val) if isinstance(x, compat.Literal) else x


# The program's own binding is called once and outside of `_attempt`: its errors are the program's.


def _scan(original: Bind, *args: Any, **params: Any) -> Any:
    if not has_log(params["jaxpr"].effects):
        return original(*args, **params)
    plan = _attempt("a scan", lambda: loops.scan_plan(params))
    start = None if plan is None else _attempt("a scan", plan.accumulators.start)
    if plan is None or start is None:
        return original(*args, **stripped_params(params))
    carried = params["num_carry"]
    split = params["num_consts"] + carried
    outputs = original(*args[:split], *start, *args[split:], **loops.scan_params(plan, params))
    after = carried + len(start)
    stacked = len(outputs) - len(plan.outputs)
    _log("a scan", lambda: plan.shares(outputs[carried:after], outputs[stacked:], args[:split], params))
    return [*outputs[:carried], *outputs[after:stacked]]


def _while(original: Bind, *args: Any, **params: Any) -> Any:
    if not (has_log(params["body_jaxpr"].effects) or has_log(params["cond_jaxpr"].effects)):
        return original(*args, **params)
    plan = _attempt("a while_loop", lambda: whiles.while_plan(params))
    start = None if plan is None else _attempt("a while_loop", plan.accumulators.start)
    if plan is None or start is None:
        return original(*args, **stripped_params(params))
    conditions = params["cond_nconsts"]
    split = conditions + params["body_nconsts"]
    constants, carry = args[:split], args[split:]
    looked = [] if plan.first is None else jaxpr_as_fun(plan.first)(*constants[:conditions], *carry)
    outputs = original(*constants, *looked[:1], *start, *carry, **plan.params)
    before = len(looked[:1])
    after = before + len(start)
    inputs = [*constants[conditions:], *carry]
    _log(
        "a while_loop",
        # combined here, for `vmap` takes lane after lane
        lambda: merged([*parts(plan.first_group, looked[1:]), *plan.shares(outputs[before:after], inputs)]),
    )
    return outputs[after:]


def _cond(original: Bind, *args: Any, **params: Any) -> Any:
    if not any(has_log(branch.effects) for branch in params["branches"]):
        return original(*args, **params)
    predicate = compat.varying_axes(compat.type_of(args[0]))
    merged = _attempt("a cond", lambda: branches.merged_branches(params["branches"], predicate))
    if merged is None:
        return original(*args, **stripped_params(params))
    results = len(params["branches"][0].jaxpr.outvars)
    outputs = original(*args, **dict(params, branches=merged.branches))
    _log("a cond", lambda: merged.shares(outputs[results:], args[1:]))
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
    returning = _attempt("a jit", lambda: calls.returning(params["jaxpr"]))
    if returning is None:
        return original(*args, **stripped_params(params))
    new, group, crossing = returning
    outputs = original(*args, **calls.jit_params(params, new, len(crossing.kept)))
    results = len(params["jaxpr"].jaxpr.outvars)
    _log("a jit", lambda: parts(group, crossing.outer(outputs[results:], args)))
    return outputs[:results]


def _hidden_remat(jaxpr: Any, call: Callable[[Any], Any]) -> Any:
    """Make a call with *jaxpr* rewritten, and log what it returns of metrics."""
    new, group, crossing = calls.returning(jaxpr, forward=False)
    outputs = call(new)
    results = len(jaxpr.jaxpr.outvars)
    _log("a checkpoint", lambda: parts(group, crossing.outer(outputs[results:])))
    return outputs[:results]


_lock = new_lock()


@functools.cache
def _installed() -> None:
    primitives = compat.control_flow()
    for name, hook in {"scan": _scan, "while": _while, "cond": _cond, "jit": _jit}.items():
        primitive = primitives.get(name)
        if primitive is not None:
            primitive.bind = functools.partial(hook, primitive.bind)
    compat.hook_hidden_remat(_hidden_remat, has_log)
    compat.hook_hoisting(has_log)


def install() -> None:
    """Set the hooks, once."""
    with _lock:
        _installed()
