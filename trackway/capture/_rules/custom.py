"""`custom_jvp`, `custom_vjp` and `custom_vmap` calls that are not differentiated, or not yet.

Whether the function itself will run or its rule is decided later, so both have to return the same metrics: those of
the function. What only the rule logs stays a log in it, for whoever differentiates the call.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.extend import linear_util
from jax.tree_util import tree_structure, treedef_tuple

from trackway.capture import _jaxcompat as compat
from trackway.capture._builder import Builder, Entry
from trackway.capture._combine import (
    Share,
    absent,
    as_kind,
    check_traceable,
    traced_count,
    traced_step,
    varying,
    weighted_kind,
    widened,
    with_steps,
    without_step,
)
from trackway.capture._primitive import Group, Metric, log_effect, log_p, parts, without_log
from trackway.capture._rewrite import remember, rewrite, rule
from trackway.capture._rules.calls import conclude, without_result_names
from trackway.capture._rules.loops import Inputs, step_inputs
from trackway.capture._settings import problem
from trackway.errors import CaptureError

__all__: list[str] = []


def _is_traceable(metric: Metric) -> bool:
    try:
        check_traceable(metric.step)
    except CaptureError as error:
        problem(metric.name, str(error), metric.line)
        return False
    return True


class _Wanted:
    """The metrics of the function, in a form that its rule can return too."""

    def __init__(self, closed: Any) -> None:
        one = rewrite(closed)
        builder = Builder(one.jaxpr.eqns)
        builder.add_all(one.group, one.atoms)
        found = {name: entry for name, entry in builder.entries.items() if _is_traceable(entry.metric)}
        self.inputs = len(one.jaxpr.invars)
        sources = {name: builder.step_from(entry, one.jaxpr.invars) for name, entry in found.items()}
        self.steps = {name: source for name, source in sources.items() if source is not None}
        loose = [without_step(entry) if name in self.steps else entry for name, entry in found.items()]
        entries = builder.derive(loose, self._loose(loose))
        self.group: Group = tuple(entry.metric for entry in entries)
        self.avals = [[atom.aval for atom in entry.atoms] for entry in entries]
        self.atoms = _tied(builder, [atom for entry in entries for atom in entry.atoms], one.jaxpr.invars)
        jaxpr = without_result_names(one.jaxpr)
        jaxpr = jaxpr.replace(eqns=builder.equations, outvars=[*jaxpr.outvars, *self.atoms])
        self.closed = compat.closed(jaxpr, closed.consts)

    @staticmethod
    def _loose(entries: list[Entry]) -> Any:
        def loosen(shares: list[list[Any]]) -> list[Share]:
            pairs = zip(entries, shares, strict=True)
            taken = [as_kind(entry.metric, arrays, weighted_kind(entry.metric.kind)) for entry, arrays in pairs]
            return [traced_step(*traced_count(*widened(*share))) for share in taken]

        return loosen

    def _without_same_step(self, builder: Builder, entry: Entry, inputs: list[Any]) -> Entry:
        """Take the step off a metric of the rule if it is the input that is the step in the function, too."""
        source = self.steps.get(entry.metric.name)
        is_same = source is not None and builder.step_from(entry, inputs[: self.inputs]) == source
        return without_step(entry) if is_same else entry

    def shares(self, arrays: list[Any], inputs: Inputs) -> list[Share]:
        """Return each metric with its arrays, given what the call returns for them and was given."""
        return with_steps(parts(self.group, arrays), self.steps, inputs)

    def returned_by(self, jaxpr: Any) -> tuple[Builder, Any, list[Any]]:
        """Return what the rule's *jaxpr* becomes: its builder, itself, and the atoms for the wanted metrics."""
        one = rewrite(jaxpr)
        builder = Builder(one.jaxpr.eqns)
        builder.add_all(one.group, one.atoms)
        own = builder.entries
        found = [self._without_same_step(builder, own[m.name], one.jaxpr.invars) for m in self.group if m.name in own]

        def fill(shares: list[list[Any]]) -> list[Share]:
            rest = {entry.metric.name: (entry.metric, xs) for entry, xs in zip(found, shares, strict=True)}
            results = []
            for metric, avals in zip(self.group, self.avals, strict=True):
                arrays = _in_form(metric, avals, rest.get(metric.name))
                results.append((metric, varying(arrays, compat.same_on_all_axes(avals))))
            return results

        atoms = [atom for entry in builder.derive(found, fill) for atom in entry.atoms]
        atoms = _tied(builder, atoms, one.jaxpr.invars[: self.inputs])  # no tangents
        names = {metric.name for metric in self.group}
        left = [entry for name, entry in own.items() if name not in names]
        for entry in left:
            builder.equations.append(
                compat.new_equation(entry.atoms, [], log_p, {"group": (entry.metric,)}, {log_effect})
            )
        effects = without_log(jaxpr.effects) | ({log_effect} if left else set())
        return builder, without_result_names(one.jaxpr).replace(effects=effects), atoms


def _tied(builder: Builder, atoms: list[Any], inputs: list[Any]) -> list[Any]:
    """Return *atoms* as values that depend on all *inputs*, for `vmap`: what depends on a batch has its axis.

    JAX takes for granted that a function and its rule return the same ones with that axis; but one of them may return
    a constant, no samples, where the other returns what it logged.
    """
    numbers = [variable for variable in inputs if compat.is_number(variable.aval)]
    if not atoms or not numbers:
        return atoms

    def tie(*arrays: Any) -> list[Any]:
        values, given = arrays[: len(atoms)], arrays[len(atoms) :]
        never = jnp.any(jnp.stack([jnp.any((x != x) & False) for x in given]))  # noqa: PLR0124 - XLA knows that it is False
        return [jnp.where(never, x, x) for x in values]

    return builder.emit(tie, *atoms, *numbers)


def _in_form(metric: Metric, avals: list[Any], found: Share | None) -> list[Any]:
    """Return what the rule logged in the form of the function's metric; no samples if it did not, or cannot be."""
    if found is None:
        return absent(metric, avals)
    reason = (
        "is logged in another shape or type, or with another step, by a function and by the rule for its derivative"
    )
    try:
        one, arrays = traced_step(*traced_count(*widened(*as_kind(*found, metric.kind))))
    except CaptureError as error:
        reason = str(error)
    else:
        if one.step == metric.step and _fit(arrays, avals):
            return [x.astype(aval.dtype) for x, aval in zip(arrays, avals, strict=True)]
    problem(metric.name, reason, found[0].line)
    return absent(metric, avals)


def _fit(arrays: list[Any], avals: list[Any]) -> bool:
    """Tell whether *arrays* are like *avals*, but for types that these can hold."""
    if len(arrays) != len(avals):
        return False
    return all(
        x.shape == aval.shape and jnp.promote_types(x.dtype, aval.dtype) == aval.dtype
        for x, aval in zip(arrays, avals, strict=True)
    )


def _wrapped(function: Any, like: Any) -> Any:
    return linear_util.wrap_init(function, debug_info=like.debug_info)


def _finish(builder: Builder, equation: Any, prefix: str, params: dict[str, Any], wanted: _Wanted) -> None:
    outputs = [compat.Var(atom.aval) for atom in wanted.atoms]
    builder.equations.append(
        equation.replace(params=params, outvars=[*equation.outvars, *outputs], effects=without_log(equation.effects))
    )
    needed = step_inputs(wanted.steps.values())

    def shares(groups: list[list[Any]]) -> list[Share]:
        return wanted.shares(groups[0], dict(zip(needed, groups[1], strict=True)))

    conclude(builder, prefix, shares, [outputs, [equation.invars[at] for at in needed]])


def _wanted(closed: Any) -> _Wanted:
    return remember(closed.jaxpr, "wanted", lambda: _Wanted(closed))


@rule("custom_jvp_call")
def _custom_jvp(builder: Builder, equation: Any, prefix: str) -> None:
    closed, rule_of = equation.params["call_jaxpr"], equation.params["jvp_jaxpr_fun"]
    wanted = _wanted(closed)
    results = len(closed.jaxpr.outvars)

    def jvp(*zeros: Any) -> Any:
        jaxpr, consts, zero_outputs = rule_of.call_wrapped(*zeros)
        inner, new, atoms = wanted.returned_by(jaxpr)
        tangents = [_no_tangent(inner, atom.aval) for atom in wanted.atoms]
        outputs = [*new.outvars[:results], *atoms, *new.outvars[results:], *tangents]
        return new.replace(eqns=inner.equations, outvars=outputs), consts, [*zero_outputs, *[False] * len(tangents)]

    params = dict(equation.params, call_jaxpr=wanted.closed, jvp_jaxpr_fun=_wrapped(jvp, rule_of))
    _finish(builder, equation, prefix, params, wanted)


def _no_tangent(builder: Builder, aval: Any) -> Any:
    """Return an atom for the tangent of a metric: zeros, and no symbolic ones, which JAX does not expect here."""
    tangent = aval.to_tangent_aval()
    if tangent.dtype == dtypes.float0:
        return compat.constant(np.zeros(tangent.shape, tangent.dtype), tangent)
    return builder.emit(lambda: [jnp.zeros(tangent.shape, tangent.dtype)])[0]


@rule("custom_vjp_call")
def _custom_vjp(builder: Builder, equation: Any, prefix: str) -> None:
    closed = equation.params["call_jaxpr"]
    forward, backward = equation.params["fwd_jaxpr_thunk"], equation.params["bwd"]
    wanted = _wanted(closed)
    extra = len(wanted.atoms)

    def new_forward(*nonzeros: Any) -> Any:
        jaxpr, consts = forward.call_wrapped(*nonzeros)
        inner, new, atoms = wanted.returned_by(jaxpr)
        return new.replace(eqns=inner.equations, outvars=[*new.outvars, *atoms]), consts

    def new_backward(*residuals_and_cotangents: Any) -> Any:
        return backward.call_wrapped(*residuals_and_cotangents[: len(residuals_and_cotangents) - extra])

    params = dict(
        equation.params,
        call_jaxpr=wanted.closed,
        fwd_jaxpr_thunk=_wrapped(new_forward, forward),
        bwd=_wrapped(new_backward, backward),
    )
    _finish(builder, equation, prefix, params, wanted)


@rule("custom_vmap_call")
def _custom_vmap(builder: Builder, equation: Any, prefix: str) -> None:
    """Until `vmap` gives the call to its rule, which logs for itself, the function runs."""
    wanted = _wanted(equation.params["call"])
    original = equation.params["rule"]

    def batched(axis_size: int, in_batched: Any, *args: Any) -> Any:
        outputs, out_batched = original(axis_size, in_batched, *args)
        none = [x for m, avals in zip(wanted.group, wanted.avals, strict=True) for x in absent(m, avals)]
        return (outputs, none), (out_batched, [False] * len(none))

    results = tree_structure([0] * len(wanted.atoms))
    params = dict(
        equation.params,
        call=wanted.closed,
        rule=batched,
        out_tree=treedef_tuple([equation.params["out_tree"], results]),
    )
    _finish(builder, equation, prefix, params, wanted)
