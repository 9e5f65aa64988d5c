"""`type: hook`: a callable of the user's gets everything that is logged."""

from __future__ import annotations

import functools
import logging
import sys
from pathlib import Path

import draccus
import pytest

import trackway
from trackway.backends.hook import HookConfig, HookTracker
from trackway.config import Trackers
from trackway.errors import ConfigError, FatalTrackerError
from trackway.events import EventsConfig
from trackway.testing import TrackerConformance
from trackway.values import flatten


class Listener:
    """A hook that notes what it is told."""

    def __init__(self):
        self.seen, self.closed = [], 0

    def on_event(self, event, payload):
        """Note it."""
        self.seen.append((event, payload))

    def close(self):
        """Count."""
        self.closed += 1

    @property
    def rows(self):
        """What was logged."""
        return [dict(payload) for event, payload in self.seen if event == "log"]


class TestHook(TrackerConformance):
    """A hook that keeps everything."""

    @pytest.fixture(autouse=True)
    def quiet(self, caplog):
        """The messages about downgrades are not the subject here."""
        caplog.set_level(logging.ERROR, "trackway")

    def make(self, folder):
        """Start one."""
        return HookTracker(Listener())

    def read(self, tracker, folder):
        """What the hook was given."""
        return [(row.pop("step"), flatten(row)) for row in tracker.hook.rows]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's on the path."""
    (tmp_path / "user_hooks.py").write_text(
        "seen = []\n"
        "def collect(event, payload):\n    seen.append((event, payload))\n"
        "def fails(event, payload):\n    raise OSError('no')\n"
        "class Kept:\n    def on_event(self, event, payload):\n        seen.append((event, payload))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "user_hooks"
    sys.modules.pop("user_hooks", None)


def test_every_call_becomes_an_event():
    """Rows, hyper-parameters, summary, artifacts, alerts, events, failure and end have an event each."""
    hook = Listener()
    tracker = HookTracker(hook)
    tracker.log_hyperparameters({"lr": 0.1})
    tracker.log({"train": {"loss": 0.5}}, step=3)
    tracker.log_event("checkpoint", {"path": Path("a")}, step=3)
    tracker.log_event("tick", {})
    tracker.log_summary({"best": 0.4})
    tracker.log_artifact("folder/model.pt", type="model")
    tracker.alert("title", "text", level="error")
    tracker.mark_failed(ValueError("diverged"))
    tracker.finish()
    assert hook.seen == [
        ("hyperparameters", {"lr": 0.1}),
        ("log", {"step": 3, "train": {"loss": 0.5}}),
        ("checkpoint", {"step": 3, "path": "a"}),
        ("tick", {}),
        ("summary", {"best": 0.4}),
        ("artifact", {"path": "folder/model.pt", "name": "model.pt", "type": "model"}),
        ("alert", {"title": "title", "text": "text", "level": "error"}),
        ("failed", {"error": "ValueError", "message": "diverged"}),
        ("finish", {}),
    ]
    assert hook.closed == 1


def test_the_hook_gets_no_secrets():
    """What looks like a secret is replaced wherever it stands, as for every tracker."""
    hook = Listener()
    tracker = HookTracker(hook)
    tracker.log_hyperparameters({"api_key": "abcdef0123456789"})
    tracker.log_event("login", {"url": "https://me:hunter22@host/x"})
    tracker.log_artifact("https://me:hunter22@host/model.pt", name="https://me:hunter22@host/named")
    tracker.alert("at https://me:hunter22@host/x", "of https://me:hunter22@host/x")
    tracker.mark_failed(OSError("https://me:hunter22@host/x"))
    assert len(hook.seen) == 5
    assert "hunter22" not in repr(hook.seen)
    assert "abcdef0123456789" not in repr(hook.seen)


def test_a_metric_called_step_is_told_apart():
    """`step` is the row's; a metric of that name is `step_`, counted."""
    hook = Listener()
    tracker = HookTracker(hook)
    tracker.log({"step": 9, "loss": 1}, step=3)
    assert hook.rows == [{"step": 3, "loss": 1, "step_": 9}]
    assert sum(tracker.report().converted.values()) == 1


def test_the_payload_is_the_hooks_own(tmp_path):
    """A hook that changes what it gets changes nothing for others."""

    def spoil(event, payload):
        payload.clear()

    with trackway.start([HookTracker(spoil)], dir=tmp_path, run_id="r") as run:
        trackway.log({"loss": {"a": [1]}}, step=0)
    assert [row["loss"] for row in run.history()] == [{"a": [1]}]


def test_yaml_names_the_hook_by_its_import_path(module, tmp_path):
    """`target` is imported when the tracker is started; a class is instantiated."""
    trackers = draccus.decode(
        Trackers, [{"type": "hook", "target": f"{module}:collect"}, {"type": "hook", "target": f"{module}:Kept"}]
    )
    with trackway.start(trackers, dir=tmp_path, run_id="r", events=EventsConfig(console=False)):
        trackway.log({"loss": 0.5}, step=0)
        trackway.log_event("checkpoint", {"path": "a"}, step=0)
    seen = sys.modules[module].seen
    assert [event for event, _ in seen[::2]] == [event for event, _ in seen[1::2]]
    assert ("log", {"step": 0, "loss": 0.5}) in seen
    assert ("checkpoint", {"step": 0, "path": "a"}) in seen


def test_what_the_hook_raises_is_isolated_or_stops_the_run(module, tmp_path, caplog):
    """A failure is counted and said, and training goes on; with `required: true` it stops."""
    caplog.set_level(logging.WARNING, "trackway")
    fails = HookConfig(f"{module}:fails", label="mine")
    with trackway.start([fails], dir=tmp_path, run_id="one") as run:
        for step in range(3):
            trackway.log({"loss": 0.5}, step=step)
    (report,) = run.report().trackers
    assert report.failed["log"] == 3
    assert sum("mine.log failed: OSError: no" in message for message in caplog.messages) == 1
    run = trackway.start([HookConfig(f"{module}:fails", required=True)], dir=tmp_path, run_id="two")
    with pytest.raises(FatalTrackerError):
        trackway.log({"loss": 0.5}, step=0, commit=True)
    with pytest.raises(Exception, match="no"):
        run.finish()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("", "hook.target must be the import path"),
        ("my.hooks.collect", "did you mean my.hooks:collect"),
        (print, "use `HookTracker"),
    ],
)
def test_a_target_of_another_form_is_an_error(target, told):
    """The configuration is refused before anything is started."""
    with pytest.raises(ConfigError, match=told):
        HookConfig(target)


def test_a_target_that_is_not_there_is_an_error(module):
    """The error says what is missing and what was probably meant."""
    with pytest.raises(ConfigError, match=r"hook\.target: .*has no 'colect'.*did you mean collect"):
        HookConfig(f"{module}:colect").build("r")


def test_any_callable_will_do():
    """A partial, a method or an object that can be called is a hook; a value is not."""
    seen = []
    tracker = HookTracker(functools.partial(lambda where, event, _: where.append(event), seen))
    tracker.log({"a": 1}, step=0)
    tracker.finish()
    assert seen == ["log", "finish"]
    with pytest.raises(ConfigError, match="got 3"):
        HookTracker(3)
