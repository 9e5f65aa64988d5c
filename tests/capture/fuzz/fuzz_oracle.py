"""What a program logs, by definition: every loop is a Python loop and every sample is written down.

Nothing of JAX and nothing of trackway is used here. Gradients come from a tape in float64, so that the values of
cotangents, too, are known.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from fuzz_nodes import MODULUS, Log, Node, Program

MARGIN = 1e-3
SCALE = 0.75


class AmbiguousError(Exception):
    """A float is too near to where the program branches for float32 to be held to it."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One execution of a log call.

    *order* sorts samples as "the last one" means it. *place* is the position in every loop, lane and device around, and
    the number of them: the index into a stack.
    """

    name: str
    reduce: str
    value: np.ndarray
    weight: float
    order: tuple[Any, ...]
    place: tuple[tuple[int, int], ...]
    step: int | None


class Value:
    """A float64 array on the tape."""

    def __init__(self, data: Any, parents: tuple[tuple[Value, Callable[[Any], Any]], ...] = ()) -> None:
        self.data = np.asarray(data, np.float64)
        self.parents = parents


class Oracle:
    """Runs nodes on (Value, int) and keeps the samples.

    *order* is a sequence of regions, each with positions in the program text and, after them, lanes: vmap turns a
    statement into a statement on all lanes. A loop, a branch or a device is a unit to the vmap around it, and opens a
    new region.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.tape: list[Value] = []
        self.order: tuple[Any, ...] = ((), ())
        self.place: tuple[tuple[int, int], ...] = ()
        self.prefix = ""
        self.muted = False
        self.differentiated = False
        self.step = 0
        self.basis: tuple[tuple[int, int], ...] = ()  # which row of a Jacobian the backward pass is for

    @contextlib.contextmanager
    def at(self, **state: Any) -> Iterator[None]:
        """Set attributes for a block."""
        before = {name: getattr(self, name) for name in state}
        self.__dict__.update(state)
        try:
            yield
        finally:
            self.__dict__.update(before)

    def statement(self, i: int) -> Any:
        """Enter the i-th statement."""
        return self.at(order=(*self.order[:-2], (*self.order[-2], i), self.order[-1]))

    def lane(self, i: int, n: int) -> Any:
        """Enter lane i of n."""
        return self.at(order=(*self.order[:-1], (*self.order[-1], i)), place=(*self.place, (i, n)))

    def unit(self, i: int, n: int | None = None, **state: Any) -> Any:
        """Enter a branch, or with *n* iteration or device i of n."""
        place = self.place if n is None else (*self.place, (i, n))
        return self.at(order=(*self.order, (i,), (), ()), place=place, **state)

    def value(self, data: Any, *parents: tuple[Value, Callable[[Any], Any]]) -> Value:
        """Put a value on the tape."""
        self.tape.append(Value(data, parents))
        return self.tape[-1]

    def linear(self, x: Value, factor: float, offset: Any = 0.0) -> Value:
        """Return factor x + offset."""
        return self.value(x.data * factor + offset, (x, lambda g: g * factor))

    def total(self, terms: list[tuple[Value, float]]) -> Value:
        """Return a weighted sum."""
        parents = ((x, lambda g, factor=factor: g * factor) for x, factor in terms)
        return self.value(sum(x.data * factor for x, factor in terms), *parents)

    def pullback(self, out: Value, cotangent: Any, *, drop: bool = True) -> dict[int, Any]:
        """Run the tape backwards; return the cotangents of its leaves by identity."""
        pending = {id(out): np.asarray(cotangent, np.float64)}
        leaves = {}
        for node in reversed(self.tape):
            if (g := pending.pop(id(node), None)) is None:
                continue
            if not node.parents:
                leaves[id(node)] = g
            for parent, rule in node.parents:
                pending[id(parent)] = pending.get(id(parent), 0.0) + rule(g)
        if drop:
            self.tape = []
        return leaves

    def gradient(self, out: Value, x: Value) -> np.ndarray:
        """Return the gradient of sum(out) for *x*."""
        return self.pullback(out, np.ones_like(out.data)).get(id(x), np.zeros_like(x.data))

    def run(self, node: Node, x: Value, k: int) -> tuple[Value, int]:
        """Run *node*."""
        return getattr(self, "_" + type(node).__name__.lower())(node, x, k)

    def _op(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        d = x.data
        match node.kind:
            case "sin":
                return self.value(np.sin(d), (x, lambda g: g * np.cos(d))), k
            case "tanh":
                return self.value(np.tanh(d), (x, lambda g: g * (1 - np.tanh(d) ** 2))), k
            case "half":
                return self.linear(x, 0.5), k
            case "shift":
                return self.linear(x, 1.0, 0.25), k
            case "mix":
                return self.linear(x, 1.0, (k % 7) * 0.1), k
            case "norm":
                r = (1 + (d * d).sum()) ** -0.5
                return self.value(d * r, (x, lambda g: g * r - d * r**3 * (g * d).sum())), k
        return x, ((k + 1) if node.kind == "count" else (2 * k + 1)) % MODULUS

    def _log(self, node: Log, x: Value, k: int) -> tuple[Value, int]:
        total = x.data.sum()
        values = {
            "x": total, "sin": np.sin(total), "k": k, "even": k % 2 == 0, "one": 1, "half": 0.5, "array": 2.5,
            "bf16": (k % 7) * 0.125 + 1, "pair": [total, k], "ints": [k, k + 1],
        }  # fmt: skip
        weight = {None: 1.0, "const": 0.5, "k": k % 3, "float": (k % 3) * 0.5}[node.weight]
        self._add(node, values[node.value], weight)
        return x, k

    def _add(self, node: Any, value: Any, weight: float) -> None:
        if not self.muted:
            step = self.step if getattr(node, "step", False) else None
            name, value = self.prefix + node.name, np.asarray(value, np.float64)
            place = self.basis + self.place
            self.samples.append(Sample(name, node.reduce, value, weight, self.order, place, step))

    def _logs(self, nodes: tuple[Log, ...], x: Value, k: int) -> None:
        for i, node in enumerate(nodes):
            with self.statement(i):
                self._log(node, x, k)

    def _later(self, function: Callable[..., None]) -> Callable[..., None]:
        """Let *function* run in the backward pass as if it stood here."""
        here = {"order": self.order, "place": self.place, "prefix": self.prefix, "muted": self.muted, "step": self.step}

        def run(*args: Any) -> None:
            with self.at(**here):
                function(*args)

        return run

    def _watch(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        if not self.differentiated:
            return x, k
        log = self._later(lambda g: self._add(node, np.sqrt((g * g).sum()), 1.0))

        def rule(g: Any) -> Any:
            log(g)
            return g

        return self.value(x.data, (x, rule)), k

    def _seq(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        for i, part in enumerate(node.parts):
            with self.statement(i):
                x, k = self.run(part, x, k)
        return x, k

    def _scan(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        ys = []
        times = range(node.length)
        for when, t in enumerate(reversed(times) if node.reverse else times):
            # a stack is aligned with the inputs, while the last sample is the one executed last
            place = (*self.place, (t, node.length))
            with self.unit(when), self.at(place=place, step=t if node.steps else self.step):
                x, k = self.run(node.body, self.linear(x, 1.0, 0.5 * (0.2 * t - 0.3)), (k + t) % MODULUS)
            ys.append((x, 0.1))
        return self.total([(x, 1.0), *ys]), k

    def _fori(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        n = k % 4 if node.n is None else node.n
        for i in range(n):
            with self.unit(i, n):
                x, k = self.run(node.body, x, (k + i) % MODULUS)
        return x, k

    def _while(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        n = k % 4 if node.n is None else node.n
        for i in range(n + 1):
            with self.unit(2 * i):
                self._logs(node.checks, x, k)
            if i < n:
                with self.unit(2 * i + 1):
                    x, k = self.run(node.body, x, k)
        return x, k

    def _cond(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        distance = x.data.sum() - 0.1
        if node.pred == "x" and abs(distance) < MARGIN:
            raise AmbiguousError
        taken = {"true": True, "k": k % 2 == 0, "x": distance > 0}[node.pred]
        with self.unit(0):
            return self.run(node.yes if taken else node.no, x, k)

    def _switch(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        with self.unit(0):
            return self.run(node.branches[min(max(k % 5 - 1, 0), len(node.branches) - 1)], x, k)

    def _lanes(self, node: Any, x: Value, k: int, enter: Any, *, x_varies: bool, k_varies: bool) -> tuple[Value, int]:
        outs = []
        for i in range(node.n):
            lane_x = self.linear(x, 1 - 0.25 * i, 0.3 * i) if x_varies else self.linear(x, 1.0)
            with enter(i, node.n):
                outs.append(self.run(node.body, lane_x, (k + i) % MODULUS if k_varies else k))
        return self.total([(out, 1 / node.n) for out, _ in outs]), sum(k for _, k in outs) % MODULUS

    def _vmap(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        varies = {"x_varies": node.x_axis is not None, "k_varies": node.k_axis is not None}
        return self._lanes(node, x, k, self.lane, **varies)

    def _shardmap(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        return self._lanes(node, x, k, self.unit, x_varies=True, k_varies=True)

    def _jit(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        for i, call in enumerate(node.calls):
            prefix = self.prefix if call in (None, "~") else f"{self.prefix}{call}/"
            with self.statement(i), self.at(prefix=prefix, muted=self.muted or call == "~"):
                x, k = self.run(node.body, x, k)
        return x, k

    def _checkpoint(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        return self.run(node.body, x, k)

    def _scope(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        with self.at(prefix=f"{self.prefix}{node.name}/"):
            return self.run(node.body, x, k)

    def _mute(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        with self.at(muted=True):
            return self.run(node.body, x, k)

    def _rule(self, node: Any, logs: tuple[Log, ...], x: Value, k: int) -> Value:
        """Run a body for its value alone; where it is differentiated, as its rule does."""
        muted = self.muted or (self.differentiated and node.via == "silent")
        if self.differentiated:
            with self.statement(0):
                self._logs(logs, x, k)
        with self.statement(1), self.at(differentiated=False, muted=muted):
            return self.run(node.body, Value(x.data), k)[0]

    def _customjvp(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        out = self._rule(node, node.rule, x, k)
        return self.value(out.data, (x, lambda g: SCALE * g)), k

    def _customvjp(self, node: Any, x: Value, k: int) -> tuple[Value, int]:
        out = self._rule(node, node.fwd, x, k)
        log = self._later(lambda: self._logs(node.bwd, x, k))

        def rule(g: Any) -> Any:
            log()
            return SCALE * g

        return self.value(out.data, (x, rule)), k


def samples(program: Program) -> list[Sample]:
    """Return every sample that *program* logs under its top-level transformation."""
    oracle = Oracle()
    x0, k0 = np.asarray([0.4, -0.2, 0.9] if program.vector else 0.4), program.k
    transform = program.transform
    oracle.differentiated = transform not in ("plain", "vmap")
    if transform in ("vmap", "vmap_grad", "grad_vmap"):
        for i in range(3):
            with oracle.lane(i, 3):
                x = oracle.value(x0 * (1 - 0.25 * i) + 0.3 * i)
                out, _ = oracle.run(program.body, x, (k0 + i) % MODULUS)
                if transform != "vmap":
                    oracle.gradient(out, x)
    elif transform == "scan_grad":
        for t in range(3):
            with oracle.unit(t, 3):
                x = oracle.value(x0)
                x0 = x0 - 0.1 * oracle.gradient(oracle.run(program.body, x, (k0 + t) % MODULUS)[0], x)
    else:
        out, _ = oracle.run(program.body, oracle.value(x0), k0)
        if transform == "jacrev":
            for i in range(max(out.data.size, 1)):
                with oracle.at(basis=((i, out.data.size),)):
                    oracle.pullback(out, np.eye(out.data.size)[i].reshape(out.data.shape), drop=False)
        elif oracle.differentiated and transform not in ("jvp", "linearize", "grad_grad"):
            oracle.pullback(out, np.ones_like(out.data))
    return oracle.samples
