"""`type: console`: one readable line per row on the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TextIO, final

from trackway._locks import new_lock
from trackway.backends._described import count_described
from trackway.config import TrackerConfig
from trackway.errors import ConfigError
from trackway.events._stream import ConsoleStream, StreamName
from trackway.events._text import error_text, event_text, pairs_text
from trackway.store import Summary
from trackway.tracker import Ledger, Lifecycle, Report, StepCounter, Tracker, check_step
from trackway.tracker._callbacks import wait_for_callbacks
from trackway.values import Audio, Histogram, Html, Image, Row, Table, Text, normalise, redacted_text, resolve

__all__ = ["ConsoleConfig", "ConsoleTracker"]

_STREAMS = ("stdout", "stderr")
_STEP = frozenset({"step"})
_DESCRIBED = (Histogram, Image, Audio, Table, Text, Html)


@final
class ConsoleTracker(Tracker):
    """Prints each call as one line.

    ```text
    hparams lr=0.1 model/width=64
    step=5 loss=0.5 train/acc=0.91 grads=hist(n=1000 mean=0.01 min=-2.1 max=1.9) samples=image(28x28)
    event checkpoint step=5 path=/tmp/5
    summary best_loss=0.4
    artifact name=model.pt type=model
    finish rows=6 loss=0.5 train/acc=0.91 best_loss=0.4
    ```

    Floats have six significant digits, integers all of theirs. Texts and names that are not one plain word stand in
    quotes, with control characters as escapes, so that nothing logged breaks a line or speaks to the terminal. Long
    texts, names and lists are cut and say how long they are. Histograms and media are described, and counted as
    converted. Lines go well with progress bars of tqdm and rich. A stream that
    is closed or broken is counted in `report`, not raised. Thread-safe.
    """

    name: str = "console"
    prints_events: ClassVar[bool] = True
    """A run that has it prints no events itself."""

    def __init__(self, stream: TextIO | StreamName | None = None) -> None:
        """Print to *stream*; None and "stdout" mean whatever `sys.stdout` is at each call, "stderr" likewise."""
        self._stream = ConsoleStream("stdout" if stream is None else stream)
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._steps = StepCounter()
        self._summary = Summary()
        self._error: BaseException | None = None
        self._lock = new_lock()

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Print a line that begins with `hparams`."""
        if self._life.accepts("log_hyperparameters"):
            self._print("log_hyperparameters", "hparams", self._row(hparams))

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:  # noqa: ARG002 - one call, one line
        """Print a line that begins with the step; None takes the last step + 1. *commit* is ignored."""
        if not self._life.accepts("log"):
            return
        number = self._steps.take(step)
        row = resolve(normalise(metrics))
        self._ledger.accept_row(row)
        count_described(self._ledger, row, _DESCRIBED)
        with self._lock:
            self._summary.update(row)
        self._ledger.deliver(self._print("log", f"step={number}", row, _STEP))

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Print a line that begins with `summary`."""
        if not self._life.accepts("log_summary"):
            return
        row = self._row(metrics)
        with self._lock:
            self._summary.set(row)
        self._print("log_summary", "summary", row)

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Print a line that begins with `event`, its name, and its step if it has one."""
        number = check_step(step)
        if self._life.accepts("log_event"):
            self._print("log_event", f"event {event_text(str(event), self._row(payload), number)}", {})

    def log_artifact(
        self,
        artifact_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - the interface's word
    ) -> None:
        """Print a line that begins with `artifact`; the file itself is not kept."""
        if not self._life.accepts("log_artifact"):
            return
        path = redacted_text(os.fsdecode(artifact_path))
        name = None if name is None else redacted_text(str(name))
        own_name = os.path.basename(os.path.abspath(path))  # noqa: PTH100, PTH119 - maybe a URL
        shown = {"name": name or own_name, "type": type, "path": None if name in {None, own_name} else path}
        self._print("log_artifact", "artifact", {key: value for key, value in shown.items() if value is not None})

    def mark_failed(self, error: BaseException) -> None:
        """Have `finish` print the error."""
        if self._life.accepts("mark_failed"):
            self._error = error

    def report(self) -> Report:
        """Return what became of the rows so far."""
        return self._ledger.report()

    def flush(self) -> None:
        """Wait for compiled functions, and flush the stream."""
        wait_for_callbacks()
        if self._life.accepts("flush"):
            try:
                self._stream.flush()
            except Exception as error:
                self._ledger.fail("flush", error)

    def finish(self) -> None:
        """Print a line that begins with `finish`: number of rows, the last values and the summary, an error if any."""
        wait_for_callbacks()
        if not self._life.end():
            return
        head = f"finish rows={self._ledger.report().accepted}"
        with self._lock:
            summary = self._summary.snapshot()
        if self._error is not None:
            head += " " + pairs_text({"error": error_text(self._error)})
        self._print("finish", head, summary, frozenset({"rows", "error"}))

    def _row(self, payload: Mapping[str, Any]) -> Row:
        row = resolve(normalise(payload, reserved=False))
        self._ledger.count_downgrades(row)
        count_described(self._ledger, row, _DESCRIBED)
        return row

    def _print(self, method: str, head: str, values: Mapping[str, Any], reserved: frozenset[str] = frozenset()) -> bool:
        """Return whether the line was written."""
        try:
            pairs = pairs_text(values, reserved)
            self._stream.write_line(f"{head} {pairs}" if pairs else head)
        except Exception as error:
            self._ledger.fail(method, error, "; training goes on")
            return False
        return True


@final
@TrackerConfig.register_subclass("console")
@dataclass
class ConsoleConfig(TrackerConfig):
    """Prints one readable line per row.

    Attributes:
        stream: "stdout" or "stderr", looked up at each line.
    """

    stream: Literal["stdout", "stderr"] = "stdout"

    def init(self, run_id: str | None) -> ConsoleTracker:  # noqa: ARG002 - the interface of all configs
        """Return the tracker; *run_id* is of no use to it.

        Raises:
            ConfigError: if *stream* is neither.
        """
        if self.stream not in _STREAMS:
            raise ConfigError(f"console.stream must be one of {', '.join(_STREAMS)}, got {self.stream!r}")
        return ConsoleTracker(self.stream)
