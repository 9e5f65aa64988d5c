"""`type: trackio`: runs in Trackio, on this machine, at a self-hosted server or on a Hugging Face Space."""

from __future__ import annotations

import atexit
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.backends import _trackio_artifacts as artifacts
from trackway.backends import _trackio_start as starting
from trackway.backends._trackio_events import Events
from trackway.backends._trackio_places import Alert, Entry, Rewind, place_of
from trackway.backends._trackio_sender import Sender
from trackway.backends._trackio_values import Values, identity, legal_text
from trackway.config import TrackerConfig, missing_extra, run_context
from trackway.config._environment import mode as environment_mode
from trackway.errors import ConfigError, StepError
from trackway.tracker import BackgroundPolicy, Ledger, Lifecycle, NoopTracker, Report, StepCounter, Tracker, check_step
from trackway.tracker._interface import AlertLevel, ArtifactPath
from trackway.tracker._row_time import begun_at
from trackway.values import normalise, redacted_text, resolve
from trackway.values._redact import redacted_name

if TYPE_CHECKING:
    from trackio.run import Run

__all__ = ["TrackioConfig", "TrackioTracker"]

_MODES = (None, "online", "offline", "disabled")
_RESUME = ("auto", "allow", "must", "never")
_LEVELS = {"info": "info", "warning": "warn", "error": "error"}
_SECONDS = 30.0


@final
class TrackioTracker(Tracker):
    """Logs to one Trackio run.

    * A row is a row there, with its step, late ones too. On this machine it has the time at which it was logged; a
      server gives it the time at which it arrives.
    * Numbers are kept as they are, and NaN and infinities as Trackio does; integers beyond 64 bits become floats, and
      bools 1 and 0, since Trackio draws no curve of them. Lists and plain texts are in the rows; the dashboard shows
      no panel for them.
    * Histograms, images, sounds, tables and HTML are what they are; a `Text` is a report in Markdown.
    * Nested mappings are joined with `/`. The names `project`, `run`, `timestamp`, `step`, `time`, `metrics` and those
      that begin with `__` get `__` before them, as Trackio does.
    * An event is a row of its own, `{"event": name, "<event>/<key>": value}`, after the metrics of its step.
    * Hyper-parameters are the run's configuration, and may change. Trackio has no summary: summary values are
      `summary/<name>` in the configuration, and so columns of the table of runs.
    * What another attempt goes over again becomes, on this machine, a run of its own, `<name> (superseded <n>)`. A
      server cannot do that: there the new rows over such steps have the names `attempt_<n>/<name>`.
    * An artifact of a name used before is a new version of it, and has the run's name as an alias.

    A row that reaches Trackio twice, sent again after an outage, is kept once. A call returns when the row is in
    memory; it is written after half a second, or by `flush`, and tried again if that fails. Thread-safe.

    Attributes:
        run: The `trackio.Run`, for everything that only Trackio has.
    """

    name: str = "trackio"

    def __init__(
        self, run: Run | None = None, *, first_step: int = 0, attempt: int = 1, finish_timeout: float = _SECONDS
    ) -> None:
        """Log to *run*.

        Args:
            run: A run that was started; None takes Trackio's current one, and starts one, with a warning, if there is
                none.
            first_step: The step of the first row that comes without one.
            attempt: The number of the attempt at the run.
            finish_timeout: Seconds that `flush` and `finish` take at most.

        Raises:
            ConfigError: if trackio is not installed.
        """
        self.run: Run = _adopted() if run is None else run
        self._timeout = finish_timeout
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._steps = StepCounter(first_step)
        self._place = place_of(self.run)
        self._sender = Sender(self._place, self._ledger)
        self._values = Values(self._ledger, starting.media_folder(self.run))
        self._events = Events(self._values, self.run.id)
        self._local = bool(self.run._is_local)  # noqa: SLF001
        self._last_step: int | None = None
        self._attempt, self._again = attempt, False
        self._repeats: tuple[int, dict[str, int]] = (0, {})
        self._lock = new_lock()
        atexit.register(self._end_at_exit)

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Merge *hparams* into the run's configuration; later values take the place of earlier ones."""
        if self._life.accepts("log_hyperparameters"):
            self._configure(hparams)

    def _configure(self, payload: Mapping[str, Any], prefix: str = "") -> None:
        row = resolve(normalise(payload, reserved=False))
        self._ledger.count_downgrades(row)
        self._sender.configure(self._values.settings(row, prefix))

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:  # noqa: ARG002 - one call, one row
        """Log one row; *commit* is ignored.

        Raises:
            StepError: if *step* is not an integer.
            ConnectionError: if too many rows wait for a server that is away; this one is not taken then.
        """
        check_step(step)
        if not self._life.accepts("log"):
            return
        now = datetime.fromtimestamp(begun_at(), UTC).isoformat()
        row = resolve(normalise(metrics))
        number = self._steps.take(step)
        with self._lock:
            prefix = self._prefix(number)
            log_id = self._log_id(number, prefix + identity(row))
        values, files = self._values.of(row, number)
        if prefix:
            values = {f"{prefix}{name}": value for name, value in values.items()}
        self._sender.put(Entry(number, values, now, log_id, files))
        self._ledger.accept()
        with self._lock:
            events = self._events.with_row(number)
        self._put_events(events)

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Log a row `{"event": event, "<event>/<key>": value}` at *step*, once the metrics of that step are there.

        Raises:
            StepError: if *step* is not an integer.
            ConnectionError: as for `log`.
        """
        number = check_step(step)
        if self._life.accepts("log_event"):
            row = resolve(normalise(payload, reserved=False))
            with self._lock:
                prefix = "" if number is None else self._prefix_again(number)
                events = self._events.take(str(event), row, number, last=self._last_step, prefix=prefix)
            self._put_events(events)

    def _put_events(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._sender.put(entry)
            self._ledger.accept()

    def _prefix(self, step: int) -> str:
        """Return what the names of a row get before them: something where a server has superseded rows of the step."""
        prefix = self._prefix_again(step)
        self._last_step = step if self._last_step is None else max(step, self._last_step)
        return prefix

    def _prefix_again(self, step: int) -> str:
        again = self._again and self._last_step is not None and step <= self._last_step
        return f"attempt_{self._attempt}/" if again else ""

    def _log_id(self, step: int, content: str) -> str:
        """Return the same for a row that is sent again, by whichever process; rows alike of one step are numbered."""
        at, seen = self._repeats
        if at != step:
            self._repeats = (step, seen := {})
        seen[content] = number = seen.get(content, 0) + 1
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self.run.id} {step} {number} {content}").hex

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Set `summary/<name>` in the run's configuration."""
        if self._life.accepts("log_summary"):
            self._configure(metrics, "summary/")

    def log_artifact(self, artifact_path: ArtifactPath, *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002
        """Make an artifact of a file or folder; when the call returns it is copied, or at the server.

        A name that Trackio does not take is changed, which is counted. What is missing is counted, not raised.
        """
        if not self._life.accepts("log_artifact"):
            return
        path = Path(os.fsdecode(artifact_path))
        wanted = redacted_name(str(name or path.resolve().name))
        try:
            artifacts.keep(self.run, path, wanted, type, self._ledger)
        except FileNotFoundError as error:
            self._ledger.drop(f"artifact {wanted!r}", str(error).partition(" '")[0])

    def alert(self, title: str, text: str = "", *, level: AlertLevel = "warning") -> None:
        """Keep an alert, which the dashboard shows; and tell the run's webhook, if it has one."""
        if not self._life.accepts("alert"):
            return
        known = _LEVELS.get(level, "warn")
        title, text = redacted_text(str(title)), redacted_text(str(text))
        if self.run._webhook_url:  # noqa: SLF001 - it prints, queues and calls by itself
            from trackio import AlertLevel as Level

            self.run.alert(title, text or None, Level(known), step=self._last_step)
            return
        now = datetime.now(UTC).isoformat()
        step = max(self._last_step or 0, 0)
        self._sender.put(Alert(legal_text(title), legal_text(text), known, step, now, uuid.uuid4().hex))

    def first_missing_step(self) -> int | None:
        """Return the step after the last one that Trackio has of this run; None if the server cannot be asked."""
        try:
            last = self._place.last_step()
        except Exception as error:
            _notices.logger.info("trackio: cannot tell which rows are there: %s", error)
            return None
        with self._lock:
            if last is not None:
                self._last_step = last if self._last_step is None else max(last, self._last_step)
        return 0 if last is None else last + 1

    def rewind(self, step: int) -> None:
        """Set the rows from *step* on aside, as far as Trackio can, for those that follow to take their place.

        Raises:
            StepError: if *step* is not an integer.
        """
        number = check_step(step)
        if number is None:
            raise StepError("trackio: rewind takes the step to go on from, got None")
        if not self._life.accepts("rewind"):
            return
        self._put_rest()
        self._steps, self._repeats = StepCounter(number), (0, {})
        if self._local:
            self._sender.put(Rewind(number))
            return
        if self._last_step is None:
            self.first_missing_step()  # which finds it out
        if self._last_step is not None and number <= self._last_step:
            self._attempt, self._again = self._attempt + 1, True

    def mark_failed(self, error: BaseException) -> None:
        """Set `trackway/failed` in the run's configuration to *error*, and alert of it."""
        if self._life.accepts("mark_failed"):
            text = f"{type(error).__name__}: {error}"
            self._configure({"trackway/failed": text})
            self.alert("The run failed", text, level="error")

    def flush(self) -> None:
        """Wait until everything logged so far is in the database, or at the server.

        Raises:
            TimeoutError: if that takes longer than `finish_timeout`.
            Exception: what writing raised; it is tried again later.
        """
        if self._life.accepts("flush"):
            self._sender.flush(self._timeout)

    def finish(self) -> None:
        """Write what is left and end the run's threads, within `finish_timeout`.

        Rows that a server did not take are kept on this machine by then, and a warning tells their number.
        """
        if not self._life.end():
            return
        atexit.unregister(self._end_at_exit)
        deadline = time.monotonic() + self._timeout
        try:
            self._put_rest()
            self._sender.close(0.8 * self._timeout)
        finally:
            starting.end(self.run, deadline - time.monotonic())

    def _put_rest(self) -> None:
        with self._lock:
            events = self._events.rest(self._last_step)
        try:
            self._put_events(events)
        except ConnectionError as error:
            self._ledger.fail("log_event", error)

    def _end_at_exit(self) -> None:
        if not self._life.foreign:
            self.finish()

    def report(self) -> Report:
        """Return what became of everything logged so far; "delivered" is in the database, or at the server."""
        return self._ledger.report(pending=self._sender.waiting_rows)


def _adopted() -> Run:
    """Return the run that is current in Trackio, or a new one."""
    _load()
    from trackio import context_vars

    current = context_vars.current_run.get()
    if current is not None:
        return current
    _notices.warn_once(
        "trackio without run",
        "TrackioTracker() was made while no Trackio run is active, so one was started in the project 'trackway'. Pass "
        "a run, or use `type: trackio` in the configuration.",
    )
    started = starting.start(starting.Target(), project="trackway", name=None, run_id=None, resume="never", config={})
    return cast("Run", started)


def _load() -> None:
    try:
        import trackio  # noqa: F401 - takes half a second, and only this long after the start is it needed
    except ImportError as error:
        raise missing_extra("trackio", "trackio", error) from error


@final
@TrackerConfig.register_subclass("trackio")
@dataclass
class TrackioConfig(TrackerConfig):
    """Logs to a run in Trackio.

    Attributes:
        project: The project.
        name: What the run is called; None takes the run id.
        space_id: A Hugging Face Space to send the run to, `user/space`; made if there is none. None keeps it on this
            machine, unless `TRACKIO_SPACE_ID` or `TRACKIO_SERVER_URL` is set.
        dataset_id: The data set in which that Space keeps its rows.
        config: Hyper-parameters to begin with.
        mode: "disabled" logs nothing. "online" or None is the usual case; "offline" is the same on this machine, and
            keeps a run here that has a Space or a server. `TRACKWAY_MODE=offline` does that too.
        resume: "auto" continues the run of the run id if there is one, and starts it otherwise. "allow" and "must" go
            by the name as well, as Trackio does, and with "must" it is an error if there is none; "never" starts a
            new one.
        server_url: The URL of a self-hosted server, with `?write_token=...` if `TRACKIO_WRITE_TOKEN` does not have it.
        finish_timeout: Seconds that ending the run takes at most.
        background: Called on a thread of its own, so that it cannot hold training up.
    """

    project: str = "trackway"
    name: str | None = None
    space_id: str | None = None
    dataset_id: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    mode: str | None = None
    resume: str = "auto"
    server_url: str | None = field(default=None, kw_only=True)
    finish_timeout: float = field(default=_SECONDS, kw_only=True)
    background: bool | BackgroundPolicy = field(default=True, kw_only=True)

    def init(self, run_id: str | None) -> Tracker:
        """Return a tracker of a new or continued run; no server is waited for unless `resume` needs to ask it.

        Raises:
            ConfigError: if trackio is not installed, or a field has a value that is not allowed.
        """
        self._check()
        if self.mode == "disabled":
            return NoopTracker("trackio")
        _load()
        context = run_context()
        shared = context is not None and context.rank > 0
        suffix = f"-rank{context.rank}" if context is not None and shared else ""
        name = self.name or run_id
        target = starting.target_of(
            space_id=self.space_id,
            dataset_id=self.dataset_id,
            server_url=self.server_url,
            offline="offline" in {self.mode, environment_mode()},
        )
        run = starting.start(
            target,
            project=self.project,
            name=None if name is None else f"{name}{suffix}",
            run_id=None if run_id is None else f"{run_id}{suffix}",
            resume=self.resume,
            config={},
        )
        resumed = context is not None and context.resumed
        tracker = TrackioTracker(
            run,
            first_step=(context.next_step or 0) if context is not None and resumed else 0,
            attempt=context.attempt - resumed if context is not None else 1,
            finish_timeout=self.finish_timeout,
        )
        if self.config:
            tracker.log_hyperparameters(self.config)
        _notices.logger.info("trackio: run %s of project %s: %s", run.name, self.project, starting.where_to_look(run))
        return tracker

    def _check(self) -> None:
        if self.mode not in _MODES:
            raise ConfigError(f"trackio.mode must be one of online, offline, disabled or null, got {self.mode!r}")
        if self.resume not in _RESUME:
            raise ConfigError(f"trackio.resume must be one of {', '.join(_RESUME)}, got {self.resume!r}")
        if not self.finish_timeout > 0:
            raise ConfigError(f"trackio.finish_timeout must be greater than 0, got {self.finish_timeout!r}")
