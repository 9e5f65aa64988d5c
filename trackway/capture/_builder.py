"""Equations and metrics of a jaxpr that is being rewritten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp

from trackway.capture import _jaxcompat as compat
from trackway.capture._combine import combine, step_type
from trackway.capture._primitive import TRACED, Group, Metric, parts
from trackway.capture._settings import differ, problem
from trackway.errors import CaptureError

__all__ = ["Builder", "Crossing", "Entry"]


@dataclass
class Entry:
    """A metric of a jaxpr, with atoms (variables and literals) for its arrays."""

    metric: Metric
    atoms: list[Any]


@final
class Builder:
    """Collects the equations and the metrics of a new jaxpr."""

    def __init__(self, equations: Iterable[Any] = (), context: Any = None) -> None:
        """Begin with *equations*; *context* is an equation in whose context others are added."""
        self.equations: list[Any] = list(equations)
        self.context = context if context is not None else next(iter(self.equations), None)
        self.entries: dict[str, Entry] = {}
        self._given_up: set[str] = set()
        self._makers: dict[Any, Any] = {}
        self._made = 0

    def emit(self, function: Callable[..., Sequence[Any]], *atoms: Any) -> list[Any]:
        """Add the equations of a function of the arrays of *atoms*; return the atoms of its results."""

        def flat(*arrays: Any) -> list[Any]:
            return [x if hasattr(x, "aval") else jnp.asarray(x) for x in function(*arrays)]

        with compat.context_of(self.context), compat.usual_promotion():
            jaxpr, consts = compat.trace_flat(flat, [atom.aval for atom in atoms])
        return self.inline(compat.closed(jaxpr, consts), atoms)

    def inline(self, closed: Any, atoms: Sequence[Any]) -> list[Any]:
        """Add the equations of *closed* with fresh variables; return the atoms of its outputs."""
        jaxpr = closed.jaxpr
        known = dict(zip(jaxpr.invars, atoms, strict=True))
        for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
            known[variable] = compat.constant(value, variable.aval)

        def atom(variable: Any) -> Any:
            return variable if isinstance(variable, compat.Literal) else known[variable]

        for equation in jaxpr.eqns:
            outputs = [compat.Var(variable.aval) for variable in equation.outvars]
            self.equations.append(equation.replace(invars=[atom(v) for v in equation.invars], outvars=outputs))
            known.update(zip(equation.outvars, outputs, strict=True))
        return [atom(variable) for variable in jaxpr.outvars]

    def rename(self, atom: Any, variable: Any) -> None:
        """Let *variable* be what the equation that was added for *atom* defines."""
        for at in range(len(self.equations) - 1, -1, -1):
            outputs = self.equations[at].outvars
            if any(output is atom for output in outputs):
                renamed = [variable if output is atom else output for output in outputs]
                self.equations[at] = self.equations[at].replace(outvars=renamed)
                return
        raise AssertionError("no equation defines it")

    def add_all(self, group: Group, atoms: Sequence[Any], prefix: str = "") -> None:
        """Add the metrics of *group*, whose arrays are *atoms*, to what was logged before."""
        for metric, share in parts(group, atoms):
            self.add(Entry(metric.prefixed(prefix), share))

    def add(self, entry: Entry) -> None:
        """Add one metric; where its name was logged before, combine the two, or give up both."""
        name = entry.metric.name
        if name in self._given_up:
            return
        earlier = self.entries.get(name)
        if earlier is None:
            self.entries[name] = entry
            return
        self._check_step(earlier, entry)
        try:
            self.entries[name] = self.combine([(earlier, entry)])[0]
        except CaptureError as error:
            del self.entries[name]
            self._given_up.add(name)
            problem(name, str(error), entry.metric.line)

    def combine(self, pairs: Sequence[tuple[Entry, Entry]]) -> list[Entry]:
        """Return, for each pair, the entry of the samples of both; one trace serves them all.

        Raises:
            CaptureError: if two cannot be combined.
        """

        def combined(shares: list[list[Any]]) -> list[tuple[Metric, list[Any]]]:
            firsts, seconds = shares[::2], shares[1::2]
            return [
                combine(first.metric, xs, second.metric, ys)
                for (first, second), xs, ys in zip(pairs, firsts, seconds, strict=True)
            ]

        return self.derive([entry for pair in pairs for entry in pair], combined)

    def derive(
        self, entries: Sequence[Entry], function: Callable[[list[list[Any]]], list[tuple[Metric, list[Any]]]]
    ) -> list[Entry]:
        """Return the entries that *function* makes of the arrays of *entries*, adding its equations."""
        metrics: list[Metric] = []
        place: dict[int, int] = {}  # an atom that occurs twice, such as a step, is one array
        distinct: list[Any] = []
        for atom in (atom for entry in entries for atom in entry.atoms):
            if id(atom) not in place:
                place[id(atom)] = len(distinct)
                distinct.append(atom)

        def flat(*arrays: Any) -> list[Any]:
            results = function([[arrays[place[id(atom)]] for atom in entry.atoms] for entry in entries])
            metrics[:] = [metric for metric, _ in results]
            return [x for _, xs in results for x in xs]

        atoms = self.emit(flat, *distinct)
        return [Entry(metric, share) for metric, share in parts(tuple(metrics), atoms)]

    def check_steps(self) -> None:
        """Report metrics whose steps are known to differ: a call of a compiled function has one."""
        entries = [e for e in self.entries.values() if e.metric.step is not None and not e.metric.kind.stacked]
        for entry in entries[1:]:
            self._check_step(entries[0], entry)

    def _check_step(self, first: Entry, second: Entry) -> None:
        a, b = first.metric, second.metric
        if a.kind.stacked or b.kind.stacked or None in (a.step, b.step):
            return
        if a.step is TRACED and b.step is TRACED and first.atoms[-1] is second.atoms[-1]:
            return
        (base_a, plus_a), (base_b, plus_b) = self._step_of(first), self._step_of(second)
        if base_a is base_b and plus_a != plus_b:  # otherwise, for all that is known, they may be the same
            differ(a.name, b.name, b.line)

    def step_from(self, entry: Entry, variables: Sequence[Any]) -> tuple[int, int] | None:
        """Return which of *variables* the traced step of a metric is, and what is added to it; None for no such."""
        if entry.metric.step is not TRACED:
            return None
        origin, offset = self._origin(entry.atoms[-1])
        return next(((at, offset) for at, variable in enumerate(variables) if variable is origin), None)

    def _step_of(self, entry: Entry) -> tuple[Any, int]:
        step: Any = entry.metric.step
        return self._origin(entry.atoms[-1]) if step is TRACED else (None, step)

    def _origin(self, atom: Any) -> tuple[Any, int]:
        """Return the variable that *atom* is, up to a known difference, and that difference."""
        if len(self.equations) != self._made:
            self._makers = {variable: equation for equation in self.equations for variable in equation.outvars}
            self._made = len(self.equations)
        makers = self._makers
        offset = 0
        while not isinstance(atom, compat.Literal) and atom in makers:
            equation = makers[atom]
            name, inputs = equation.primitive.name, equation.invars
            if name in ("stop_gradient", "reshape", "copy") or (
                name == "convert_element_type" and _keeps_steps(inputs[0].aval.dtype, equation.outvars[0].aval.dtype)
            ):
                atom = inputs[0]
            elif name in ("add", "sub") and isinstance(inputs[1], compat.Literal) and not inputs[1].aval.shape:
                atom, offset = inputs[0], offset + int(inputs[1].val) * (1 if name == "add" else -1)
            else:
                break
        return (None, int(atom.val)) if isinstance(atom, compat.Literal) else (atom, offset)

    def outputs(self) -> tuple[Group, list[Any]]:
        """Return the metrics and their atoms, of which some may be the same."""
        group = tuple(entry.metric for entry in self.entries.values())
        return group, [atom for entry in self.entries.values() for atom in entry.atoms]


def _keeps_steps(before: Any, after: Any) -> bool:
    """Tell whether integers of one type are the same ones in the other, and whether adding to them is."""
    both = jnp.issubdtype(before, jnp.signedinteger) and jnp.issubdtype(after, jnp.signedinteger)
    return bool(both and jnp.iinfo(before).bits == jnp.iinfo(after).bits == jnp.iinfo(step_type()).bits)


@final
class Crossing:
    """How atoms of an inner jaxpr leave it: each variable once, and what came in or is a literal not at all.

    Attributes:
        kept: The inner variables that have to be outputs.
    """

    def __init__(self, atoms: Sequence[Any], entered: Sequence[Any] = ()) -> None:
        """Let *atoms* out; *entered* are the inner variables whose outer atoms are known."""
        self._atoms = list(atoms)
        self._entered = {id(variable): at for at, variable in enumerate(entered)}
        self.kept: list[Any] = []
        self._place: dict[int, int] = {}
        for atom in atoms:
            if isinstance(atom, compat.Literal) or id(atom) in self._entered or id(atom) in self._place:
                continue
            self._place[id(atom)] = len(self.kept)
            self.kept.append(atom)

    def outer(self, outputs: Sequence[Any], entered: Sequence[Any] = ()) -> list[Any]:
        """Return the outer atoms (or arrays), given those of `kept` and of what entered."""
        return [self._outer(atom, outputs, entered) for atom in self._atoms]

    def _outer(self, atom: Any, outputs: Sequence[Any], entered: Sequence[Any]) -> Any:
        if isinstance(atom, compat.Literal):
            return atom
        if id(atom) in self._entered:
            return entered[self._entered[id(atom)]]
        return outputs[self._place[id(atom)]]
