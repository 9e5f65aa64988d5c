"""Code written for the interface's forebears finds the names where it looks for them."""

from __future__ import annotations

import importlib

import pytest

import trackway
from trackway import tracker

PATHS = {
    "trackway.tracker": [
        "CompositeTracker",
        "LoggableValue",
        "NoopTracker",
        "Tracker",
        "TrackerConfig",
        "capture_logging",
        "current_tracker",
        "defer_tracker_for_jit",
        "get_tracker",
        "jit_log",
        "log",
        "log_artifact",
        "log_configuration",
        "log_hyperparameters",
        "log_summary",
        "set_global_tracker",
    ],
    "trackway.tracker.tracker": ["CompositeTracker", "NoopConfig", "NoopTracker", "Tracker", "TrackerConfig"],
    "trackway.tracker.tensorboard": ["TensorboardConfig", "TensorboardTracker"],
    "trackway.tracker.wandb": ["WandbConfig", "WandbTracker"],
    "trackway.tracker.trackio": ["TrackioConfig", "TrackioTracker"],
    "trackway.tracker.json_logger": ["JsonLoggerConfig", "JsonLoggerTracker"],
}


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in PATHS.items() for n in names])
def test_names_are_found(module, name):
    """Each name of the migration table is found at its old place."""
    found = getattr(importlib.import_module(module), name)
    assert getattr(found, "__name__", name) in {name, "Union"}


def test_both_places_give_the_same_thing():
    """The name at the old place is the very class of the new one."""
    assert tracker.jit_log is trackway.jit_log
    assert importlib.import_module("trackway.tracker.tracker").TrackerConfig is trackway.TrackerConfig


@pytest.mark.parametrize("module", ["trackway.tracker", "trackway.tracker.tracker", "trackway.tracker.tensorboard"])
def test_a_name_that_never_was_is_an_attribute_error(module):
    """A typing mistake is told as such."""
    with pytest.raises(AttributeError, match="has no attribute 'Trakcer'"):
        importlib.import_module(module).Trakcer  # noqa: B018


def test_the_basic_example(tmp_path):
    """The basic example of the interface runs: wrap, log a hundred steps, log a summary."""
    from trackway.testing import RecordingTracker

    with tracker.current_tracker(RecordingTracker()) as recording:
        for step in range(100):
            tracker.log({"loss": 100 - 0.01 * step}, step=step)
        tracker.log_summary({"best_loss": 0.0})
    assert [step for step, _ in recording.rows] == list(range(100))
    assert recording.summary == {"best_loss": 0.0}
