"""Delivery by host callback."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from trackway import _notices
from trackway.capture._jaxcompat import trace_active
from trackway.capture._template import Template
from trackway.errors import FatalTrackerError, StepError
from trackway.tracker._callbacks import defer, set_barrier
from trackway.tracker._current import Owner, owner, tracker_of
from trackway.tracker._dispatch import Call
from trackway.tracker._isolation import Isolation
from trackway.tracker._steps import check_step
from trackway.tracker._verbs import check_reduce, log

__all__ = ["jit_log", "traced_log"]

_isolation = Isolation()
_inside = threading.local()


def jit_log(metrics: Mapping[str, Any], *, step: Any = None, reduce: str = "mean", weight: Any = None) -> None:
    """Log metrics from inside a function that JAX compiles.

    Each execution of the call delivers one row to the tracker that is current when it runs, from a thread of JAX's;
    nothing that a tracker does there reaches the computation. Outside a trace it is `trackway.log`.

    Under `vmap` the call is executed once per lane, under `shard_map` and `pmap` once per device, under `grad` of a
    `jax.checkpoint`ed function once more when the forward pass is recomputed.

    Args:
        metrics: Names to values: traced or concrete arrays, numbers, text, `Histogram`s, nested mappings of them.
            Values that are not traced are those of the time of tracing.
        step: The training step, a traced or concrete integer; None takes the tracker's own counter.
        reduce: How several values of one name are to be combined: one of `mean sum max min last std stack rows`.
            Checked, and without effect: a host callback delivers every value by itself.
        weight: Weight of this value in a mean, likewise.

    Raises:
        ValueError: if *reduce* is not a known reduction.
        TypeError: if *metrics* is not a mapping.
        StepError: if *step* is not an integer, as far as can be known when tracing: its type and shape.
    """
    if trace_active():
        traced_log(metrics, step=step, commit=None, reduce=reduce, weight=weight)
    else:
        log(metrics, step=step, reduce=reduce, weight=weight)


def traced_log(metrics: Mapping[str, Any], *, step: Any, commit: bool | None, reduce: str, weight: Any) -> None:
    """Bind a host callback that logs *metrics* whenever the program point is executed."""
    if commit is True:
        raise ValueError(
            "log(..., commit=True) is not possible inside compiled code: when a row ends is decided on the host; "
            "leave `commit` out, or log outside the compiled function"
        )
    check_reduce(reduce)
    del weight  # has a meaning only where several values are combined
    import jax

    from trackway.values import register_pytrees

    register_pytrees()
    template = Template(metrics, _checked_step(step))
    traced_by = owner()
    set_barrier(_wait)

    def receive(*values: Any) -> None:
        _receive(values, template, commit, traced_by)

    jax.debug.callback(receive, *template.operands)


def _checked_step(step: Any) -> Any:
    """Return *step*, if it is or will be an integer."""
    import jax

    if not isinstance(step, jax.core.Tracer):
        return check_step(step)
    if not jax.numpy.issubdtype(step.dtype, jax.numpy.integer) or step.size != 1:
        raise StepError(
            f"step must be one integer, got a traced value of type {step.dtype} and shape {step.shape}; "
            "pass an integer such as `state.step`, progress in fractions is a metric"
        )
    return step


def _receive(values: tuple[Any, ...], template: Template, commit: bool | None, traced_by: Owner) -> None:
    """Log one row. Runs on a thread of JAX's, into which no exception may escape."""
    _inside.callback = True
    try:
        # to NumPy before anything else: whatever asks JAX about the array can deadlock with the running computation
        arrays = [np.asarray(value) for value in values]
        _deliver(template, arrays, commit, traced_by)
    except FatalTrackerError as error:
        defer(error)
    except KeyboardInterrupt:
        _thread.interrupt_main()  # Ctrl+C must not get lost in JAX
    except BaseException as error:
        names = ", ".join(template.names[:3])
        _notices.log_once(
            ("callback", names, type(error)),
            f"a row of compiled code ({names}) is lost: {type(error).__name__}: {error} (shown once)",
            error,
        )
    finally:
        _inside.callback = False


def _deliver(template: Template, arrays: list[np.ndarray], commit: bool | None, traced_by: Owner) -> None:
    row, step = template.filled(arrays)
    tracker = tracker_of(traced_by)
    if tracker is None:
        names = ", ".join(template.names[:3])
        _notices.log_once(
            ("no tracker", names),
            f"a row of compiled code ({names}) found no current tracker and is not kept; run the "
            "compiled function in a `with trackway.current_tracker(tracker):` block",
        )
        return
    _isolation.call(Call("log", (row,), {"step": step, "commit": commit}), tracker)


def _wait() -> None:
    """Wait for callbacks under way; from inside one that would be for ever."""
    if getattr(_inside, "callback", False):
        return
    import jax

    jax.effects_barrier()
