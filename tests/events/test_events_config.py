"""Event loggers from configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

import draccus
import pytest

import trackway
from trackway.errors import ConfigError
from trackway.events import EventLogger, EventsConfig


@dataclass
class Trainer:
    """What a user's trainer embeds."""

    events: EventsConfig = field(default_factory=EventsConfig)


def test_every_field_can_be_said_in_yaml(tmp_path, monkeypatch):
    """All fields are decoded, null and false included, and written back as they were."""
    (tmp_path / "yaml_hooks.py").write_text("def on_event(event, payload):\n    print('hook', event)\n")
    monkeypatch.syspath_prepend(tmp_path)
    values = {
        "level": "WARNING",
        "file": str(tmp_path / "train.log"),
        "json_file": None,
        "every_steps": 10,
        "console": False,
        "memory": False,
        "hooks": ["yaml_hooks:on_event"],
        "hooks_serial": True,
    }
    trainer = draccus.decode(Trainer, {"events": values})
    assert trainer.events == EventsConfig(
        "WARNING", values["file"], None, 10, False, False, ("yaml_hooks:on_event",), True
    )
    assert draccus.decode(Trainer, draccus.encode(trainer)) == trainer
    assert draccus.decode(Trainer, {"events": {"memory": "cuda:1"}}).events.memory == "cuda:1"
    assert draccus.decode(Trainer, {"events": {"memory": None}}).events.memory is None


def test_fields_can_be_said_on_the_command_line():
    """`--events.every_steps 5` and `--events.hooks '["a:b"]'` are understood."""
    trainer = draccus.parse(Trainer, args=["--events.every_steps", "5", "--events.hooks", '["a:b"]'])
    assert (trainer.events.every_steps, trainer.events.hooks) == (5, ("a:b",))


def test_build_imports_the_hooks(tmp_path, monkeypatch, capsys):
    """The logger has what the configuration says; a hook is imported when the logger is built."""
    (tmp_path / "built_hooks.py").write_text("def on_event(event, payload):\n    print('hook', event)\n")
    config = EventsConfig(hooks=["built_hooks:on_event"], every_steps=2, json_file=str(tmp_path / "j"))
    with pytest.raises(ConfigError, match=r"built_hooks.*cannot be imported"):
        config.build()
    monkeypatch.syspath_prepend(tmp_path)
    with config.build() as events:
        events.emit("train_step", step=1)
        events.emit("train_step", step=2)
    assert capsys.readouterr().out == "train_step step=2\nhook train_step\n"
    assert (tmp_path / "j").read_text().count("\n") == 1


@pytest.mark.parametrize("every_steps", [0, -1, True, False, 1.0, 2.5, "10", None])
def test_a_cadence_is_an_integer_of_at_least_one(every_steps):
    """Anything else is an error that says so, in the configuration and in Python."""
    for make in (EventsConfig, EventLogger):
        with pytest.raises(ConfigError, match=r"events\.every_steps must be an integer of at least 1"):
            make(every_steps=every_steps)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"level": "INF"}, "events.level .*did you mean INFO"),
        ({"level": -1}, r"events\.level"),
        ({"level": True}, r"events\.level"),
        ({"level": None}, r"events\.level"),
        ({"file": ""}, r"events\.file"),
        ({"file": 3}, r"events\.file"),
        ({"file": "logs/"}, r"events\.file"),
        ({"json_file": "s3://bucket/e.jsonl"}, "events.json_file .*on this machine"),
        ({"file": "a.log", "json_file": "./a.log"}, "are both"),
        ({"console": 1}, r"events\.console must be true or false"),
        ({"hooks_serial": "yes"}, r"events\.hooks_serial must be true or false"),
        ({"memory": 3}, r"events\.memory"),
        ({"memory": ""}, r"events\.memory"),
        ({"memory": "the big one"}, r"events\.memory"),
        ({"hooks": 3}, r"events\.hooks must be a list"),
        ({"hooks": ["a:b", "c.d"]}, r"hooks\[1\].*did you mean c:d"),
        ({"hooks": [3]}, r"hooks\[0\].*got 3"),
    ],
)
def test_values_that_are_not_allowed_are_explained(fields, told):
    """Each error names the field, what it got and what is allowed."""
    with pytest.raises(ConfigError, match=told):
        EventsConfig(**fields)


def test_an_unknown_field_is_an_error():
    """A typo in YAML is not passed over."""
    with pytest.raises(Exception, match="every_step"):
        draccus.decode(Trainer, {"events": {"every_step": 3}})


def test_memory_true_is_the_default():
    """`memory: true` asks for the accelerator in use, as null does."""
    assert EventsConfig(memory=True).build().report().failed == {}


def test_a_hook_may_be_a_callable_in_python():
    """Beside import paths, `hooks` takes what `EventLogger` takes."""
    seen = []
    EventsConfig(console=False, hooks=[lambda event, _: seen.append(event)]).build().emit("a")
    assert seen == ["a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hooks": [3]}, r"^hooks\[0\] must be a callable"),
        ({"hooks": ["nope"]}, r"^hooks\[0\] must be the import path"),
        ({"events": {"hooks": [print]}, "hooks": [print, 3]}, r"^hooks\[1\] must be a callable"),
        ({"events": {"hooks": [print, 3]}, "hooks": [print]}, r"^events\.hooks\[1\] must be a callable"),
        ({"events": {"hooks": [print]}, "hooks": ["no_such_module:x"]}, r"^hooks\[0\]: 'no_such_module:x' cannot be"),
        ({"events": {"hooks": ["no_such_module:x"]}, "hooks": [print]}, r"^events\.hooks\[0\]: 'no_such_module:x'"),
        ({"hooks": (one for one in (print, "no_such_module:x"))}, r"^hooks\[1\]: 'no_such_module:x' cannot be"),
    ],
)
def test_an_error_says_in_which_list_a_hook_stands(options, message):
    """Those of the run and those of its events are counted apart."""
    with pytest.raises(ConfigError, match=message):
        trackway.start(store=False, **options)
