"""From compiled code to the current tracker: as data that a call returned, or by host callback."""

from __future__ import annotations

import _thread
import functools
import threading
from collections.abc import Sequence
from typing import Any, Protocol, final

import jax
import numpy as np
from jax.extend.backend import backends
from jax.interpreters import mlir

from trackway import _notices
from trackway.capture._packing import Layout, Packed, Rows, pack, row_of
from trackway.capture._primitive import Group, set_rules
from trackway.capture._rewrite import prefix_of
from trackway.capture._settings import current, failed
from trackway.errors import CaptureError, FatalTrackerError, TrackwayWarning
from trackway.tracker._ambient import NOTHING, ambient
from trackway.tracker._callbacks import defer, set_barrier
from trackway.tracker._current import Owner, active_tracker, owner, tracker_of
from trackway.tracker._delivery import join, keeps_rows_open, send
from trackway.tracker._dispatch import Call
from trackway.tracker._fifo import never_waiting
from trackway.tracker._interface import Tracker

__all__ = ["CapturedRows", "Source", "deliver"]

_inside = threading.local()


class Source(Protocol):
    """What a compiled function logged: `Packed` metrics, or `Logs`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics."""

    @property
    def buffers(self) -> Sequence[Any]:
        """Arrays on a device."""

    @property
    def lost(self) -> tuple[Any, ...]:
        """Metrics that are missing, each a `Loss`."""

    @property
    def small(self) -> bool:
        """Whether the buffers take little memory."""

    def rows(self) -> Rows:
        """Return the rows, waiting for the buffers."""


@final
class CapturedRows:
    """Rows in buffers on a device; what `LateRows` asks for. All but the least is left to when they are delivered."""

    __slots__ = ("_commit", "_prefix", "_source", "_step", "_tracker", "small")

    def __init__(self, source: Source, tracker: Tracker, step: int | None, commit: bool | None, prefix: str) -> None:
        """Hold the rows of *source*.

        Args:
            source: The rows.
            tracker: Where they go; its open row is joined by those without a step, if *step* and *commit* are None.
            step: The step of a row that brings none.
            commit: Whether a row at *step* ends with this, as for `Tracker.log`.
            prefix: Goes before every name.
        """
        self.small = source.small
        self._source = source
        self._tracker = tracker
        self._step = step
        self._commit = commit
        self._prefix = prefix
        buffers = source.buffers
        if buffers and _accelerated():
            for buffer in buffers:
                if not _on_cpu(getattr(buffer, "sharding", None)):
                    buffer.copy_to_host_async()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return self._source.names

    @property
    def parts(self) -> Sequence[Any]:
        """What has to arrive before `calls` returns without waiting."""
        return self._source.buffers

    def calls(self) -> Sequence[Call]:
        """Return one call of `log` for each row."""
        return [self._call(step, values) for step, values in self._source.rows()]

    def _call(self, step: int | None, values: dict[str, Any]) -> Call:
        row = row_of(values, self._source.lost, self._prefix)
        commit = None
        if step is None:
            step, commit = self._step, self._commit
            if step is None and commit is None:  # as known when they are delivered
                step, commit = open_step(self._tracker)
        return Call.of_row(row, step, commit)


@functools.cache
def _accelerated() -> bool:
    """Whether JAX has devices other than the CPU. Ask while there is an array, for it starts them."""
    return any(platform != "cpu" for platform in backends())


@functools.lru_cache(maxsize=64)
def _on_cpu(sharding: Any) -> bool:
    return sharding is None or all(device.platform == "cpu" for device in sharding.device_set)


def deliver(source: Source, *, step: int | None = None, commit: bool | None = None) -> None:
    """Log rows that a compiled function returned: to the current tracker, without waiting for them.

    Rows without a step get *step*; None takes that of `at_step`, or of the row that is open when they are delivered.
    """
    state = ambient()
    if state.muted or not (source.buffers or source.lost):
        return
    if state.collector is not None:
        for _, row in source.rows():
            state.collector.update({f"{state.prefix}{name}": value for name, value in row.items()})
        return
    tracker = active_tracker()
    if tracker is None:
        _without_tracker(source.names)
        return
    if step is None and state.step is not None:
        step, commit = state.step, False if commit is None else commit
    if (
        state is NOTHING
        and type(source) is Packed
        and step is commit is None
        and not keeps_rows_open(type(tracker))
        and not _accelerated()
    ):
        join(source, tracker)
    else:
        join(CapturedRows(source, tracker, step, commit, state.prefix), tracker)


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
        deliver(Packed(*pack(group, arrays)))
    except (FatalTrackerError, TrackwayWarning):
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
    state = ambient()
    if state.muted:
        return
    commit = None if state.step is None else False
    rows = CapturedRows(Packed(layout, hosts), tracker, state.step, commit, state.prefix + prefix)
    for call in rows.calls():
        send(call, tracker)


def _wait() -> None:
    """Wait for callbacks under way; from inside one that would be for ever."""
    if not getattr(_inside, "callback", False):
        jax.effects_barrier()


set_rules(_impl, _lowering)
