"""Jaxprs with logs become jaxprs without, and the metrics as variables of theirs.

Only equations that hold a log are looked into; all others are taken over as the objects they are. Jaxprs are never
changed: JAX keeps and shares them. What became of one is remembered as long as it lives, so that an inner function
that JAX traced once is rewritten once, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple, TypeVar

from trackway.capture import _jaxcompat as compat
from trackway.capture._builder import Builder
from trackway.capture._primitive import Group, has_log, log_p, without_log
from trackway.capture._scopes import prefix_from
from trackway.capture._settings import Loss, problem, recorded, report

__all__ = [
    "Rewritten",
    "metrics_in",
    "prefix_of",
    "remember",
    "rewrite",
    "rule",
    "strip",
    "stripped_params",
    "without_logs",
]

T = TypeVar("T")
Rule = Callable[[Builder, Any, str], None]


class Rewritten(NamedTuple):
    """A jaxpr without its logs."""

    jaxpr: Any
    """Inputs and outputs as before."""
    group: Group
    """What was logged in it."""
    atoms: tuple[Any, ...]
    """The variables and literals of `jaxpr` that hold the arrays of `group`."""


_rules: dict[str, Rule] = {}
_memory: dict[tuple[int, Hashable], tuple[Any, Any, tuple[Loss, ...]]] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how equations of the primitives *names* are rewritten.

    A rule gets the builder of the new jaxpr, the equation, and the prefix of the names logged in it.
    """

    def register(function: Rule) -> Rule:
        _rules.update(dict.fromkeys(names, function))
        return function

    return register


def remember(jaxpr: Any, key: Hashable, make: Callable[[], T]) -> T:
    """Return what *make* returned for this *jaxpr* and *key* first; losses are reported each time."""
    place = id(jaxpr), key
    known = _memory.get(place)
    if known is not None and known[0]() is jaxpr:
        for loss in known[2]:
            report(loss)
        value: T = known[1]
        return value
    value, lost = recorded(make)
    _memory[place] = weakref.ref(jaxpr, lambda _: _memory.pop(place, None)), value, lost
    return value


def rewrite(jaxpr: Any) -> Rewritten:
    """Return *jaxpr*, open or closed, without its logs.

    Raises:
        CaptureError: if something in it cannot be captured and the settings ask for it.
    """
    open_jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return remember(open_jaxpr, "rewritten", lambda: _rewrite(open_jaxpr))


def _rewrite(jaxpr: Any) -> Rewritten:
    builder = Builder()
    for equation in jaxpr.eqns:
        prefix = prefix_of(equation)
        if prefix is None or not has_log(equation.effects):
            builder.equations.append(_without_hidden_logs(equation))
            continue
        builder.context = equation
        if equation.primitive is log_p:
            builder.add_all(equation.params["group"], equation.invars, prefix)
            continue
        known = _rules.get(equation.primitive.name)
        if known is None:
            builder.equations.append(strip(equation))
        else:
            known(builder, equation, prefix)
    builder.equations = [equation for equation in builder.equations if equation.primitive is not log_p]
    builder.check_steps()
    group, atoms = builder.outputs()
    new = jaxpr.replace(eqns=builder.equations, effects=without_log(jaxpr.effects))
    return Rewritten(new, group, tuple(atoms))


def prefix_of(holder: Any) -> str | None:
    """Return what the scopes around an equation, or its lowering, put before the names in it; None where muted."""
    return prefix_from(compat.scope_names(holder))


# --- what cannot be captured ---


def _without_hidden_logs(equation: Any) -> Any:
    """Return *equation*, which shows no log, without those that it hides or that are muted."""
    if has_log(equation.effects):
        return _stripped(equation)
    return strip(equation) if _equation_holds_log(equation) else equation


def strip(equation: Any) -> Any:
    """Return *equation* without the logs in it, each of which is reported as lost.

    A log has no outputs: taking it out changes nothing else, whatever the primitive does with its functions.
    """
    where = equation.primitive.name
    reason = (
        f"is logged inside `{where}`, which trackway cannot look into; log it outside, from a value that it returns"
    )
    for name, line in dict(metrics_in(equation)).items():
        problem(name, reason, line)
    return _stripped(equation)


def metrics_in(equation: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield name and line of the metrics that are logged in an equation."""
    if equation.primitive is log_p:
        for metric in equation.params["group"]:
            yield f"{prefix}{metric.name}", metric.line
        return
    for value in equation.params.values():
        for jaxpr in _jaxprs(value):
            for inner in jaxpr.eqns:
                scope = prefix_of(inner)
                if scope is not None:
                    yield from metrics_in(inner, prefix + scope)


def _stripped(equation: Any) -> Any:
    return equation.replace(params=stripped_params(equation.params), effects=without_log(equation.effects))


def stripped_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an equation without the logs in their jaxprs."""
    return {name: _map_jaxprs(value, without_logs) for name, value in params.items()}


def without_logs(jaxpr: Any) -> Any:
    """Return *jaxpr* without its logs and those in it."""
    return remember(jaxpr, "without", lambda: _without_logs(jaxpr))


def _without_logs(jaxpr: Any) -> Any:
    kept = [equation for equation in jaxpr.eqns if equation.primitive is not log_p]
    kept = [_stripped(equation) if _equation_holds_log(equation) else equation for equation in kept]
    return jaxpr.replace(eqns=kept, effects=without_log(jaxpr.effects))


def _holds_log(value: Any) -> bool:
    return any(map(_jaxpr_holds_log, _jaxprs(value)))


def _jaxpr_holds_log(jaxpr: Any) -> bool:
    return has_log(jaxpr.effects) or remember(jaxpr, "holds", lambda: any(map(_equation_holds_log, jaxpr.eqns)))


def _equation_holds_log(equation: Any) -> bool:
    return equation.primitive is log_p or any(map(_holds_log, equation.params.values()))


def _jaxprs(value: Any) -> Iterator[Any]:
    """Yield the open jaxprs in a parameter of an equation."""
    if isinstance(value, compat.Jaxpr):
        yield value
    elif isinstance(value, compat.ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _jaxprs(item)
    elif isinstance(value, dict):
        yield from _jaxprs(list(value.values()))


def _map_jaxprs(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, compat.Jaxpr):
        return change(value)
    if isinstance(value, compat.ClosedJaxpr):
        return compat.closed(change(value.jaxpr), value.consts)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_jaxprs(item, change) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(_map_jaxprs(item, change) for item in value)
    if isinstance(value, dict):
        return {name: _map_jaxprs(item, change) for name, item in value.items()}
    return value
