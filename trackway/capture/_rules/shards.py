"""`shard_map`: devices are lanes, of which those that hold the same value count once."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun
from jax.sharding import PartitionSpec

from trackway.capture import _jaxcompat as compat
from trackway.capture._builder import Builder, Entry
from trackway.capture._combine import Share
from trackway.capture._primitive import TRACED, merged_lanes, parts
from trackway.capture._rewrite import Rewritten, rewrite, rule
from trackway.capture._rules.calls import without_result_names

__all__: list[str] = []


@rule("shard_map")
def _shard_map(builder: Builder, equation: Any, prefix: str) -> None:
    """The call is made anew by the public function, for its parameters differ from version to version."""
    params = equation.params
    with compat.inside_shard_map(params):
        one = rewrite(params["jaxpr"])
    found = parts(one.group, one.atoms)
    axes = [_axes(atoms, params) for _, atoms in found]
    specs = [_spec(over) for (metric, _), over in zip(found, axes, strict=True) for _ in range(metric.width)]
    mapped = jax.shard_map(
        _body(one, axes),
        mesh=params["mesh"],
        in_specs=params["in_specs"],
        out_specs=[*params["out_specs"], *specs],
        axis_names=compat.manual_axes(params),
        check_vma=params["check_vma"],
    )
    outputs = builder.emit(mapped, *equation.invars)
    results = len(equation.outvars)
    for variable, atom in zip(equation.outvars, outputs, strict=False):
        builder.rename(atom, variable)
    for (metric, atoms), over in zip(parts(one.group, outputs[results:]), axes, strict=True):
        entry = Entry(metric, atoms)
        if over:
            entry = _reduced(builder, entry, math.prod(params["mesh"].shape[axis] for axis in over))
        builder.add(Entry(entry.metric.prefixed(prefix), entry.atoms))


def _axes(atoms: list[Any], params: dict[str, Any]) -> tuple[Any, ...]:
    """Return the axes over which a metric differs; all that are manual where JAX was told not to keep track."""
    manual = compat.manual_axes(params)
    differs = compat.same_on_all_axes([atom.aval for atom in atoms]) if params["check_vma"] else manual
    return tuple(axis for axis in params["mesh"].axis_names if axis in differs and axis in manual)


def _spec(over: tuple[Any, ...]) -> Any:
    return PartitionSpec(over) if over else PartitionSpec()


def _body(one: Rewritten, axes: list[tuple[Any, ...]]) -> Any:
    """Return the mapped function, which returns each metric with an axis of devices in front if it differs there."""
    jaxpr = without_result_names(one.jaxpr)
    closed = compat.closed(jaxpr.replace(outvars=[*jaxpr.outvars, *one.atoms]))
    results = len(jaxpr.outvars)

    def body(*arrays: Any) -> list[Any]:
        outputs = jaxpr_as_fun(closed)(*arrays)
        metrics: list[Any] = []
        for (_, share), over in zip(parts(one.group, outputs[results:]), axes, strict=True):
            metrics += [compat.to_varying(x, frozenset(over))[None] for x in share] if over else share
        return [*outputs[:results], *metrics]

    return body


def _reduced(builder: Builder, entry: Entry, size: int) -> Entry:
    """Reduce a metric over the devices, outside of them."""
    metric = entry.metric

    def reduce(shares: list[list[Any]]) -> list[Share]:
        (arrays,) = shares
        if metric.kind.keeps_lanes:
            return [(metric, [*arrays[:-1], arrays[-1][0]] if metric.step is TRACED else arrays)]
        arrays = [compat.unreplicated(x) for x in arrays]
        if metric.step is TRACED:  # one program, one step
            arrays[-1] = arrays[-1][0]
        return [merged_lanes(size, metric, arrays, by_step=False)]

    return builder.derive([entry], reduce)[0]
