"""`type: json_logger`: every call is one line of JSON on a Python logger, for systems that collect logs."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from trackway._locks import new_lock
from trackway.backends._described import count_described
from trackway.config import TrackerConfig
from trackway.errors import ConfigError
from trackway.store import Summary
from trackway.tracker import Ledger, Lifecycle, Report, StepCounter, Tracker, check_step
from trackway.tracker._callbacks import wait_for_callbacks
from trackway.values import Audio, Html, Image, Row, Table, encode, normalise, redacted_text, resolve

__all__ = ["JsonLoggerConfig", "JsonLoggerTracker"]

_LOGGER = "trackway.json_logger"
_DESCRIBED = (Image, Audio, Table, Html)  # a Text stands in the line as a whole
_LOOSE = re.compile("[\x7f-\x9f\u2028\u2029]")  # break lines, or speak to a terminal; JSON allows them


@final
class JsonLoggerTracker(Tracker):
    """Writes each call as a record of one JSON object.

    ```text
    {"tracker":"json_logger","event":"hparams","hparams":{"lr":0.1}}
    {"tracker":"json_logger","event":"log","step":1,"metrics":{"loss":0.5}}
    {"tracker":"json_logger","event":"summary","summary":{"best_loss":0.4}}
    {"tracker":"json_logger","event":"event","name":"checkpoint","step":1,"payload":{"path":"/tmp/1"}}
    {"tracker":"json_logger","event":"artifact","path":"/tmp/model.pt","name":"model.pt","type":"model"}
    {"tracker":"json_logger","event":"finish","summary":{"loss":0.5,"best_loss":0.4}}
    ```

    `finish` carries the last value of every metric and the summary, which wins. `trackway.values.decode` reads a
    message back to equal values. Images, sounds, tables and pages give their type and size, not their data, and are
    counted as converted. Characters that end a line or speak to a terminal are escapes. Thread-safe.

    Attributes:
        logger: The logger written to.
    """

    name: str = "json_logger"

    def __init__(
        self, logger: logging.Logger | None = None, *, level: int = logging.INFO, strict_json: bool = False
    ) -> None:
        """Write to *logger*.

        Args:
            logger: None takes the logger "trackway.json_logger", as `JsonLoggerConfig` sets it up. If neither it nor
                a logger above it has a handler, it gets one that writes to standard error until there is another.
            level: The level of the records.
            strict_json: Write NaN and infinities as null and what they were under `_nonfinite`.
        """
        self.logger: logging.Logger = _prepared(_LOGGER, level) if logger is None else _heard(logger)
        self._level = level
        self._strict = strict_json
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._steps = StepCounter()
        self._summary = Summary()
        self._lock = new_lock()

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Write a record of the event "hparams"."""
        if self._life.accepts("log_hyperparameters"):
            self._emit("hparams", hparams=self._row(hparams))

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:  # noqa: ARG002 - one call, one record
        """Write a record of the event "log"; *step* None takes the last step + 1, *commit* is ignored."""
        if not self._life.accepts("log"):
            return
        number = self._steps.take(step)
        row = resolve(normalise(metrics))
        self._ledger.accept_row(row)
        if row.has_media:
            count_described(self._ledger, row, _DESCRIBED)
        with self._lock:
            self._summary.update(row)
        self._ledger.deliver(self._emit("log", step=number, metrics=row))

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Write a record of the event "summary"."""
        if not self._life.accepts("log_summary"):
            return
        row = self._row(metrics)
        with self._lock:
            self._summary.set(row)
        self._emit("summary", summary=row)

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Write a record of the event "event", with the name under `name`, and `step` if there is one."""
        number = check_step(step)
        if self._life.accepts("log_event"):
            at = {} if number is None else {"step": number}
            self._emit("event", name=str(event), **at, payload=self._row(payload))

    def log_artifact(
        self,
        artifact_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - the interface's word
    ) -> None:
        """Write a record of the event "artifact"; the file itself is not kept."""
        if not self._life.accepts("log_artifact"):
            return
        path = redacted_text(os.fsdecode(artifact_path))
        name = None if name is None else redacted_text(str(name))
        self._emit("artifact", path=path, name=name or os.path.basename(os.path.abspath(path)), type=type)  # noqa: PTH100, PTH119 - maybe a URL

    def report(self) -> Report:
        """Return what became of the rows so far."""
        return self._ledger.report()

    def flush(self) -> None:
        """Wait for compiled functions, and have every handler of the logger write out what it holds."""
        wait_for_callbacks()
        if self._life.accepts("flush"):
            self._flush()

    def _flush(self) -> None:
        for handler in _handlers(self.logger):
            try:
                handler.flush()
            except Exception as error:
                self._ledger.fail("flush", error)

    def finish(self) -> None:
        """Write a record of the event "finish" with the whole summary. The logger and its handlers stay."""
        wait_for_callbacks()
        if not self._life.end():
            return
        with self._lock:
            summary = self._summary.snapshot()
        self._emit("finish", summary=summary)
        self._flush()

    def _row(self, payload: Mapping[str, Any]) -> Row:
        row = resolve(normalise(payload, reserved=False))
        self._ledger.count_downgrades(row)
        if row.has_media:
            count_described(self._ledger, row, _DESCRIBED)
        return row

    def _emit(self, event: str, **content: Any) -> bool:
        """Return whether the logger took the record."""
        if self.logger.disabled or not self.logger.isEnabledFor(self._level):
            what = "is disabled" if self.logger.disabled else f"takes no {logging.getLevelName(self._level)}"
            self._ledger.drop(event, f"the logger {self.logger.name} {what}; something changed it after the start")
            return False
        line = encode({"tracker": self.name, "event": event, **content}, strict=self._strict).decode("utf-8")
        message = _LOOSE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
        try:
            self.logger.log(self._level, "%s", message)
        except Exception as error:  # a filter or handler of the user's
            self._ledger.fail(event, error, "; training goes on")
            return False
        return True


@final
class _FallbackHandler(logging.Handler):
    """Writes to standard error, as long as the logger has no other handler.

    Whether it has is asked at each record: once the user configures logging, lines do not appear twice.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        if any(_handlers(self._logger)) or sys.stderr is None:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self.handleError(record)


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    """The handlers that a record of *logger* reaches and that do something with it, the fallback aside."""
    place: logging.Logger | None = logger
    while place is not None:
        yield from (h for h in place.handlers if not isinstance(h, _FallbackHandler | logging.NullHandler))
        place = place.parent if place.propagate else None


def _prepared(name: str, level: int) -> logging.Logger:
    """The logger *name* at *level*, with a handler if a record would reach none."""
    logger = logging.getLogger(name)
    logger.setLevel(level)
    return _heard(logger)


def _heard(logger: logging.Logger) -> logging.Logger:
    """*logger*, with a handler if a record would reach none."""
    if not any(_handlers(logger)) and not any(isinstance(h, _FallbackHandler) for h in logger.handlers):
        logger.addHandler(_FallbackHandler(logger))
    return logger


@final
@TrackerConfig.register_subclass("json_logger")
@dataclass
class JsonLoggerConfig(TrackerConfig):
    """Writes every call as one line of JSON to a Python logger.

    Attributes:
        logger_name: The logger's name. If neither it nor a logger above it has a handler, it gets one that writes to
            standard error until there is another.
        level: The level that the logger is set to and that the records have: a number, or a name such as "INFO".
        strict_json: Write NaN and infinities as null and what they were under `_nonfinite`.
    """

    logger_name: str = _LOGGER
    level: int | str = logging.INFO
    strict_json: bool = field(default=False, kw_only=True)

    def init(self, run_id: str | None) -> JsonLoggerTracker:  # noqa: ARG002 - the interface of all configs
        """Set the logger up and return its tracker; *run_id* is of no use to it.

        Raises:
            ConfigError: if *level* is no level.
        """
        level = _level(self.level)
        return JsonLoggerTracker(_prepared(self.logger_name, level), level=level, strict_json=self.strict_json)


def _level(level: int | str) -> int:
    names = logging.getLevelNamesMapping()
    if isinstance(level, str):
        number = names.get(level.strip().upper())
    else:
        number = None if isinstance(level, bool) or level < 0 else level
    if number is None:
        raise ConfigError(
            f"json_logger.level must be a number of at least 0 or one of {', '.join(sorted(names))}, got {level!r}"
        )
    return number or logging.INFO  # NOTSET would hand the decision to the root logger, which takes warnings only
