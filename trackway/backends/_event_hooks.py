"""Hooks that bring events to Weights & Biases and to TensorBoard, without a run of trackway's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from trackway.config._environment import mode
from trackway.errors import ConfigError
from trackway.tracker import BackgroundTracker, NoopTracker, Tracker, is_primary

if TYPE_CHECKING:
    from trackway.config import TrackerConfig

__all__ = ["TensorboardHook", "WandbHook"]


class _TrackerHook:
    """Hands events to a tracker, by its `log_event`."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def on_event(self, event: str, payload: Mapping[str, Any]) -> None:
        """Take one event, at the step that the payload has under `step`; one that tells of a failure marks the run."""
        step = payload.get("step")
        at = step if type(step) is int else None
        brought = payload if at is None else {name: value for name, value in payload.items() if name != "step"}
        self.tracker.log_event(event, brought, step=at)
        if event == "train_failed":
            self.tracker.mark_failed(RuntimeError(f"{payload.get('error', event)}: {payload.get('message', '')}"))

    __call__ = on_event

    def close(self) -> None:
        """Deliver what is left and finish the tracker; calling it again does nothing."""
        self.tracker.finish()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class WandbHook(_TrackerHook):
    """Brings events to one W&B run, as rows: `{"event": name, "<event>/<key>": value}` at their steps.

    The logger or run that it is a hook of closes it; otherwise call `close`. Events go to a thread of their own. In a
    process of another rank than 0, and under `TRACKWAY_MODE=disabled`, it does nothing.

    Attributes:
        tracker: The tracker behind.
    """

    def __init__(self, project: str | None = "trackway", **fields: Any) -> None:
        """Start the run.

        Args:
            project: The project.
            **fields: Fields of `WandbConfig`, such as `entity`, `name`, `mode`.

        Raises:
            ConfigError: if wandb is not installed, or a field is unknown or has a value that is not allowed.
        """
        from trackway.backends.wandb import WandbConfig

        super().__init__(_started(WandbConfig, "WandbHook", {"project": project, **fields}))


@final
class TensorboardHook(_TrackerHook):
    """Brings events to TensorBoard: numbers as `<event>/<key>` at their steps, texts as texts.

    The logger or run that it is a hook of closes it; otherwise call `close`. Events go to a thread of their own. In a
    process of another rank than 0, and under `TRACKWAY_MODE=disabled`, it does nothing.

    Attributes:
        tracker: The tracker behind.
    """

    def __init__(self, log_dir: str | os.PathLike[str] = "tblogs", **fields: Any) -> None:
        """Open an event file.

        Args:
            log_dir: The folder, or fsspec URL, that it is written to.
            **fields: Fields of `TensorboardConfig`, such as `flush_secs`.

        Raises:
            ConfigError: if tensorboardX is not installed, or a field is unknown or has a value that is not allowed.
            OSError: if the folder cannot be written to.
        """
        from trackway.backends.tensorboard import TensorboardConfig

        super().__init__(_started(TensorboardConfig, "TensorboardHook", {"logdir": os.fspath(log_dir), **fields}))


def _started(kind: type[TrackerConfig], who: str, fields: dict[str, Any]) -> Tracker:
    try:
        config = kind(**fields)
    except TypeError as error:
        raise ConfigError(
            f"{who}: {str(error).partition(') ')[2] or error}; the fields are those of {kind.__name__}"
        ) from error
    if mode() == "disabled" or (config.ranks == "primary" and not is_primary()):
        return NoopTracker(kind.__name__)
    tracker = config.init(None)
    if not config.background:
        return tracker
    return BackgroundTracker(tracker, None if config.background is True else config.background)
