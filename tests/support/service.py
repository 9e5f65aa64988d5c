"""A backend that keeps rows at a service, which may be slow, away, or ask for what it lacks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from trackway.config import TrackerConfig
from trackway.testing import RecordingTracker
from trackway.tracker import BackgroundPolicy, NoopTracker, Tracker

WAIT = 20.0


class Service(Tracker):
    """Hands what it gets to `recorder`, as long as `up` is set and once `go` is."""

    name = "service"

    def __init__(self, first_missing=None):
        self.recorder = RecordingTracker("service")
        self.first_missing = first_missing
        self.calls = 0
        self.up, self.go = threading.Event(), threading.Event()
        self.up.set()
        self.go.set()
        self.went_down = threading.Event()

    def _reached(self):
        self.calls += 1
        assert self.go.wait(WAIT)
        if not self.up.is_set():
            self.went_down.set()
            raise ConnectionError("no route to host")

    def log(self, metrics, *, step=None, commit=None):
        """Reach the service, or fail."""
        self._reached()
        self.recorder.log(metrics, step=step, commit=commit)

    def log_summary(self, metrics):
        """Reach the service, or fail."""
        self._reached()
        self.recorder.log_summary(metrics)

    def log_hyperparameters(self, hparams):
        """Reach the service, or fail."""
        self._reached()
        self.recorder.log_hyperparameters(hparams)

    def log_artifact(self, artifact_path, *, name=None, type=None):
        """Reach the service, or fail."""
        self._reached()
        self.recorder.log_artifact(artifact_path, name=name, type=type)

    def rewind(self, step):
        """Reach the service, whatever its state."""
        self.recorder.rewind(step)

    def first_missing_step(self):
        """Say what the test wants it to."""
        return self.first_missing

    def finish(self):
        """End, whatever its state."""
        self.recorder.finish()

    @property
    def rows(self):
        """What arrived."""
        return self.recorder.rows


@dataclass
class ServiceConfig(TrackerConfig):
    """Starts with a service that a test has made."""

    service: Tracker = field(default_factory=NoopTracker)
    background: bool | BackgroundPolicy = field(default=True, kw_only=True)

    def init(self, run_id):
        """Return the service."""
        return self.service
