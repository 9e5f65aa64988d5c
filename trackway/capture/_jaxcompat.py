"""Every JAX name that is not public, and nothing else, so that a new JAX release has one place to break.

Each private name is looked up once, guarded, and has a fallback that costs a feature rather than the program: without
the name stack, scopes in compiled code lose their names; without the hoisting hook, logs that only a custom rule makes
are counted once in a loop; without the primitive that evaluates a jaxpr, tracing takes longer. What has no fallback
raises `ImportError` here, and nothing is captured (`trackway.log` then says so once and drops what it is given in
compiled code).
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as public_core
from jax.extend import linear_util
from jax.interpreters import mlir, partial_eval

__all__ = [
    "ClosedJaxpr",
    "Effect",
    "Jaxpr",
    "Literal",
    "Primitive",
    "Var",
    "allow_effect",
    "closed",
    "constant",
    "context_of",
    "control_flow",
    "current_scopes",
    "current_trace",
    "effectful_equations",
    "evaluate",
    "fill",
    "hook_hidden_remat",
    "hook_hoisting",
    "inside_shard_map",
    "is_explicitly_sharded",
    "is_number",
    "manual_axes",
    "new_equation",
    "no_layout",
    "register_lowering",
    "same_on_all_axes",
    "scope_names",
    "to_varying",
    "trace_flat",
    "tracing",
    "type_of",
    "unmapped",
    "unreplicated",
    "unspecified_sharding",
    "usual_promotion",
    "varying_axes",
    "within",
]


def _private(module: str, *names: str) -> Any:
    """Return an attribute of a private module of JAX, or None."""
    try:
        value = __import__(f"jax._src.{module}", fromlist=["_"])
        for name in names:
            value = getattr(value, name)
    except (ImportError, AttributeError):
        return None
    return value


def _core(name: str) -> Any:
    """Return a name of `jax.extend.core`, which older versions keep elsewhere."""
    value = getattr(public_core, name, None) or _private("core", name) or _private("effects", name)
    if value is None:
        raise ImportError(f"trackway: this version of JAX ({jax.__version__}) has no {name}; trackway needs JAX 0.8")
    return value


ClosedJaxpr: Any = _core("ClosedJaxpr")
Effect: Any = _core("Effect")
Jaxpr: Any = _core("Jaxpr")
Literal: Any = _core("Literal")
Primitive: Any = _core("Primitive")
Var: Any = _core("Var")
new_equation: Callable[..., Any] = _core("new_jaxpr_eqn")
unmapped: Callable[..., Any] = _core("unmapped_aval")
_DebugInfo: Any = _core("DebugInfo")

unspecified_sharding: Any = _private("sharding_impls", "UNSPECIFIED")
no_layout: Any = None
_evaluation: Any = _private("lax.eval_jaxpr", "eval_jaxpr_p")
_state_is_clean: Callable[[], bool] | None = _private("core", "trace_state_clean")
_trace, _axes = _private("core", "trace_state_strong_ref"), _private("core", "axis_env_state")
_no_trace, _no_axes = _private("core", "eval_trace"), _private("core", "top_axis_env")
_state_is_known = hasattr(_trace, "value") and hasattr(_axes, "value") and None not in (_no_trace, _no_axes)


# --- what is being traced ---


def tracing() -> bool:
    """Return whether a JAX transformation is tracing on this thread.

    `jax.core.trace_state_clean` was public until it was deprecated without a successor. Where it is missing, a trace
    is recognised by what `jax.numpy` makes of a constant. Every call of a compiled function asks, so where the state
    that it looks at is known, it is looked at here: that takes a fifth of the time.
    """
    if _state_is_known:
        return _trace.value is not _no_trace or _axes.value is not _no_axes
    if _state_is_clean is not None:
        return not _state_is_clean()
    return isinstance(jnp.zeros(()), jax.core.Tracer)


def current_trace() -> Any:
    """Return the trace to which an operation on this thread would be added; None where that cannot be known."""
    return _private("core", "trace_ctx", "trace")


def within(trace: Any) -> AbstractContextManager[Any]:
    """Add operations in the block to *trace*."""
    manager: AbstractContextManager[Any] = _core("set_current_trace")(trace)
    return manager


# --- the effect that keeps an equation without outputs alive ---


def allow_effect(effect: type) -> None:
    """Let compiled programs, control flow, remat and custom rules hold *effect*."""
    registries = ("lowerable", "control_flow_allowed", "remat_allowed", "custom_derivatives_allowed")
    for name in registries:
        registry = _private("effects", f"{name}_effects")
        if registry is None:
            raise ImportError(f"trackway: this version of JAX ({jax.__version__}) has no registry of {name} effects")
        registry.add_type(effect)


def register_lowering(primitive: Any, rule: Callable[..., Any]) -> None:
    """Have *rule* called for each equation, rather than once for all that are alike but for their scopes."""
    if "cacheable" in inspect.signature(mlir.register_lowering).parameters:
        mlir.register_lowering(primitive, rule, cacheable=False)
    else:
        mlir.register_lowering(primitive, rule)


# --- jaxprs ---


def closed(jaxpr: Any, consts: Any = ()) -> Any:
    """Return *jaxpr* with values for its constants."""
    return ClosedJaxpr(jaxpr, list(consts))


def trace_flat(function: Callable[..., Any], avals: list[Any]) -> tuple[Any, list[Any]]:
    """Return the jaxpr of a function of flat arrays, and the constants in it."""
    wrapped = linear_util.wrap_init(function, debug_info=_nameless(len(avals)))
    jaxpr, _, consts = partial_eval.trace_to_jaxpr_dynamic(wrapped, avals)
    return jaxpr, list(consts)


def _nameless(arguments: int) -> Any:
    """Return what JAX wants to know, for its messages, of a function of so many arguments."""
    return _DebugInfo("trackway", "trackway", tuple(f"a{index}" for index in range(arguments)), None)


def evaluate(program: Any, arrays: list[Any]) -> list[Any]:
    """Return the results of *program*, a closed jaxpr, for *arrays*.

    Where it becomes a part of another jaxpr, that is one call, which XLA inlines; a fifth of the time of a trace goes
    into adding one equation after the other, as is done elsewhere, for effects, which have an order, and for what JAX
    has yet to write out in simpler operations, which it does not do inside of a call.
    """
    staged = type(current_trace()).__name__ == "DynamicJaxprTrace"
    if _evaluation is None or not staged or program.jaxpr.effects or getattr(program.jaxpr, "is_high", False):
        return list(public_core.jaxpr_as_fun(program)(*arrays))
    jaxpr, inputs = program.jaxpr, [*program.consts, *arrays]
    variables = [*jaxpr.constvars, *jaxpr.invars]
    known = dict(zip(variables, inputs, strict=True))  # what is handed through as it is, lest a copy is made of it
    computed = list(dict.fromkeys(v for v in jaxpr.outvars if not isinstance(v, Literal) and v not in known))
    call = jaxpr.replace(constvars=[], invars=variables, outvars=computed, debug_info=_nameless(len(inputs)))
    known.update(zip(computed, _evaluation.bind(*inputs, jaxpr=ClosedJaxpr(call, [])), strict=True))
    return [v if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]


def context_of(equation: Any) -> AbstractContextManager[Any]:
    """Return the context (mesh, axis names, precision) in which *equation* was traced; empty for None."""
    context = getattr(equation, "ctx", equation)
    manager = getattr(context, "manager", None)
    return manager if manager is not None else contextlib.nullcontext()


@contextlib.contextmanager
def usual_promotion() -> Iterator[None]:
    """Promote types and ranks as usual in the block, and let constants be moved, whatever the program is held to."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"), jax.transfer_guard("allow"):
        yield


def scope_names(holder: Any) -> Iterator[str]:
    """Yield the names of the `jax.named_scope`s around an equation, or in the context of its lowering."""
    stack = getattr(getattr(holder, "source_info", holder), "name_stack", None)
    entries = tuple(getattr(stack, "stack", ()))
    if getattr(getattr(holder, "primitive", None), "name", "") in _CHECKPOINTS:
        entries = _once(entries, differentiated=bool(getattr(holder, "params", {}).get("differentiated")))
    for entry in entries:
        if type(entry).__name__ == "Scope":
            yield entry.name


_CHECKPOINTS = frozenset({"checkpoint", "remat", "remat2"})


def _once(entries: tuple[Any, ...], *, differentiated: bool) -> tuple[Any, ...]:
    """Return the names around a checkpoint; when JAX transposes one, it gives it those that it had a second time.

    In the body of a loop nothing but that it is *differentiated* tells of it.
    """
    first = next((at for at, entry in enumerate(entries) if getattr(entry, "name", "") == "transpose"), None)
    if first is None:
        if not differentiated:
            return entries
        first = -1
    half, odd = divmod(len(entries) - first - 1, 2)
    repeated = not odd and entries[first + 1 : first + 1 + half] == entries[first + 1 + half :]
    return entries[: first + 1 + half] if repeated else entries


# --- control flow and calls ---


def control_flow() -> dict[str, Any]:
    """Return the primitives of loops, branches and calls by a name of ours, those that this version has."""
    from jax.extend.core import primitives

    names = {"scan": "scan_p", "while": "while_p", "cond": "cond_p", "jit": "jit_p"}
    found = {name: getattr(primitives, attribute, None) for name, attribute in names.items()}
    return {name: primitive for name, primitive in found.items() if primitive is not None}


def hook_hoisting(has_log: Callable[[Any], bool]) -> None:
    """Keep what differentiation of a scan moves out of the loop, if it logs, inside.

    JAX moves equations that do not vary in the loop in front of it, also those with an effect, which then happens
    once instead of in every iteration (https://github.com/jax-ml/jax/issues/28738).
    """
    loops = _private("lax.control_flow.loops")
    original = getattr(loops, "_scan_known_hoisting", None)
    if original is None:
        return

    def hoist(jaxpr_known: Any, known_consts: Any, num_residuals: int) -> Any:
        if has_log(jaxpr_known.effects):
            return jaxpr_known, known_consts, [False] * num_residuals, []
        return original(jaxpr_known, known_consts, num_residuals)

    loops._scan_known_hoisting = hoist  # noqa: SLF001


def hook_hidden_remat(handle: Callable[[Any, Callable[..., Any]], Any], has_log: Callable[[Any], bool]) -> None:
    """Show *handle* the remat calls that hide their effects, as they do with `JAX_REMAT3=1`.

    *handle* gets the closed jaxpr of the call and a function that makes the call with another one.
    """
    primitive, hidden = _private("hijax", "call_hi_primitive_p"), _private("ad_checkpoint", "RematTraced")
    if primitive is None or hidden is None:
        return
    original = primitive.bind

    def bind(*args: Any, _prim: Any, **params: Any) -> Any:
        if isinstance(_prim, hidden) and has_log(_prim.jaxpr.effects):
            return handle(_prim.jaxpr, lambda new: original(*args, _prim=hidden(new, _prim.policy), **params))
        return original(*args, _prim=_prim, **params)

    primitive.bind = bind


# --- arrays per device (shard_map) and explicit shardings ---


def type_of(x: Any) -> Any:
    """Return the type of an array or a Python number."""
    return jax.typeof(x)


def varying_axes(aval: Any) -> frozenset[Any]:
    """Return the mesh axes over which a value inside `shard_map` differs from device to device."""
    manual = getattr(aval, "mat", None)
    if manual is not None:
        return frozenset(manual.varying)
    return frozenset(getattr(aval, "vma", ()))


def to_varying(x: Any, axes: frozenset[Any]) -> Any:
    """Return *x* as a value that may differ over *axes*."""
    missing = tuple(sorted(axes - varying_axes(jax.typeof(x))))
    if not missing:
        return x
    return lax.pcast(x, missing, to="varying") if hasattr(lax, "pcast") else lax.pvary(x, missing)


def same_on_all_axes(avals: list[Any]) -> frozenset[Any]:
    """Return all axes over which one of *avals* differs."""
    return frozenset().union(*map(varying_axes, avals))


@contextlib.contextmanager
def inside_shard_map(params: dict[str, Any]) -> Iterator[None]:
    """Trace in the block as inside of the `shard_map` with *params*: its axes have names, and may be kept track of."""
    extend, check = _private("core", "extend_axis_env_nd"), _private("config", "_check_vma")
    with contextlib.ExitStack() as stack:
        if extend is not None:
            mesh, manual = params["mesh"], manual_axes(params)
            stack.enter_context(extend([(name, size) for name, size in mesh.shape.items() if name in manual]))
        if check is not None:
            stack.enter_context(check(params["check_vma"]))
        yield


def manual_axes(params: dict[str, Any]) -> frozenset[Any]:
    """Return the mesh axes that a `shard_map` equation makes manual."""
    return frozenset(params["newly_manual_axes"] if "newly_manual_axes" in params else params["manual_axes"])


def _explicit(aval: Any) -> Any:
    sharding = getattr(aval, "sharding", None)
    if sharding is None or sharding.mesh.empty or all(part is None for part in sharding.spec):
        return None
    return sharding


def is_number(aval: Any) -> bool:
    """Tell whether *aval* is that of an array of numbers or booleans, and not of keys, tokens or references."""
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype != jax.dtypes.float0 and type(aval).__name__ == "ShapedArray"


def is_explicitly_sharded(x: Any) -> bool:
    """Tell whether the sharding of *x* is a part of its type."""
    return _explicit(jax.typeof(x)) is not None


def fill(aval: Any, value: Any) -> Any:
    """Return an array of *value* with the shape, type and explicit sharding of *aval*."""
    x = jnp.full(aval.shape, value, aval.dtype)
    sharding = _explicit(aval)
    return x if sharding is None else jax.sharding.reshard(x, sharding)


def unreplicated(x: Any) -> Any:
    """Return *x* whole on every device, where its sharding is a part of its type."""
    sharding = _explicit(jax.typeof(x))
    if sharding is None:
        return x
    whole = jax.sharding.PartitionSpec(*[None] * x.ndim)
    return jax.sharding.reshard(x, jax.sharding.NamedSharding(sharding.mesh, whole))


def constant(value: Any, aval: Any) -> Any:
    """Return a literal of a jaxpr."""
    return Literal(np.asarray(value), aval)


# --- the trace that is being made ---


def current_scopes() -> Iterator[str]:
    """Yield the names of the `jax.named_scope`s that are open here."""
    current = _private("source_info_util", "current_name_stack")
    stack: Any = getattr(current() if current else None, "stack", None)
    for entry in stack or ():
        if type(entry).__name__ == "Scope":
            yield entry.name


def effectful_equations(is_ours: Callable[[Any], bool]) -> list[Any]:
    """Return the equations of the current trace that have such an effect, as far as they are known."""
    frame = getattr(current_trace(), "frame", None)
    entries: Any = getattr(frame, "tracing_eqns", None) or getattr(frame, "eqns", ())
    found = []
    for entry in entries:
        equation = entry() if callable(entry) else entry
        if equation is not None and is_ours(getattr(equation, "effects", ())):
            found.append(equation)
    return found
