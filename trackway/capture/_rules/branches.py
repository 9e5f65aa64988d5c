"""`cond` and `switch`: all branches return the metrics of all, those of the others with no samples."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp

from trackway.capture import _jaxcompat as compat
from trackway.capture._builder import Builder, Entry
from trackway.capture._collections import Series
from trackway.capture._combine import (
    Share,
    absent,
    as_kind,
    check_traceable,
    common_kind,
    traced_count,
    traced_step,
    varying,
    widened,
    with_steps,
    without_step,
)
from trackway.capture._kinds import Sum
from trackway.capture._primitive import TRACED, Group, Metric, parts, without_log
from trackway.capture._rewrite import rewrite, rule
from trackway.capture._rules.calls import conclude, without_result_names
from trackway.capture._rules.loops import Inputs, step_inputs
from trackway.capture._settings import problem
from trackway.errors import CaptureError

__all__ = ["merged_branches"]


@dataclass
class _Form:
    """What the metric of one name is in every branch."""

    kind: Any
    traced_count: bool
    traced_step: bool
    wide: bool
    dtype: Any
    """The type of a sum, of which some may be of ints and others of floats."""
    rows: int
    """Rows of a series; branches with fewer are filled up with rows of no samples."""

    @classmethod
    def of(cls, found: list[Entry], branches: int) -> _Form:
        """Return the form that holds all that was *found* of one name.

        Raises:
            CaptureError: if there is none.
        """
        metrics = [entry.metric for entry in found]
        kind = metrics[0].kind
        for metric in metrics[1:]:
            kind = common_kind(kind, metric.kind)
        steps = {metric.step for metric in metrics}
        rows = [e.atoms[0].aval.shape[0] if isinstance(e.metric.kind, Series) else 1 for e in found]
        is_series = isinstance(kind, Series)
        if is_series and None in steps and len(steps) > 1:
            raise CaptureError("is logged both with and without a step, which cannot be put into one order of rows")
        known = len(found) == branches and len({metric.count for metric in metrics}) == 1
        known = known and not (is_series and len(set(rows)) > 1)
        same_step = len(found) == branches and len(steps) == 1
        wide = len({(metric.kind, metric.arrays) for metric in metrics}) > 1
        is_sum = isinstance(getattr(kind, "base", kind), Sum)
        dtype = functools.reduce(jnp.promote_types, [e.atoms[0].aval.dtype for e in found]) if is_sum else None
        traced_step = steps != {None} and not (same_step and TRACED not in steps)
        if traced_step:
            for step in steps:
                check_traceable(step)
        return cls(kind, not known, traced_step, wide, dtype, max(rows) if is_series else 0)

    def take(self, metric: Metric, arrays: list[Any]) -> Share:
        """Return the metric of one branch in this form."""
        metric, arrays = as_kind(metric, arrays, self.kind)
        if self.dtype is not None:
            arrays = [*(x.astype(self.dtype) for x in arrays[: metric.arrays]), *arrays[metric.arrays :]]
        if self.wide:
            metric, arrays = widened(metric, arrays)
        if self.traced_count:
            metric, arrays = traced_count(metric, arrays)
        if self.traced_step:
            metric, arrays = traced_step(replace(metric, step=0) if metric.step is None else metric, arrays)
        return metric, [self._filled(x) for x in arrays] if self.rows else arrays

    def _filled(self, x: Any) -> Any:
        missing = self.rows - x.shape[0]
        return jnp.concatenate([x, jnp.zeros((missing, *x.shape[1:]), x.dtype)]) if missing else x


class Merged(NamedTuple):
    """Branches that all return the same metrics after their outputs."""

    branches: tuple[Any, ...]
    group: Group
    """The metrics; those that have a place in `steps` come without their step."""
    steps: dict[str, tuple[int, int]]
    """By name, the operand that is the step of a metric, and what is added to it."""

    def shares(self, arrays: Sequence[Any], operands: Inputs) -> list[Share]:
        """Return each metric with its arrays, given what the branches return for them and were given."""
        return with_steps(parts(self.group, arrays), self.steps, operands)


def merged_branches(branches: Sequence[Any], predicate: frozenset[Any]) -> Merged:
    """Return branches that all return the same metrics.

    *predicate* names the mesh axes over which it differs which branch is taken.
    """
    rewritten = [rewrite(branch) for branch in branches]
    builders = []
    for one in rewritten:
        builder = Builder(one.jaxpr.eqns)
        builder.add_all(one.group, one.atoms)
        builders.append(builder)
    steps = _steps_from_outside(builders, [one.jaxpr.invars for one in rewritten])
    forms = _forms(builders)
    for builder in builders:
        _bring_into(forms, builder)
    targets = {}
    for name in forms:
        found = [builder.entries[name] for builder in builders if name in builder.entries]
        if len({tuple(atom.aval.shape for atom in entry.atoms) for entry in found}) == 1:
            targets[name] = _target(found, predicate)
        else:
            problem(name, "is logged with different shapes in branches; give one another name", found[-1].metric.line)
    new = []
    for branch, one, builder in zip(branches, rewritten, builders, strict=True):
        outputs = _returned(targets, builder)
        jaxpr = without_result_names(one.jaxpr)
        jaxpr = jaxpr.replace(eqns=builder.equations, outvars=[*jaxpr.outvars, *outputs])
        new.append(compat.closed(jaxpr, branch.consts))
    return Merged(tuple(new), tuple(target.metric for target in targets.values()), steps)


def _steps_from_outside(builders: list[Builder], inputs: list[Any]) -> dict[str, tuple[int, int]]:
    """Take the steps off the metrics that all branches log at the same operand: `vmap` must not see them differ."""
    steps = {}
    for name in dict.fromkeys(name for builder in builders for name in builder.entries):
        found = [
            (b, b.entries[name], variables) for b, variables in zip(builders, inputs, strict=True) if name in b.entries
        ]
        sources = {builder.step_from(entry, variables) for builder, entry, variables in found}
        source = sources.pop()
        if source is None or sources or any(isinstance(entry.metric.kind, Series) for _, entry, _ in found):
            continue
        steps[name] = source
        for builder, entry, _ in found:
            builder.entries[name] = without_step(entry)
    return steps


def _forms(builders: list[Builder]) -> dict[str, _Form]:
    forms = {}
    for name in dict.fromkeys(name for builder in builders for name in builder.entries):
        found = [builder.entries[name] for builder in builders if name in builder.entries]
        try:
            forms[name] = _Form.of(found, len(builders))
        except CaptureError as error:
            problem(name, str(error), found[-1].metric.line)
    return forms


def _bring_into(forms: dict[str, _Form], builder: Builder) -> None:
    """Bring the metrics of one branch into their forms; those without one are dropped."""
    names = [name for name in forms if name in builder.entries]
    entries = [builder.entries[name] for name in names]

    def take(shares: list[list[Any]]) -> list[Share]:
        return [forms[n].take(e.metric, xs) for n, e, xs in zip(names, entries, shares, strict=True)]

    builder.entries = dict(zip(names, builder.derive(entries, take), strict=True)) if entries else {}


@dataclass
class _Target:
    metric: Metric
    avals: list[Any]
    axes: frozenset[Any]


def _target(found: list[Entry], predicate: frozenset[Any]) -> _Target:
    avals = [atom.aval for atom in found[0].atoms]
    for entry in found[1:]:
        types = [jnp.promote_types(a.dtype, b.aval.dtype) for a, b in zip(avals, entry.atoms, strict=True)]
        avals = [aval.update(dtype=dtype) for aval, dtype in zip(avals, types, strict=True)]
    axes = predicate.union(*(compat.varying_axes(atom.aval) for entry in found for atom in entry.atoms))
    return _Target(found[0].metric, avals, axes)


def _returned(targets: dict[str, _Target], builder: Builder) -> list[Any]:
    """Return what a branch returns for all metrics, adding the equations for it."""
    names = [name for name in targets if name in builder.entries]
    entries = [builder.entries[name] for name in names]

    def finish(shares: list[list[Any]]) -> list[Share]:
        own = dict(zip(names, shares, strict=True))
        results = []
        for name, target in targets.items():
            arrays = own.get(name)
            if arrays is None:
                arrays = absent(target.metric, target.avals)
            else:
                arrays = [x.astype(aval.dtype) for x, aval in zip(arrays, target.avals, strict=True)]
            results.append((target.metric, varying(arrays, target.axes)))
        return results

    return [atom for entry in builder.derive(entries, finish) for atom in entry.atoms]


@rule("cond")
def _cond(builder: Builder, equation: Any, prefix: str) -> None:
    predicate = compat.varying_axes(equation.invars[0].aval)
    merged = merged_branches(equation.params["branches"], predicate)
    extra = merged.branches[0].jaxpr.outvars[len(equation.outvars) :]
    outputs = [compat.Var(atom.aval) for atom in extra]
    builder.equations.append(
        equation.replace(
            params=dict(equation.params, branches=merged.branches),
            outvars=[*equation.outvars, *outputs],
            effects=without_log(equation.effects),
        )
    )
    needed = step_inputs(merged.steps.values())

    def shares(groups: list[list[Any]]) -> list[Share]:
        return merged.shares(groups[0], dict(zip(needed, groups[1], strict=True)))

    conclude(builder, prefix, shares, [outputs, [equation.invars[1 + at] for at in needed]])
