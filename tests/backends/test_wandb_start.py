"""How a W&B run is started: what is saved with it, ids, values that are not allowed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from wandb_records import offline_config, records_of

from trackway.backends import _wandb_start as starting
from trackway.backends.wandb import WandbConfig
from trackway.config import RunContext
from trackway.config._context import entered
from trackway.errors import ConfigError

pytestmark = pytest.mark.usefixtures("wandb_folders")


def test_the_code_is_saved(tmp_path):
    """The Python files of a folder are an artifact; hidden folders and environments are left out."""
    for name in ("main.py", "pkg/a.py", ".venv/lib/b.py", "env/site-packages/c.py"):
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text("pass")
    tracker = offline_config(dir=str(tmp_path), save_code=str(tmp_path / "code")).init("code")
    tracker.finish()
    (artifact,) = records_of(tmp_path).artifacts
    assert artifact.type == "code"
    assert sorted(entry.path for entry in artifact.manifest.contents) == ["main.py", "pkg/a.py"]


def test_the_repository_of_the_program_is_found(tmp_path, monkeypatch):
    """Wherever the program is started from."""
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    program = tmp_path / "repository" / "scripts" / "train.py"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(program), raising=False)
    assert starting.code_root(save_code=True) == tmp_path / "repository"
    assert starting.code_root(save_code="elsewhere") == Path("elsewhere")
    assert starting.code_root(save_code=False) is None
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    assert starting.code_root(save_code=True) is None


def test_dumps_of_xla_are_saved(tmp_path, monkeypatch):
    """The folder that XLA_FLAGS names is an artifact of the run; without one it is said and nothing else happens."""
    dumps = tmp_path / "xla dumps"
    dumps.mkdir()
    (dumps / "module.txt").write_text("HLO")
    monkeypatch.setenv("XLA_FLAGS", f"--xla_other=1 '--xla_dump_to={dumps}'")
    tracker = offline_config(dir=str(tmp_path), save_xla_dumps=True).init("dumps")
    tracker.finish()
    (artifact,) = records_of(tmp_path).artifacts
    assert (artifact.type, artifact.manifest.contents[0].path) == ("xla_dumps", "module.txt")
    monkeypatch.setenv("XLA_FLAGS", "")
    tracker = offline_config(dir=str(tmp_path), save_xla_dumps=True).init("none")
    tracker.finish()
    assert tracker.report().dropped == {"XLA_FLAGS names no folder by --xla_dump_to, or it is not there": 1}


def test_ids_and_names_that_wandb_does_not_take():
    """They are mapped so that two stay two, and one stays the same at every start."""
    assert starting.legal_id("run-1.b") == "run-1.b"
    assert starting.legal_id("a/b") == starting.legal_id("a/b") != starting.legal_id("a:b")
    assert len(starting.legal_id("x" * 300)) == 128
    assert starting.legal_name("model v1") != starting.legal_name("model-v1") == "model-v1"


@pytest.mark.parametrize("fields", [{"mode": "onlin"}, {"resume": "yes"}, {"finish_timeout": 0}, {"init_timeout": -1}])
def test_values_that_are_not_allowed_are_refused(fields):
    """Before anything is started, with what is allowed."""
    with pytest.raises(ConfigError, match="wandb"):
        WandbConfig(**fields).init("x")


def test_offline_by_the_environment(tmp_path, monkeypatch):
    """`TRACKWAY_MODE=offline` keeps the run on this machine whatever its mode, and what it lacks is not known."""
    monkeypatch.setenv("TRACKWAY_MODE", "offline")
    with entered(RunContext("env", str(tmp_path))):
        tracker = WandbConfig(save_code=False, mode="online").init("env")
    assert tracker.first_missing_step() is None
    tracker.log({"a": 1}, step=0)
    tracker.finish()
    assert len(records_of(tmp_path).rows) == 1
