"""`type: hook`: a callable of your own is called with everything that is logged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from trackway.config import TrackerConfig
from trackway.errors import ConfigError
from trackway.events import Hook
from trackway.events._hooks import Named, checked_hook, load_hook, split_path
from trackway.events._text import error_text
from trackway.tracker import Ledger, Lifecycle, Report, StepCounter, Tracker, check_step
from trackway.tracker._interface import AlertLevel
from trackway.values import Row, normalise, redacted_text, resolve

__all__ = ["HookConfig", "HookTracker"]


@final
class HookTracker(Tracker):
    """Calls `hook(event, payload)`, or `hook.on_event(event, payload)` where it has that, for every call.

    | call | event | payload |
    |---|---|---|
    | `log` | `log` | `step`, and the metrics as they were logged, nested where they were |
    | `log_event` | the event's name | what the event brought, and `step` if it has one |
    | `log_hyperparameters` | `hyperparameters` | the hyper-parameters |
    | `log_summary` | `summary` | the summary values |
    | `log_artifact` | `artifact` | `path`, `name`, `type` |
    | `alert` | `alert` | `title`, `text`, `level` |
    | `mark_failed` | `failed` | `error`, the type, and `message` |
    | `finish` | `finish` | nothing |

    A row is the event `log`, not `train_step`, which training code may emit beside it. A metric called `step` is there
    `step_`. Each payload is a dict of the hook's own. What the hook raises goes to the caller, which for a tracker of
    a run counts it and says it once; `required: true` makes it stop the run. At the end the hook's `close` is called,
    if it has one. As thread-safe as the hook is: `background: true` calls it on one thread.

    Attributes:
        hook: The hook.
    """

    name: str = "hook"

    def __init__(self, hook: Hook) -> None:
        """Call *hook*.

        Raises:
            ConfigError: if it is neither a callable nor an object with `on_event`.
        """
        self.hook: Any = checked_hook(hook, "hook")
        self._call = Named(self.hook, self.name)
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._steps = StepCounter()

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Call the hook with the event "hyperparameters"."""
        if self._life.accepts("log_hyperparameters"):
            self._tell("hyperparameters", self._row(hparams))

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:  # noqa: ARG002 - one call, one event
        """Call the hook with the event "log"; *step* None takes the last step + 1, *commit* is ignored."""
        if not self._life.accepts("log"):
            return
        number = self._steps.take(step)
        row = resolve(normalise(metrics))
        self._ledger.accept_row(row)
        values = row.copy()
        if "step" in values:
            values["step_"] = values.pop("step")
            self._ledger.convert("step", "a metric called step is `step_`", lossless=True)
        self._call("log", {"step": number, **values})
        self._ledger.deliver()

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Call the hook with *event*; `step` in *payload* goes before *step*."""
        number = check_step(step)
        if self._life.accepts("log_event"):
            row = self._row(payload)
            self._tell(str(event), row if number is None else {"step": number, **row})

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Call the hook with the event "summary"."""
        if self._life.accepts("log_summary"):
            self._tell("summary", self._row(metrics))

    def log_artifact(
        self,
        artifact_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - the interface's word
    ) -> None:
        """Call the hook with the event "artifact"; the file is not kept."""
        if self._life.accepts("log_artifact"):
            path = redacted_text(os.fsdecode(artifact_path))
            own = os.path.basename(os.path.abspath(path))  # noqa: PTH100, PTH119 - maybe a URL
            self._tell("artifact", {"path": path, "name": redacted_text(str(name)) if name else own, "type": type})

    def alert(self, title: str, text: str = "", *, level: AlertLevel = "warning") -> None:
        """Call the hook with the event "alert"."""
        if self._life.accepts("alert"):
            self._tell("alert", {"title": redacted_text(title), "text": redacted_text(text), "level": level})

    def mark_failed(self, error: BaseException) -> None:
        """Call the hook with the event "failed"."""
        if self._life.accepts("mark_failed"):
            self._tell("failed", {"error": type(error).__name__, "message": error_text(error).partition(": ")[2]})

    def finish(self) -> None:
        """Call the hook with the event "finish", and close it if it has a `close`."""
        if not self._life.end():
            return
        try:
            self._tell("finish", {})
        finally:
            close = getattr(self.hook, "close", None)
            if callable(close):
                close()

    def report(self) -> Report:
        """Return what became of the rows so far; "delivered" is what the hook took without raising."""
        return self._ledger.report()

    def _tell(self, event: str, payload: Mapping[str, Any]) -> None:
        self._call(event, dict(payload))

    def _row(self, payload: Mapping[str, Any]) -> Row:
        row = resolve(normalise(payload, reserved=False))
        self._ledger.count_downgrades(row)
        return row.copy()


@final
@TrackerConfig.register_subclass("hook")
@dataclass
class HookConfig(TrackerConfig):
    """Calls a callable of your own.

    Attributes:
        target: The import path of the hook, "package.module:name"; a class with `on_event` is instantiated.
    """

    target: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.target, str):
            raise ConfigError(
                f"hook.target must be an import path, 'package.module:name', got a {type(self.target).__name__}; in "
                "Python, use `HookTracker(hook)`"
            )
        split_path(self.target, "hook.target")

    def init(self, run_id: str | None) -> HookTracker:  # noqa: ARG002 - the interface of all configs
        """Import the hook and return its tracker; *run_id* is of no use to it.

        Raises:
            ConfigError: if there is no hook at that path.
        """
        return HookTracker(load_hook(self.target, "hook.target"))
