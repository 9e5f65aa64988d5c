"""`while_loop`: metrics are carried, and counted, for nobody knows how often the loop runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trackway import _notices
from trackway.capture import _jaxcompat as compat
from trackway.capture._builder import Builder, Entry
from trackway.capture._combine import Share, with_step, without_step
from trackway.capture._primitive import TRACED, Group, without_log
from trackway.capture._rewrite import Rewritten, rewrite, rule
from trackway.capture._rules.calls import conclude, without_result_names
from trackway.capture._rules.loops import Accumulators, Inputs, fixed_variables, step_inputs, varying_variables
from trackway.capture._settings import problem

__all__ = ["WhilePlan", "while_plan"]


@dataclass
class WhilePlan:
    """A while loop whose metrics are data."""

    params: dict[str, Any]
    """Parameters of the new loop, which carries the predicate (if the condition logs), the accumulators, the rest."""
    accumulators: Accumulators
    steps: list[tuple[int, int] | None]
    """For each metric, the constant of the body or the carry that is its step, and what is added to it."""
    first: Any
    """The closed jaxpr of the first look at the condition, with what that logs; None if it logs nothing."""
    first_group: Group
    """What `first` logs."""

    def shares(self, carried: Sequence[Any], inputs: Inputs) -> list[Share]:
        """Return each metric with its arrays, given what the loop returns for them and the inputs of its body."""
        found = self.accumulators.shares(carried, None)
        return [s if at is None else with_step(s, at, inputs) for at, s in zip(self.steps, found, strict=True)]


@dataclass
class _Loop:
    """A loop on the way to its new form."""

    params: dict[str, Any]
    condition: Rewritten
    body: Rewritten
    builder: Builder

    def evaluate_again(self) -> tuple[list[Any], Any]:
        """Look at the condition at the end of the body; return the variables for its constants, and what it says."""
        conditions = self.params["cond_nconsts"]
        inputs = [compat.Var(v.aval) for v in self.condition.jaxpr.invars[:conditions]]
        closed = compat.closed(_returning_logs(self.condition), self.params["cond_jaxpr"].consts)
        predicate, *logged = self.builder.inline(closed, [*inputs, *self.body.jaxpr.outvars])
        self.builder.add_all(self.condition.group, logged)
        return inputs, predicate


def while_plan(params: dict[str, Any]) -> WhilePlan:
    """Return how the while loop with the parameters *params* is made without logs."""
    condition, body = rewrite(params["cond_jaxpr"]), rewrite(params["body_jaxpr"])
    context = next(iter((*body.jaxpr.eqns, *condition.jaxpr.eqns)), None)
    loop = _Loop(params, condition, body, Builder(body.jaxpr.eqns, context))
    loop.builder.add_all(body.group, body.atoms)
    rotated = loop.evaluate_again() if condition.group else None
    constants = params["body_nconsts"]
    fixed = fixed_variables(body.jaxpr, constants, len(body.jaxpr.outvars))
    entries = _carriable(loop.builder, body.jaxpr, constants)
    steps = [loop.builder.step_from(entry, fixed) for entry in entries]
    entries = [e if at is None else without_step(e) for e, at in zip(entries, steps, strict=True)]
    axes = compat.varying_axes(params["cond_jaxpr"].out_avals[0])
    accumulators = Accumulators(loop.builder, entries, axes, count=True)
    if rotated is None:
        return WhilePlan(_plain(loop, accumulators), accumulators, steps, None, ())
    first = compat.closed(_returning_logs(condition), params["cond_jaxpr"].consts)
    return WhilePlan(_rotated(loop, accumulators, *rotated), accumulators, steps, first, condition.group)


def _returning_logs(one: Rewritten) -> Any:
    jaxpr = without_result_names(one.jaxpr)
    return jaxpr.replace(outvars=[*jaxpr.outvars, *one.atoms])


def _carriable(builder: Builder, body: Any, constants: int) -> list[Entry]:
    """Return the metrics that can be carried; report the others."""
    entries = list(builder.entries.values())
    differ: set[Any] = set()
    if any(entry.metric.step is TRACED for entry in entries):
        differ = varying_variables(body, constants, len(body.outvars))
    kept = []
    for entry in entries:
        metric = entry.metric
        if metric.kind.stacked or (metric.rows and metric.step is None):
            problem(
                metric.name,
                f"is logged with reduce={'rows' if metric.rows else metric.kind.name!r} inside a while_loop, whose "
                "number of iterations is not known when it is compiled; keep the last k samples with reduce=Ring(k), "
                "or use scan",
                metric.line,
            )
            continue
        if metric.step is TRACED and not isinstance(entry.atoms[-1], compat.Literal) and entry.atoms[-1] in differ:
            _notices.warn_once(
                ("step in while", metric.name),
                f"metric {metric.name!r} ({metric.line}) is logged at a step that varies in a while_loop, whose number "
                f"of iterations is not known when it is compiled: it is reduced ({metric.kind.name}) to one value, at "
                "the last step. Use scan for a row per iteration, or reduce=Ring(k) for the last k samples.",
                metric.line,
            )
        kept.append(entry)
    return kept


def _plain(loop: _Loop, accumulators: Accumulators) -> dict[str, Any]:
    """The loop with accumulators in front of its carry."""
    params = loop.params
    conditions, bodies = params["cond_nconsts"], params["body_nconsts"]
    unused = [compat.Var(v.aval) for v in accumulators.inputs]
    test = loop.condition.jaxpr
    inputs = [*test.invars[:conditions], *unused, *test.invars[conditions:]]
    test = test.replace(invars=inputs, debug_info=_nameless(test.debug_info, len(inputs)))
    jaxpr = without_result_names(loop.body.jaxpr)
    inputs = [*jaxpr.invars[:bodies], *accumulators.inputs, *jaxpr.invars[bodies:]]
    jaxpr = jaxpr.replace(
        eqns=loop.builder.equations,
        invars=inputs,
        outvars=[*accumulators.outputs, *jaxpr.outvars],
        debug_info=_nameless(jaxpr.debug_info, len(inputs)),
    )
    return dict(
        params,
        cond_jaxpr=compat.closed(test, params["cond_jaxpr"].consts),
        body_jaxpr=compat.closed(jaxpr, params["body_jaxpr"].consts),
    )


def _nameless(debug_info: Any, inputs: int) -> Any:
    """Return *debug_info* for so many inputs without names of their own; some versions of JAX add up the names."""
    replace = getattr(debug_info, "_replace", None)
    return debug_info if replace is None else replace(arg_names=("",) * inputs, result_paths=None)


def _rotated(loop: _Loop, accumulators: Accumulators, condition_inputs: list[Any], predicate: Any) -> dict[str, Any]:
    """The loop with the condition at the end of the body, so that what it logs is counted and it runs no oftener."""
    params, body = loop.params, loop.body.jaxpr
    bodies = params["body_nconsts"]
    aval = params["cond_jaxpr"].out_avals[0]
    carried = [*accumulators.inputs, *body.invars[bodies:]]
    inputs = [*condition_inputs, *body.invars[:bodies], compat.Var(aval), *carried]
    jaxpr = body.replace(
        eqns=loop.builder.equations,
        invars=inputs,
        outvars=[predicate, *accumulators.outputs, *body.outvars],
        debug_info=_nameless(body.debug_info, len(inputs)),
    )
    held = compat.Var(aval)
    names = _nameless(body.debug_info, 1 + len(carried))
    test = compat.Jaxpr([], [held, *(compat.Var(v.aval) for v in carried)], [held], [], debug_info=names)
    return dict(
        params,
        cond_nconsts=0,
        cond_jaxpr=compat.closed(test),
        body_nconsts=len(condition_inputs) + bodies,
        body_jaxpr=compat.closed(jaxpr, params["body_jaxpr"].consts),
    )


@rule("while")
def _while(builder: Builder, equation: Any, prefix: str) -> None:
    params = equation.params
    plan = while_plan(params)
    split = params["cond_nconsts"] + params["body_nconsts"]
    constants, carry = equation.invars[:split], equation.invars[split:]
    first: list[Any] = []
    logged: list[Any] = []
    if plan.first is not None:
        first_outputs = builder.inline(plan.first, [*constants[: params["cond_nconsts"]], *carry])
        first, logged = first_outputs[:1], first_outputs[1:]
    start = builder.emit(plan.accumulators.start)
    sums = [compat.Var(v.aval) for v in plan.accumulators.inputs]
    predicates = [compat.Var(atom.aval) for atom in first]
    builder.equations.append(
        equation.replace(
            invars=[*constants, *first, *start, *carry],
            outvars=[*predicates, *sums, *equation.outvars],
            params=plan.params,
            effects=without_log(equation.effects),
        )
    )
    builder.add_all(plan.first_group, logged, prefix)
    needed = step_inputs(plan.steps)
    inputs = [*constants[params["cond_nconsts"] :], *carry]

    def shares(groups: list[list[Any]]) -> list[Share]:
        return plan.shares(groups[0], dict(zip(needed, groups[1], strict=True)))

    conclude(builder, prefix, shares, [sums, [inputs[at] for at in needed]])
