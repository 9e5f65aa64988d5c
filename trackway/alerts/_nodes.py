"""What a condition consists of after parsing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, final

from trackway.alerts._functions import FUNCTIONS

__all__ = [
    "Binary",
    "Call",
    "Metric",
    "Node",
    "Number",
    "Unary",
    "Window",
    "duration_text",
    "name_text",
    "parts",
    "walk",
]

_PLAIN_NAME = re.compile(r"[^\W\d]\w*(?:[/.]\w+)*")
RESERVED = frozenset({"and", "or", "not", "for", "nan", "inf", "infinity", "true", "false", *FUNCTIONS})
"""Names that mean something else unless they stand in backticks."""

LOGICAL = frozenset({"and", "or"})
COMPARING = frozenset({"<", "<=", ">", ">=", "==", "!="})
_BINDING = {"or": 1, "and": 2, "not": 3, "compare": 4, "+": 5, "-": 5, "*": 6, "/": 6, "negative": 7}


@final
@dataclass(frozen=True, slots=True)
class Number:
    """A constant; a duration is one, in seconds."""

    value: float
    duration: bool = False

    def __str__(self) -> str:
        if self.duration:
            return duration_text(self.value)
        return f"{self.value:g}" if float(f"{self.value:g}") == self.value else repr(self.value)


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """The newest value of a metric."""

    name: str
    quoted: bool = False
    """Whether the name has a dot, and is meant as it stands."""

    def __str__(self) -> str:
        return name_text(self.name, quoted=self.quoted)


@final
@dataclass(frozen=True, slots=True)
class Window:
    """The newest points of a metric: so many, or those of so many seconds; neither: all of them."""

    points: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        if self.points is not None:
            return f"[{self.points}]"
        return "" if self.seconds is None else f"[{duration_text(self.seconds)}]"


@final
@dataclass(frozen=True, slots=True)
class Call:
    """A function of a metric's points, of an expression (`isnan`), or of time (`elapsed`)."""

    function: str
    metric: Metric | None = None
    window: Window | None = None
    operand: Node | None = None
    parameter: float | None = None

    def __str__(self) -> str:
        if self.function in {"step", "elapsed"}:
            return self.function
        if self.function == "no_data":
            return f"no_data({duration_text(self.parameter or 0.0)})"
        given = [str(self.operand)] if self.operand is not None else [f"{self.metric}{self.window or ''}"]
        if self.parameter is not None:
            given.append(str(Number(self.parameter)))
        return f"{self.function}({', '.join(given)})"


@final
@dataclass(frozen=True, slots=True)
class Unary:
    """`not` or the sign."""

    sign: str
    operand: Node

    def __str__(self) -> str:
        binding = _BINDING["not" if self.sign == "not" else "negative"]
        return f"{self.sign}{' ' if self.sign == 'not' else ''}{_bracketed(self.operand, binding)}"


@final
@dataclass(frozen=True, slots=True)
class Binary:
    """Two expressions and what stands between them."""

    sign: str
    left: Node
    right: Node

    def __str__(self) -> str:
        binding = _binding(self)
        left = _bracketed(self.left, binding + (self.sign in COMPARING))
        return f"{left} {self.sign} {_bracketed(self.right, binding + 1)}"


Node: TypeAlias = Number | Metric | Call | Unary | Binary


def _binding(node: Node) -> int:
    if isinstance(node, Binary):
        return _BINDING["compare" if node.sign in COMPARING else node.sign]
    if isinstance(node, Unary):
        return _BINDING["not" if node.sign == "not" else "negative"]
    return 9


def _bracketed(node: Node, binding: int) -> str:
    return str(node) if _binding(node) >= binding else f"({node})"


def walk(node: Node) -> Iterator[Node]:
    """Yield *node* and all below it, from the left."""
    yield node
    if isinstance(node, Binary):
        yield from walk(node.left)
        yield from walk(node.right)
    elif isinstance(node, Unary | Call) and node.operand is not None:
        yield from walk(node.operand)


def parts(node: Node) -> list[Metric | Call]:
    """Return what *node* reads, each once: metrics, and functions of their points or of time."""
    found = [
        part for part in walk(node) if isinstance(part, Metric) or (isinstance(part, Call) and part.operand is None)
    ]
    return list(dict.fromkeys(found))


def name_text(name: str, *, quoted: bool = False) -> str:
    """Return a metric's name as a rule has it, in backticks where it needs them."""
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in RESERVED and not (quoted and "." in name):
        return name
    return "`" + name.replace("`", "``") + "`"


def duration_text(seconds: float) -> str:
    """Return *seconds* as a rule has them: "90s", "10m", "2h"."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{Number(seconds)}s"
