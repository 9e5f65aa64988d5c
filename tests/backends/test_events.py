"""What becomes of events at each backend, and the hooks that bring them there without a run."""

from __future__ import annotations

import io
import json
import logging

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trackio_server import new_project, rows
from wandb_records import offline_config, read_records, record_files, records_of

import trackway
from trackway.backends._held_events import HeldEvent, HeldEvents
from trackway.backends.console import ConsoleTracker
from trackway.backends.json_logger import JsonLoggerTracker
from trackway.backends.tensorboard import TensorboardConfig
from trackway.backends.trackio import TrackioConfig
from trackway.errors import ConfigError, StepError
from trackway.events import EventLogger, EventsConfig, TensorboardHook, TrainingEvents, WandbHook
from trackway.values import decode

QUIET = EventsConfig(console=False)


@pytest.fixture
def wandb_tracker(tmp_path, wandb_folders):
    """A bare offline run."""
    tracker = offline_config(dir=str(tmp_path)).init("run")
    yield tracker
    tracker.finish()


def kept(tracker, folder):
    """Finish and return the rows that W&B has, without what a run has of its own."""
    tracker.finish()
    return [{name: value for name, value in row.items() if name != "trackway/step"} for row in records_of(folder).rows]


def test_wandb_has_an_event_in_the_row_of_its_step(wandb_tracker, tmp_path):
    """An event that comes before the metrics of its step, or after them, stands in one row with them."""
    for step in range(3):
        wandb_tracker.log_event("before", {"x": step}, step=step)
        wandb_tracker.log({"loss": step}, step=step)
        wandb_tracker.log_event("after", {"deep": {"y": 1.5}, "path": "a b"}, step=step)
    assert kept(wandb_tracker, tmp_path) == [
        {
            "_step": step,
            "event": "before, after",
            "before/x": step,
            "loss": step,
            "after/deep/y": 1.5,
            "after/path": "a b",
        }
        for step in range(3)
    ]


def test_wandb_rows_of_a_run_are_not_made_late_by_its_events(tmp_path, wandb_folders):
    """A run hands over a row when the step is over and events at once: all stand at their steps, in one row each."""
    with trackway.start([offline_config()], dir=tmp_path, run_id="r", events=QUIET):
        for step in range(4):
            trackway.log({"loss": step}, step=step)
            trackway.log_event("train_step", {"x": step}, step=step)
            if step == 2:
                trackway.log_event("checkpoint", {"path": "a"}, step=step)
    assert records_of(tmp_path).rows == [
        {
            "_step": step,
            "loss": step,
            "event": "train_step, checkpoint" if step == 2 else "train_step",
            "train_step/x": step,
            **({"checkpoint/path": "a"} if step == 2 else {}),
        }
        for step in range(4)
    ]


def test_wandb_puts_an_event_that_comes_late_into_the_next_row(wandb_tracker, tmp_path):
    """Where the row of its step is written already, the event says its step, and no row is moved for it."""
    for step in range(3):
        wandb_tracker.log({"loss": step}, step=step, commit=True)
        wandb_tracker.log_event("saved", {"path": f"{step}"}, step=step)
    wandb_tracker.log({"loss": 3}, step=3, commit=True)
    assert kept(wandb_tracker, tmp_path) == [
        {"_step": 0, "loss": 0},
        *({"_step": n, "loss": n, "event": "saved", "saved/step": n - 1, "saved/path": f"{n - 1}"} for n in (1, 2, 3)),
    ]


def test_wandb_keeps_all_of_several_events_of_one_name_in_a_row(wandb_tracker, tmp_path):
    """The second of two in one step gets a number."""
    wandb_tracker.log({"loss": 1}, step=0)
    for path in "abc":
        wandb_tracker.log_event("checkpoint", {"path": path}, step=0)
    (row,) = kept(wandb_tracker, tmp_path)
    assert row["event"] == "checkpoint, checkpoint.2, checkpoint.3"
    assert [row[f"checkpoint{n}/path"] for n in ("", ".2", ".3")] == ["a", "b", "c"]


def test_wandb_events_beyond_the_last_row_do_not_move_the_runs_end(wandb_tracker, tmp_path):
    """What comes last has a row of its own that says the highest step of metrics, from which a resumed run goes on."""
    wandb_tracker.log({"loss": 1}, step=9, commit=True)
    wandb_tracker.log_event("train_end", {"steps": 10})
    wandb_tracker.log_event("checkpoint", {"path": "a"}, step=10)
    wandb_tracker.finish()
    first, last = records_of(tmp_path).rows
    assert first == {"_step": 9, "loss": 1}
    assert last.pop("event").split(", ") == ["checkpoint", "train_end"]
    assert last == {
        "_step": 10,
        "trackway/step": 9,
        "train_end/steps": 10,
        "checkpoint/step": 10,
        "checkpoint/path": "a",
    }


def test_wandb_checks_the_step_and_takes_nothing_after_the_end(wandb_tracker):
    """Steps are integers; after `finish` events are counted as dropped."""
    with pytest.raises(StepError):
        wandb_tracker.log_event("a", {}, step=1.5)
    wandb_tracker.finish()
    wandb_tracker.log_event("a", {}, step=1)
    assert sum(wandb_tracker.report().dropped.values()) == 1


def test_wandb_hook_brings_events_to_a_run_and_ends_it(tmp_path, wandb_folders):
    """A logger's hook makes a row of each step's events, and the logger finishes the W&B run."""
    hook = WandbHook(project="p", mode="offline", dir=str(tmp_path), save_code=False)
    with EventLogger(console=False, hooks=[hook]) as events, TrainingEvents(events, target_step=2) as training:
        for step in range(2):
            training.train_step(step, {"loss": 0.5 + step})
    hook.close()
    found = read_records(record_files(tmp_path)[0])
    assert [(row["_step"], row["train_step/loss"]) for row in found.rows] == [(0, 0.5), (1, 1.5)]
    assert "train_start" in found.rows[0]["event"]
    assert found.rows[0]["train_start/target_step"] == 2
    assert "train_end" in found.rows[1]["event"]
    assert found.code == 0


def test_wandb_hook_ends_the_run_as_failed_after_train_failed(tmp_path, wandb_folders):
    """`train_failed` makes the exit code 1."""
    hook = WandbHook(project="p", mode="offline", dir=str(tmp_path), save_code=False, background=False)
    events = EventLogger(console=False, hooks=[hook])
    with pytest.raises(ValueError, match="diverged"), events, TrainingEvents(events):
        raise ValueError("diverged")
    found = read_records(record_files(tmp_path)[0])
    assert found.code == 1
    assert found.rows[-1]["train_failed/message"] == "diverged"


def test_an_unknown_field_of_an_adapter_is_explained(wandb_folders):
    """The error names the hook, the field and where the fields are written down."""
    for hook in (WandbHook, TensorboardHook):
        with pytest.raises(ConfigError, match=rf"{hook.__name__}.*colour.*Config"):
            hook(colour="red")


def test_adapters_do_nothing_where_tracking_is_disabled(tmp_path, monkeypatch):
    """Under `TRACKWAY_MODE=disabled`, and on ranks other than 0, nothing is started."""
    monkeypatch.setenv("TRACKWAY_MODE", "disabled")
    with TensorboardHook(tmp_path / "tb") as hook, WandbHook() as other:
        hook.on_event("train_step", {"step": 1, "loss": 2.0})
        other("train_step", {"step": 1, "loss": 2.0})
    monkeypatch.delenv("TRACKWAY_MODE")
    monkeypatch.setenv("RANK", "1")
    TensorboardHook(tmp_path / "tb").close()
    assert not (tmp_path / "tb").exists()


def tensorboard(folder):
    """TensorBoard's reader of a folder."""
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def scalars(reader, tag):
    """Steps and values of a tag."""
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def test_tensorboard_has_numbers_of_events_as_scalars_and_texts_as_texts(tmp_path):
    """Numbers are `<event>/<key>` at the event's step, without one at a count of its own; texts are texts."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    tracker.log({"loss": 1.0}, step=None)
    tracker.log_event("checkpoint", {"bytes": 5, "path": "a/b", "deep": {"x": 0.5}}, step=50)
    for number in range(2):
        tracker.log_event("tick", {"n": 10 + number})
    tracker.log_event("empty", {}, step=3)
    tracker.log({"loss": 2.0}, step=None)
    tracker.finish()
    reader = tensorboard(tmp_path / "r")
    assert scalars(reader, "checkpoint/bytes") == [(50, 5.0)]
    assert scalars(reader, "checkpoint/deep/x") == [(50, 0.5)]
    assert scalars(reader, "tick/n") == [(0, 10.0), (1, 11.0)]
    assert scalars(reader, "loss") == [(0, 1.0), (1, 2.0)]
    (text,) = reader.Tensors("checkpoint/path/text_summary")
    assert (text.step, text.tensor_proto.string_val[0]) == (50, b"a/b")
    assert [event.step for event in reader.Tensors("empty/text_summary")] == [3]


def test_tensorboard_hook_writes_event_key_to_its_folder(tmp_path):
    """The hook's file is in `log_dir` itself; a logger closes it, and closing it again does nothing."""
    hook = TensorboardHook(log_dir=tmp_path / "runs" / "tensorboard")
    with EventLogger(console=False, every_steps=2, hooks=[hook]) as events:
        for step in range(3):
            events.emit("train_step", {"loss": 0.5 * step}, step=step)
        events.emit("checkpoint", {"path": "a"}, step=2)
    hook.close()
    reader = tensorboard(tmp_path / "runs" / "tensorboard")
    assert scalars(reader, "train_step/loss") == [(0, 0.0), (2, 1.0)]
    assert "train_step/step" not in reader.Tags()["scalars"]


@pytest.fixture
def project():
    """A project of the test's own."""
    return new_project()


def test_trackio_has_each_event_as_a_row_of_its_own(project):
    """A row has the name and the values, at the event's step and after its metrics."""
    tracker = TrackioConfig(project).init("run")
    tracker.log_event("train_start", {"target": 2})
    for step in range(2):
        tracker.log_event("train_step", {"x": step}, step=step)
        tracker.log({"loss": step}, step=step)
    tracker.log_event("checkpoint", {"path": "a", "deep": {"y": 1}}, step=0)
    tracker.log_event("train_end", {})
    tracker.finish()
    assert rows(project, "run") == [
        (0, {"loss": 0}),
        (0, {"event": "train_step", "train_step/x": 0}),
        (0, {"event": "train_start", "train_start/target": 2}),
        (1, {"loss": 1}),
        (1, {"event": "train_step", "train_step/x": 1}),
        (0, {"event": "checkpoint", "checkpoint/path": "a", "checkpoint/deep/y": 1}),
        (1, {"event": "train_end"}),
    ]
    report = tracker.report()
    assert (report.accepted, report.delivered) == (7, 7)


def test_trackio_does_not_take_an_event_for_a_row_of_its_step(project):
    """An event beyond the last row says its step, and the run goes on after the last row of metrics."""
    tracker = TrackioConfig(project).init("run")
    tracker.log({"loss": 1}, step=4)
    tracker.log_event("checkpoint", {"path": "a"}, step=5)
    tracker.flush()
    assert rows(project, "run") == [(4, {"loss": 1})]
    tracker.finish()
    assert rows(project, "run")[1] == (4, {"event": "checkpoint", "checkpoint/path": "a", "checkpoint/step": 5})
    again = TrackioConfig(project).init("run")
    assert again.first_missing_step() == 5
    again.finish()


def test_trackio_keeps_events_without_any_row(project):
    """Events alone are rows at their own steps."""
    tracker = TrackioConfig(project).init("run")
    for step in range(3):
        tracker.log_event("train_step", {"x": step}, step=step)
    tracker.log_event("train_end", {"n": 3})
    tracker.finish()
    assert [step for step, _ in rows(project, "run")] == [0, 1, 2, 2]


def test_console_prints_a_line():
    """The line begins with `event` and the name, and is one line whatever it holds."""
    stream = io.StringIO()
    tracker = ConsoleTracker(stream)
    tracker.log_event("checkpoint", {"path": "a b\n", "size": 3}, step=5)
    tracker.log_event("tick", {})
    assert stream.getvalue().splitlines() == ['event checkpoint step=5 path="a b\\n" size=3', "event tick"]


def test_json_logger_writes_a_record(caplog):
    """The record is one of the event "event", so that it is not taken for a row or an end."""
    caplog.set_level(logging.INFO, "events-test")
    tracker = JsonLoggerTracker(logging.getLogger("events-test"))
    tracker.log_event("finish", {"loss": float("nan"), "at": {"x": 1}}, step=5)
    tracker.log_event("tick", {})
    first, second = [decode(message) for message in caplog.messages]
    assert first["payload"].pop("loss") != 0
    assert first == {
        "tracker": "json_logger",
        "event": "event",
        "name": "finish",
        "step": 5,
        "payload": {"at": {"x": 1}},
    }
    assert second == {"tracker": "json_logger", "event": "event", "name": "tick", "payload": {}}
    assert json.loads(caplog.messages[1])["event"] == "event"


def test_every_backend_checks_the_step(tmp_path, project):
    """A step that is no integer is an error wherever the event goes."""
    trackers = (
        ConsoleTracker(io.StringIO()),
        JsonLoggerTracker(logging.Logger("x")),  # noqa: LOG001 - outside the hierarchy
        TensorboardConfig(str(tmp_path)).init("r"),
        TrackioConfig(project).init("run"),
    )
    for tracker in trackers:
        with pytest.raises(StepError):
            tracker.log_event("a", {}, step=1.5)
        tracker.finish()


def test_held_events_are_bounded():
    """However many events wait for rows that do not come, the oldest are let go."""
    held = HeldEvents()
    assert held.row(0) == []
    due = [one for step in range(1, 101) for one in held.put(HeldEvent(step, "a", {}))]
    assert len(held) < 100
    assert [one.step for one in [*due, *held.rest()]] == list(range(1, 101))
    assert len(held) == 0
