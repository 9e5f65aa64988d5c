"""The option `redact` of a run, and configurations that were redacted before."""

from __future__ import annotations

import pytest

import trackway
from trackway.errors import ConfigError, TrackwayWarning
from trackway.values import set_redaction
from trackway.values._redact import current_policy


@pytest.fixture(autouse=True)
def _as_before():
    """Each test leaves the policy as it was."""
    before = current_policy()
    yield
    set_redaction(before)


def test_the_policy_of_a_run_is_in_force(tmp_path):
    """For what is logged from its start on."""
    with trackway.start(dir=tmp_path, redact={"also": ["badge"]}) as run:
        trackway.log_hyperparameters({"badge": "bob", "password": "hunter2hunter2"})
        run.flush()
        text = (run.store.directory / "config.yaml").read_text()
    assert "bob" not in text
    assert "hunter2" not in text


def test_a_start_that_fails_leaves_the_policy(tmp_path):
    """Nothing is left of it."""
    with pytest.raises(ConfigError):
        trackway.start(dir=tmp_path, redact=False, resume="must", run_id="none")
    assert current_policy().enabled


def test_a_wrong_policy_is_refused(tmp_path):
    """Where the run is configured, and where it is started."""
    for call in (trackway.TrackingConfig, lambda redact: trackway.start(dir=tmp_path, redact=redact)):
        with pytest.raises(ConfigError, match="redact"):
            call(redact={"kep": ["a"]})


def test_marks_in_a_configuration_are_warned_of(tmp_path):
    """They stand for secrets that the program does not have."""
    config = {"db": {"password": "<redacted sha256:833a90c1>"}, "lr": 0.1}
    with pytest.warns(TrackwayWarning, match=r"db\.password"), trackway.start(dir=tmp_path, config=config):
        pass


def test_a_secret_itself_is_not_warned_of(tmp_path, recwarn):
    """It is replaced, as it should be."""
    with trackway.start(dir=tmp_path, config={"db": {"password": "hunter2hunter2"}}):
        pass
    assert [str(one.message) for one in recwarn if issubclass(one.category, TrackwayWarning)] == []
