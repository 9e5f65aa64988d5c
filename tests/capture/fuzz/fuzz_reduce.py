"""What the samples of a name are reduced to, by definition."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from fuzz_nodes import Log, Node, walk
from fuzz_oracle import Sample

INTEGERS, BOOLS = {"k", "one", "ints", "even"}, {"even"}


def reduced(samples: list[Sample]) -> Any:
    """Reduce samples of one name; None where there is nothing with a weight."""
    kept = [sample for sample in samples if sample.weight > 0]
    if not kept:
        return None
    values = np.stack([sample.value for sample in kept])
    weights = np.asarray([sample.weight for sample in kept]).reshape((-1,) + (1,) * (values.ndim - 1))
    mean = (weights * values).sum(0) / weights.sum()
    match kept[0].reduce:
        case "mean":
            return mean
        case "sum":
            return (weights * values).sum(0)
        case "max":
            return values.max(0)
        case "min":
            return values.min(0)
        case "std":
            return np.sqrt((weights * (values - mean) ** 2).sum(0) / weights.sum())
        case "last":
            return max(kept, key=lambda sample: sample.order).value
        case "stack" | "rows":
            return stacked(kept)
    raise ValueError(kept[0].reduce)


def stacked(samples: list[Sample]) -> np.ma.MaskedArray:
    """Put each sample at its place; places where none was executed are masked."""
    shape = tuple(n for _, n in samples[0].place) + samples[0].value.shape
    out = np.ma.masked_all(shape)
    for sample in samples:
        index = tuple(i for i, _ in sample.place)
        if not np.ma.getmaskarray(out)[index].all():
            raise ValueError(f"{sample.name} stands twice at {index}")
        out[index] = sample.value
    return out


def expected(samples: list[Sample]) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Return what is expected: metrics by name, and rows by step."""
    whole: dict[str, list[Sample]] = defaultdict(list)
    rows: dict[int, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        (whole if sample.step is None else rows[sample.step])[sample.name].append(sample)
    by_step = {step: _reduced(names) for step, names in rows.items()}
    return _reduced(whole), {step: row for step, row in by_step.items() if row}


def _reduced(names: dict[str, list[Sample]]) -> dict[str, Any]:
    values = {name: reduced(samples) for name, samples in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def dtype_kinds(body: Node) -> dict[str, str]:
    """Return, by name without prefix, the kinds of dtype that the result may have, where that is certain."""
    sites: dict[str, list[Log]] = defaultdict(list)
    for node in walk(body):
        if isinstance(node, Log):
            sites[node.name].append(node)
    kinds = {name: _kinds(nodes) for name, nodes in sites.items()}
    return {name: kind for name, kind in kinds.items() if kind}


def _kinds(nodes: list[Log]) -> str:
    values, reduce = {node.value for node in nodes}, nodes[0].reduce
    if reduce in ("mean", "std"):
        return "f"
    if reduce == "rows":
        return ""
    if values & BOOLS and values <= INTEGERS and reduce != "sum":
        return "biu"  # those under one of the full names that end with this one may all be bools
    weighted = reduce == "sum" and any(node.weight for node in nodes)
    return "iu" if values <= INTEGERS and not weighted else ""
