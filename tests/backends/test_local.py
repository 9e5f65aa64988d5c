"""`type: local` in a configuration."""

from __future__ import annotations

import json

import pytest

from trackway.backends.local import LocalConfig
from trackway.config import TrackerConfig
from trackway.errors import ConfigError
from trackway.store import LocalTracker, read_rows
from trackway.tracker import leaves


def _build(config, run_id=None):
    """The store behind whatever wrappers `build` puts in front."""
    tracker = config.build(run_id)
    (store,) = leaves(tracker)
    assert type(store) is LocalTracker
    return tracker, store


def test_run_directory_lies_in_the_given_folder(tmp_path):
    """`dir` and the run id give the directory, and the run bears that id."""
    tracker, store = _build(LocalConfig(dir=str(tmp_path / "runs")), "mine")
    tracker.log({"loss": 0.5}, step=1)
    tracker.finish()
    assert store.directory == tmp_path / "runs" / "mine"
    assert json.loads((store.directory / "run.json").read_bytes())["id"] == "mine"
    assert read_rows(store.directory)[0]["loss"] == 0.5


def test_folder_comes_from_the_environment(tmp_path, monkeypatch):
    """Without `dir` runs lie below TRACKWAY_DIR, also where `init` is called directly."""
    monkeypatch.setenv("TRACKWAY_DIR", str(tmp_path / "env"))
    tracker, store = _build(LocalConfig(), "a")
    tracker.finish()
    direct = LocalConfig().init("b")
    direct.finish()
    assert [store.directory, direct.directory] == [tmp_path / "env" / "a", tmp_path / "env" / "b"]


def test_folder_is_runs_by_default(tmp_path, monkeypatch):
    """With nothing said runs lie in `runs` of the working directory, under an id that is new each time."""
    monkeypatch.chdir(tmp_path)
    names = set()
    for _ in range(2):
        tracker = LocalConfig().init(None)
        tracker.finish()
        assert tracker.directory.parent == tmp_path / "runs"
        names.add(tracker.run_id)
    assert len(names) == 2


def test_options_reach_the_tracker(tmp_path):
    """`strict_json` makes lines that a strict parser takes."""
    tracker = LocalConfig(str(tmp_path), strict_json=True).init("x")
    tracker.log({"loss": float("nan")}, step=0)
    tracker.finish()
    line = (tmp_path / "x" / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=pytest.fail)["_nonfinite"] == {"loss": "nan"}


def test_every_rank_keeps_its_rows(tmp_path, monkeypatch):
    """A process that is not the primary one still writes rows, into the same directory."""
    monkeypatch.setenv("RANK", "1")
    tracker, store = _build(LocalConfig(str(tmp_path)), "x")
    tracker.log({"loss": 0.5}, step=0)
    tracker.finish()
    assert [path.name for path in store.directory.iterdir()] == ["metrics.rank1.jsonl"]


@pytest.mark.parametrize("run_id", ["../x", "a/b", "", "a\nb"])
def test_run_id_that_is_a_path_is_refused(tmp_path, run_id):
    """An id cannot lead out of the folder."""
    with pytest.raises(ConfigError, match="run_id"):
        LocalConfig(str(tmp_path)).init(run_id)
    assert list(tmp_path.iterdir()) == []


def test_url_is_an_object_store(monkeypatch, tmp_path):
    """A folder may be a URL, in the config or the environment; one of an unknown kind is refused."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    LocalConfig(f"file://{tmp_path}/runs").init("x").finish()
    assert (tmp_path / "runs" / "x" / "run.json").exists()
    monkeypatch.setenv("TRACKWAY_DIR", "nonsense://runs")
    with pytest.raises(ConfigError, match="none that fsspec knows"):
        LocalConfig().build("x")


def test_it_is_the_default_type():
    """A configuration that names no type means this one."""
    assert TrackerConfig.default_choice_name() == "local"
    assert TrackerConfig.get_choice_class("local") is LocalConfig
