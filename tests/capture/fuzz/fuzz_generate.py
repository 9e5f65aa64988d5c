"""Random programs that are legal JAX, and whose logs are legal too."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from fuzz_nodes import (
    Checkpoint,
    Cond,
    CustomJvp,
    CustomVjp,
    Fori,
    Jit,
    Log,
    Mute,
    Node,
    Op,
    Program,
    Scan,
    Scope,
    Seq,
    ShardMap,
    Switch,
    Vmap,
    Watch,
    While,
    walk,
)

FORWARD = ("jvp", "linearize")
TRANSFORMS = {
    "plain": 5, "vmap": 3, "grad": 3, "value_and_grad": 2, "vjp": 1, "jvp": 2, "linearize": 1, "vmap_grad": 2,
    "grad_vmap": 2, "scan_grad": 2, "grad_checkpoint": 1, "grad_jit": 1, "jacrev": 1, "grad_grad": 1,
}  # fmt: skip
REDUCTIONS = ("sum", "sum", "mean", "mean", "max", "min", "last", "std")
OPS = ("sin", "tanh", "half", "shift", "mix", "norm", "count", "double")
SCALARS, VECTORS = ("x", "x", "x", "sin", "k", "k", "even", "one", "half", "array", "bf16"), ("pair", "ints")
POLICIES = (None, None, "everything_saveable", "nothing_saveable", "dots_saveable")
CONSTANTS = {"one", "half", "array"}
FLOATS = {"x", "sin", "half", "pair"}


@dataclasses.dataclass(frozen=True)
class Place:
    """What is legal where a node stands."""

    depth: int
    mode: str  # "none", "fwd" or "rev": how the place is differentiated
    rules: bool  # custom derivative rules are understood by the transformation
    budget: int  # how many more times over the place may be executed
    lanes: bool = False  # under a vmap
    select: bool = False  # under a vmap, in control flow that JAX turns into a select
    stack: bool = True  # a stack may stand here
    muted: bool = False
    shared: bool = False  # x may be the same value in all lanes, its cotangent the sum over them
    rows: bool = False  # in one loop, which runs forward: a row of its own for each iteration
    steps: bool = False  # the loop around gives the step
    looped: bool = False  # in a loop, a lane or a branch: no place for rows any more
    sharded: bool = False
    custom: bool = False  # in a function with a derivative of its own, or in that: one type for each name
    vma: bool = False

    def inside(self, **changes: Any) -> Place:
        """Return the place in a node that stands here."""
        return dataclasses.replace(self, depth=self.depth - 1, **changes)


class Generator:
    """Makes one program from one seed."""

    def __init__(self, seed: int, *, shard: bool, devices: int) -> None:
        self.random = random.Random(seed)
        self.shard = shard
        self.mesh = self.random.choice([n for n in (2, 4) if n <= devices] or [1])
        self.fresh = 0
        self.size = 0  # how many more nodes the program may have: compiling dominates the time
        self.stepped = False  # one loop at most gives steps: a step is given once
        kinds = [self.random.choice(REDUCTIONS) for _ in range(5)]
        self.pool = [(f"{kind}{i}", kind, self.random.random() < 0.2) for i, kind in enumerate(kinds)]
        self.rows = [(f"step_{kind}{i}", kind, False) for i, kind in enumerate(kinds[:3])]

    def chance(self, share: float) -> bool:
        """Return True for a share of the calls."""
        return self.random.random() < share

    def program(self) -> Program:
        """Make the program."""
        transform = self.random.choices(list(TRANSFORMS), list(TRANSFORMS.values()))[0]
        mode = "none" if transform in ("plain", "vmap") else "fwd" if transform in FORWARD else "rev"
        lanes = transform in ("vmap", "vmap_grad", "grad_vmap")
        copies = 3 if lanes or transform == "scan_grad" else 1
        place = Place(
            depth=self.random.randint(2, 5), mode=mode, rules=transform != "grad_grad", budget=72 // copies,
            lanes=lanes, looped=transform == "scan_grad",
        )  # fmt: skip
        body = Seq(())
        while not any(isinstance(node, Log) for node in walk(body)) or (self.shard and not _shards(body)):
            self.stepped, self.size = False, self.random.choice((3, 5, 8))
            body = self.node(place)
        delivery = self.random.choice(("jit_capture", "jit_capture", "jit_capture", "capture_jit", "capture"))
        return Program(body, transform, delivery, self.chance(0.3), self.random.randrange(97))

    def node(self, place: Place) -> Node:
        """Make a node for *place*."""
        self.size -= 1
        if place.depth <= 0 or place.budget < 2 or self.size < 0:
            return self.leaves(place)
        names = ["scan", "scan", "cond", "switch", "vmap", "vmap", "jit", "jit", "checkpoint", "scope", "fori", "seq"]
        if place.mode != "rev":
            names += ["fori_dynamic", "while", "while"]
        if place.rules:
            names += ["customjvp"] + ["customvjp", "customvjp"] * (place.mode != "fwd")
        if self.chance(0.05):
            names = ["mute"]
        if self.shard and not place.sharded and self.chance(0.5):
            names = ["shardmap"]
        if place.depth >= 2 and self.chance(0.3):
            names = ["seq"]
        return getattr(self, "_" + self.random.choice(names))(place)

    def leaves(self, place: Place) -> Seq:
        """Make some statements: arithmetic and logs."""
        parts: list[Node] = []
        for _ in range(self.random.randint(1, 3)):
            parts += [self.log(place) if self.chance(0.6) else Op(self.random.choice(OPS))]
        watchable = place.mode == "rev" and place.rules and not (place.select or place.muted or place.shared)
        if watchable and self.chance(0.15):
            parts.append(self.watch(place))
        return Seq(tuple(parts))

    def watch(self, place: Place) -> Watch:
        """Make a watch of the gradient."""
        if place.stack and not place.lanes and self.chance(0.3):
            self.fresh += 1
            return Watch(f"gstack{self.fresh}", "stack")
        kind = self.random.choice(("mean", "max", "sum"))
        return Watch(f"grad_{kind}", kind)

    def log(self, place: Place, *, rule: bool = False) -> Log:
        """Make a log call; in a derivative *rule* the kinds whose result depends on the order are left out."""
        if place.stack and not rule and self.chance(0.2):
            self.fresh += 1
            return Log(f"stack{self.fresh}", self.value(place, vector=self.chance(0.2)), "stack")
        if place.rows and not rule and self.chance(0.2):
            self.fresh += 1
            return Log(f"rows{self.fresh}", self.value(place, vector=False), "rows")
        names = self.rows if place.steps and not rule and self.chance(0.5) else self.pool
        unordered = rule or (place.sharded and place.lanes)
        names = [entry for entry in names if not (unordered and entry[1] == "last")] or [("sum9", "sum", False)]
        name, kind, vector = self.random.choice(names)
        weight = self.random.choice(("const", "k", "float")) if self.chance(0.2) else None
        return Log(name, self.value(place, vector=vector), kind, weight, step=name.startswith("step_"))

    def value(self, place: Place, *, vector: bool) -> str:
        """Choose what is logged. A constant in a shard_map that tracks what varies is one sample only: left out."""
        values = VECTORS if vector else SCALARS
        allowed = [value for value in values if not (place.vma and value in CONSTANTS)]
        return self.random.choice([value for value in allowed if not place.custom or value in FLOATS])

    def _seq(self, place: Place) -> Node:
        return Seq(tuple(self.node(place.inside()) for _ in range(self.random.randint(2, 3))))

    def _scan(self, place: Place) -> Node:
        length = self.random.choice((0, 1, 2, 3, 3, 3, 4))
        steps = not (place.looped or self.stepped) and self.chance(0.5)
        self.stepped |= steps
        reverse = self.chance(0.3)
        rows = not (reverse or place.looped or place.lanes)
        budget = place.budget // max(length, 1)
        inside = place.inside(budget=budget, looped=True, rows=rows, steps=steps or place.steps)
        return Scan(self.node(inside), length, reverse, self.random.choice((1, 1, 2)), steps)

    def _fori(self, place: Place) -> Node:
        n = self.random.choice((0, 1, 2, 3))
        return Fori(self.node(place.inside(budget=place.budget // max(n, 1), looped=True, rows=False)), n)

    def _fori_dynamic(self, place: Place) -> Node:
        return Fori(self.node(self._dynamic(place, stack=False, rows=False, budget=place.budget // 2)), None)

    def _while(self, place: Place) -> Node:
        inside = self._dynamic(place, stack=False, rows=False, budget=place.budget // 2)
        checks = tuple(self.log(inside) for _ in range(self.random.choice((0, 0, 1, 2))))
        return While(self.node(inside), self.random.choice((None, None, 0, 1, 2)), checks)

    @staticmethod
    def _dynamic(place: Place, **changes: Any) -> Place:
        return place.inside(select=place.lanes, looped=True, **changes)

    def _cond(self, place: Place) -> Node:
        inside = self._dynamic(place)
        return Cond(self.random.choice(("k", "k", "x", "true")), self.node(inside), self.node(inside))

    def _switch(self, place: Place) -> Node:
        inside = self._dynamic(place)
        return Switch(tuple(self.node(inside) for _ in range(self.random.randint(1, 3))))

    def _vmap(self, place: Place) -> Node:
        n = self.random.choice((1, 2, 3))
        axis = self.random.choice((0, 0, -1, None))
        shared = place.shared or axis is None
        inside = place.inside(lanes=True, budget=place.budget // n, looped=True, rows=False, shared=shared)
        return Vmap(self.node(inside), n, axis, self.random.choice((0, 0, None)))

    def _jit(self, place: Place) -> Node:
        calls = self.random.choice(((None,), (None,), (None, None), ("a", "b"), ("a", None), (None, "~")))
        once = len(calls) == 1
        budget, muted = place.budget // len(calls), place.muted or "~" in calls
        inside = place.inside(budget=budget, muted=muted)
        if not once:
            inside = dataclasses.replace(inside, stack=False, rows=False, looped=True)
        return Jit(self.node(inside), calls)

    def _checkpoint(self, place: Place) -> Node:
        return Checkpoint(self.node(place.inside()), self.random.choice(POLICIES))

    def _scope(self, place: Place) -> Node:
        return Scope(self.node(place.inside()), self.random.choice(("a", "b/c")))

    def _mute(self, place: Place) -> Node:
        return Mute(self.node(place.inside(muted=True)))

    def _rule_logs(self, place: Place) -> tuple[Log, ...]:
        """Make the logs of a rule: none where JAX runs the rule on lanes that do not take the branch."""
        if (place.select and place.mode != "none") or place.muted or self.chance(0.3):
            return ()
        place = place.inside(custom=True)
        return tuple(self.log(place, rule=True) for _ in range(self.random.randint(1, 2)))

    def _via(self) -> str:
        return self.random.choice(("self", "body", "silent"))

    def _customjvp(self, place: Place) -> Node:
        inside = place.inside(mode="none", rows=False, custom=True)
        return CustomJvp(self.node(inside), self._rule_logs(place), self._via())

    def _customvjp(self, place: Place) -> Node:
        inside = place.inside(mode="none", rows=False, custom=True)
        return CustomVjp(self.node(inside), self._rule_logs(place), self._rule_logs(place), self._via())

    def _shardmap(self, place: Place) -> Node:
        vma = self.chance(0.5)
        n = self.mesh
        stack = place.stack and not place.lanes  # JAX has the axis of the devices first, the loop over lanes last
        inside = place.inside(sharded=True, vma=vma, looped=True, rows=False, stack=stack, budget=place.budget // n)
        return ShardMap(self.node(inside), n, vma)


def _shards(body: Node) -> bool:
    return any(isinstance(node, ShardMap) for node in walk(body))


def generate(seed: int, *, shard: bool = False, devices: int = 1) -> Program:
    """Return the program of *seed*; with *shard* one that has a shard_map."""
    return Generator(seed, shard=shard, devices=devices).program()
