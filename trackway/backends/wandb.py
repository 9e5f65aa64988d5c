"""`type: wandb`: runs at Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.backends import _wandb_start as starting
from trackway.backends._wandb_events import Events
from trackway.backends._wandb_steps import Steps, highest_of, known
from trackway.backends._wandb_values import Values, plain
from trackway.config import TrackerConfig, missing_extra, run_context
from trackway.config._environment import mode as environment_mode
from trackway.errors import ConfigError, StepError
from trackway.tracker import BackgroundPolicy, Ledger, Lifecycle, Report, Tracker, check_step
from trackway.tracker._interface import AlertLevel, ArtifactPath
from trackway.tracker._row_time import row_time
from trackway.values import Row, normalise, redacted_text, resolve
from trackway.values._redact import redacted_name

if TYPE_CHECKING:
    from wandb import Run

__all__ = ["WandbConfig", "WandbTracker"]

_MODES = (None, "online", "offline", "disabled", "shared")
_RESUME = ("allow", "must", "never", "auto", None, True, False)
_LEVELS: dict[str, Any] = {"info": "INFO", "warning": "WARN", "error": "ERROR"}
_KEPT_TYPES = ("job", "run", "wandb-")
_SECONDS = (30.0, 25.0)


@final
class WandbTracker(Tracker):
    """Logs to one W&B run.

    * A row is a row of the run's history, with its step. What W&B would drop because it has passed that step is kept
      under names of its own: `late/<name>` for rows that come late, `attempt_<n>/<name>` for an attempt that goes over
      steps again, each over a step axis of its own, `late/step` and `attempt_<n>/step`. After such rows W&B's own
      numbers may be ahead; the highest step is then in `trackway/step`.
    * Nested mappings are joined with `/`, which W&B groups panels by.
    * Histograms, images, sounds, tables and pages are what they are; a `Text` is shown as a page.
    * An event is `event: <name>` and `<event>/<key>` in the row of its step; several in one row share it.
    * Hyper-parameters are the config, and may change. Summary values win over the automatic last values.
    * An artifact of a name used before is a new version of it.

    What was converted or left out is counted in `report()`. Thread-safe. In a forked child every method does nothing:
    to end the run there would end it for the parent.

    Attributes:
        run: The `wandb.Run`, for everything that only W&B has.
    """

    name: str = "wandb"

    def __init__(
        self,
        run: Run | None = None,
        *,
        steps: Steps | None = None,
        missing: int | None = None,
        save_xla_dumps: bool = False,
    ) -> None:
        """Log to *run*.

        Args:
            run: A run that was started; None takes `wandb.run`, and starts one, with a warning, if there is none.
            steps: Where its steps stand; None finds it out.
            missing: The first step that W&B lacks, where that is known.
            save_xla_dumps: Whether `finish` makes an artifact of the programs that XLA dumped.

        Raises:
            ConfigError: if wandb is not installed.
        """
        self.run: Run = _adopted() if run is None else run
        free = starting.in_use(self.run) if steps is None else 0
        self._steps = steps or Steps(free, free - 1 if free else None)
        self._missing = missing
        self._save_xla_dumps = save_xla_dumps
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._values = Values(self._ledger)
        self._events = Events(self._steps, self._ledger)
        self._axes: set[str] = set()
        self._error: BaseException | None = None
        self._lock = new_lock()

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Merge *hparams* into the run's config; later values take the place of earlier ones."""
        if self._life.accepts("log_hyperparameters"):
            config: Any = self.run.config
            config.update(plain(self._settled(hparams)), allow_val_change=True)

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:
        """Log one row; W&B merges several of one step until one has *commit*, or a higher step follows.

        Raises:
            StepError: if *step* is not an integer.
        """
        number = check_step(step)
        if not self._life.accepts("log"):
            return
        row = resolve(normalise(metrics))
        self._ledger.accept()
        with self._lock:
            values = self._values.of(row)
            number = self._steps.next if number is None else number
            before, events = self._events.with_row(number)
            self._put_events(before)
            self._put({**events, **values}, number, closed=commit is True)
        self._ledger.deliver()

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Log `{"event": event, "<event>/<key>": value}` in the row of *step*, which is the one to come if it is open.

        Where that row is written already it is the next one, with the event's step in `<event>/step`.

        Raises:
            StepError: if *step* is not an integer.
        """
        number = check_step(step)
        if self._life.accepts("log_event"):
            row = resolve(normalise(payload, reserved=False))
            with self._lock:
                self._put_events(self._events.take(str(event), self._values.of(row), number))

    def _put_events(self, rows: Iterable[tuple[int | None, Mapping[str, Any]]]) -> None:
        for step, values in rows:
            self._put(values, step, closed=step is None)

    def _put(self, values: Mapping[str, Any], step: int | None, *, closed: bool) -> None:
        placed = self._steps.aside() if step is None else self._steps.place(step, closed=closed)
        own = known(placed, step)
        for axis in own.keys() - self._axes:
            self._define(axis, placed.prefix if axis == placed.axis else "")
        begun = row_time()
        if begun is not None:
            own["_timestamp"] = begun
        named = {f"{placed.prefix}{name}": value for name, value in values.items()}
        self.run.log({**named, **own}, step=placed.step, commit=closed)

    def _define(self, axis: str, prefix: str) -> None:
        self._axes.add(axis)
        self.run.define_metric(axis, hidden=True)
        if prefix:
            self.run.define_metric(f"{prefix}*", step_metric=axis)

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Set summary values, which rows that follow do not change."""
        if not self._life.accepts("log_summary"):
            return
        with self._lock:
            values = self._values.of(self._settled(metrics))
            for name in values:
                if name and not name.endswith("*"):  # W&B takes neither for a metric, but both for a summary value
                    self.run.define_metric(name, summary="none", overwrite=False)
            self.run.summary.update(values)

    def _settled(self, payload: Mapping[str, Any]) -> Row:
        row = resolve(normalise(payload, reserved=False))
        self._ledger.count_downgrades(row)
        row.downgrades = ()
        return row

    def log_artifact(self, artifact_path: ArtifactPath, *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002
        """Make an artifact of a file or folder, whose bytes are copied before the call returns.

        A name or type that W&B does not take is changed, which is counted. What is missing is counted, not raised.
        """
        if not self._life.accepts("log_artifact"):
            return
        path = Path(os.fsdecode(artifact_path))
        if not path.exists():
            self._ledger.drop(f"artifact {str(path)!r}", "there is no such file or folder")
            return
        wanted = redacted_name(str(name or path.resolve().name))
        self._log_artifact(path, wanted, type or "artifact")

    def _log_artifact(self, path: Path, wanted: str, kind: str) -> None:
        import wandb

        legal = starting.legal_name(wanted)
        if legal != wanted:
            self._ledger.convert(f"artifact {wanted!r}", f"a name that W&B does not take: it is {legal}")
        if kind.startswith(_KEPT_TYPES):
            self._ledger.convert(f"artifact {wanted!r}", "a type that W&B keeps for itself: it gets `x-` before it")
            kind = f"x-{kind}"
        artifact = wandb.Artifact(legal, starting.legal_name(kind))
        if path.is_dir():
            artifact.add_dir(str(path), policy="mutable")
        else:
            artifact.add_file(str(path), name=legal, policy="mutable")
        self.run.log_artifact(artifact)

    def alert(self, title: str, text: str = "", *, level: AlertLevel = "warning") -> None:
        """Send a W&B alert."""
        if self._life.accepts("alert"):
            title, text = redacted_text(title), redacted_text(text)
            self.run.alert(title=title, text=text or title, level=_LEVELS.get(level, "WARN"))

    def first_missing_step(self) -> int | None:
        """Return the step after the last one that W&B had when the run was started; None offline."""
        return self._missing

    def rewind(self, step: int) -> None:
        """Begin another attempt: its rows over steps that are there go to `attempt_<n>/<name>`.

        Raises:
            StepError: if *step* is not an integer.
        """
        number = check_step(step)
        if number is None:
            raise StepError("wandb: rewind takes the step to go on from, got None")
        if self._life.accepts("rewind"):
            with self._lock:
                self._put_events(self._events.rest())
                self._steps.rewind(number)

    def mark_failed(self, error: BaseException) -> None:
        """Have `finish` end the run as failed: with exit code 1, or that of a SystemExit."""
        if self._life.accepts("mark_failed"):
            self._error = error

    def finish(self) -> None:
        """End the run, which takes as long as its `finish_timeout` at most.

        What could not be uploaded by then is in the run's folder, and a warning says how to upload it.
        """
        if not self._life.end():
            return
        if self._save_xla_dumps:
            self._save_dumps()
        try:
            self._put_events(self._events.rest())
            self.run.finish(exit_code=self._exit_code())
        except Exception as error:
            self._ledger.fail(
                "finish", error, f"; upload what is missing with `wandb sync {self.run.settings.sync_dir}`"
            )
        finally:
            self._values.close()

    def _exit_code(self) -> int:
        if self._error is None:
            return 0
        code = self._error.code if isinstance(self._error, SystemExit) else 1
        return code if type(code) is int else 1

    def _save_dumps(self) -> None:
        folder = starting.xla_dump_folder()
        if folder is None or not folder.is_dir():
            self._ledger.drop("xla dumps", "XLA_FLAGS names no folder by --xla_dump_to, or it is not there")
            return
        try:
            self._log_artifact(folder, f"xla-dumps-{self.run.id}", "xla_dumps")
        except Exception as error:
            self._ledger.fail("save_xla_dumps", error)

    def report(self) -> Report:
        """Return what became of everything logged so far; "delivered" is what wandb took over."""
        return self._ledger.report()


def _adopted() -> Run:
    """Return the run that is active, or a new one."""
    wandb = _load()
    if wandb.run is not None:
        return cast("Run", wandb.run)
    _notices.warn_once(
        "wandb without run",
        "WandbTracker() was made while no W&B run is active, so one was started by `wandb.init()`. Pass a run, or use "
        "`type: wandb` in the configuration.",
    )
    return cast("Run", starting.start(fall_back=True, timeouts=_SECONDS))


def _load() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise missing_extra("wandb", "wandb", error) from error
    return wandb


@final
@TrackerConfig.register_subclass("wandb")
@dataclass
class WandbConfig(TrackerConfig):
    """Logs to a run at Weights & Biases.

    Attributes:
        entity: The user or team; None takes your default one.
        project: The project.
        name: What the run is called; None takes the run id.
        tags: Tags of the run.
        id: The run's id at W&B; None takes the run id. Characters that W&B does not take are replaced.
        group: What the run is grouped by with others.
        mode: "online", "offline", "shared" or "disabled". None is online, or what `WANDB_MODE` says.
        resume: "allow", "must", "never", "auto" or null: what to do if there is a run of that id.
        save_code: Save the Python code of this folder; true finds the repository of the program, or its folder.
        save_xla_dumps: Make an artifact of the programs that XLA dumped, to the folder named in `XLA_FLAGS`.
        dir: Where W&B keeps its files; null is the run directory, if there is one.
        init_timeout: Seconds that starting the run takes at most, or else it is an offline run.
        finish_timeout: Seconds that ending the run takes at most, inside of those of `background`.
        background: Called on a thread of its own, so that it cannot hold training up.
    """

    entity: str | None = None
    project: str | None = "trackway"
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    id: str | None = None
    group: str | None = None
    mode: str | None = None
    resume: bool | str | None = "allow"
    save_code: bool | str = True
    save_xla_dumps: bool = False
    dir: str | None = field(default=None, kw_only=True)
    init_timeout: float = field(default=_SECONDS[0], kw_only=True)
    finish_timeout: float = field(default=_SECONDS[1], kw_only=True)
    background: bool | BackgroundPolicy = field(default=True, kw_only=True)

    def init(self, run_id: str | None) -> WandbTracker:
        """Return a tracker of a new or resumed run.

        Without a key, or if W&B cannot be reached within `init_timeout`, the run is an offline one, and a warning says
        how to upload it.

        Raises:
            ConfigError: if wandb is not installed, or a field has a value that is not allowed.
            wandb.Error: if W&B refuses the run.
        """
        self._check()
        _load()
        context = run_context()
        wanted = self.id or run_id
        legal = None if wanted is None else starting.legal_id(wanted)
        if legal != wanted:
            _notices.logger.warning("wandb: run id %r is not one that W&B takes; the run is %s there", wanted, legal)
        mode: Any = "offline" if environment_mode() == "offline" else self.mode
        run = starting.start(
            fall_back=mode in {None, "online"},
            timeouts=(self.init_timeout, self.finish_timeout),
            entity=self.entity,
            project=self.project,
            name=self.name or run_id,
            tags=self.tags or None,
            id=legal,
            group=self.group,
            mode=mode,
            resume=self.resume or None,
            dir=self._folder(None if context is None else context.directory),
        )
        self._describe(run)
        free = int(run.starting_step or 0)
        highest, noted = highest_of(run, free)
        begins = None if context is None or not context.resumed else context.next_step
        attempt = 1 if context is None else context.attempt
        steps = Steps(free, highest, attempt=attempt, begins=begins, noted=noted)
        known_there = not run.settings._offline and not run.disabled  # noqa: SLF001 - wandb has no other word for it
        missing = (0 if highest is None else highest + 1) if known_there else None
        return WandbTracker(run, steps=steps, missing=missing, save_xla_dumps=self.save_xla_dumps)

    def _check(self) -> None:
        if self.mode not in _MODES:
            raise ConfigError(f"wandb.mode must be one of online, offline, shared, disabled or null, got {self.mode!r}")
        if self.resume not in _RESUME:
            raise ConfigError(f"wandb.resume must be one of allow, must, never, auto or null, got {self.resume!r}")
        for name in ("init_timeout", "finish_timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"wandb.{name} must be greater than 0, got {getattr(self, name)!r}")

    def _folder(self, directory: str | None) -> str | None:
        if self.dir is not None:
            return self.dir
        return directory if directory is not None and "://" not in directory and Path(directory).is_dir() else None

    def _describe(self, run: Any) -> None:
        """Save the code and what the run computes on; none of it may cost the run."""
        if not run.settings._offline and run.url:  # noqa: SLF001 - asking an offline run for it is warned of
            _notices.logger.info("wandb: run %s at %s", run.id, run.url)
        try:
            facts = starting.device_facts()
            if facts:
                run.config.update({"trackway": {"devices": facts}}, allow_val_change=True)
            root = None if run.disabled else starting.code_root(self.save_code)
            if root is not None:
                run.log_code(str(root), exclude_fn=starting.is_left_out)
        except Exception as error:
            _notices.logger.warning("wandb: the code was not saved: %s: %s", type(error).__name__, error)
