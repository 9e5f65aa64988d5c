"""The event logger: each event to standard output, a text file, a JSON file and the hooks."""

from __future__ import annotations

import logging
import operator
import os
import threading
import time as clock
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, final

from trackway._locks import new_lock
from trackway.events._config import (
    absolute_path,
    check_every_steps,
    check_files,
    check_flag,
    check_memory,
    level_number,
)
from trackway.events._files import LineFile
from trackway.events._hooks import Hook, Hooks, Named
from trackway.events._stream import ConsoleStream
from trackway.events._text import event_text
from trackway.tracker import Ledger, Lifecycle, Report, check_step
from trackway.tracker._event_record import event_record
from trackway.values import Row, encode, normalise, resolve

__all__ = ["EventLogger"]

_FILTERED = "train_step"
_ALERT = "alert"
_ALERT_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FAILED = "train_failed"
_CURE = "; training goes on"
_MAX_DEPTH = 8  # of hooks that emit events


@final
class EventLogger:
    """Passes on events, such as `train_start`, `train_step`, `checkpoint`: text, JSON lines and hooks.

    * Text is one line per event, `train_step step=1 loss=2.31`, on standard output and in a file; what in it would
      break the line or speak to a terminal is escaped, long values are cut.
    * The JSON file gets a line per event that says all of it, see `trackway.values.encode`.
    * A hook gets the name and a dict of its own: the payload, with the event's step under `step` unless the payload
      says one. Hooks are called on the thread that emits, outside of any lock, so by several threads at once if
      several emit.

    Every event is INFO but `train_failed`, which is ERROR, and an `alert`, which has a level of
    its own. What a stream, a file or a hook raises is counted, see
    `report`, said once, and keeps the event from nothing else. Each line is written at once; no event is kept in
    memory. Thread-safe. In a forked child nothing is written.

    >>> with EventLogger() as events:
    ...     events.emit("train_step", {"loss": 2.3123456}, step=1)
    train_step step=1 loss=2.31235
    """

    def __init__(  # noqa: PLR0917 - an order that users know
        self,
        level: str | int = "INFO",
        file: str | os.PathLike[str] | None = None,
        json_file: str | os.PathLike[str] | None = None,
        every_steps: int = 1,
        console: bool = True,
        memory: Any = None,
        hooks: Iterable[Hook | str] = (),
        *,
        hooks_serial: bool = False,
    ) -> None:
        """Set everything up; files are opened at the first event.

        Args:
            level: The least level of events that become text. JSON lines and hooks get every event.
            file: Gets the text, beside standard output; appended to. Relative to the working directory of this moment.
            json_file: Gets the JSON lines, likewise.
            every_steps: Only `train_step` events whose step is a multiple of it are passed on; others always are.
            console: Whether the text goes to `sys.stdout`, looked up at each event.
            memory: `train_step` events tell the `memory_bytes` of this device: a name or a device; None is the
                accelerator in use, if there is one, False none.
            hooks: Called with each event; an import path, "package.module:name", names one.
            hooks_serial: Call hooks on one thread at a time.

        Raises:
            ConfigError: if a value is not allowed, or a hook cannot be imported.
        """
        self._level = level_number(level)
        text, lines = absolute_path(file, "file"), absolute_path(json_file, "json_file")
        check_files(text, lines)
        self._every_steps = check_every_steps(every_steps)
        self._stream = ConsoleStream("stdout") if check_flag(console, "console") else None
        self._file = None if text is None else LineFile(text)
        self._json_file = None if lines is None else LineFile(lines)
        self._memory = check_memory(memory)
        self._hooks = Hooks(hooks)
        self._turn = new_lock() if check_flag(hooks_serial, "hooks_serial") else None
        self._ledger = Ledger("events")
        self._life = Lifecycle(self._ledger)
        self._inside = threading.local()

    @property
    def hooks(self) -> Hooks:
        """The hooks, a list that may be changed at any time, also by a hook; an event under way is not touched."""
        return self._hooks

    @hooks.setter
    def hooks(self, hooks: Iterable[Hook | str]) -> None:
        self._hooks = hooks if isinstance(hooks, Hooks) else Hooks(hooks)

    def wants(self, event: str, step: int | None, payload: Mapping[str, Any]) -> bool:
        """Tell whether the cadence lets an event pass: all do but `train_step` at other steps than multiples.

        Args:
            event: The event's name.
            step: Its step; None takes `step` of the payload, and without that it passes.
            payload: What it brings; nothing else of it is looked at.
        """
        if self._every_steps == 1 or event != _FILTERED:
            return True
        try:
            number: Any = payload.get("step") if step is None else step
            number = 0 if isinstance(number, bool) else operator.index(number)
        except Exception:  # whatever is wrong with it, this is not where that is told
            return True
        return bool(number % self._every_steps == 0)

    def emit(self, event: str, payload: Mapping[str, Any] | None = None, *, step: int | None = None) -> None:
        """Pass on one event, if the cadence lets it pass.

        Args:
            event: The event's name.
            payload: What it brings, as for `trackway.log`; neither kept nor changed. Nothing is read of an event that
                the cadence holds back.
            step: The training step, an integer; None for an event without one.

        Raises:
            StepError: if *step* is not an integer.
            TypeError: if *payload* is not a mapping, or *event* not a text.
        """
        number = check_step(step)
        if not isinstance(event, str) or not event:
            raise TypeError(f"event must be a name such as 'checkpoint', got {event!r} ({type(event).__name__})")
        brought: Mapping[str, Any] = {} if payload is None else payload
        if not isinstance(brought, Mapping) or self.wants(event, number, brought):
            self.deliver(event, normalise(brought, reserved=False), number, clock.time())

    def deliver(self, event: str, row: Row, step: int | None, time: float) -> None:
        """Pass on an event, whatever the cadence says; never raises for what streams, files and hooks do.

        Args:
            event: The event's name.
            row: The payload, normalised; what is still on a device is waited for.
            step: The training step, if any.
            time: Unix time in seconds.
        """
        if not self._life.accepts("emit"):
            return
        row = self.with_memory(event, resolve(row))
        self._ledger.accept_row(row)
        self._write(event, row, step, time)
        if self._hooks.named:
            self._call_hooks(event, row, step)
        self._ledger.deliver()

    def with_memory(self, event: str, row: Row) -> Row:
        """Return *row* with `memory_bytes` in it, if it is that of a `train_step` which lacks it and there is any."""
        if event != _FILTERED or self._memory is False or "memory_bytes" in row:
            return row
        try:
            from trackway.events._memory import memory_bytes

            number = memory_bytes(self._memory)
        except Exception as error:
            self._ledger.fail("memory_bytes", error, _CURE)
            return row
        return row if number is None else row.derive({**row, "memory_bytes": number})

    def _write(self, event: str, row: Row, step: int | None, time: float) -> None:
        record = None if self._json_file is None else event_record(event, row, step, time)
        heard = _level_of(event, row) >= self._level
        if heard and (self._stream is not None or self._file is not None):
            self._write_text(event, row, step)
        if record is not None and self._json_file is not None:
            try:
                self._json_file.write(encode(record))
            except Exception as error:
                self._failed("json_file", error, f": {self._json_file.path}")

    def _write_text(self, event: str, row: Row, step: int | None) -> None:
        try:
            line = event_text(event, row, step)
        except Exception as error:  # a value that cannot be shown
            self._failed("text", error)
            return
        if self._stream is not None:
            try:
                self._stream.write_line(line)
            except Exception as error:
                self._failed("stdout", error)
        if self._file is not None:
            try:
                self._file.write(line.encode("utf-8", "backslashreplace"))
            except Exception as error:
                self._failed("file", error, f": {self._file.path}")

    def _failed(self, place: str, error: Exception, where: str = "") -> None:
        self._ledger.fail(place, error, f"{where}{_CURE}")
        self._ledger.drop(place, f"events that {place} did not take")

    @property
    def inside(self) -> bool:
        """Whether this thread is in the midst of a hook."""
        return getattr(self._inside, "depth", 0) > 0

    def _call_hooks(self, event: str, row: Row, step: int | None) -> None:
        depth = getattr(self._inside, "depth", 0)
        if depth >= _MAX_DEPTH:
            self._ledger.drop("hooks", "events that hooks emit because of events that hooks emit, without an end")
            return
        self._inside.depth = depth + 1
        try:
            for hook in self._hooks.named:
                self._call(hook, event, row, step)
        finally:
            self._inside.depth = depth

    def _call(self, hook: Named, event: str, row: Row, step: int | None) -> None:
        payload = {**row.copy()}
        if step is not None:
            payload = {"step": step, **payload}
        try:
            if self._turn is None:
                hook(event, payload)
            else:
                with self._turn:
                    hook(event, payload)
        except Exception as error:
            self._ledger.fail(f"hook {hook.name}", error, _CURE)

    def report(self) -> Report:
        """Return the counts of events, and of failures by place: `file`, `json_file`, `stdout`, `hook <name>`."""
        return self._ledger.report()

    def close(self) -> None:
        """Call `close` of each hook that has it, and close the files; events that follow are counted and dropped.

        Calling it again does nothing, and so does calling it in a forked child.
        """
        if not self._life.end():
            return
        for hook in self._hooks.named:
            close = getattr(hook.hook, "close", None)
            if callable(close):
                try:
                    close()
                except Exception as error:
                    self._ledger.fail(f"hook {hook.name}", error, "; it was to be closed")
        for file in (self._file, self._json_file):
            if file is not None:
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _level_of(event: str, row: Row) -> int:
    if event == _ALERT:
        return _ALERT_LEVELS.get(str(row.get("level")), logging.INFO)
    return logging.ERROR if event == _FAILED else logging.INFO
