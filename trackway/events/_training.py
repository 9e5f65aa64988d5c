"""The events of a training loop, each with the keys that it usually has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, final, runtime_checkable

from trackway import _notices
from trackway._locks import new_lock
from trackway.events._logger import EventLogger
from trackway.events._text import error_text
from trackway.tracker import Call, Tracker
from trackway.tracker._delivery import send
from trackway.tracker._verbs import log_event

__all__ = ["EventTarget", "TrainingEvents"]

_Emit = Callable[[str, Mapping[str, Any], int | None], Any]


@runtime_checkable
class EventTarget(Protocol):
    """What takes events: a run, any tracker."""

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Take one event."""


@final
class TrainingEvents:
    """Emits the events of a training loop: `train_start`, `train_step`, `compile`, `checkpoint`, `train_end`, ...

    As a context manager it emits `train_start`, and at the end `train_end`, or `train_failed` if the block raised:

    >>> from trackway.events import EventLogger, TrainingEvents
    >>> with TrainingEvents(EventLogger(), start_step=0, target_step=2) as events:
    ...     events.train_step(1, {"loss": 2.31})
    ...     events.train_end(steps=1, elapsed_s=0.25, loss=2.31)
    train_start start_step=0 target_step=2
    train_step step=1 loss=2.31
    train_end steps=1 elapsed_s=0.25 loss=2.31

    Thread-safe. What a tracker or a hook raises does not reach the caller, save for a `FatalTrackerError` of a tracker
    declared `required: true`.
    """

    def __init__(self, target: EventLogger | EventTarget | None = None, /, **start: Any) -> None:
        """Emit to *target*.

        Args:
            target: A run or another tracker, or an `EventLogger`; None is the tracker that is current at each call.
            **start: What the `train_start` of a `with` block brings.

        Raises:
            TypeError: if *target* is none of those.
        """
        self._emit = _emitter(target)
        self._start = start
        self._steps = 0
        self._began: float | None = None
        self._ended = False
        self._lock = new_lock()

    def train_start(self, **payload: Any) -> None:
        """Say that training begins, usually with `start_step` and `target_step`."""
        with self._lock:
            self._steps, self._began, self._ended = 0, time.monotonic(), False
        self._emit("train_start", payload, None)

    def train_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Say that *step* is done, with its *metrics*; this is the one event that `every_steps` thins out."""
        with self._lock:
            self._steps += 1
        self._emit("train_step", metrics, step)

    def compile(self, *, step: int | None = None, **payload: Any) -> None:
        """Say that a function was compiled, usually with its `name` and the `seconds` that it took."""
        self._emit("compile", payload, step)

    def checkpoint(self, step: int, path: str | os.PathLike[str], **payload: Any) -> None:
        """Say that the state after *step* is at *path*."""
        self._emit("checkpoint", {"path": os.fspath(path), **payload}, step)

    def outer_step(self, outer_step: int, *, deltas_found: int, deltas_included: int, **payload: Any) -> None:
        """Say that a round of a distributed loop is over, also one in which nothing came.

        Args:
            outer_step: The round.
            deltas_found: How many workers had sent something.
            deltas_included: How many of these were taken in.
            **payload: Whatever else there is.
        """
        counts = {"outer_step": outer_step, "deltas_found": deltas_found, "deltas_included": deltas_included}
        self._emit("outer_step", {**counts, **payload}, None)

    def train_end(self, *, steps: int | None = None, elapsed_s: float | None = None, **payload: Any) -> None:
        """Say that training is over; the end of a `with` block then does not say it again.

        Args:
            steps: Steps done; None is the number of calls of `train_step` since `train_start`.
            elapsed_s: Seconds since `train_start`; None is what a clock says.
            **payload: Whatever else there is, such as the last loss.
        """
        self._emit("train_end", {**self._end(steps, elapsed_s), **payload}, None)

    def train_failed(self, error: BaseException, **payload: Any) -> None:
        """Say that training ends because of *error*: its type as `error`, its text as `message`."""
        message = error_text(error).partition(": ")[2]
        told = {"error": type(error).__name__, "message": message}
        self._emit("train_failed", {**told, **self._end(None, None), **payload}, None)

    def _end(self, steps: int | None, elapsed_s: float | None) -> dict[str, Any]:
        with self._lock:
            self._ended = True
            began, counted = self._began, self._steps
        if elapsed_s is None and began is not None:
            elapsed_s = time.monotonic() - began
        elapsed = {} if elapsed_s is None else {"elapsed_s": elapsed_s}
        return {"steps": counted if steps is None else steps, **elapsed}

    def __enter__(self) -> Self:
        self.train_start(**self._start)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None or (isinstance(exc, SystemExit) and exc.code in {None, 0}):
            if not self._ended:
                self.train_end()
            return
        try:
            self.train_failed(exc)
        except Exception as error:  # what the block raised matters more
            _notices.logger.warning("train_failed could not be told: %s", error_text(error))


def _emitter(target: Any) -> _Emit:
    """Return what takes event, payload and step to *target*."""
    if target is None:
        return _to_current
    if isinstance(target, EventLogger):
        return lambda event, payload, step: target.emit(event, payload, step=step)
    if isinstance(target, Tracker) and not target.self_contained:
        return lambda event, payload, step: send(Call("log_event", (event, payload), {"step": step}), target)
    if isinstance(target, EventTarget) and not isinstance(target, type):
        return lambda event, payload, step: target.log_event(event, payload, step=step)
    raise TypeError(
        f"TrainingEvents takes a run, a tracker, an EventLogger or None for the current tracker, got "
        f"{type(target).__name__}"
    )


def _to_current(event: str, payload: Mapping[str, Any], step: int | None) -> None:
    log_event(event, payload, step=step)
