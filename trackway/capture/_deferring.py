"""`defer_tracker_for_jit`: what is logged in a block of traced code, as a dictionary to return."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax.numpy as jnp

from trackway.capture import _hooks
from trackway.capture import _jaxcompat as compat
from trackway.capture._collections import Constant
from trackway.capture._combine import combine
from trackway.capture._logs import Logs
from trackway.capture._primitive import Group, Metric, has_log, offer_to, parts
from trackway.capture._rewrite import metrics_in
from trackway.capture._scopes import prefix_from
from trackway.capture._settings import problem
from trackway.errors import CaptureError
from trackway.tracker import _ambient

__all__ = ["defer_tracker_for_jit"]

_open = threading.local()


@final
class _Collector:
    """What was logged in one trace."""

    def __init__(self, trace: Any) -> None:
        self.trace = trace
        self.found: dict[str, tuple[Metric, list[Any]]] = {}
        self.given_up: set[str] = set()

    def take(self, group: Group, arrays: Sequence[Any]) -> None:
        """Take what is logged in this trace itself; what an inner trace logs arrives here later."""
        prefix = prefix_from(compat.current_scopes())
        if prefix is None:
            return
        with compat.within(self.trace), compat.usual_promotion():
            for metric, share in parts(group, arrays):
                self._add(metric.prefixed(prefix), share)

    def _add(self, metric: Metric, share: list[Any]) -> None:
        if metric.name in self.given_up:
            return
        if isinstance(metric.kind, Constant):
            reason = "is no number, and so no result of a compiled function; `trackway.capture_logging` returns it"
            problem(metric.name, reason, metric.line)
            return
        earlier = self.found.get(metric.name)
        try:
            self.found[metric.name] = combine(*earlier, metric, share) if earlier else (metric, share)
        except CaptureError as error:
            del self.found[metric.name]
            self.given_up.add(metric.name)
            problem(metric.name, str(error), metric.line)

    def fill(self, metrics: dict[str, Any]) -> None:
        """Put the values into *metrics*."""
        group = tuple(metric for metric, _ in self.found.values())
        logs = Logs(group, [x for _, share in self.found.values() for x in share])
        for metric in group:
            if metric.count is None and not metric.kind.stacked:
                _, count, _ = metric.split(self.found[metric.name][1])
                metrics[metric.name] = _nan_where_absent(logs[metric.name], count)
            else:
                metrics[metric.name] = logs[metric.name]


def _nan_where_absent(value: Any, count: Any) -> Any:
    """A dictionary of arrays cannot leave a name out at run time."""
    if not hasattr(value, "dtype") or not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    return jnp.where(count > 0, value, jnp.nan)


def _collect(trace: Any, group: Group, arrays: Sequence[Any]) -> bool:
    for collector in reversed(getattr(_open, "stack", ())):
        if collector.trace is trace:
            collector.take(group, arrays)
            return True
    return False


@contextlib.contextmanager
def defer_tracker_for_jit() -> Iterator[dict[str, Any]]:
    """Collect what is logged in the block in a dictionary, instead of sending it to the tracker.

    For use inside a function that JAX compiles: the dictionary is filled when the block ends, with traced values that
    the function may return. Steps are not kept: give one where the dictionary is logged.

    ```python
    @jax.jit
    def train_step(params, batch):
        with trackway.defer_tracker_for_jit() as metrics:
            params = update(params, batch)  # logs, also inside scan, cond, vmap and grad
        return params, metrics
    ```

    What a branch would have logged that was not taken is NaN, or the reduction of no values for integers: a compiled
    function returns all its outputs. What is logged inside of `shard_map` or of a function with a custom derivative
    cannot be collected here and is an error; `trackway.capture_logging` can. Outside of traced code the dictionary
    gets what `log` is given.

    Raises:
        CaptureError: at the end of the block, if something was logged that cannot be collected.
    """
    metrics: dict[str, Any] = {}
    if not compat.tracing():
        with _ambient.change(collector=metrics):
            yield metrics
        return
    _hooks.install()
    collector = _Collector(compat.current_trace())
    stack = _open.__dict__.setdefault("stack", [])
    before = {id(equation) for equation in compat.effectful_equations(has_log)}
    stack.append(collector)
    try:
        with _hooks.calls_too():
            yield metrics
    finally:
        stack.remove(collector)
    for equation in compat.effectful_equations(has_log):
        if id(equation) not in before:
            names = ", ".join(f"{name!r} ({line})" for name, line in metrics_in(equation)) or "something"
            raise CaptureError(
                f"defer_tracker_for_jit cannot collect {names}, logged inside `{equation.primitive.name}`; wrap the "
                "whole function in `trackway.capture_logging` instead, which returns it as data too"
            )
    collector.fill(metrics)


offer_to(_collect)
