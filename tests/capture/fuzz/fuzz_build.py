"""Programs as JAX functions."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from fuzz_nodes import MODULUS, Log, Node, Program
from jax import lax
from jax.sharding import PartitionSpec as P

SCALE = 0.75  # what custom derivative rules say the derivative is


def lanes(x: Any, n: int) -> jax.Array:
    """Make *n* different values of *x*, along a new leading axis."""
    i = jnp.arange(n, dtype=jnp.float32).reshape((n,) + (1,) * jnp.ndim(x))
    return x * (1 - 0.25 * i) + 0.3 * i


class Builder:
    """Runs nodes on traced values. *api* has log, scope, mute, watch_grad; without it every log is left out."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self._functions: dict[Node, Any] = {}  # functions with caches are made once, as in a user's module

    def run(self, node: Node, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        """Run *node* on the state; *s* is the step of the loop that gives one."""
        return getattr(self, "_" + type(node).__name__.lower())(node, x, k, s)

    def _op(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        match node.kind:
            case "sin":
                return jnp.sin(x), k
            case "tanh":
                return jnp.tanh(x), k
            case "half":
                return x * 0.5, k
            case "shift":
                return x + 0.25, k
            case "mix":
                return x + (k % 7) * 0.1, k
            case "norm":
                return x * lax.rsqrt(1 + jnp.sum(x * x)), k
            case "count":
                return x, (k + 1) % MODULUS
            case "double":
                return x, (2 * k + 1) % MODULUS
        raise ValueError(node.kind)

    def _value(self, name: str, x: Any, k: Any) -> Any:
        total = jnp.sum(x)
        match name:
            case "x":
                return total
            case "sin":
                return jnp.sin(total)
            case "k":
                return k
            case "even":
                return k % 2 == 0
            case "one":
                return 1
            case "half":
                return 0.5
            case "array":
                return np.float32(2.5)
            case "bf16":
                return ((k % 7) * 0.125 + 1).astype(jnp.bfloat16)
            case "pair":
                return jnp.stack([total, k.astype(jnp.float32)])
            case "ints":
                return k + jnp.arange(2)
        raise ValueError(name)

    def _log(self, node: Log, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        if self.api is not None:
            options = {} if node.weight is None else {"weight": self._weight(node.weight, k)}
            if node.step:
                options["step"] = s
            self.api.log({node.name: self._value(node.value, x, k)}, reduce=node.reduce, **options)
        return x, k

    @staticmethod
    def _weight(name: str, k: Any) -> Any:
        return {"const": 0.5, "k": k % 3, "float": (k % 3) * 0.5}[name]

    def _logs(self, nodes: tuple[Log, ...], x: Any, k: Any, s: Any) -> None:
        for node in nodes:
            self._log(node, x, k, s)

    def _watch(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        return (x if self.api is None else self.api.watch_grad(x, node.name, reduce=node.reduce)), k

    def _seq(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        for part in node.parts:
            x, k = self.run(part, x, k, s)
        return x, k

    def _scan(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        def body(carry: Any, xs: Any) -> Any:
            (x, k), (t, e) = carry, xs
            x, k = self.run(node.body, x + 0.5 * e, (k + t) % MODULUS, t if node.steps else s)
            return (x, k), 0.1 * x

        i = jnp.arange(node.length)
        xs = (i, 0.2 * i.astype(jnp.float32) - 0.3)
        (x, k), ys = lax.scan(body, (x, k), xs, reverse=node.reverse, unroll=node.unroll)
        return x + ys.sum(0), k

    def _fori(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        def body(i: Any, state: Any) -> Any:
            return self.run(node.body, state[0], (state[1] + i) % MODULUS, s)

        return lax.fori_loop(0, k % 4 if node.n is None else node.n, body, (x, k))

    def _while(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        limit = k % 4 if node.n is None else node.n

        def check(state: Any) -> Any:
            self._logs(node.checks, *state[:2], s)
            return state[2] < limit

        def body(state: Any) -> Any:
            return (*self.run(node.body, *state[:2], s), state[2] + 1)

        return lax.while_loop(check, body, (x, k, 0))[:2]

    def _cond(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        pred = True if node.pred == "true" else k % 2 == 0 if node.pred == "k" else jnp.sum(x) > 0.1
        yes, no = (lambda x, k, part=part: self.run(part, x, k, s) for part in (node.yes, node.no))
        return lax.cond(pred, yes, no, x, k)

    def _switch(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        branches = [lambda x, k, part=part: self.run(part, x, k, s) for part in node.branches]
        return lax.switch(k % 5 - 1, branches, x, k)

    def _vmap(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        if node.x_axis is not None:
            x = jnp.moveaxis(lanes(x, node.n), 0, node.x_axis)
        if node.k_axis is not None:
            k = (k + jnp.arange(node.n)) % MODULUS
        lane = jax.vmap(lambda x, k: self.run(node.body, x, k, s), (node.x_axis, node.k_axis), axis_size=node.n)
        x, k = lane(x, k)
        return x.mean(0), k.sum() % MODULUS

    def _shardmap(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        def local(x: Any, k: Any) -> Any:
            x, k = self.run(node.body, x[0], k[0], s)
            return x[None], k[None]

        mesh = jax.sharding.Mesh(jax.devices()[: node.n], ("d",))
        mapped = jax.shard_map(local, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=node.check_vma)
        x, k = mapped(lanes(x, node.n), (k + jnp.arange(node.n)) % MODULUS)
        return x.mean(0), k.sum() % MODULUS

    def _function(self, node: Any, wrap: Any) -> Any:
        if node not in self._functions:
            self._functions[node] = wrap(lambda x, k, s: self.run(node.body, x, k, s))
        return self._functions[node]

    def _jit(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        function = self._function(node, jax.jit)
        for call in node.calls:
            with self._block(call):
                x, k = function(x, k, s)
        return x, k

    def _block(self, call: str | None) -> Any:
        if self.api is None or call is None:
            return contextlib.nullcontext()
        return self.api.mute() if call == "~" else self.api.scope(call)

    def _checkpoint(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        policy = node.policy and getattr(jax.checkpoint_policies, node.policy)
        return self._function(node, lambda function: jax.checkpoint(function, policy=policy))(x, k, s)

    def _scope(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        with self._block(node.name):
            return self.run(node.body, x, k, s)

    def _mute(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        with self._block("~"):
            return self.run(node.body, x, k, s)

    def _customjvp(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        def make(_: Any) -> Any:
            function = jax.custom_jvp(lambda x, k, s: self.run(node.body, x, k, s)[0])

            @function.defjvp
            def rule(primals: Any, tangents: Any) -> Any:
                self._logs(node.rule, *primals)
                return self._through(node, function)(*primals), SCALE * tangents[0]

            return function

        return self._function(node, make)(x, k, s), k

    def _customvjp(self, node: Any, x: Any, k: Any, s: Any) -> tuple[Any, Any]:
        def make(_: Any) -> Any:
            function = jax.custom_vjp(lambda x, k, s: self.run(node.body, x, k, s)[0])

            def fwd(x: Any, k: Any, s: Any) -> Any:
                self._logs(node.fwd, x, k, s)
                return self._through(node, function)(x, k, s), (x, k, s)

            def bwd(saved: Any, g: Any) -> Any:
                self._logs(node.bwd, *saved)
                return SCALE * g, None, None

            function.defvjp(fwd, bwd)
            return function

        return self._function(node, make)(x, k, s), k

    def _through(self, node: Any, function: Any) -> Any:
        if node.via == "self":
            return function
        builder = Builder(None) if node.via == "silent" else self
        return lambda x, k, s: builder.run(node.body, x, k, s)[0]


def arguments(program: Program) -> tuple[jax.Array, jax.Array]:
    """Return the arguments that the program is called with."""
    return jnp.asarray([0.4, -0.2, 0.9] if program.vector else 0.4, jnp.float32), jnp.int32(program.k)


def build(program: Program, api: Any) -> Any:
    """Return the program as a function of (x, k), its top-level transformation applied, its logs not captured."""
    builder = Builder(api)

    def f(x: Any, k: Any) -> tuple[Any, Any]:
        return builder.run(program.body, x, k, np.int32(0))

    return TRANSFORMS[program.transform](f)


def _loss(f: Any) -> Any:
    return lambda x, k: f(x, k)[0].sum()


def _many(x: Any, k: Any) -> tuple[Any, Any]:
    return lanes(x, 3), (k + jnp.arange(3)) % MODULUS


def _vjp(f: Any) -> Any:
    def g(x: Any, k: Any) -> Any:
        out, pull, aux = jax.vjp(lambda x: f(x, k), x, has_aux=True)
        return out, aux, pull(jnp.ones_like(out))

    return g


def _linearize(f: Any) -> Any:
    def g(x: Any, k: Any) -> Any:
        out, push, aux = jax.linearize(lambda x: f(x, k), x, has_aux=True)
        return out, aux, push(jnp.full_like(x, 0.7))

    return g


def _jvp(f: Any) -> Any:
    return lambda x, k: jax.jvp(lambda x: f(x, k), (x,), (jnp.full_like(x, 0.7),), has_aux=True)


def _grad_vmap(f: Any) -> Any:
    def g(x: Any, k: Any) -> Any:
        xs, ks = _many(x, k)
        return jax.grad(lambda xs: jax.vmap(f)(xs, ks)[0].sum())(xs)

    return g


def _scan_grad(f: Any) -> Any:
    def g(x: Any, k: Any) -> Any:
        def body(x: Any, t: Any) -> Any:
            return x - 0.1 * jax.grad(_loss(f))(x, (k + t) % MODULUS), None

        return lax.scan(body, x, jnp.arange(3))[0]

    return g


def _grad_grad(f: Any) -> Any:
    return lambda x, k: jax.grad(lambda x: jax.grad(_loss(f))(x, k).sum())(x)


TRANSFORMS = {
    "plain": lambda f: f,
    "grad": lambda f: jax.grad(_loss(f)),
    "value_and_grad": lambda f: jax.value_and_grad(lambda x, k: (_loss(f)(x, k), k), has_aux=True),
    "vjp": _vjp,
    "jvp": _jvp,
    "linearize": _linearize,
    "vmap": lambda f: lambda x, k: jax.vmap(f)(*_many(x, k)),
    "vmap_grad": lambda f: lambda x, k: jax.vmap(jax.grad(_loss(f)))(*_many(x, k)),
    "grad_vmap": _grad_vmap,
    "scan_grad": _scan_grad,
    "grad_checkpoint": lambda f: jax.grad(jax.checkpoint(_loss(f))),
    "grad_jit": lambda f: jax.grad(jax.jit(_loss(f))),
    "jacrev": lambda f: lambda x, k: jax.jacrev(lambda x: f(x, k)[0])(x),
    "grad_grad": _grad_grad,
}
