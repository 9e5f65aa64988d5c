"""A rule in plain English."""

from __future__ import annotations

from typing import Any

from trackway.alerts._functions import FUNCTIONS
from trackway.alerts._grammar import Condition, parse_condition
from trackway.alerts._nodes import COMPARING, Binary, Call, Metric, Node, Unary, duration_text
from trackway.alerts._rule import AlertRule

__all__ = ["explain"]

_VERBS = {
    "<": "is less than",
    "<=": "is at most",
    ">": "is greater than",
    ">=": "is at least",
    "==": "equals",
    "!=": "differs from",
}
_TRUTHS = {
    "isnan": "{} is NaN",
    "isinf": "{} is infinite",
    "has": "{} was logged at least once",
    "increasing": "each value of {} is larger than the one before",
    "decreasing": "each value of {} is smaller than the one before",
}


def explain(rule: AlertRule) -> dict[str, Any]:
    """Return what *rule* does, by topics: texts, and lists of texts, in the order in which they are to be read."""
    condition = parse_condition(rule.when)
    metrics = list(dict.fromkeys(metric.name for part in condition.parts if (metric := _metric(part)) is not None))
    return {
        "condition": str(condition.root),
        "metrics": metrics,
        "meaning": sentence(condition.root),
        "values": [text for part in condition.parts if (text := _part(part))],
        "looks": _looks(condition),
        "fires": _fires(rule),
        "level": rule.level,
        "title": rule.title,
        "channels": "those of the run" if rule.channels is None else ", ".join(rule.channels) or "none",
    }


def _metric(part: Metric | Call) -> Metric | None:
    return part if isinstance(part, Metric) else part.metric


def sentence(node: Node) -> str:
    """Return a condition, or a part of one, in words."""
    if isinstance(node, Unary) and node.sign == "not":
        inner = sentence(node.operand)
        return f"it is not so that {f'({inner})' if isinstance(node.operand, Binary | Unary) else inner}"
    if isinstance(node, Binary) and node.sign in COMPARING:
        return f"{node.left} {_VERBS[node.sign]} {node.right}"
    if isinstance(node, Binary) and node.sign in {"and", "or"}:
        sides = [f"({sentence(side)})" if _mixed(node, side) else sentence(side) for side in (node.left, node.right)]
        return f"{sides[0]} {node.sign} {sides[1]}"
    if isinstance(node, Call) and FUNCTIONS[node.function].gives == "truth":
        return _truth(node)
    return str(node)


def _mixed(node: Binary, side: Node) -> bool:
    return isinstance(side, Unary) or (
        isinstance(side, Binary) and side.sign in {"and", "or"} and side.sign != node.sign
    )


def _truth(call: Call) -> str:
    if call.function == "no_data":
        return f"no row was accepted for {duration_text(call.parameter or 0.0)}"
    if call.function == "stalled":
        return f"all values of {call.metric}{call.window} lie within {call.parameter or 0:g} of one another"
    return _TRUTHS[call.function].format(
        call.operand if call.operand is not None else f"{call.metric}{call.window or ''}"
    )


def _part(part: Metric | Call) -> str:
    """What one value in a condition is, and when it is unknown; nothing where that was said."""
    if isinstance(part, Metric):
        return f"{part} is its newest value; unknown before the first"
    function = FUNCTIONS[part.function]
    if part.metric is None:
        return "" if part.function == "no_data" else f"{part} is {function.meaning}"
    if function.takes == "metric":
        since = "; before that, since the first row" if part.function == "age" else ""
        return "" if part.function == "has" else f"{part} is {function.meaning}{since}"
    what = "tells" if function.gives == "truth" else "is"
    return f"{part} {what} {function.meaning}, {_of(part)}{_unfilled(part)}"


def _of(part: Call) -> str:
    window = part.window
    if window is not None and window.seconds is not None:
        return f"over the finite values of {part.metric} of the last {duration_text(window.seconds)}"
    if part.function == "ema":
        alpha = part.parameter if part.parameter is not None else 2 / (((window.points if window else 1) or 1) + 1)
        return f"over the finite values of {part.metric}, the newest of which weighs {alpha:.3g}"
    if window is not None and window.points is not None:
        return (
            f"over the last {window.points} finite values of {part.metric}"
            if window.points > 1
            else f"of {part.metric}"
        )
    return f"over all finite values of {part.metric}"


def _unfilled(part: Call) -> str:
    window = part.window
    if part.function == "count":
        return ""
    if window is not None and window.seconds is not None:
        return f"; unknown until its first one is {duration_text(window.seconds)} old"
    least = window.points if window is not None and window.points else FUNCTIONS[part.function].least
    return f"; unknown until there are {least}" if least > 1 else "; unknown until there is one"


def _looks(condition: Condition) -> str:
    triggers = condition.triggers
    names = [f"a finite value of {metric}" if finite else f"{metric}" for metric, finite in triggers]
    rows = f"at each row that has {' or '.join(names)}" if names else "at each row"
    return f"{rows}, and between rows" if condition.timed else rows


def _fires(rule: AlertRule) -> str:
    holds = "as soon as it holds"
    if rule.for_points > 1:
        holds = f"once it has held at {rule.for_points} looks in succession"
    if rule.for_seconds:
        lasting = f"for {duration_text(rule.for_seconds)}"
        holds = f"{holds} and {lasting}" if rule.for_points > 1 else f"once it has held {lasting}"
    again = "again whenever it holds" if rule.mode == "level" else "again only after it has ceased to hold"
    parts = [holds, again]
    if rule.cooldown:
        parts.append(f"not within {duration_text(rule.cooldown)} of the last time")
    if rule.max_fires is not None:
        parts.append(f"{rule.max_fires} times at most" if rule.max_fires > 1 else "once at most")
    if rule.recovery:
        parts.append("says so when it no longer holds")
    return "; ".join(parts)
