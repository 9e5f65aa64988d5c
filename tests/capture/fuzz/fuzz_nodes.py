"""Random programs as data: what both interpreters read.

A program works on a state of two values: *x*, a float32 scalar or vector of three, and *k*, an int32 scalar in [0, 97).
Control flow is decided by *k*, which is exact, or from *x* with a margin (`fuzz_oracle.AmbiguousError`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

MODULUS = 97


class Node:
    """A part of a program; shown as the expression that makes it, defaults left out."""

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)
        shown = [f"{f.name}={getattr(self, f.name)!r}" for f in fields if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclasses.dataclass(frozen=True, repr=False)
class Op(Node):
    """Arithmetic on the state: one of `OPS`."""

    kind: str


@dataclasses.dataclass(frozen=True, repr=False)
class Log(Node):
    """One log call. *value* and *weight* are names of expressions; *step*: give the step of the loop."""

    name: str
    value: str
    reduce: str
    weight: str | None = None
    step: bool = False


@dataclasses.dataclass(frozen=True, repr=False)
class Watch(Node):
    """Log the norm of the cotangent of *x* in the backward pass."""

    name: str
    reduce: str


@dataclasses.dataclass(frozen=True, repr=False)
class Seq(Node):
    """One after the other."""

    parts: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, repr=False)
class Scan(Node):
    """`lax.scan`; *steps*: the iteration is the step that logs below may give."""

    body: Node
    length: int
    reverse: bool = False
    unroll: int = 1
    steps: bool = False


@dataclasses.dataclass(frozen=True, repr=False)
class Fori(Node):
    """`lax.fori_loop`; without *n* the number of trips is traced: k % 4."""

    body: Node
    n: int | None


@dataclasses.dataclass(frozen=True, repr=False)
class While(Node):
    """`lax.while_loop`; without *n* the number of trips is k % 4; *checks* are logged by the condition."""

    body: Node
    n: int | None
    checks: tuple[Log, ...] = ()


@dataclasses.dataclass(frozen=True, repr=False)
class Cond(Node):
    """`lax.cond` on *pred*: "k" (k is even), "x" (the sum of x is over 0.1) or "true" (a Python bool)."""

    pred: str
    yes: Node
    no: Node


@dataclasses.dataclass(frozen=True, repr=False)
class Switch(Node):
    """`lax.switch` on k % 5 - 1, which is clamped."""

    branches: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, repr=False)
class Vmap(Node):
    """`jax.vmap` over *n* lanes made from the state; an axis of None gives every lane the same."""

    body: Node
    n: int
    x_axis: int | None
    k_axis: int | None


@dataclasses.dataclass(frozen=True, repr=False)
class Jit(Node):
    """One jitted function, called once for each of *calls*: None, a scope's name, or "~" for a muted call."""

    body: Node
    calls: tuple[str | None, ...] = (None,)


@dataclasses.dataclass(frozen=True, repr=False)
class Checkpoint(Node):
    """`jax.checkpoint` with a policy of `jax.checkpoint_policies`, or None."""

    body: Node
    policy: str | None


@dataclasses.dataclass(frozen=True, repr=False)
class CustomJvp(Node):
    """`jax.custom_jvp`; the rule logs *rule* and gets its output *via* "self", "body" or "silent" (no logs)."""

    body: Node
    rule: tuple[Log, ...]
    via: str


@dataclasses.dataclass(frozen=True, repr=False)
class CustomVjp(Node):
    """`jax.custom_vjp`; the forward rule logs *fwd*, the backward rule *bwd* (values of the saved state)."""

    body: Node
    fwd: tuple[Log, ...]
    bwd: tuple[Log, ...]
    via: str


@dataclasses.dataclass(frozen=True, repr=False)
class Scope(Node):
    """Prefix the names below."""

    body: Node
    name: str


@dataclasses.dataclass(frozen=True, repr=False)
class Mute(Node):
    """Log nothing below."""

    body: Node


@dataclasses.dataclass(frozen=True, repr=False)
class ShardMap(Node):
    """`jax.shard_map` over *n* devices."""

    body: Node
    n: int
    check_vma: bool


@dataclasses.dataclass(frozen=True, repr=False)
class Program(Node):
    """A whole program: a body under a top-level transformation, and how its logs are captured."""

    body: Node
    transform: str = "plain"
    delivery: str = "jit_capture"
    vector: bool = False
    k: int = 5


def inner(node: Node) -> Iterator[tuple[str, int | None, Node]]:
    """Yield (field, position or None, part) for every part of *node*."""
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            yield field.name, None, value
        elif isinstance(value, tuple):
            yield from ((field.name, i, item) for i, item in enumerate(value) if isinstance(item, Node))


def walk(node: Node) -> Iterator[Node]:
    """Yield *node* and everything in it."""
    yield node
    for _, _, part in inner(node):
        yield from walk(part)


def put(node: Node, field: str, position: int | None, part: Node | None) -> Node:
    """Return *node* with one part exchanged, or left out where *part* is None."""
    if position is None:
        return dataclasses.replace(node, **{field: part})
    items: list[Any] = list(getattr(node, field))
    items[position : position + 1] = [] if part is None else [part]
    return dataclasses.replace(node, **{field: tuple(items)})


def smaller(node: Node) -> Iterator[Node]:
    """Yield variants of *node* that are one step simpler, the greatest step first."""
    parts = list(inner(node))
    yield from (part for _, _, part in parts if not isinstance(node, Seq) or len(parts) > 1)
    for field, position, _ in parts:
        if position is not None and not (isinstance(node, Switch) and len(parts) == 1):
            yield put(node, field, position, None)
    if isinstance(node, Scan | Fori | While | Vmap):
        count = "length" if isinstance(node, Scan) else "n"
        value = getattr(node, count)
        yield from (dataclasses.replace(node, **{count: n}) for n in (1, 2) if value is not None and n < value)
    plain = {"reverse": False, "unroll": 1, "weight": None, "policy": None, "calls": (None,)}
    for field, value in plain.items():
        if getattr(node, field, value) != value:
            yield dataclasses.replace(node, **{field: value})
    for field, position, part in parts:
        yield from (put(node, field, position, variant) for variant in smaller(part))


def simpler(program: Program) -> Iterator[Program]:
    """Yield variants of *program* that are one step simpler."""
    if program.transform != "plain":
        yield dataclasses.replace(program, transform="plain")
    if program.transform not in ("plain", "grad"):
        yield dataclasses.replace(program, transform="grad")
    if program.vector:
        yield dataclasses.replace(program, vector=False)
    if program.delivery != "jit_capture":
        yield dataclasses.replace(program, delivery="jit_capture")
    yield from (dataclasses.replace(program, body=body) for body in smaller(program.body))
