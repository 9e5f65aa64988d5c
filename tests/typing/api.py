"""User code that has to pass a strict type checker; it is checked, never run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import trackway
from trackway import BackgroundPolicy, BackgroundTracker, CompositeTracker, NoopTracker, Tracker, Trackers
from trackway.backends.tensorboard import TensorboardTracker
from trackway.config import TrackerConfig
from trackway.store import LocalTracker
from trackway.testing import RecordingTracker


class MyTracker(Tracker):
    """A third-party backend."""

    name = "mine"

    def __init__(self, path: Path) -> None:
        self.path = path

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None: ...
    def log(self, metrics: Mapping[str, Any], *, step: int | None, commit: bool | None = None) -> None: ...
    def log_summary(self, metrics: Mapping[str, Any]) -> None: ...
    def log_artifact(self, artifact_path: Any, *, name: str | None = None, type: str | None = None) -> None: ...
    def finish(self) -> None: ...


@TrackerConfig.register_subclass("mine")
@dataclass
class MyConfig(TrackerConfig):
    """Its configuration."""

    path: str = "mine.txt"

    def init(self, run_id: str | None) -> MyTracker:
        """Make the tracker."""
        return MyTracker(Path(self.path))


@dataclass
class TrainerConfig:
    """A trainer's configuration."""

    tracker: Trackers = field(default_factory=Trackers)


def train(config: TrainerConfig) -> None:
    """Use the whole of the common interface."""
    tracker = config.tracker.build("run")
    assert_type(tracker, CompositeTracker)
    with tracker as entered:
        assert_type(entered, CompositeTracker)
        trackway.log({"loss": 0.5, "nested": {"x": np.float32(1)}}, step=np.int64(3).item())
        trackway.log({"loss": 0.5})
        trackway.jit_log({"loss": 0.5}, step=3, reduce="sum")
        trackway.log_summary({"best": 1})
        trackway.log_hyperparameters({"lr": 0.1})
        trackway.log_configuration(config)
        trackway.log_artifact(Path("a"), name="a", type="model")
        assert_type(trackway.get_tracker("tensorboard"), TensorboardTracker)
        assert_type(trackway.get_tracker("local"), LocalTracker)
        assert_type(trackway.get_tracker("anything"), Tracker)
        assert_type(trackway.current_tracker(), Tracker)


def wrap() -> AbstractContextManager[Tracker]:
    """Wrappers and the context manager."""
    members: list[Tracker] = [NoopTracker(), RecordingTracker()]
    members.append(BackgroundTracker(MyTracker(Path("x")), BackgroundPolicy(queue_size=10)))
    CompositeTracker(members).log({"a": 1})
    CompositeTracker(members).log({"a": 1}, step=3, commit=True)
    return trackway.current_tracker(CompositeTracker(members))
