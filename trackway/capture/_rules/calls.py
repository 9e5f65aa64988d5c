"""Calls: `jit`, `jax.checkpoint`, `closed_call`, `custom_vmap`. Their metrics become further outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trackway.capture import _jaxcompat as compat
from trackway.capture._builder import Builder, Crossing, Entry
from trackway.capture._combine import Share
from trackway.capture._primitive import Group, without_log
from trackway.capture._rewrite import remember, rewrite, rule

__all__ = ["conclude", "jit_params", "returning", "without_result_names"]

Metrics = tuple[Group, Crossing]


def returning(jaxpr: Any, *, forward: bool = True) -> tuple[Any, Group, Crossing]:
    """Return *jaxpr* (open or closed, as given) with its metrics as further outputs, and how these leave it.

    If *forward*, what it was given does not leave it: the caller has it.
    """

    def make() -> tuple[Any, Group, Crossing]:
        new, group, atoms = rewrite(jaxpr)
        crossing = Crossing(atoms, new.invars if forward else ())
        new = without_result_names(new)
        new = new.replace(outvars=[*new.outvars, *crossing.kept])
        is_closed = isinstance(jaxpr, compat.ClosedJaxpr)
        return compat.closed(new, jaxpr.consts) if is_closed else new, group, crossing

    return remember(jaxpr, ("returning", forward), make)


def without_result_names(jaxpr: Any) -> Any:
    """Return *jaxpr* without the names of its results, whose number is about to change."""
    replace = getattr(jaxpr.debug_info, "_replace", None)
    return jaxpr if replace is None else jaxpr.replace(debug_info=replace(result_paths=None))


def _call(builder: Builder, equation: Any, prefix: str, params: dict[str, Any], metrics: Metrics) -> None:
    group, crossing = metrics
    outputs = [compat.Var(atom.aval) for atom in crossing.kept]
    builder.equations.append(
        equation.replace(params=params, outvars=[*equation.outvars, *outputs], effects=without_log(equation.effects))
    )
    builder.add_all(group, crossing.outer(outputs, equation.invars), prefix)


def conclude(
    builder: Builder, prefix: str, found: Callable[[list[list[Any]]], list[Share]], groups: Sequence[Sequence[Any]]
) -> None:
    """Add the metrics that *found* makes of the arrays of some *groups* of atoms."""
    for entry in builder.derive([Entry(_ANY, list(atoms)) for atoms in groups], found):
        builder.add(Entry(entry.metric.prefixed(prefix), entry.atoms))


_ANY: Any = None  # arrays that are no metric of their own


def jit_params(params: dict[str, Any], new: Any, extra: int) -> dict[str, Any]:
    """Return the parameters of a `jit` call of *new*, which has *extra* outputs more."""
    return dict(
        params,
        jaxpr=new,
        out_shardings=(*params["out_shardings"], *[compat.unspecified_sharding] * extra),
        out_layouts=(*params["out_layouts"], *[compat.no_layout] * extra),
    )


@rule("jit", "pjit")
def _jit(builder: Builder, equation: Any, prefix: str) -> None:
    new, group, crossing = returning(equation.params["jaxpr"])
    params = jit_params(equation.params, new, len(crossing.kept))
    _call(builder, equation, prefix, params, (group, crossing))


@rule("remat2", "checkpoint", "remat")
def _remat(builder: Builder, equation: Any, prefix: str) -> None:
    new, group, crossing = returning(equation.params["jaxpr"])
    _call(builder, equation, prefix, dict(equation.params, jaxpr=new), (group, crossing))


@rule("closed_call", "core_closed_call", "core_call", "call")
def _closed_call(builder: Builder, equation: Any, prefix: str) -> None:
    new, group, crossing = returning(equation.params["call_jaxpr"])
    _call(builder, equation, prefix, dict(equation.params, call_jaxpr=new), (group, crossing))
