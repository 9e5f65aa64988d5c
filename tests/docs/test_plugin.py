"""The backend of `examples/plugin` is a complete one: it is built, installed, chosen in YAML, and passes its tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

TRAIN = """
import draccus, yaml
import trackway
from trackway import Trackers
from trackway_sqlite import tracker as installed

trackers = draccus.decode(Trackers, yaml.safe_load('''
- type: sqlite
  path: runs.sqlite
  include: ["train/*"]
- type: local
'''))
with trackers.build(run_id="trained"):
    trackway.log_hyperparameters({"lr": 0.1})
    for step in range(20):
        trackway.log({"train": {"loss": 1 / (step + 1)}, "other": step}, step=step)
    assert trackway.get_tracker("sqlite").run == "trained"

rows = installed.read_metrics("runs.sqlite", "trained")
assert rows == [(step, {"train/loss": 1 / (step + 1)}) for step in range(20)], rows
print(installed.__file__)
"""


@pytest.fixture(scope="module")
def source(root, tmp_path_factory):
    """Return a copy of the example, so that building leaves nothing in the tree."""
    folder = tmp_path_factory.mktemp("plugin") / "plugin"
    shutil.copytree(root / "examples" / "plugin", folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return folder


@pytest.fixture(scope="module")
def wheel(source):
    """Build the example's wheel without a network."""
    _run("-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", ".", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """Install the wheel into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    options = ("-q", "--disable-pip-version-check", "--no-deps", "--no-index", "--target", str(folder))
    _run("-m", "pip", "install", *options, str(wheel), cwd=folder)
    return folder


def _run(*arguments, cwd, path=None):
    """Run Python and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKWAY_")}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"} | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_backend_and_its_entry_point(wheel):
    """The wheel has the modules, and the entry point under which trackway finds the type."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        points = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert {"trackway_sqlite/tracker.py", "trackway_sqlite/config.py"} <= set(names)
    assert "[trackway.backends]\nsqlite = trackway_sqlite.config:SqliteConfig" in points


def test_the_installed_backend_is_chosen_in_yaml(site, tmp_path):
    """Once it is installed, `type: sqlite` logs into the database, with the common options, and the rows come back."""
    printed = _run("-c", TRAIN, cwd=tmp_path, path=site)
    assert str(site) in printed
    assert (tmp_path / "runs" / "trained" / "metrics.jsonl").is_file()


@pytest.mark.slow  # a whole conformance class, in a process of its own that imports JAX
def test_the_installed_backend_passes_its_tests(site, source):
    """Its own tests, the conformance class among them, pass against the installed package."""
    options = ("-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir", ".")
    printed = _run("-m", "pytest", *options, "tests", cwd=source, path=site)
    passed = int(printed.rsplit(" passed", 1)[0].split()[-1])
    assert passed > 15
