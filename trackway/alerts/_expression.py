"""The source of one condition's value: true, false or None for unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from trackway.alerts._grammar import Condition
from trackway.alerts._nodes import LOGICAL, Binary, Call, Metric, Node, Number, Unary

__all__ = ["Expression"]


@final
class Expression:
    """Writes a condition as lines of assignments, and knows which of their results are never None, and never NaN.

    Attributes:
        lines: What was written so far.
    """

    def __init__(
        self, part: Callable[[Metric | Call], tuple[str, str]], condition: Condition, *, between: bool | None
    ) -> None:
        """Write for a look at a row, between two rows, or (None) as the variable `between` says."""
        self.lines: list[str] = []
        self._part = part
        self._between = between
        triggers = condition.triggers
        self._given = triggers[0][0] if between is False and len(triggers) == 1 and not triggers[0][1] else None
        self._written: dict[Node, str] = {}
        self._known: set[str] = set()
        self._ordered: set[str] = set()  # neither NaN

    def write(self, node: Node) -> str:
        """Write *node*; return the name of the variable, or the constant, that holds it."""
        if node not in self._written:
            self._written[node] = self._write(node)
        return self._written[node]

    def _write(self, node: Node) -> str:
        if isinstance(node, Number):
            return self._constant(node.value)
        if isinstance(node, Binary):
            return self._binary(node.sign, self.write(node.left), self.write(node.right))
        if isinstance(node, Unary):
            operand = self.write(node.operand)
            return self._assign(f"not {operand}" if node.sign == "not" else f"-{operand}", operand)
        if isinstance(node, Call) and node.operand is not None:
            operand = self.write(node.operand)
            source = {"isnan": "{0} != {0}", "isinf": "{0} == inf or {0} == -inf", "abs": "{0} if {0} >= 0.0 else -{0}"}
            return self._assign(source[node.function].format(operand), operand)
        return self._read(node)

    def _read(self, part: Metric | Call) -> str:
        source, needs = self._part(part)
        if isinstance(part, Call) and part.function == "no_data" and self._between is not True:
            source = f"between and {source}" if self._between is None else "False"  # a row is data
        name = self._name(f"{source} if {needs} else None" if needs else source)
        always = {"elapsed", "no_data", "has", "age", "count"} | ({"step"} if self._between is False else set())
        if part == self._given or (isinstance(part, Call) and part.function in always):
            self._known.add(name)
            if part != self._given:
                self._ordered.add(name)
        return name

    def _constant(self, value: float) -> str:
        source = repr(value) if value - value == 0.0 else f"{'-' if value < 0 else ''}inf"
        if value < 0:
            source = f"({source})"
        self._known.add(source)
        self._ordered.add(source)
        return source

    def _binary(self, sign: str, left: str, right: str) -> str:
        if sign in LOGICAL:
            return self._logical(sign, left, right)
        if sign == "/":
            return self._assign(f"{left} / {right} if {right} else None", left, right, sure=False)
        if sign in {"+", "-", "*"}:
            return self._assign(f"{left} {sign} {right}", left, right)
        unordered = [f"{name} != {name}" for name in (left, right) if name not in self._ordered]
        compared = f"{left} {sign} {right}"
        if unordered:
            return self._assign(f"None if {' or '.join(unordered)} else {compared}", left, right, sure=False)
        return self._assign(compared, left, right)

    def _logical(self, sign: str, left: str, right: str) -> str:
        if {left, right} <= self._known:
            return self._assign(f"{left} {sign} {right}", left, right)
        settled, otherwise = ("False", "True") if sign == "and" else ("True", "False")
        return self._name(
            f"{settled} if {left} is {settled} or {right} is {settled} "
            f"else None if {left} is None or {right} is None else {otherwise}"
        )

    def _assign(self, source: str, *operands: str, sure: bool = True) -> str:
        """Assign *source*, or None where one of *operands* is."""
        missing = [f"{name} is None" for name in dict.fromkeys(operands) if name not in self._known]
        name = self._name(f"None if {' or '.join(missing)} else {source}" if missing else source)
        if sure and not missing:
            self._known.add(name)
        return name

    def _name(self, source: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {source}")
        return name
