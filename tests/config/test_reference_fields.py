"""Every field and default of the configs that trackway's are modelled on, and a trainer file that uses them all."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from dataclasses import dataclass, field

import draccus
import pytest
import yaml

from trackway.config import TrackerConfig, Trackers

EXPECTED = {
    "noop": {},
    "tensorboard": {
        "logdir": "tblogs",
        "comment": "",
        "purge_step": None,
        "max_queue": 10,
        "flush_secs": 120,
        "filename_suffix": "",
        "write_to_disk": True,
    },
    "wandb": {
        "entity": None,
        "project": "trackway",
        "name": None,
        "tags": [],
        "id": None,
        "group": None,
        "mode": None,
        "resume": "allow",
        "save_code": True,
        "save_xla_dumps": False,
    },
    "trackio": {
        "project": "trackway",
        "name": None,
        "space_id": None,
        "dataset_id": None,
        "config": {},
        "mode": None,
        "resume": "auto",
    },
    "json_logger": {"logger_name": "trackway.json_logger", "level": logging.INFO},
}

COMMON = {
    "label": None,
    "every_steps": 1,
    "include": (),
    "exclude": (),
    "prefix": "",
    "rename": {},
    "required": False,
    "on_init_error": "raise",
    "ranks": "primary",
    "background": False,
}

TRAINER = """
trainer:
  tracker:
    - type: wandb
      entity: my-entity
      project: my-project
      name: my-run
      tags: [a, b]
      id: abc123
      group: my-group
      mode: offline
      resume: must
      save_code: ./src
      save_xla_dumps: true
    - type: tensorboard
      logdir: logs
      comment: -lr3e-4
      purge_step: 100
      max_queue: 20
      flush_secs: 30
      filename_suffix: .v2
      write_to_disk: false
    - type: trackio
      project: my-project
      name: my-run
      space_id: org/space
      dataset_id: org/data
      config: {lr: 3.0e-4, layers: [1, 2]}
      mode: disabled
      resume: never
    - type: json_logger
      logger_name: my.logger
      level: 10
    - type: noop
"""


@dataclass
class Trainer:
    """A trainer's own config."""

    tracker: Trackers = field(default_factory=Trackers)


@dataclass
class Program:
    """What the file holds."""

    trainer: Trainer = field(default_factory=Trainer)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_fields_stand_in_their_order_with_their_defaults(name):
    """The positional parameters of a config are those of the reference, in its order, with its defaults."""
    parameters = inspect.signature(TrackerConfig.get_choice_class(name)).parameters.values()
    made = {
        f.name: f.default_factory()
        for f in dataclasses.fields(TrackerConfig.get_choice_class(name))
        if callable(f.default_factory)
    }
    positional = {p.name: made.get(p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert positional == EXPECTED[name]
    assert list(positional) == list(EXPECTED[name])


@pytest.mark.parametrize("name", ["noop", "tensorboard", "wandb", "trackio", "json_logger", "local", "console"])
def test_every_backend_has_the_common_options(name):
    """The common options are keyword-only, and only `ranks` and `background` have defaults of a backend's own."""
    fields = {f.name: f for f in dataclasses.fields(TrackerConfig.get_choice_class(name))}
    config = TrackerConfig.get_choice_class(name)()
    own = {
        "local": {"ranks": "all"},
        "tensorboard": {"background": True},
        "wandb": {"background": True},
        "trackio": {"background": True},
    }.get(name, {})
    assert {option: getattr(config, option) for option in COMMON} == {**COMMON, **own}
    assert all(fields[option].kw_only for option in COMMON)


def test_a_file_with_every_field_is_read_unchanged(registry):
    """A trainer file that sets every field of every config is parsed, and each value arrives as it stands there."""
    written = yaml.safe_load(TRAINER)
    parsed = draccus.decode(Program, written).trainer.tracker
    for config, said in zip(parsed, written["trainer"]["tracker"], strict=True):
        assert TrackerConfig.get_choice_name(type(config)) == said.pop("type")
        assert {name: getattr(config, name) for name in said} == said


@pytest.mark.parametrize("value", ["allow", "must", True, False, None])
def test_resume_may_be_text_a_bool_or_nothing(registry, value):
    """The union of the reference's `resume` keeps each kind of value."""
    (config,) = draccus.decode(Trackers, {"type": "wandb", "resume": value})
    assert config.resume is value or config.resume == value
