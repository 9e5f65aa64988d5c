"""`capture_logging`: a function that returns what it logs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import jax
from jax.extend.core import jaxpr_as_fun
from jax.tree_util import tree_flatten, tree_unflatten

from trackway.capture import _hooks
from trackway.capture import _jaxcompat as compat
from trackway.capture import _log as _log  # noqa: PLC0414 - completes the primitive
from trackway.capture import _rules as _rules  # noqa: PLC0414 - registers them
from trackway.capture._builder import Crossing
from trackway.capture._logs import Logs
from trackway.capture._primitive import Group
from trackway.capture._rewrite import rewrite, without_logs
from trackway.capture._rules.calls import without_result_names
from trackway.capture._settings import failed, recording
from trackway.errors import TrackwayWarning

__all__ = [
    "capture_logging",
    "capture_pure",
    "named_like",
]

P = ParamSpec("P")
T = TypeVar("T")


class _Tree(NamedTuple):
    """A tree taken apart: arrays, and everything else."""

    arrays: list[Any]
    places: list[int]
    others: dict[int, Any]
    structure: Any

    @classmethod
    def of(cls, tree: Any) -> _Tree:
        leaves, structure = tree_flatten(tree)
        places = [at for at, leaf in enumerate(leaves) if _is_array(leaf)]
        chosen = set(places)
        others = {at: leaf for at, leaf in enumerate(leaves) if at not in chosen}
        return cls([leaves[at] for at in places], places, others, structure)

    def filled(self, arrays: Any) -> Any:
        """Return the tree with other arrays."""
        leaves: list[Any] = [None] * (len(self.places) + len(self.others))
        for at, leaf in self.others.items():
            leaves[at] = leaf
        for at, leaf in zip(self.places, arrays, strict=True):
            leaves[at] = leaf
        return tree_unflatten(self.structure, leaves)


def _is_array(leaf: Any) -> bool:
    """Only traced values are looked into: a static argument may be a NumPy number, and has to stay one."""
    return isinstance(leaf, jax.core.Tracer)


def capture_logging(function: Callable[P, T]) -> Callable[P, tuple[T, Logs]]:
    """Return a function that does what *function* does and returns `(result, logs)`.

    Everything that is logged in traced code inside, at any depth and under any transformation, is in `logs` and goes
    nowhere else. The result is an ordinary function, pure if *function* is, for `jax.jit`, `jax.vmap`, `jax.grad`
    (with `has_aux=True`) and the rest:

    ```python
    step = jax.jit(trackway.capture_logging(train_step))
    params, logs = step(params, batch)
    trackway.log(logs, step=i)
    ```

    Objects of flax nnx among the arguments are changed in place as *function* changes them.

    Outputs and gradients are those of *function*. A metric that cannot be captured is left out, see
    `trackway.capture.settings`. Safe in several threads.

    Raises:
        CaptureError: only with `settings(on_error="raise")`.
    """
    captured = capture_pure(function)

    def capturing(*args: P.args, **kwargs: P.kwargs) -> tuple[T, Logs]:
        if _holds_nnx_objects((args, kwargs)):
            from trackway.capture.nnx import changing_in_place

            return changing_in_place(function)(*args, **kwargs)
        return captured(*args, **kwargs)

    return cast("Callable[P, tuple[T, Logs]]", named_like(capturing, function))


def named_like(new: Callable[..., Any], function: Callable[..., Any]) -> Any:
    """Give *new* the name and the signature of *function*, by which `jax.jit` finds static arguments.

    Not `__wrapped__`, of which equinox warns where *function* is one of its own.
    """
    named: Any = functools.update_wrapper(new, function)
    with contextlib.suppress(ValueError, TypeError):
        named.__signature__ = inspect.signature(function)
        del named.__wrapped__
    return named


def capture_pure(function: Callable[P, T]) -> Callable[P, tuple[T, Logs]]:
    """`capture_logging` for a function that changes none of its arguments."""

    def captured(*args: P.args, **kwargs: P.kwargs) -> tuple[T, Logs]:
        _hooks.install()
        inputs = _Tree.of((args, kwargs))
        outputs: list[_Tree] = []

        def flat(*arrays: Any) -> list[Any]:
            own_args, own_kwargs = inputs.filled(arrays)
            result = _Tree.of(function(*own_args, **own_kwargs))
            outputs[:] = [result._replace(arrays=[])]  # holding tracers would leak them
            return result.arrays

        with recording() as lost:
            closed = jax.make_jaxpr(flat)(*inputs.arrays)
            new, group, crossing = _captured(closed)
        # without a log the program remains what it was, equation for equation
        results = compat.evaluate(new, inputs.arrays) if group else jaxpr_as_fun(new)(*inputs.arrays)
        split = len(outputs[0].places)
        arrays = [_value(x) for x in crossing.outer(results[split:], inputs.arrays)]
        return outputs[0].filled(map(_value, results[:split])), Logs(group, arrays, tuple(lost))

    return captured


def _holds_nnx_objects(tree: Any) -> bool:
    """Tell whether there is an object of flax nnx in *tree*, which the function may change."""
    if "flax.nnx" not in sys.modules:
        return False
    from trackway.capture.nnx import is_object

    return any(map(is_object, jax.tree.leaves(tree, is_leaf=is_object)))


def _value(x: Any) -> Any:
    """Return an array for what evaluating a jaxpr may return in its place."""
    x = x.val if isinstance(x, compat.Literal) else x
    return x if isinstance(x, jax.Array) else jax.numpy.asarray(x)


def _captured(closed: Any) -> tuple[Any, Group, Crossing]:
    """Return *closed* with what is logged as further outputs; without any log where that fails."""
    try:
        new, group, atoms = rewrite(closed)
    except TrackwayWarning:
        raise
    except Exception as error:
        failed("a compiled function", error)
        return compat.closed(without_logs(closed.jaxpr), closed.consts), (), Crossing([])
    crossing = Crossing(atoms, new.invars)
    jaxpr = without_result_names(new).replace(outvars=[*new.outvars, *crossing.kept])
    return compat.closed(jaxpr, closed.consts), group, crossing
