"""What is written can be read back."""

from __future__ import annotations

import copy
import pickle

import draccus
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trackway import _notices
from trackway.backends.noop import NoopConfig
from trackway.config import TrackerConfig, Trackers
from trackway.tracker import BackgroundPolicy

REQUIRED = {"hook": {"target": "json:dumps"}}
"""What has to be given, by type."""
NAMES = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=12)
POLICIES = st.builds(
    BackgroundPolicy,
    queue_size=st.integers(1, 10**9),
    on_full=st.sampled_from(["spill", "drop_newest", "drop_oldest", "block"]),
    finish_timeout=st.floats(0.001, 1e6),
)
CONFIGS = st.builds(
    NoopConfig,
    label=st.none() | NAMES.filter(str.strip),
    every_steps=st.integers(1, 2**70),
    include=st.lists(NAMES, max_size=3),
    exclude=st.lists(NAMES, max_size=3),
    prefix=NAMES,
    rename=st.dictionaries(NAMES, NAMES, max_size=3),
    required=st.booleans(),
    ranks=st.sampled_from(["primary", "all"]),
    background=st.booleans() | POLICIES,
)


def through_yaml(value):
    """*value* encoded, written, and read again as plain data."""
    return yaml.safe_load(yaml.safe_dump(draccus.encode(value)))


@given(st.lists(CONFIGS, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_list_of_configs_comes_back(configs):
    """Whatever the options hold, encoding and decoding by way of YAML is the identity, alone and in a list."""
    trackers = Trackers(configs)
    assert draccus.decode(Trackers, through_yaml(trackers)) == trackers
    for config in configs:
        assert draccus.decode(TrackerConfig, through_yaml(config)) == config
        assert draccus.decode(NoopConfig, through_yaml(config)) == config


def test_every_registered_config_comes_back(registry):
    """Each known type, with its defaults, is read back from what is written, with its type first."""
    for name, cls in TrackerConfig.get_known_choices().items():
        config = cls(**REQUIRED.get(name, {}))
        written = through_yaml(config)
        assert draccus.encode(config)["type"] == name
        assert draccus.decode(TrackerConfig, written) == config
        assert draccus.decode(cls, written) == config
        assert draccus.decode(Trackers, [written, written]) == Trackers([config, config])


@pytest.mark.parametrize("value", [None, NoopConfig(label="x")])
def test_a_whole_program_comes_back(program, recording, value):
    """Configs in fields of every kind keep their type when the outermost config is written."""
    config = program()
    config.trainer.tracker = Trackers([recording(project="x"), NoopConfig()])
    config.trainer.optional = value
    config.trainer.optional_list = None if value is None else Trackers([value])
    config.trainer.plain_list = [recording(tags=["a"]), NoopConfig()]
    written = through_yaml(config)
    assert [item["type"] for item in written["trainer"]["tracker"]] == ["recording", "noop"]
    assert draccus.decode(program, written) == config


def test_dump_and_load_agree(program):
    """draccus.dump writes a text that draccus.loads reads back."""
    config = program()
    config.trainer.tracker = Trackers([NoopConfig(background=BackgroundPolicy(queue_size=3))])
    assert draccus.loads(program, draccus.dump(config)) == config


def test_trackers_can_be_copied_and_sent_to_another_process():
    """A deep copy and a pickle are equal to the original, and of its class."""
    trackers = Trackers([NoopConfig(label="x")])
    for other in (copy.deepcopy(trackers), pickle.loads(pickle.dumps(trackers))):
        assert other == trackers
        assert isinstance(other, Trackers)


def test_a_class_that_is_not_registered_is_written_without_type_and_said(caplog):
    """Encoding an unregistered config loses nothing but its type, and a logged warning says how to mend it."""

    class Unregistered(NoopConfig):
        pass

    _notices.forget_said()
    assert draccus.encode(Unregistered(label="x"))["label"] == "x"
    assert "type" not in draccus.encode(Unregistered())
    assert "register_subclass" in caplog.text
