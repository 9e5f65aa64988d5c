"""At what times a condition may begin to hold without a row."""

from __future__ import annotations

from trackway.alerts._grammar import Condition
from trackway.alerts._nodes import Binary, Call, Metric, Number, walk

__all__ = ["Deadline", "deadlines"]

Deadline = tuple[str, Metric | None, float]
"""The function of time, the metric whose newest point it counts from, and the seconds."""

_TIMES = frozenset({"age", "elapsed"})


def deadlines(condition: Condition) -> list[Deadline] | None:
    """Return them; None if they do not show, so that one has to look now and then."""
    found: list[Deadline] = []
    asked = 0
    for node in walk(condition.root):
        if isinstance(node, Call) and node.function == "no_data":
            found.append(("no_data", None, node.parameter or 0.0))
        elif isinstance(node, Call) and node.function in _TIMES:
            asked += 1
        elif isinstance(node, Binary):
            found += _compared(node)
    return found if asked == sum(kind != "no_data" for kind, _, _ in found) else None


def _compared(node: Binary) -> list[Deadline]:
    time, limit = (node.left, node.right) if node.sign in {">", ">="} else (node.right, node.left)
    if node.sign in {"<", "<=", ">", ">="} and isinstance(time, Call) and isinstance(limit, Number):
        return [(time.function, time.metric, limit.value)] if time.function in _TIMES else []
    return []
