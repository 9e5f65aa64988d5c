"""The events of a training loop."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

import trackway
from trackway.events import EventLogger, EventsConfig, TrainingEvents
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import Tracker
from trackway.values import decode


@pytest.fixture
def seen():
    """Events as they came."""
    return []


@pytest.fixture
def events(seen):
    """A logger that prints nothing, and notes what came."""
    with EventLogger(console=False, hooks=[lambda *event: seen.append(event)]) as logger:
        yield logger


def test_lifecycle_events_have_their_keys(events, seen):
    """Every event of a training run brings the keys that readers look for."""
    training = TrainingEvents(events)
    training.train_start(start_step=0, target_step=100)
    training.train_step(1, {"loss": 2.31})
    training.compile(name="step", seconds=1.5)
    training.checkpoint(50, Path("runs/50"), size=3)
    training.train_end(steps=100, elapsed_s=12.3, loss=1.84)
    assert seen == [
        ("train_start", {"start_step": 0, "target_step": 100}),
        ("train_step", {"step": 1, "loss": 2.31}),
        ("compile", {"name": "step", "seconds": 1.5}),
        ("checkpoint", {"step": 50, "path": "runs/50", "size": 3}),
        ("train_end", {"steps": 100, "elapsed_s": 12.3, "loss": 1.84}),
    ]


def test_an_empty_outer_round_still_emits_the_event(events, seen):
    """A round in which nothing came is told of like any other, whatever the cadence."""
    training = TrainingEvents(events)
    training.outer_step(4, deltas_found=3, deltas_included=2)
    training.outer_step(5, deltas_found=0, deltas_included=0)
    assert seen == [
        ("outer_step", {"outer_step": 4, "deltas_found": 3, "deltas_included": 2}),
        ("outer_step", {"outer_step": 5, "deltas_found": 0, "deltas_included": 0}),
    ]


def test_the_block_begins_and_ends_training(events, seen):
    """`with` emits `train_start` with what was given, and `train_end` with the number of steps and the time."""
    with TrainingEvents(events, start_step=0, target_step=3) as training:
        for step in range(3):
            training.train_step(step, {})
    assert [event for event, _ in seen] == ["train_start", *["train_step"] * 3, "train_end"]
    assert seen[0][1] == {"start_step": 0, "target_step": 3}
    assert seen[-1][1]["steps"] == 3
    assert seen[-1][1]["elapsed_s"] >= 0


def test_the_block_does_not_end_training_twice(events, seen):
    """A `train_end` in the block is the only one, and the next block begins anew."""
    training = TrainingEvents(events)
    for _ in range(2):
        with training:
            training.train_step(1, {})
            training.train_end(loss=1.0)
    assert [event for event, _ in seen] == ["train_start", "train_step", "train_end"] * 2
    assert [payload["steps"] for event, payload in seen if event == "train_end"] == [1, 1]


@pytest.mark.parametrize("error", [ValueError("loss is nan\nat 3"), KeyboardInterrupt(), SystemExit(3)])
def test_a_block_that_raises_emits_train_failed(events, seen, error):
    """The event has the error's type and text, and the error goes on."""
    with pytest.raises(type(error)), TrainingEvents(events):
        raise error
    event, payload = seen[-1]
    assert event == "train_failed"
    assert (payload["error"], payload["message"]) == (type(error).__name__, str(error))
    assert [name for name, _ in seen] == ["train_start", "train_failed"]


def test_leaving_the_program_in_order_is_an_end(events, seen):
    """`sys.exit()` is no failure."""
    with pytest.raises(SystemExit), TrainingEvents(events):
        raise SystemExit(0)
    assert seen[-1][0] == "train_end"


def test_trouble_at_the_end_does_not_hide_the_blocks_error(caplog):
    """Where even the failure cannot be told, what the block raised is what comes out."""

    class Broken:
        def log_event(self, event, payload, *, step=None):
            if event == "train_failed":
                raise OSError("gone")

    caplog.set_level(logging.WARNING, "trackway")
    with pytest.raises(ValueError, match="from the block"), TrainingEvents(Broken()):
        raise ValueError("from the block")
    assert any("gone" in message for message in caplog.messages)


def test_a_tracker_gets_events_by_log_event():
    """A tracker is told with the step beside the payload."""
    tracker = RecordingTracker()
    with TrainingEvents(tracker) as training:
        training.train_step(1, {"loss": 0.5})
        training.checkpoint(1, "a")
    assert tracker.events[:3] == [
        ("train_start", {}, None),
        ("train_step", {"loss": 0.5}, 1),
        ("checkpoint", {"path": "a"}, 1),
    ]


def test_a_run_tells_its_hooks_the_run_directory_and_its_trackers(tmp_path):
    """A run as target has the events of the block in its hooks, its `events.jsonl` and its trackers."""
    tracker, seen = RecordingTracker(), []
    with trackway.start([tracker], dir=tmp_path, run_id="r", events=EventsConfig(console=False, every_steps=2)) as run:
        run.hooks.append(lambda event, payload: seen.append(event))
        with TrainingEvents(run, target_step=4) as training:
            for step in range(4):
                training.train_step(step, {"loss": 0.5})
                trackway.log({"loss": 0.5}, step=step)
    names = ["train_start", "train_step", "train_step", "train_end"]
    written = [decode(line) for line in (tmp_path / "r" / "events.jsonl").read_bytes().splitlines()]
    assert seen == [event for event, _, _ in tracker.events] == [record["event"] for record in written] == names
    assert [(one["_step"], one["loss"]) for one in written if one["event"] == "train_step"] == [(0, 0.5), (2, 0.5)]


def test_what_a_tracker_raises_does_not_reach_the_loop(caplog):
    """A failing tracker is counted and said, and training goes on."""
    caplog.set_level(logging.WARNING, "trackway")
    with TrainingEvents(FailingTracker()) as training:
        training.train_step(1, {"loss": 0.5})
    assert any("log_event" in message for message in caplog.messages)


def test_the_current_tracker_is_the_default():
    """Without a target, events go where `trackway.log` would."""
    tracker = RecordingTracker()
    training = TrainingEvents()
    with trackway.current_tracker(tracker):
        training.train_step(3, {"loss": 0.5})
    assert tracker.events == [("train_step", {"loss": 0.5}, 3)]


@pytest.mark.parametrize("target", [3, "run", Tracker, EventLogger])
def test_anything_else_is_no_target(target):
    """What takes no events is refused at once."""
    with pytest.raises(TypeError, match="TrainingEvents takes a run"):
        TrainingEvents(target)


def test_threads_may_emit_at_once(events, seen):
    """Steps that several threads report are all told and counted."""
    with TrainingEvents(events) as training:
        threads = [
            threading.Thread(target=lambda: [training.train_step(step, {}) for step in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 202
    assert seen[-1][1]["steps"] == 200
