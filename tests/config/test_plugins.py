"""Backends of other distributions: built as wheels, installed, and used in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hatchling.builders.wheel import WheelBuilder

BUILT_IN = ["console", "hook", "json_logger", "local", "noop", "tensorboard", "trackio", "wandb"]

BACKEND = """
from dataclasses import dataclass
from trackway.config import TrackerConfig
from trackway.tracker import NoopTracker

{register}
@dataclass
class {name}Config(TrackerConfig):
    url: str = "http://localhost"

    def init(self, run_id):
        return NoopTracker("{type}")
"""


def backend(type, register=True):
    """The text of a module with a config class for *type*."""
    decorator = f'@TrackerConfig.register_subclass("{type}")' if register else ""
    return BACKEND.format(register=decorator, name=type.title(), type=type)


DISTRIBUTIONS = {
    "acme-tracker": {
        "files": {"acme_tracker/__init__.py": backend("acme"), "acme_tracker/classes.py": backend("bare", False)},
        "entry_points": {"acme": "acme_tracker", "bare": "acme_tracker.classes:BareConfig"},
    },
    "mine-tracker": {"files": {"trackway/backends/mine.py": backend("mine")}},
    "broken-tracker": {
        "files": {
            "broken_tracker.py": "import a_library_that_is_not_there",
            "trackway/backends/cracked.py": "raise RuntimeError('cracked')",
        },
        "entry_points": {"broken": "broken_tracker"},
    },
    "shadow-tracker": {
        "files": {
            "shadow_tracker.py": backend("tensorboard"),
            "trackway/backends/noop.py": backend("noop"),
            "shadow_acme.py": backend("acme"),
        },
        "entry_points": {"tensorboard": "shadow_tracker", "acme": "shadow_acme"},
    },
}


def build_wheel(folder, name, files, entry_points):
    """Build a wheel with hatchling, as a plugin's author does, and return its path."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    points = "".join(f'{key} = "{value}"\n' for key, value in entry_points.items())
    (folder / "pyproject.toml").write_text(
        f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"

[project.entry-points."trackway.backends"]
{points}
[tool.hatch.build.targets.wheel]
include = {json.dumps(sorted(files))}
"""
    )
    return next(iter(WheelBuilder(str(folder)).build(directory=str(folder / "dist"))))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which all the distributions are installed."""
    wheels = []
    for name, parts in DISTRIBUTIONS.items():
        folder = tmp_path_factory.mktemp(name)
        wheels.append(build_wheel(folder, name, parts["files"], parts.get("entry_points", {})))
    target = tmp_path_factory.mktemp("site")
    for wheel in wheels:  # one by one: pip replaces folders that several wheels share when it installs to a target
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--upgrade"]
        part = tmp_path_factory.mktemp("part")
        subprocess.run([*command, "--target", str(part), wheel], check=True, capture_output=True)
        subprocess.run(["cp", "-r", f"{part}/.", str(target)], check=True)
    return target


@pytest.fixture
def run(site, tmp_path):
    """Runs a program with the distributions installed; returns what it printed, and its log."""

    def run(program):
        start = "import logging; logging.basicConfig()\nfrom trackway.config import TrackerConfig, Trackers\n"
        environment = {**os.environ, "PYTHONPATH": str(site)}
        result = subprocess.run(
            [sys.executable, "-c", start + program], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        return result.stdout, result.stderr

    return run


USE = """
import draccus, yaml
trackers = draccus.decode(Trackers, yaml.safe_load('''
- {{type: {type}, url: "http://there"}}
- {{type: noop}}
'''))
assert trackers[0].url == "http://there"
assert draccus.decode(Trackers, draccus.encode(trackers)) == trackers
with trackers.build("run") as tracker:
    tracker.log({{"loss": 1}}, step=0)
    print([t.name for t in tracker.loggers])
"""


@pytest.mark.parametrize("type", ["acme", "bare", "mine"])
def test_a_plugin_is_used_like_a_built_in(run, type):
    """A type from an entry point (a module or a class in it) or from a module beside ours works from YAML to log."""
    output, _ = run(USE.format(type=type))
    assert output.strip() == str([type, "noop"])


def test_all_types_are_listed_but_the_broken(run):
    """The list holds built-in and plugin types; what cannot be imported is missing and hurts none of them."""
    output, _ = run("print(*TrackerConfig.get_known_choices())")
    assert output.split() == sorted(["acme", "bare", "mine", *BUILT_IN])


@pytest.mark.parametrize(
    ("type", "cause"),
    [("broken", "No module named 'a_library_that_is_not_there'"), ("cracked", "RuntimeError: cracked")],
)
def test_a_broken_plugin_is_told_when_it_is_chosen(run, type, cause):
    """Its error is raised with the distribution's name, after other types have been used without it."""
    output, _ = run(
        "print(TrackerConfig.get_choice_class('noop').__name__)\n"
        f"try:\n    TrackerConfig.get_choice_class('{type}')\nexcept ValueError as error:\n    print(error)"
    )
    first, error = output.splitlines()
    assert first == "NoopConfig"
    assert cause in error
    assert type in error


def test_an_unknown_type_tells_of_the_broken_plugins(run):
    """A type that is not found may be one that failed to load, so those are listed with their errors."""
    output, _ = run(
        "try:\n    TrackerConfig.get_choice_class('nothing')\nexcept ValueError as error:\n    print(error)"
    )
    assert "broken failed to load (ModuleNotFoundError" in output
    assert "cracked failed to load (RuntimeError: cracked)" in output


@pytest.mark.parametrize(
    ("type", "module", "loser"),
    [
        ("tensorboard", "trackway.backends.tensorboard", "shadow_tracker (entry point of shadow-tracker 1.0)"),
        ("noop", "trackway.backends.noop", "trackway.backends.noop ("),
        ("acme", "acme_tracker", "shadow_acme (entry point of shadow-tracker 1.0)"),
    ],
)
def test_a_name_that_is_taken_stays_taken(run, type, module, loser):
    """The built-in wins over a plugin and the first plugin over the second, and a logged warning names both."""
    output, log = run(f"print(TrackerConfig.get_choice_class('{type}').__module__)")
    assert output.strip() == module
    (warning,) = [line for line in log.splitlines() if "two trackers want" in line]
    assert f"the type '{type}': {module}" in warning
    assert f"{loser}" in warning.partition(" is used, ")[2]
