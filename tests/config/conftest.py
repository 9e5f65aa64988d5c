"""Config classes for tests, in a registry that is as it was before once the test is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from trackway.config import TrackerConfig, Trackers, _base, run_context
from trackway.testing import RecordingTracker


@dataclass
class RecordingConfig(TrackerConfig):
    """Makes a RecordingTracker, and notes what it was started with."""

    project: str | None = "trackway"
    count: int | None = None
    rate: float = 0.5
    tags: list[str] = field(default_factory=list)
    code: bool | str = True
    extra: dict[str, Any] = field(default_factory=dict)

    def init(self, run_id):
        """Return a new RecordingTracker, kept as `tracker`."""
        self.started = (run_id, run_context())
        self.tracker = RecordingTracker("recording")
        return self.tracker


@dataclass
class BrokenConfig(TrackerConfig):
    """Cannot be started."""

    error: type = OSError

    def init(self, run_id):
        """Raise an `error`."""
        raise self.error("no route to host")


@dataclass
class Trainer:
    """What a user embeds trackers in."""

    tracker: Trackers = field(default_factory=lambda: Trackers([]))
    single: TrackerConfig = field(default_factory=RecordingConfig)
    optional: TrackerConfig | None = None
    optional_list: Trackers | None = None
    plain_list: list[TrackerConfig] = field(default_factory=list)
    steps: int = 10


@dataclass
class Program:
    """The outermost config class of a program."""

    trainer: Trainer = field(default_factory=Trainer)
    seed: int = 0


@pytest.fixture
def registry():
    """The registry of tracker types, put back afterwards."""
    registry = _base._registry
    registry.load_all()  # a module that is imported already would not register again
    classes, failures = dict(registry._classes), dict(registry._failures)
    yield registry
    registry._classes.clear()
    registry._classes.update(classes)
    registry._failures.clear()
    registry._failures.update(failures)


@pytest.fixture
def recording(registry):
    """The class of `type: recording`."""
    TrackerConfig.register_subclass("recording", RecordingConfig)
    return RecordingConfig


@pytest.fixture
def broken(registry):
    """The class of `type: broken`, whose `init` raises."""
    TrackerConfig.register_subclass("broken", BrokenConfig)
    return BrokenConfig


@pytest.fixture
def program(recording):
    """The outermost config class, with fields of every kind that holds trackers."""
    return Program
