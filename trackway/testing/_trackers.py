"""Trackers for tests: one that remembers, one that is slow or hangs, one that fails."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from trackway.tracker import Call, ForwardingTracker, Lifecycle, NoopTracker, StepCounter, Tracker
from trackway.tracker._interface import ArtifactPath
from trackway.tracker._ledger import Ledger, Report
from trackway.values import normalise, resolve

__all__ = ["FailingTracker", "RecordingTracker", "SlowTracker"]


@final
class RecordingTracker(Tracker):
    """Remembers everything it is given, as plain values. Thread-safe.

    Attributes:
        rows: `(step, metrics)` of every `log`, in order.
        hparams: All hyper-parameters, later ones over earlier.
        summary: All summary values, likewise.
        artifacts: `(name, type, content)` of every artifact; content is bytes, or for a folder a mapping of relative
            paths to bytes.
        events: `(event, payload, step)`.
        alerts: `(level, title, text)`.
        rewinds: `(step, number of rows before)` of every `rewind`.
        error: What `mark_failed` was given.
        finished: Whether `finish` was called.
    """

    def __init__(self, name: str = "recording") -> None:
        self.name = name
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.hparams: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.artifacts: list[tuple[str, str | None, Any]] = []
        self.events: list[tuple[str, dict[str, Any], int | None]] = []
        self.alerts: list[tuple[str, str, str]] = []
        self.rewinds: list[tuple[int, int]] = []
        self.error: BaseException | None = None
        self.flushes = 0
        self._ledger = Ledger(name)
        self._life = Lifecycle(self._ledger)
        self._steps = StepCounter()

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return self._life.finished

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Merge *hparams* into `hparams`."""
        if self._life.accepts("log_hyperparameters"):
            self.hparams.update(_plain(hparams))

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:  # noqa: ARG002
        """Append a row to `rows`."""
        if self._life.accepts("log"):
            row = resolve(normalise(metrics))
            self._ledger.accept_row(row)
            self.rows.append((self._steps.take(step), dict(row)))
            self._ledger.deliver()

    def rewind(self, step: int) -> None:
        """Append to `rewinds`."""
        if self._life.accepts("rewind"):
            self.rewinds.append((step, len(self.rows)))

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Merge *metrics* into `summary`."""
        if self._life.accepts("log_summary"):
            self.summary.update(_plain(metrics))

    def log_artifact(self, artifact_path: ArtifactPath, *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002
        """Read the file or folder and append it to `artifacts`; one that is missing is counted."""
        path = Path(artifact_path)
        if not self._life.accepts("log_artifact"):
            return
        if not path.exists():
            self._ledger.drop(str(path), "no such file or folder")
            return
        self.artifacts.append((name or path.name, type, _content(path)))

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Append to `events`."""
        if self._life.accepts("log_event"):
            self.events.append((event, _plain(payload), step))

    def alert(self, title: str, text: str = "", *, level: str = "warning") -> None:
        """Append to `alerts`."""
        if self._life.accepts("alert"):
            self.alerts.append((level, title, text))

    def flush(self) -> None:
        """Count the call."""
        self.flushes += 1

    def mark_failed(self, error: BaseException) -> None:
        """Remember *error*."""
        self.error = error

    def finish(self) -> None:
        """Take nothing further."""
        self._life.end()

    def report(self) -> Report:
        """Return what became of the rows."""
        return self._ledger.report()


def _plain(payload: Mapping[str, Any]) -> dict[str, Any]:
    return dict(resolve(normalise(payload, reserved=False)))


def _content(path: Path) -> Any:
    if path.is_file():
        return path.read_bytes()
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@final
class SlowTracker(ForwardingTracker):
    """Takes its time: every call waits before it reaches *tracker*. Thread-safe if *tracker* is.

    With `seconds=None` it hangs until `release` is called, as a service does that never answers.
    """

    def __init__(self, tracker: Tracker | None = None, *, seconds: float | None = 0.1) -> None:
        self.tracker = tracker or NoopTracker()
        self.name = self.tracker.name
        self.calls = 0
        self._seconds = seconds
        self._released = threading.Event()

    def members(self) -> tuple[Tracker, ...]:
        """Return the tracker behind."""
        return (self.tracker,)

    def release(self) -> None:
        """Let all waiting and later calls through at once."""
        self._released.set()

    def _forward(self, call: Call) -> Any:
        self.calls += 1
        self._released.wait(self._seconds)
        return call.on(self.tracker)


@final
class FailingTracker(ForwardingTracker):
    """Raises *error* from *methods* (all of the interface by default); other calls reach *tracker*. Thread-safe."""

    def __init__(
        self,
        tracker: Tracker | None = None,
        *,
        error: BaseException | None = None,
        methods: tuple[str, ...] | None = None,
    ) -> None:
        self.tracker = tracker or NoopTracker("failing")
        self.name = self.tracker.name
        self.calls = 0
        self._error = error or RuntimeError("this tracker always fails")
        self._methods = methods

    def members(self) -> tuple[Tracker, ...]:
        """Return the tracker behind."""
        return (self.tracker,)

    def _forward(self, call: Call) -> Any:
        if self._methods is None or call.method in self._methods:
            self.calls += 1
            raise self._error
        return call.on(self.tracker)
