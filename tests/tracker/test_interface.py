"""The interface, and that no wrapper swallows a part of it."""

from __future__ import annotations

import inspect

import pytest

from trackway.testing import FailingTracker, RecordingTracker, SlowTracker
from trackway.tracker import (
    INTERFACE,
    BackgroundTracker,
    CompositeTracker,
    FilteredTracker,
    FilterPolicy,
    ForwardingTracker,
    NoopTracker,
    RequiredTracker,
    Span,
    Tracker,
)

ARGUMENTS = {
    "log_hyperparameters": (({"lr": 0.1},), {}),
    "log": (({"loss": 1.0},), {"step": 3}),
    "log_summary": (({"best": 1.0},), {}),
    "log_artifact": ((__file__,), {"name": "file"}),
    "log_event": (("checkpoint", {"path": "a"}), {"step": 2}),
    "log_span": ((Span("data", "data", 1.0, 0.5, 1),), {}),
    "add": (({"seconds": 0.5},), {}),
    "alert": (("title",), {"level": "error"}),
    "mark_failed": ((ValueError("x"),), {}),
    "first_missing_step": ((), {}),
    "open_step": ((), {}),
    "rewind": ((7,), {}),
    "flush": ((), {}),
    "finish": ((), {}),
}

WRAPPERS = {
    "composite": lambda inner: CompositeTracker([inner]),
    "background": BackgroundTracker,
    "filtered": lambda inner: FilteredTracker(inner, FilterPolicy(exclude=["nothing"])),
    "required": RequiredTracker,
    "slow": lambda inner: SlowTracker(inner, seconds=0.0),
    "failing": lambda inner: FailingTracker(inner, methods=()),
}


class Called(Tracker):
    """Notes which methods were called."""

    name = "called"

    def __init__(self):
        self.calls = []


def _noting(name):
    def method(self, *args, **kwargs):
        self.calls.append((name, args, kwargs))

    return method


for _name in INTERFACE:
    setattr(Called, _name, _noting(_name))
Called.__abstractmethods__ = frozenset()


def test_interface_is_known():
    """The interface consists of the methods documented for plugin authors, and of no more."""
    assert sorted(INTERFACE) == sorted(ARGUMENTS)


def test_five_methods_are_abstract():
    """A backend has to write five methods."""
    expected = {"log_hyperparameters", "log", "log_summary", "log_artifact", "finish"}
    assert expected == Tracker.__abstractmethods__


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("method", INTERFACE)
def test_wrappers_pass_every_method_on(wrapper, method):
    """Each wrapper hands each method of the interface to the tracker behind, with its arguments."""
    inner = Called()
    wrapped = WRAPPERS[wrapper](inner)
    args, kwargs = ARGUMENTS[method]
    getattr(wrapped, method)(*args, **kwargs)
    if wrapper == "background" and method != "finish":
        wrapped.flush()
    called = {name: (a, k) for name, a, k in inner.calls}
    assert method in called
    got_args, got_kwargs = called[method]
    if (wrapper, method) != ("background", "log_artifact"):
        assert list(got_args) == list(args)
    assert kwargs.items() <= got_kwargs.items()


@pytest.mark.parametrize("method", INTERFACE)
def test_wrappers_keep_the_signatures(method):
    """A wrapper's method has the parameters of the interface's, names included."""
    ours = inspect.signature(getattr(ForwardingTracker, method)).parameters
    theirs = inspect.signature(getattr(Tracker, method)).parameters
    assert list(ours) == list(theirs)


def test_a_method_added_to_the_interface_passes_the_wrappers(monkeypatch):
    """Wrappers derive their methods from the interface, so a new one cannot be forgotten."""
    missing = [name for name in INTERFACE if name not in vars(ForwardingTracker)]
    assert missing == []


def test_defaults_of_the_optional_methods():
    """A tracker of five methods has working optional ones: `add` logs, the others do nothing."""

    class Five(Tracker):
        name = "five"
        rows = ()

        def log_hyperparameters(self, hparams): ...
        def log(self, metrics, *, step, commit=None):
            self.rows = (*self.rows, (step, dict(metrics)))

        def log_summary(self, metrics): ...
        def log_artifact(self, artifact_path, *, name=None, type=None): ...
        def finish(self): ...

    tracker = Five()
    tracker.add({"seconds": 0.5})
    tracker.log_event("checkpoint", {}, step=1)
    tracker.alert("title")
    tracker.flush()
    tracker.mark_failed(ValueError())
    assert tracker.open_step() is None
    assert tracker.rows == ((None, {"seconds": 0.5}),)


def test_noop_bears_another_name():
    """A noop tracker can stand in for a backend under that backend's name."""
    assert NoopTracker().name == "noop"
    assert NoopTracker("wandb").name == "wandb"


def test_recording_tracker_is_a_plain_tracker():
    """What is recorded is what was logged."""
    tracker = RecordingTracker()
    tracker.log({"a": {"b": 1}}, step=2)
    assert tracker.rows == [(2, {"a": {"b": 1}})]
