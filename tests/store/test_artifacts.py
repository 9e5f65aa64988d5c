"""Artifacts and media in the run directory."""

from __future__ import annotations

import hashlib
import json
import os
import wave

import numpy as np
import pytest

from trackway.store import LocalTracker, read_rows
from trackway.values import Audio, Html, Image, Table, Text


@pytest.fixture
def run(tmp_path):
    """A tracker whose directory is beside the test's own files."""
    tracker = LocalTracker(tmp_path / "run")
    yield tracker
    tracker.finish()


def _listed(run):
    """What run.json lists."""
    run.flush()
    return json.loads((run.directory / "run.json").read_bytes())["artifacts"]


def test_file_is_copied_and_listed(run, tmp_path):
    """The copy stays when the original goes, and run.json has its name, type, size and hash."""
    (tmp_path / "model.pt").write_bytes(b"weights")
    run.log_artifact(tmp_path / "model.pt", type="model")
    (tmp_path / "model.pt").unlink()
    assert (run.directory / "artifacts" / "model.pt").read_bytes() == b"weights"
    (entry,) = _listed(run)
    assert entry == {
        "name": "model.pt",
        "type": "model",
        "path": "artifacts/model.pt",
        "version": 1,
        "size": 7,
        "sha256": hashlib.sha256(b"weights").hexdigest(),
    }


def test_name_used_twice_gives_versions(run, tmp_path):
    """A later artifact of the same name stands beside the earlier ones."""
    for content in ("one", "two", "three"):
        (tmp_path / "x").write_text(content)
        run.log_artifact(str(tmp_path / "x"), name="model")
    folder = run.directory / "artifacts"
    assert [(folder / name).read_text() for name in ("model", "model.v2", "model.v3")] == ["one", "two", "three"]
    assert [entry["version"] for entry in _listed(run)] == [1, 2, 3]


@pytest.mark.parametrize(
    "name", ["step=5/loss:0.1", "../../outside", "/etc/passwd", "a\x1b[2Jb", "n" * 400, "\udc80", "..", "a\0b"]
)
def test_name_that_no_file_can_have_is_kept_in_the_list(run, tmp_path, name):
    """Whatever the name, the copy lies in the artifacts folder, and the list has the name as it was given."""
    (tmp_path / "x").write_text("content")
    run.log_artifact(tmp_path / "x", name=name)
    (entry,) = _listed(run)
    assert entry["name"] == name
    (copied,) = (run.directory / "artifacts").iterdir()
    assert copied.read_text() == "content"
    assert entry["path"] == f"artifacts/{copied.name}"


def test_folder_is_copied_without_traps(run, tmp_path):
    """Links are followed, a loop of links and a pipe are left out and counted, everything else is there."""
    source = tmp_path / "ckpt"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.bin").write_bytes(b"12345")
    (tmp_path / "elsewhere").write_text("linked")
    (source / "link").symlink_to(tmp_path / "elsewhere")
    (source / "loop").symlink_to(source)
    (source / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(source / "pipe")
    run.log_artifact(source)
    copied = run.directory / "artifacts" / "ckpt"
    assert sorted(p.relative_to(copied).as_posix() for p in copied.rglob("*")) == ["deep", "deep/a.bin", "link"]
    assert (copied / "link").read_text() == "linked"
    assert not (copied / "link").is_symlink()
    (entry,) = _listed(run)
    assert (entry["size"], entry["files"]) == (11, 2)
    assert sum(run.report().dropped.values()) == 3


def test_folder_around_the_run_does_not_swallow_itself(run, tmp_path):
    """Logging a folder that holds the run directory leaves the run out."""
    (tmp_path / "notes.txt").write_text("x")
    run.log_artifact(tmp_path, name="all")
    copied = run.directory / "artifacts" / "all"
    assert [p.name for p in copied.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("opened_through_link", [False, True])
def test_folder_around_the_run_is_copied_without_it_by_any_path(tmp_path, through_link, opened_through_link):
    """A folder that holds the run, reached through a link or not, does not copy the run's copies again."""
    project = tmp_path / "real" / "project"
    project.mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (project / "model.bin").write_bytes(b"x" * 1000)
    (project / "again").symlink_to(tmp_path / "link" / "project" / "runs")
    places = {False: tmp_path / "real" / "project", True: tmp_path / "link" / "project"}
    with LocalTracker(places[opened_through_link] / "runs" / "r1") as run:
        for _ in range(2):
            run.log_artifact(places[through_link], name="code")
    copies = sorted(path.relative_to(project).as_posix() for path in project.rglob("model.bin"))
    kept = "runs/r1/artifacts/code"
    assert copies == ["model.bin", f"{kept}.v2/model.bin", f"{kept}/model.bin"]
    assert not list(project.rglob("code/runs/r1"))


@pytest.mark.parametrize("path", [".", "artifacts", "linked-artifacts"])
def test_run_directory_is_not_copied_into_itself(run, path, caplog):
    """Logging the run, or its artifacts, as an artifact of itself is refused, counted and said."""
    run.log_artifact(__file__, name="first")
    (run.directory / "linked-artifacts").symlink_to("artifacts")
    run.log_artifact(run.directory / path, name="self")
    assert [copy.name for copy in (run.directory / "artifacts").iterdir()] == ["first"]
    assert run.report().failed == {"log_artifact": 1}
    assert "is where the run is kept" in caplog.text


def test_folders_of_the_run_and_copies_can_be_logged(run):
    """A folder beside or below the artifacts is a folder like others."""
    (run.directory / "logs").mkdir()
    (run.directory / "logs" / "a.txt").write_text("x")
    run.log_artifact(run.directory / "logs")
    run.log_artifact(run.directory / "artifacts" / "logs")
    assert (run.directory / "artifacts" / "logs.v2" / "a.txt").read_text() == "x"


def test_traps_in_a_folder_end_and_are_counted(run, tmp_path):
    """A pipe, a dangling link, links in a ring, a copy under way and endless depth cost only themselves."""
    source = tmp_path / "traps"
    source.mkdir()
    os.mkfifo(source / "pipe")
    (source / "dangling").symlink_to("nowhere")
    (source / "ring-a").symlink_to("ring-b")
    (source / "ring-b").symlink_to("ring-a")
    (source / ".partial-1-0").mkdir()
    (source / ".partial-1-1").write_text("x")
    (source / ".partial-mine").write_text("x")
    deep = source
    for _ in range(400):
        deep /= "d"
        deep.mkdir()
    run.log_artifact(source)
    copied = run.directory / "artifacts" / "traps"
    assert sorted(path.name for path in copied.iterdir()) == [".partial-mine", "d"]
    assert sum(run.report().dropped.values()) == 7
    assert not run.report().failed


@pytest.mark.parametrize("kind", ["pipe", "dangling", "ring"])
def test_source_that_is_no_file_is_counted(run, tmp_path, kind):
    """A pipe or a link to nothing as the artifact itself neither waits nor raises."""
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "ring" else "nowhere")
    run.log_artifact(path)
    report = run.report()
    assert sum(report.dropped.values()) + sum(report.failed.values()) == 1


def test_many_artifacts_do_not_rewrite_the_list_each_time(run, tmp_path, monkeypatch):
    """The list goes to disk on the timer, at flush and at finish; a name used often is not searched from its start."""
    (tmp_path / "x").write_text("x")
    saved, looked = [], []
    save = run._records._manifest_file.save
    monkeypatch.setattr(run._records._manifest_file, "save", lambda: saved.append(1) or save())
    exists = os.path.lexists
    monkeypatch.setattr("trackway.store._artifacts.os.path.lexists", lambda path: looked.append(1) or exists(path))
    for number in range(100):
        (tmp_path / "x").write_text(str(number))
        run.log_artifact(tmp_path / "x", name="same")
    assert len(looked) == 100
    assert len(saved) < 10
    assert [entry["version"] for entry in _listed(run)] == list(range(1, 101))


@pytest.mark.parametrize("path", ["missing.txt", "s3://bucket/key", "a\0b", "", "/dev/null"])
def test_missing_path_is_counted(run, tmp_path, monkeypatch, path, caplog):
    """A path that holds nothing to copy does not end the training: it is counted, said, and leaves nothing behind."""
    monkeypatch.chdir(tmp_path / "run")
    run.log_artifact(path)
    report = run.report()
    assert sum(report.dropped.values()) + sum(report.failed.values()) == 1
    assert "artifact" in caplog.text
    assert not (run.directory / "artifacts").exists() or not list((run.directory / "artifacts").iterdir())


def test_current_folder_has_its_own_name(run, tmp_path, monkeypatch):
    """`.` as a path is stored under the folder's name."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    run.log_artifact(".")
    assert (run.directory / "artifacts" / "work").is_dir()


def test_media_become_files_and_references(run):
    """Each kind of media is a file of its format below the metric's name, and the row refers to it."""
    pixels = np.zeros((4, 6), dtype=np.uint8)
    media = {
        "image": Image(pixels, caption="digit"),
        "sound": Audio(np.zeros(800), 8000),
        "table": Table(["a", "b"], [[1, "x"]]),
        "text": Text("héllo"),
        "page": Html("<b>x</b>"),
    }
    run.log(media, step=7)
    (row,) = read_rows(run.directory)
    suffixes = {"image": "png", "sound": "wav", "table": "json", "text": "txt", "page": "html"}
    for key, suffix in suffixes.items():
        assert row[key]["path"] == f"media/{key}/7-0.{suffix}"
        data = (run.directory / row[key]["path"]).read_bytes()
        assert row[key]["sha256"] == hashlib.sha256(data).hexdigest()
    assert row["image"] | {"path": 0, "sha256": 0} == {
        "_type": "image", "path": 0, "sha256": 0,
        "width": 6, "height": 4, "channels": 1, "caption": "digit",
    }  # fmt: skip
    with wave.open(str(run.directory / row["sound"]["path"])) as sound:
        assert (sound.getframerate(), sound.getnframes()) == (8000, 800)
    assert (run.directory / row["text"]["path"]).read_text(encoding="utf-8") == "héllo"


def test_nested_and_repeated_media_never_overwrite(run):
    """Images in lists and groups, and of one step logged twice, are files of their own."""
    image = Image(np.zeros((2, 2), dtype=np.uint8))
    for _ in range(2):
        run.log({"eval": {"samples": [image, image]}, "loss": 0.5}, step=3)
    rows = read_rows(run.directory)
    paths = [reference["path"] for row in rows for reference in row["eval"]["samples"]]
    assert len(set(paths)) == 4
    assert all((run.directory / path).is_file() for path in paths)
    assert [row["loss"] for row in rows] == [0.5, 0.5]


def test_media_without_a_step_use_the_counter(run):
    """An image logged without a step takes the counter's, once."""
    run.log({"x": Image(np.zeros((2, 2), dtype=np.uint8))})
    run.log({"x": 1})
    assert [row["_step"] for row in read_rows(run.directory)] == [0, 1]
    assert (run.directory / "media" / "x" / "0-0.png").exists()


def test_media_that_cannot_be_written_cost_no_neighbour(run):
    """Where a media file cannot be made the row is kept with what is known of it, and the loss is counted."""
    (run.directory / "media").write_text("in the way")
    run.log({"x": Image(np.zeros((2, 2), dtype=np.uint8)), "loss": 0.5}, step=0)
    (row,) = read_rows(run.directory)
    assert (row["loss"], row["x"]["path"], row["x"]["width"]) == (0.5, None, 2)
    assert sum(run.report().dropped.values()) == 1


def test_media_in_the_summary(run):
    """A summary may hold an image."""
    run.log_summary({"best": Image(np.zeros((2, 2), dtype=np.uint8))})
    summary = json.loads((run.directory / "summary.json").read_bytes())
    path = summary["best"]["path"]
    assert path == f"media/best/summary-{summary['best']['sha256'][:16]}.png"
    assert (run.directory / path).is_file()


def _image(value):
    """A picture that differs from those of other values."""
    return Image(np.full((2, 2), value, dtype=np.uint8))


def test_media_of_the_summary_do_not_pile_up(tmp_path):
    """A picture that replaces another in the summary replaces its file too, over all attempts."""
    for attempt in range(2):
        with LocalTracker(tmp_path, sync_interval=60) as run:
            run.log({"best": _image(0)}, step=attempt)
            for n in range(5):
                run.log_summary({"best": _image(n), "a": {"list": [_image(n), _image(n), _image(9)]}, "x": n})
        summary = json.loads((tmp_path / "summary.json").read_bytes())
        references = [summary["best"], *summary["a"]["list"]]
        assert all((tmp_path / reference["path"]).is_file() for reference in references)
        assert len(list((tmp_path / "media" / "best").glob("summary-*"))) == 1
        assert len(list(tmp_path.glob("media/a_list*/summary-*"))) == 2
    assert len(list((tmp_path / "media" / "best").glob("[01]-*"))) == 2


@pytest.mark.parametrize("path", ["../../mine", "media/../summary-mine", "/etc/summary-x", "media/x/y/summary-0", 5])
def test_reference_that_someone_else_wrote_removes_nothing(tmp_path, path):
    """A summary from elsewhere cannot make the tracker delete files outside of what it made."""
    run = tmp_path / "a" / "run"
    for mine in (tmp_path / "mine", run / "summary-mine"):
        mine.parent.mkdir(parents=True, exist_ok=True)
        mine.write_text("x")
    (run / "summary.json").write_text(json.dumps({"x": {"_type": "image", "path": path}}))
    (run / "run.json").write_text('{"format": 1, "id": "x", "summary_keys": [["x"]]}')
    with LocalTracker(run) as tracker:
        tracker.log_summary({"x": _image(1)})
    assert (tmp_path / "mine").exists()
    assert (run / "summary-mine").exists()


def test_many_media_of_one_step_take_even_time(run):
    """The search for a free name does not start anew with every picture."""
    tried = []
    number = run._media._number
    run._media._number = lambda *place: tried.append(1) or number(*place)
    run.log({"x": [_image(0)] * 300}, step=0)
    run.log({"x": [_image(0)] * 300}, step=0)
    run.log({"x": _image(0)}, step=1)
    assert len(tried) == 601
    assert len({path.name for path in (run.directory / "media" / "x").iterdir()}) == 601


def test_media_value_that_fails_costs_only_itself(run):
    """A picture whose file cannot be made for whatever reason leaves its row and the training alone, and is counted."""
    bad = _image(0)
    bad.pixels = "no pixels"
    run.log({"bad": bad, "good": _image(1), "loss": 0.5}, step=0)
    run.log_summary({"bad": bad, "best": 1})
    (row,) = read_rows(run.directory)
    assert (row["bad"], row["loss"]) == ({"_type": "image", "path": None}, 0.5)
    assert (run.directory / row["good"]["path"]).is_file()
    assert sum(run.report().dropped.values()) == 2
    assert json.loads((run.directory / "summary.json").read_bytes())["best"] == 1


def test_read_rows_skips_damage(tmp_path, caplog):
    """A damaged line is left out and counted aloud, a torn last one silently, and the rest is read."""
    (tmp_path / "metrics.jsonl").write_bytes(b'{"_step":0}\ndamage\n{"_step":1}\n{"_st')
    assert read_rows(tmp_path) == [{"_step": 0}, {"_step": 1}]
    assert "1 damaged lines" in caplog.text


def test_an_equal_file_makes_no_new_version(run, tmp_path):
    """A file that equals the last one of its name is not kept again; one that differs is."""
    path = tmp_path / "config.yaml"
    for content in ("a: 1", "a: 1", "a: 2", "a: 1"):
        path.write_text(content)
        run.log_artifact(path)
    assert [entry["version"] for entry in _listed(run)] == [1, 2, 3]
    assert sorted(p.name for p in (run.directory / "artifacts").iterdir()) == [
        "config.yaml",
        "config.yaml.v2",
        "config.yaml.v3",
    ]
