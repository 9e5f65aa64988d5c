"""Artifacts are copied beside the event file."""

from __future__ import annotations

import os

import fsspec
import pytest

from trackway.backends.tensorboard import TensorboardConfig
from trackway.store._layout import safe_name


@pytest.fixture
def tracker(tmp_path):
    """A bare tracker of the run `r` in `tb` under tmp_path."""
    tracker = TensorboardConfig(str(tmp_path / "tb")).init("r")
    yield tracker
    tracker.finish()


def test_files_and_folders(tracker, tmp_path):
    """A file and a folder are copied whole and stay when the originals go."""
    (tmp_path / "data" / "sub").mkdir(parents=True)
    file = tmp_path / "data" / "sub" / "w.bin"
    file.write_bytes(b"\0\1")
    tracker.log_artifact(file)
    tracker.log_artifact(tmp_path / "data", name="all", type="dataset")
    file.unlink()
    kept = tmp_path / "tb" / "r" / "artifacts"
    assert (kept / "w.bin").read_bytes() == b"\0\1"
    assert (kept / "all" / "sub" / "w.bin").read_bytes() == b"\0\1"


def test_a_name_given_again_is_a_new_version(tracker, tmp_path):
    """Nothing that was kept is overwritten."""
    file = tmp_path / "a.txt"
    for text in "123":
        file.write_text(text)
        tracker.log_artifact(file)
    kept = tmp_path / "tb" / "r" / "artifacts"
    assert {p.name: p.read_text() for p in kept.iterdir()} == {"a.txt": "1", "a.txt.v2": "2", "a.txt.v3": "3"}


@pytest.mark.parametrize(
    "name", ["../../up", "a/b", "..", ".hidden", "x:y=z", "new\nline", "l" * 500 + ".txt", "模" * 100, "\udc80"]
)
def test_hostile_names_stay_inside(tracker, tmp_path, name):
    """A name is never a path, and a changed one stays apart from others."""
    file = tmp_path / "a.txt"
    file.write_text("x")
    tracker.log_artifact(file, name=name)
    (kept,) = (tmp_path / "tb" / "r" / "artifacts").iterdir()
    assert kept.name == safe_name(name)
    assert len(os.fsencode(kept.name)) < 150
    assert tracker.report().failed == {}
    assert safe_name("a/b") != safe_name("a:b") != "a_b"


def test_a_missing_file_is_counted(tracker):
    """A path that is not there costs the training nothing and is in the report."""
    tracker.log_artifact("/no/such/file")
    assert tracker.report().dropped == {"no such file or folder": 1}


def test_urls_on_either_side(tmp_path):
    """Artifacts come from and go to whatever file system a URL names."""
    with fsspec.open("memory://tb-source/a.txt", "w") as file:
        file.write("far")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.txt").write_text("near")
    remote = TensorboardConfig("memory://tb-artifacts").init("r")
    remote.log_artifact(tmp_path / "folder" / "b.txt")
    remote.log_artifact(tmp_path / "folder")
    remote.log_artifact("memory://tb-source/a.txt")
    remote.finish()
    local = TensorboardConfig(str(tmp_path / "tb")).init("r")
    local.log_artifact("memory://tb-source/a.txt", name="c.txt")
    local.finish()
    fs = fsspec.filesystem("memory")
    assert fs.cat_file("/tb-artifacts/r/artifacts/b.txt") == b"near"
    assert fs.cat_file("/tb-artifacts/r/artifacts/folder/b.txt") == b"near"
    assert fs.cat_file("/tb-artifacts/r/artifacts/a.txt") == b"far"
    assert (tmp_path / "tb" / "r" / "artifacts" / "c.txt").read_text() == "far"


def names(folder):
    """The files below a folder, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("folder", ["tb", ".", "link/tb"])
def test_a_folder_that_holds_the_run_is_copied_without_it(tracker, tmp_path, folder):
    """Nothing is copied into itself, however often."""
    (tmp_path / "link").symlink_to(tmp_path)
    folder = tmp_path / folder
    (folder / "m.bin").write_bytes(b"x")
    for version in ("all", "all.v2"):
        tracker.log_artifact(folder, name="all")
        kept = names(tmp_path / "tb" / "r" / "artifacts" / version)
        assert [name for name in kept if "artifacts" in name or "tfevents" in name] == []
        assert "m.bin" in kept
    tracker.log_artifact(tmp_path / "tb" / "r")
    assert len(names(tmp_path)) == 4


def awkward(folder):
    """A folder with a pipe, a link to itself, a link that leads nowhere and two files."""
    (folder / "sub").mkdir(parents=True)
    for name in ("a", "sub/z"):
        (folder / name).write_text("1")
    os.mkfifo(folder / "fifo")
    (folder / "sub" / "around").symlink_to(folder)
    (folder / "dangling").symlink_to(folder / "nothing")
    (folder / "link").symlink_to(folder / "a")
    return folder


def test_what_cannot_be_copied_costs_no_other_file(tracker, tmp_path):
    """Pipes, links in a circle and links to nothing are left out and counted; the rest is kept, links as files."""
    tracker.log_artifact(awkward(tmp_path / "data"))
    kept = tmp_path / "tb" / "r" / "artifacts" / "data"
    assert names(kept) == ["a", "link", "sub/z"]
    assert not (kept / "link").is_symlink()
    assert sum(tracker.report().dropped.values()) == 3
    assert [reason for reason in tracker.report().dropped if str(tmp_path) in reason] == []


def test_what_cannot_be_uploaded_costs_no_other_file(tmp_path):
    """The same in an object store."""
    tracker = TensorboardConfig("memory://tb-awkward").init("r")
    tracker.log_artifact(awkward(tmp_path / "data"))
    tracker.finish()
    fs = fsspec.filesystem("memory")
    kept = [path.removeprefix("/tb-awkward/r/artifacts/data/") for path in fs.find("/tb-awkward/r/artifacts")]
    assert sorted(kept) == ["a", "link", "sub/z"]
    assert sum(tracker.report().dropped.values()) == 3
    assert [reason for reason in tracker.report().dropped if str(tmp_path) in reason] == []


@pytest.mark.parametrize("logdir", ["tb", "memory://tb-fails"])
def test_an_artifact_that_fails_is_counted(tmp_path, monkeypatch, logdir):
    """Neither a pipe, nor a place that takes no files, nor a path that is none, reaches the training."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    (tmp_path / "a.txt").write_text("x")
    tracker = TensorboardConfig(logdir).init("r")
    for path in ("fifo", "", 5, "nosuch://bucket/x", "nul\0", b"a.txt"):
        tracker.log_artifact(path)
    fs = fsspec.filesystem("memory") if "://" in logdir else None
    kept = fs.find("/tb-fails/r/artifacts") if fs else names(tmp_path / "tb" / "r" / "artifacts")
    assert [path.rpartition("/")[2] for path in kept] == ["a.txt"]
    report = tracker.report()
    assert report.failed["log_artifact"] + report.dropped["no such file or folder"] == 5
    tracker.finish()


def test_a_folder_that_cannot_be_made_is_counted(tracker, tmp_path):
    """What the copying raises is in the report, and rows go on."""
    file = tmp_path / "a.txt"
    file.write_text("x")
    (tmp_path / "tb" / "r" / "artifacts").write_text("in the way")
    tracker.log_artifact(file)
    assert tracker.report().failed == {"log_artifact": 1}
    tracker.log({"x": 1.0}, step=0)
    tracker.flush()
    assert tracker.report().delivered == 1
