"""The verbs: what they accept, and what they keep from the caller."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from trackway.errors import FatalTrackerError, StepError
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import RequiredTracker, current_tracker, log, log_configuration, log_summary


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


@pytest.mark.parametrize("step", [True, 1.0, 0.5, "3", None.__class__, [1], np.float32(2), np.bool_(True), 2**63])
def test_steps_that_are_no_integers_are_refused_before_the_payload_is_touched(tracker, step):
    """A wrong step raises, and the generator in the payload is still whole."""
    values = (i for i in range(3))
    with pytest.raises(StepError, match="step must"):
        log({"values": values}, step=step)
    assert list(values) == [0, 1, 2]
    assert tracker.rows == []


def test_step_errors_are_type_and_value_errors(tracker):
    """Callers may catch a wrong step as either."""
    assert issubclass(StepError, TypeError)
    assert issubclass(StepError, ValueError)


@pytest.mark.parametrize("step", [0, -1, 2**40, np.int8(5), np.uint64(9)])
def test_integers_of_every_type_are_steps(tracker, step):
    """Steps may be Python or NumPy integers, and reach the tracker as Python ints."""
    log({"a": 1}, step=step)
    assert tracker.rows == [(int(step), {"a": 1})]
    assert type(tracker.rows[0][0]) is int


def test_payloads_must_be_mappings(tracker):
    """Something else than a mapping is a TypeError that says so."""
    with pytest.raises(TypeError, match="mapping"):
        log([("a", 1)])


def test_a_failing_tracker_does_not_reach_the_caller(caplog):
    """What a tracker raises is logged once per method and counted; training goes on."""
    tracker = FailingTracker()
    with current_tracker(tracker):
        for step in range(3):
            log({"a": 1}, step=step)
        log_summary({"a": 1})
    assert tracker.calls == 4
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]
    assert "failing.log failed: RuntimeError: this tracker always fails" in caplog.text


def test_a_required_tracker_reaches_the_caller():
    """A failure of a required tracker is the one that stops the run, with its cause."""
    with current_tracker(RequiredTracker(FailingTracker(error=OSError("quota")))):
        with pytest.raises(FatalTrackerError, match=r"failing is declared `required: true`.*quota") as caught:
            log({"a": 1})
        assert isinstance(caught.value.__cause__, OSError)


@dataclasses.dataclass
class Optimizer:
    """A part of a configuration."""

    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)


@dataclasses.dataclass
class Config:
    """A configuration."""

    seed: int = 3
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)


def test_log_configuration_gives_hyperparameters_and_a_file(tracker):
    """A dataclass becomes hyper-parameters, and a YAML file from which draccus makes an equal one."""
    import draccus

    log_configuration(Config(seed=5))
    assert tracker.hparams == {"seed": 5, "optimizer": {"lr": 0.1, "betas": [0.9, 0.95]}}
    [(name, kind, content)] = tracker.artifacts
    assert (name, kind) == ("config.yaml", "config")
    assert draccus.loads(Config, content.decode()) == Config(seed=5)


def test_log_configuration_takes_what_draccus_cannot_encode(tracker):
    """Fields that draccus cannot encode are logged all the same, and awkward numbers stay exact."""

    @dataclasses.dataclass
    class Odd:
        fn: object = print
        big: int = 10**5000
        _private: int = 1

    log_configuration(Odd())
    assert tracker.hparams["big"] == 10**5000
    assert tracker.hparams["_private"] == 1
    assert b"fn" in tracker.artifacts[0][2]


def test_log_configuration_refuses_other_things(tracker):
    """A configuration is a dataclass instance or a mapping."""
    with pytest.raises(TypeError, match="dataclass instance or a mapping"):
        log_configuration(Config)
