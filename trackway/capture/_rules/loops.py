"""`scan`: metrics are carried, or stacked beside the outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import jax.numpy as jnp

from trackway.capture import _jaxcompat as compat
from trackway.capture._builder import Builder, Entry
from trackway.capture._collections import Series, Stack
from trackway.capture._combine import Share, absent, traced_count, varying, widened, with_step, without_step
from trackway.capture._primitive import TRACED, Metric, without_log
from trackway.capture._rewrite import remember, rewrite, rule
from trackway.capture._rules.calls import conclude, without_result_names

__all__ = [
    "Accumulators",
    "Inputs",
    "ScanPlan",
    "fixed_variables",
    "scan_params",
    "scan_plan",
    "step_inputs",
    "varying_variables",
]

Inputs = Sequence[Any] | Mapping[int, Any]
"""Inputs of a loop or call, all of them or those that matter by their place."""


@final
class Accumulators:
    """Metrics that a loop carries.

    Attributes:
        inputs: The variables of the body that hold them at the beginning of an iteration.
        outputs: The atoms of the body that hold them at its end.
        metrics: What they hold.
    """

    def __init__(self, builder: Builder, entries: Sequence[Entry], axes: frozenset[Any], *, count: bool) -> None:
        """Add the equations that combine *entries* of one iteration with those of the iterations before.

        Args:
            builder: The body.
            entries: What one iteration logs.
            axes: Mesh axes over which the number of iterations differs.
            count: Whether all samples have to be counted, as where the number of iterations is not known.
        """

        def first(shares: list[list[Any]]) -> list[Share]:
            results = []
            for entry, arrays in zip(entries, shares, strict=True):
                metric, wide = widened(entry.metric, arrays)
                if count or metric.kind.counts:
                    metric, wide = traced_count(metric, wide)
                over = axes | compat.same_on_all_axes([atom.aval for atom in entry.atoms])
                results.append((metric, varying(wide, over)))
            return results

        samples = builder.derive(entries, first)
        before = [Entry(one.metric, [compat.Var(_strong(atom.aval)) for atom in one.atoms]) for one in samples]
        after = builder.combine(list(zip(before, samples, strict=True)))
        self.metrics = [entry.metric for entry in before]
        self.inputs = [atom for entry in before for atom in entry.atoms]
        self.outputs = [atom for entry in after for atom in entry.atoms]
        self._avals = [[atom.aval for atom in entry.atoms] for entry in before]

    def start(self) -> list[Any]:
        """Return the arrays with which the loop begins."""
        arrays = []
        for metric, avals in zip(self.metrics, self._avals, strict=True):
            axes = compat.same_on_all_axes(avals)
            arrays += varying(absent(metric, avals), axes)
        return arrays

    def shares(self, arrays: Sequence[Any], iterations: int | None) -> list[Share]:
        """Return each metric with its arrays after the loop."""
        result = []
        rest = list(arrays)
        for metric in self.metrics:
            share = [rest.pop(0) for _ in range(metric.width)]
            if metric.count is not None and iterations is not None:
                metric = replace(metric, count=metric.count * iterations)  # noqa: PLW2901
            result.append((metric, share))
        return result


def _strong(aval: Any) -> Any:
    return aval.update(weak_type=False) if getattr(aval, "weak_type", False) else aval


def fixed_variables(jaxpr: Any, constants: int, carried: int) -> list[Any]:
    """Return the inputs of the body of a loop, with None for each that may differ from iteration to iteration."""
    inputs = jaxpr.invars[: constants + carried]
    after = [*inputs[:constants], *jaxpr.outvars[:carried]]
    return [variable if variable is out else None for variable, out in zip(inputs, after, strict=True)]


def varying_variables(jaxpr: Any, constants: int, carried: int) -> set[Any]:
    """Return the variables of the body of a loop that may differ from iteration to iteration."""
    differ = set(jaxpr.invars[constants + carried :])
    inputs = jaxpr.invars[constants : constants + carried]
    while True:
        known = set(differ)
        for equation in jaxpr.eqns:
            if any(not isinstance(v, compat.Literal) and v in known for v in equation.invars):
                known.update(equation.outvars)
        changed = {v for v, out in zip(inputs, jaxpr.outvars[:carried], strict=True) if out is not v or v in known}
        if changed <= differ:
            return known
        differ |= changed


@dataclass
class ScanPlan:
    """A scan whose metrics are data."""

    body: Any
    """The closed jaxpr of the new body: constants, carry, accumulators, scanned inputs."""
    accumulators: Accumulators
    steps: list[tuple[int, int] | None]
    """For each of the carried metrics, the input of the loop that is its step, and what is added to it."""
    stacked: list[tuple[Metric, list[int]]]
    """The metrics that are outputs of each iteration, with the places of their arrays among these."""
    outputs: list[Any]
    """The variables of the body for these places."""

    def shares(
        self, carried: Sequence[Any], stacked: Sequence[Any], inputs: Inputs, params: dict[str, Any]
    ) -> list[Share]:
        """Return each metric with its arrays, given what the loop returns for them."""
        result = []
        for at, share in zip(self.steps, self.accumulators.shares(carried, params["length"]), strict=True):
            result.append(share if at is None else with_step(share, at, inputs))
        for metric, places in self.stacked:
            result.append(_stacked(metric, [stacked[place] for place in places], reverse=params["reverse"]))
        if params["length"]:
            return result
        return [(metric if metric.count is None else replace(metric, count=0), share) for metric, share in result]


def _stacked(metric: Metric, arrays: list[Any], *, reverse: bool) -> Share:
    if isinstance(metric.kind, Stack):
        if metric.step is TRACED:
            arrays[-1] = arrays[-1][0 if reverse else -1]
        return metric, arrays
    if reverse:  # rows come in the order of execution
        arrays = [jnp.flip(x, 0) for x in arrays]
    if isinstance(metric.kind, Series):
        return metric, [x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for x in arrays]
    return replace(metric, kind=Series(metric.kind)), arrays


def scan_plan(params: dict[str, Any]) -> ScanPlan:
    """Return how the scan with the parameters *params* is made without logs."""
    closed, constants, carried = params["jaxpr"], params["num_consts"], params["num_carry"]
    return remember(closed, ("scan", constants, carried), lambda: _scan_plan(closed, constants, carried))


def _scan_plan(closed: Any, constants: int, carried: int) -> ScanPlan:
    jaxpr, group, atoms = rewrite(closed)
    builder = Builder(jaxpr.eqns)
    builder.add_all(group, atoms)
    differ: set[Any] = set()
    if any(metric.step is TRACED for metric in group):
        differ = varying_variables(jaxpr, constants, carried)
    fixed = fixed_variables(jaxpr, constants, carried)
    stacked, to_carry, steps = [], [], []
    for entry in builder.entries.values():
        if _makes_rows(entry, differ):
            stacked.append(entry)
        else:
            steps.append(builder.step_from(entry, fixed))
            to_carry.append(entry if steps[-1] is None else without_step(entry))
    accumulators = Accumulators(builder, to_carry, frozenset(), count=False)
    outputs, places = _unique([entry.atoms for entry in stacked])
    split = constants + carried
    body = without_result_names(jaxpr).replace(
        eqns=builder.equations,
        invars=[*jaxpr.invars[:split], *accumulators.inputs, *jaxpr.invars[split:]],
        outvars=[*jaxpr.outvars[:carried], *accumulators.outputs, *jaxpr.outvars[carried:], *outputs],
    )
    metrics = [entry.metric for entry in stacked]
    return ScanPlan(
        compat.closed(body, closed.consts), accumulators, steps, list(zip(metrics, places, strict=True)), outputs
    )


def _makes_rows(entry: Entry, differ: set[Any]) -> bool:
    """Tell whether each iteration keeps its own value."""
    metric = entry.metric
    if metric.kind.stacked:
        return True
    if metric.step is TRACED:
        atom = entry.atoms[-1]
        return not isinstance(atom, compat.Literal) and atom in differ
    return metric.step is None and metric.rows


def _unique(groups: Sequence[Sequence[Any]]) -> tuple[list[Any], list[list[int]]]:
    """Return the distinct atoms of *groups*, and the place of each among them."""
    found: list[Any] = []
    place: dict[int, int] = {}
    for atom in (atom for group in groups for atom in group):
        if id(atom) not in place:
            place[id(atom)] = len(found)
            found.append(atom)
    return found, [[place[id(atom)] for atom in group] for group in groups]


def scan_params(plan: ScanPlan, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the new scan."""
    extra = len(plan.accumulators.inputs)
    new = dict(params, jaxpr=plan.body, num_carry=params["num_carry"] + extra)
    if "linear" in params:  # before JAX 0.10
        split = params["num_consts"] + params["num_carry"]
        linear = params["linear"]
        new["linear"] = (*linear[:split], *[False] * extra, *linear[split:])
    return new


@rule("scan")
def _scan(builder: Builder, equation: Any, prefix: str) -> None:
    params = equation.params
    plan = scan_plan(params)
    constants, carried = params["num_consts"], params["num_carry"]
    split = constants + carried
    start = builder.emit(plan.accumulators.start)
    sums = [compat.Var(v.aval) for v in plan.accumulators.inputs]
    rows = [compat.Var(compat.unmapped(params["length"], 0, v.aval)) for v in plan.outputs]
    builder.equations.append(
        equation.replace(
            invars=[*equation.invars[:split], *start, *equation.invars[split:]],
            outvars=[*equation.outvars[:carried], *sums, *equation.outvars[carried:], *rows],
            params=scan_params(plan, params),
            effects=without_log(equation.effects),
        )
    )
    needed = step_inputs(plan.steps)

    def shares(groups: list[list[Any]]) -> list[Share]:
        carried, stacked, inputs = groups
        return plan.shares(carried, stacked, dict(zip(needed, inputs, strict=True)), params)

    conclude(builder, prefix, shares, [sums, rows, [equation.invars[at] for at in needed]])


def step_inputs(steps: Iterable[tuple[int, int] | None]) -> list[int]:
    """Return which inputs the steps of metrics are taken from."""
    return sorted({source[0] for source in steps if source is not None})
