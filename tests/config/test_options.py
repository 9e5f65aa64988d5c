"""The options that all backends have, each by its effect on what reaches the tracker."""

from __future__ import annotations

import logging
import threading

import pytest

from trackway.backends.noop import NoopConfig
from trackway.config import Trackers
from trackway.errors import ConfigError, FatalTrackerError
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import (
    BackgroundPolicy,
    BackgroundTracker,
    FilteredTracker,
    NoopTracker,
    RequiredTracker,
    current_tracker,
    get_tracker,
    log,
    walk,
)
from trackway.values import Image


def rows_of(config, *rows):
    """What the tracker of *config* got when *rows* were logged at steps 0, 1, ..."""
    tracker = config.build("run")
    for step, row in enumerate(rows):
        tracker.log(row, step=step)
    tracker.finish()
    return config.tracker.rows


def kinds(tracker):
    """The classes of *tracker* and of what stands behind it."""
    return [type(t) for t in walk(tracker)]


def test_without_options_the_tracker_is_bare(recording):
    """Building adds nothing that the options do not ask for."""
    config = recording()
    assert config.build("run") is config.tracker


def test_label_is_the_name(recording):
    """Two trackers of one type are found by their labels, through every wrapper."""
    options = {"every_steps": 2, "background": True, "required": True}
    trackers = Trackers([recording(label="first", **options), recording(label="second"), recording()])
    with current_tracker(trackers.build("run")):
        assert get_tracker("first") is trackers[0].tracker
        assert get_tracker("second") is trackers[1].tracker
        assert get_tracker("recording") is trackers[2].tracker


def test_every_steps_thins_rows_out(recording):
    """Only multiples of it pass, and rows that hold media."""
    rows = rows_of(recording(every_steps=2), *[{"loss": i} for i in range(5)])
    assert [step for step, _ in rows] == [0, 2, 4]
    picture = Image([[0.0, 1.0]])
    assert [step for step, _ in rows_of(recording(every_steps=2), {"a": 1}, {"picture": picture})] == [0, 1]


def test_every_steps_lets_everything_but_rows_pass(recording):
    """Summary, hyper-parameters and events do not depend on the step."""
    config = recording(every_steps=100)
    tracker = config.build("run")
    tracker.log_summary({"best": 1})
    tracker.log_hyperparameters({"lr": 2})
    tracker.log_event("saved", {}, step=3)
    assert (config.tracker.summary, config.tracker.hparams) == ({"best": 1}, {"lr": 2})
    assert config.tracker.events == [("saved", {}, 3)]


def test_include_and_exclude_choose_names(recording):
    """Globs match flattened names, and exclude wins."""
    row = {"train": {"loss": 1, "debug": 2}, "eval": {"loss": 3}}
    ((_, got),) = rows_of(recording(include=["train/*"], exclude=["*/debug"]), row)
    assert got == {"train/loss": 1}


def test_prefix_and_rename_change_names(recording):
    """A name is renamed first and prefixed then."""
    ((_, got),) = rows_of(recording(prefix="a/", rename={"loss": "nll"}), {"loss": 1, "lr": 2})
    assert got == {"a/nll": 1, "a/lr": 2}


def test_required_failures_stop_the_run(recording, monkeypatch):
    """A failure of a required tracker is raised from the call; without the option the run goes on."""
    monkeypatch.setattr(recording, "init", lambda _self, _run_id: FailingTracker(RecordingTracker()))
    required = Trackers([recording(required=True)]).build("run")
    assert kinds(required)[1] is RequiredTracker
    with current_tracker(required), pytest.raises(FatalTrackerError, match="required: true"):
        log({"loss": 1}, step=0)
    with Trackers([recording()]).build("run") as tracker:
        log({"loss": 1}, step=0)
    assert tracker.failures()


def test_background_calls_from_a_thread_of_its_own(recording, monkeypatch):
    """The tracker is called on another thread, and gets every row."""
    threads = []
    original = RecordingTracker.log
    monkeypatch.setattr(
        RecordingTracker,
        "log",
        lambda self, metrics, *, step, commit=None: (
            threads.append(threading.current_thread()),
            original(self, metrics, step=step, commit=commit),
        )[1],
    )
    assert rows_of(recording(background=True), {"a": 1}, {"a": 2}) == [(0, {"a": 1}), (1, {"a": 2})]
    assert threading.current_thread() not in threads


def test_background_takes_limits_and_keeps_required(recording):
    """A policy is handed on, and required is left to the background tracker, which raises on the caller's thread."""
    policy = BackgroundPolicy(queue_size=7)
    tracker = recording(background=policy, required=True, every_steps=2).build("run")
    assert kinds(tracker) == [FilteredTracker, BackgroundTracker, RecordingTracker]
    assert tracker.members()[0].policy == policy
    tracker.finish()


def test_a_tracker_that_cannot_be_started_raises_with_its_place(recording, broken):
    """The error names position and type, keeps its cause, and says how to go on without the tracker."""
    config = recording()
    with pytest.raises(ConfigError, match=r"tracker\[1\] \(broken\) could not be started: OSError: no route") as caught:
        Trackers([config, broken()]).build("run")
    assert isinstance(caught.value.__cause__, OSError)
    assert "on_init_error: skip" in str(caught.value)
    assert config.tracker.finished


def test_an_error_with_a_type_of_its_own_keeps_it(broken):
    """An error of this library that is no ConfigError is raised as it is, with a note of the place."""
    with pytest.raises(FatalTrackerError) as caught:
        broken(error=FatalTrackerError).build("run")
    assert caught.value.__notes__ == ["while starting broken"]


def test_on_init_error_skip_goes_on_without_it(broken, recording, caplog):
    """The tracker is left out with one warning that holds the cause, and its name still answers."""
    config = recording()
    tracker = Trackers([broken(on_init_error="skip"), config]).build("run")
    assert [type(t) for t in tracker.loggers] == [NoopTracker, RecordingTracker]
    assert tracker.loggers[0].name == "broken"
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "tracker[0] (broken) is left out: OSError: no route to host" in warnings[0]


def test_what_init_returns_has_to_be_a_tracker(recording, monkeypatch):
    """A config whose init forgets to return its tracker is told so."""
    monkeypatch.setattr(recording, "init", lambda _self, _run_id: None)
    with pytest.raises(ConfigError, match=r"RecordingConfig\.init returned a NoneType, not a Tracker"):
        recording().build("run")


def test_a_tracker_without_a_name_gets_that_of_its_type(recording, monkeypatch):
    """A plugin that forgot the name is found by its type."""
    nameless = RecordingTracker("")
    monkeypatch.setattr(recording, "init", lambda _self, _run_id: nameless)
    assert recording().build("run").name == "recording"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every_steps": 0}, "every_steps must be an integer of at least 1, got 0"),
        ({"every_steps": True}, "every_steps must be an integer of at least 1, got true"),
        ({"include": "train/*"}, r"include must be a list of globs such as \['train/\*'\], got 'train/\*'"),
        ({"exclude": [1]}, "exclude must be a list of globs"),
        ({"label": " "}, "label must be a name or null"),
        ({"prefix": None}, "prefix must be text, got null"),
        ({"rename": {"a": 1}}, "rename must be a mapping of metric names to names"),
        ({"ranks": "some"}, "ranks must be one of primary, all, got 'some'"),
        ({"on_init_error": "ignore"}, "on_init_error must be one of raise, skip, got 'ignore'"),
        ({"background": 5}, "background must be true, false or a BackgroundPolicy, got 5"),
        ({"required": True, "on_init_error": "skip"}, "contradict each other"),
    ],
)
def test_wrong_options_are_refused_in_python_too(options, message):
    """A config made without YAML is checked when it is made."""
    with pytest.raises(ConfigError, match=message):
        NoopConfig(**options)


def test_an_option_changed_later_is_checked_before_use():
    """Configs are mutable; what was set wrongly afterwards is found when the tracker is built."""
    config = NoopConfig()
    config.every_steps = -1
    with pytest.raises(ConfigError, match="every_steps"):
        config.build("run")
