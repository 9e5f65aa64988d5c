"""Finding types: which module is imported for which, and what is said of broken and shadowing ones."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import dataclass

import pytest

from trackway.backends.noop import NoopConfig
from trackway.config import TrackerConfig, _discovery, missing_extra
from trackway.config._discovery import Source
from trackway.errors import ConfigError


@pytest.fixture
def offers(registry, monkeypatch, tmp_path):
    """Puts modules, given as name to text, beside the built-in ones, as other distributions do."""
    monkeypatch.syspath_prepend(tmp_path)

    def offer(**texts):
        found = dict(_discovery.sources())
        for name, text in texts.items():
            (tmp_path / f"plugin_{name}.py").write_text(text)
            found[name] = [*found.get(name, []), Source(f"plugin_{name}", None, f"plugin {name} 1.0")]
        monkeypatch.setattr("trackway.config._registry.sources", lambda: found)

    yield offer
    for name in [name for name in sys.modules if name.startswith("plugin_")]:
        del sys.modules[name]


REGISTERS = """
from dataclasses import dataclass
from trackway.backends.noop import NoopConfig
from trackway.config import TrackerConfig

@TrackerConfig.register_subclass("{name}")
@dataclass
class Plugin(NoopConfig):
    pass
"""


def test_a_type_imports_its_own_module_only(offers):
    """Choosing one type leaves the modules of all others unimported."""
    offers(mine=REGISTERS.format(name="mine"), other=REGISTERS.format(name="other"))
    assert TrackerConfig.get_choice_class("mine").__module__ == "plugin_mine"
    assert "plugin_other" not in sys.modules


def test_a_broken_module_breaks_nobody(offers):
    """Types that cannot be imported are left out of the list, and the error is raised when one of them is chosen."""
    offers(bad="raise RuntimeError('protobuf is too old')", quits="import sys; sys.exit(3)")
    known = TrackerConfig.get_known_choices()
    assert {"noop", "local", "console"} <= set(known)
    assert not {"bad", "quits"} & set(known)
    with pytest.raises(
        ConfigError, match=r"plugin_bad .* failed to import: RuntimeError: protobuf is too old"
    ) as caught:
        TrackerConfig.get_choice_class("bad")
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(ConfigError, match="SystemExit: 3"):
        TrackerConfig.get_choice_class("quits")


def test_an_unknown_type_lists_known_and_broken_ones(offers):
    """The message has a guess, the known types, and those that failed to load with their error."""
    offers(bad="import no_such_library")
    with pytest.raises(ConfigError) as caught:
        TrackerConfig.get_choice_class("tensorbord")
    said = str(caught.value)
    assert "unknown tracker type 'tensorbord'; did you mean tensorboard? known types: " in said
    assert "console, hook, json_logger, local, noop, tensorboard" in said
    assert "bad failed to load (ModuleNotFoundError: No module named 'no_such_library')" in said


def test_a_module_that_registers_nothing_of_its_name_is_named(offers):
    """The message says what the module registers instead, and what to put into it."""
    offers(empty="x = 1", misnamed=REGISTERS.format(name="other_name"))
    with pytest.raises(ConfigError, match=r'registers nothing .* Put `@TrackerConfig.register_subclass\("empty"\)`'):
        TrackerConfig.get_choice_class("empty")
    with pytest.raises(ConfigError, match="registers nothing of that name; it registers other_name"):
        TrackerConfig.get_choice_class("misnamed")
    assert TrackerConfig.get_choice_class("other_name").__name__ == "Plugin"


def test_an_entry_point_may_name_a_class(registry, monkeypatch):
    """`module:Class` registers the class under the entry point's name; another kind of object is refused."""
    found = {
        "mine": [Source("trackway.backends.noop", "NoopConfig", "plugin 1.0")],
        "wrong": [Source("json", "JSONDecoder", "plugin 1.0")],
        "gone": [Source("json", "no_such_class", "plugin 1.0")],
    }
    monkeypatch.setattr("trackway.config._registry.sources", lambda: found)
    assert TrackerConfig.get_choice_class("mine") is NoopConfig
    with pytest.raises(ConfigError, match="JSONDecoder'> is not derived from TrackerConfig"):
        TrackerConfig.get_choice_class("wrong")
    with pytest.raises(ConfigError, match="no_such_class"):
        TrackerConfig.get_choice_class("gone")


def test_a_built_in_name_stays_built_in(registry, caplog):
    """Registering under a built-in type's name changes nothing, and a logged warning names both."""

    @TrackerConfig.register_subclass("noop")
    @dataclass
    class Impostor(NoopConfig):
        pass

    assert TrackerConfig.get_choice_class("noop") is NoopConfig
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "the built-in trackway.backends.noop is used" in warning
    assert Impostor.__qualname__ in warning


def test_a_built_in_name_is_kept_before_its_module_is_imported(registry, caplog):
    """A plugin cannot take a built-in type by coming first."""
    built_in = registry._classes.pop("console")

    @TrackerConfig.register_subclass("console")
    @dataclass
    class Impostor(NoopConfig):
        pass

    assert "console" not in registry._classes
    assert Impostor.__qualname__ in caplog.text
    TrackerConfig.register_subclass("console", built_in)
    assert TrackerConfig.get_choice_class("console") is built_in


def test_between_two_plugins_the_first_wins(registry, caplog):
    """A second class of another place under the same name is refused with a warning that names both."""
    classes = [dataclass(type(name, (NoopConfig,), {"__module__": name})) for name in ("first", "second")]
    for cls in classes:
        TrackerConfig.register_subclass("contested", cls)
    assert TrackerConfig.get_choice_class("contested") is classes[0]
    assert "first.first is used, second.second is not" in caplog.text


def test_running_a_definition_again_replaces_it(registry, caplog):
    """A notebook cell or a reloaded module registers its new class without complaint."""
    for _ in range(2):

        @TrackerConfig.register_subclass("again")
        @dataclass
        class Again(NoopConfig):
            pass

        assert TrackerConfig.get_choice_class("again") is Again
    assert not caplog.records


@pytest.mark.parametrize(("name", "cls"), [("x", int), ("x", NoopConfig()), ("", NoopConfig), (5, NoopConfig)])
def test_only_config_classes_with_a_name_are_registered(registry, name, cls):
    """A mistake in registering is told where it is made."""
    with pytest.raises(ConfigError):
        TrackerConfig.register_subclass(name, cls)


def test_get_choice_name_is_the_registered_one(recording):
    """A class is known by the name it is registered under; the base has none."""
    assert TrackerConfig.get_choice_name(recording) == "recording"
    with pytest.raises(ValueError, match="Cannot find choice name"):
        TrackerConfig.get_choice_name(TrackerConfig)


def test_missing_extra_says_what_to_install():
    """The error names the package and the extra, and keeps the cause; a broken package is told from a missing one."""
    absent = ModuleNotFoundError("No module named 'tensorboardX'", name="tensorboardX")
    error = missing_extra("tensorboardX", "tensorboard", absent)
    assert str(error) == (
        'the package tensorboardX is not installed; install it with `pip install "trackway[tensorboard]"`'
    )
    assert error.__cause__ is absent
    broken = missing_extra("wandb", "wandb", ImportError("protobuf is too old"))
    assert "wandb cannot be imported (ImportError: protobuf is too old)" in str(broken)


MISSING = """
import sys
sys.modules["tensorboardX"] = None  # as if it were not installed
import draccus
from trackway.config import TrackerConfig, Trackers
from trackway.errors import ConfigError

config = draccus.decode(Trackers, [{"type": "tensorboard", "logdir": "logs"}])
try:
    config.build("run")
except ConfigError as error:
    print(error)
    print(type(error.__cause__).__name__)
print(sorted(TrackerConfig.get_known_choices()))
print([t.name for t in draccus.decode(Trackers, ["noop", "console"]).build("run").loggers])
"""


def test_a_missing_library_costs_only_its_own_type(tmp_path):
    """A backend without its library is configured, fails with the extra when started, and leaves the others alone."""
    result = subprocess.run([sys.executable, "-c", MISSING], cwd=tmp_path, capture_output=True, text=True)
    message, cause, known, others = result.stdout.splitlines()
    assert message.startswith("tracker (tensorboard) could not be started: ")
    assert 'pip install "trackway[tensorboard]"' in message
    assert cause == "ModuleNotFoundError"
    assert "'tensorboard'" in known
    assert others == "['noop', 'console']"
