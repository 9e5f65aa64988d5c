"""From compiled code to the current tracker: as data that a call returned, or by host callback."""

from __future__ import annotations

import _thread
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.interpreters import mlir

from trackway import _notices
from trackway.capture._packing import Layout, Rows, pack
from trackway.capture._primitive import Group, set_rules
from trackway.capture._rewrite import prefix_of
from trackway.capture._settings import Loss, current, failed
from trackway.errors import CaptureError, FatalTrackerError, TrackwayWarning
from trackway.tracker._ambient import ambient
from trackway.tracker._callbacks import defer, set_barrier
from trackway.tracker._current import Owner, active_tracker, owner, tracker_of
from trackway.tracker._delivery import deliver_late, send
from trackway.tracker._dispatch import Call
from trackway.tracker._fifo import never_waiting
from trackway.tracker._interface import Tracker
from trackway.values import Downgrade, Row

__all__ = ["CapturedRows", "deliver"]

_inside = threading.local()


@final
class CapturedRows:
    """Rows in buffers on a device; what `LateRows` asks for."""

    def __init__(
        self,
        names: tuple[str, ...],
        buffers: Sequence[Any],
        read: Callable[[], Rows],
        *,
        step: int | None,
        commit: bool | None,
        tracker: Tracker | None,
        prefix: str,
        lost: tuple[Loss, ...],
    ) -> None:
        """Hold rows that *read* returns once *buffers* are ready.

        Args:
            names: Names of the metrics.
            buffers: Arrays on a device.
            read: Fetches them.
            step: The step of a row that brings none.
            commit: Whether a row at *step* ends with this, as for `Tracker.log`.
            tracker: Whose open row others join, without *step* and *commit*.
            prefix: Goes before every name.
            lost: Metrics that are missing in each row.
        """
        self.names = names
        self._buffers = buffers
        self._read = read
        self._step = step
        self._commit = commit
        self._tracker = tracker
        self._prefix = prefix
        self._downgrades = tuple(Downgrade(loss.name, loss.reason, lost=True) for loss in lost)
        for buffer in buffers:
            if not _on_cpu(buffer.sharding):
                buffer.copy_to_host_async()

    def ready(self) -> bool:
        """Tell whether `calls` would return without waiting."""
        try:
            return all(buffer.is_ready() for buffer in self._buffers)
        except Exception:
            return True  # `calls` has the reason

    def calls(self) -> Sequence[Call]:
        """Return one call of `log` for each row."""
        return [self._call(step, values) for step, values in self._read()]

    def _step_for_others(self) -> tuple[int | None, bool | None]:
        """Return step and commit of rows that bring no step, as known when they are delivered."""
        if self._step is not None or self._commit is not None or self._tracker is None:
            return self._step, self._commit
        return open_step(self._tracker)

    def _call(self, step: int | None, values: dict[str, Any]) -> Call:
        prefix = self._prefix
        row = Row({f"{prefix}{name}": value for name, value in values.items()} if prefix else values)
        row.downgrades = self._downgrades
        if step is None:
            step, commit = self._step_for_others()
            return Call("log", (row,), {"step": step, "commit": commit})
        return Call("log", (row,), {"step": step, "commit": None})


@functools.lru_cache(maxsize=64)
def _on_cpu(sharding: Any) -> bool:
    return all(device.platform == "cpu" for device in sharding.device_set)


def deliver(
    names: tuple[str, ...],
    buffers: Sequence[Any],
    read: Callable[[], Rows],
    lost: tuple[Loss, ...],
    *,
    step: int | None = None,
    commit: bool | None = None,
) -> None:
    """Log rows that a compiled function returned: to the current tracker, without waiting for them.

    Rows without a step get *step*; None takes that of `at_step`, or of the row that is open when they are delivered.
    """
    state = ambient()
    if state.muted or not (names or lost):
        return
    if state.collector is not None:
        for _, row in read():
            state.collector.update({f"{state.prefix}{name}": value for name, value in row.items()})
        return
    tracker = active_tracker()
    if tracker is None:
        _without_tracker(names)
        return
    if step is None and state.step is not None:
        step, commit = state.step, False if commit is None else commit
    rows = CapturedRows(names, buffers, read, step=step, commit=commit, tracker=tracker, prefix=state.prefix, lost=lost)
    deliver_late(rows, tracker)


def _without_tracker(names: tuple[str, ...]) -> None:
    _notices.warn_once(
        "no tracker",
        f"a compiled function logged ({', '.join(names[:3])}) while no tracker is set, and it is not kept; wrap the "
        "code in `with trackway.current_tracker(tracker):`, on the thread that calls the function, or call "
        "`trackway.set_global_tracker(tracker)` (shown once)",
    )


def open_step(tracker: Tracker) -> tuple[int | None, bool | None]:
    """Return the step of the row that *tracker* has open, and not to end it; nothing of both where there is none."""
    try:
        step = tracker.open_step()
    except (Exception, SystemExit):  # counted where the row is delivered
        return None, None
    return step, None if step is None else False


# --- what nothing captures ---


def _impl(*arrays: Any, group: Group) -> list[Any]:
    """A log under `vmap`, `grad` and the like without `jit`: its values are there."""
    try:
        layout, buffers = pack(group, arrays)
        deliver(layout.names, buffers, lambda: layout.rows(buffers), ())
    except (CaptureError, FatalTrackerError, TrackwayWarning):
        raise
    except Exception as error:
        failed("a transformation without jit", error)
    return []


def _lowering(context: Any, *arrays: Any, group: Group) -> Any:
    """A log in a compiled function that nothing captures."""
    prefix = prefix_of(context)
    uncaptured = current().uncaptured
    names = tuple(metric.name for metric in group)
    if prefix is None or uncaptured == "drop":
        return []
    shown = ", ".join(names[:3])
    if uncaptured == "error":
        raise CaptureError(
            f"trackway.log of {shown} is compiled in a function that nothing captures; use `trackway.jit` in the place "
            "of `jax.jit`, or wrap the function in `trackway.capture_logging`"
        )
    if uncaptured == "warn":
        _notices.warn_once(
            ("uncaptured", names),
            f"trackway.log of {shown} is compiled in a function that nothing captures, and is left out; use "
            "`trackway.jit` in the place of `jax.jit`, or wrap the function in `trackway.capture_logging`",
        )
        return []
    _notices.log_once(
        "callback hint",
        f"trackway.log of {shown} is delivered by host callback, which costs each step some hundred microseconds; "
        "`trackway.jit` in the place of `jax.jit` costs next to nothing (said once)",
    )
    return _callback(context, arrays, group, prefix)


def _callback(context: Any, arrays: Sequence[Any], group: Group, prefix: str) -> Any:
    set_barrier(_wait)
    traced_by = owner()

    def send_packed(*values: Any) -> list[Any]:
        layout, buffers = pack(group, values)

        def receive(*hosts: Any) -> None:
            _receive(layout, hosts, prefix, traced_by)

        jax.debug.callback(receive, *buffers)
        return []

    return mlir.lower_fun(send_packed, multiple_results=True)(context, *arrays)


def _receive(layout: Layout, values: Sequence[Any], prefix: str, traced_by: Owner) -> None:
    """Log the rows of one execution. Runs on a thread of JAX's, into which no exception may escape."""
    _inside.callback = True
    try:
        # to NumPy before anything else: whatever asks JAX about the array can deadlock with the running computation
        hosts = [np.asarray(value) for value in values]
        with never_waiting():
            _send(layout, hosts, prefix, traced_by)
    except FatalTrackerError as error:
        defer(error)
    except KeyboardInterrupt:
        _thread.interrupt_main()  # Ctrl+C must not get lost in JAX
    except BaseException as error:
        names = ", ".join(layout.names[:3])
        _notices.log_once(
            ("callback", names, type(error)),
            f"a row of compiled code ({names}) is lost: {type(error).__name__}: {error} (shown once)",
            error,
        )
    finally:
        _inside.callback = False


def _send(layout: Layout, hosts: list[np.ndarray], prefix: str, traced_by: Owner) -> None:
    tracker = tracker_of(traced_by)
    if tracker is None:
        names = ", ".join(layout.names[:3])
        _notices.log_once(
            ("no tracker", names),
            f"a row of compiled code ({names}) found no current tracker and is not kept; run the "
            "compiled function in a `with trackway.current_tracker(tracker):` block",
        )
        return
    if ambient().muted:
        return
    state = ambient()
    rows = CapturedRows(
        layout.names,
        (),
        lambda: layout.rows(hosts),
        step=state.step,
        commit=None if state.step is None else False,
        tracker=tracker,
        prefix=state.prefix + prefix,
        lost=(),
    )
    for call in rows.calls():
        send(call, tracker)


def _wait() -> None:
    """Wait for callbacks under way; from inside one that would be for ever."""
    if not getattr(_inside, "callback", False):
        jax.effects_barrier()


set_rules(_impl, _lowering)
