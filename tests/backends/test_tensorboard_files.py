"""Event files: where they go, when, and what happens when they cannot be written."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter

from trackway.backends import _tensorboard_files
from trackway.backends.tensorboard import TensorboardConfig, TensorboardTracker
from trackway.config import TrackerConfig
from trackway.config._context import RunContext, entered
from trackway.errors import ConfigError
from trackway.tracker import BackgroundTracker, current_tracker, get_tracker
from trackway.values import Histogram


def points(logdir, tag="x"):
    """Steps and values of a tag in a folder or URL."""
    reader = EventAccumulator(str(logdir), size_guidance={"scalars": 0}).Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def event_files(folder):
    """All event files below a folder."""
    return sorted(folder.rglob("*tfevents*"))


def open_files():
    """Number of this process's descriptors."""
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def test_fields_stand_in_the_order_of_the_reference():
    """The positional order and the defaults are those that users know."""
    config = TensorboardConfig("d", "c", 3, 5, 7, "s", False)
    assert (config.logdir, config.comment, config.purge_step, config.max_queue) == ("d", "c", 3, 5)
    assert (config.flush_secs, config.filename_suffix, config.write_to_disk) == (7, "s", False)
    default = TensorboardConfig()
    assert (default.logdir, default.comment, default.purge_step, default.max_queue) == ("tblogs", "", None, 10)
    assert (default.flush_secs, default.filename_suffix, default.write_to_disk) == (120, "", True)
    assert default.background is True
    assert default.ranks == "primary"
    assert TrackerConfig.get_choice_class("tensorboard") is TensorboardConfig


@pytest.mark.parametrize(
    ("run_id", "comment", "folder"), [("r", "", "r"), ("r", "-lr1", "r-lr1"), (None, "", "."), (None, "c", "c")]
)
def test_folder_of_a_run(tmp_path, run_id, comment, folder):
    """Events go to the run's folder, named by id and comment, and the file's name bears the suffix."""
    tracker = TensorboardConfig(str(tmp_path), comment, filename_suffix=".mine").init(run_id)
    tracker.log({"x": 1.0}, step=0)
    tracker.finish()
    (path,) = event_files(tmp_path)
    assert path.parent == (tmp_path / folder).resolve()
    assert ".mine." in path.name


def test_built_by_name_it_is_found_behind_its_wrappers(tmp_path):
    """`build` puts it in the background, and `get_tracker` finds the backend with its writer."""
    built = TensorboardConfig(str(tmp_path)).build("r")
    assert isinstance(built, BackgroundTracker)
    with current_tracker(built):
        get_tracker("tensorboard").writer.add_scalar("x", 3.0, 1)
    built.finish()
    assert points(tmp_path / "r") == [(1, 3.0)]


def test_writing_nothing(tmp_path):
    """`write_to_disk: false` takes every call and leaves no file."""
    tracker = TensorboardConfig(str(tmp_path), write_to_disk=False).init("r")
    tracker.log_hyperparameters({"a": 1})
    tracker.log({"x": 1.0}, step=0)
    tracker.log_artifact(__file__)
    tracker.flush()
    tracker.finish()
    assert list(tmp_path.rglob("*")) == []


def test_two_writers_in_one_second_keep_both_files(tmp_path):
    """Two runs of one id that start at once do not overwrite each other."""
    trackers = [TensorboardConfig(str(tmp_path)).init("r") for _ in range(2)]
    for step, tracker in enumerate(trackers):
        tracker.log({"x": float(step)}, step=step)
        tracker.finish()
    assert len(event_files(tmp_path)) == 2
    assert sorted(points(tmp_path / "r")) == [(0, 0.0), (1, 1.0)]


@pytest.mark.parametrize("given", [None, 6])
def test_a_resumed_run_hides_what_it_repeats(tmp_path, given):
    """Points from the resumed step on are purged, and steps left out go on from there."""
    first = TensorboardConfig(str(tmp_path)).init("r")
    for step in range(10):
        first.log({"x": 1.0}, step=step)
    first.finish()
    time.sleep(1.1)  # TensorBoard reads files in the order of their names, which begin with the second
    with entered(RunContext("r", str(tmp_path), resumed=True, next_step=6)):
        second = TensorboardConfig(str(tmp_path), purge_step=given).init("r")
    for _ in range(2):
        second.log({"x": 2.0})
    second.finish()
    assert points(tmp_path / "r") == [(step, 1.0) for step in range(6)] + [(6, 2.0), (7, 2.0)]


def test_a_run_that_starts_afresh_hides_nothing(tmp_path):
    """A context that is not of a resumed run purges nothing."""
    with entered(RunContext("r", str(tmp_path), next_step=6)):
        tracker = TensorboardConfig(str(tmp_path)).init("r")
    tracker.log({"x": 1.0})
    tracker.finish()
    assert points(tmp_path / "r") == [(0, 1.0)]


def test_events_are_visible_soon_without_a_flush(tmp_path):
    """The file holds every row after `max_queue` events or about a second, long before `flush_secs`."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    for step in range(12):
        tracker.log({"x": 1.0}, step=step)
    assert len(points(tmp_path / "r")) >= 9
    deadline = time.monotonic() + 20
    while len(points(tmp_path / "r")) < 12 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(points(tmp_path / "r")) == 12
    tracker.finish()


def test_init_finish_init_leaves_no_thread_or_descriptor(tmp_path):
    """After finish the process has as many threads and open files as before, however many metrics were logged."""
    TensorboardConfig(str(tmp_path)).init("warm-up").finish()
    threads, descriptors = threading.active_count(), open_files()
    for run in range(3):
        tracker = TensorboardConfig(str(tmp_path)).init(f"r{run}")
        tracker.log({f"group/{i}": {"a": 1.0, "b": 2.0} for i in range(50)}, step=0)
        assert open_files() == descriptors + 1
        tracker.finish()
        tracker.finish()
        tracker.log({"x": 1.0}, step=1)
        assert tracker.report().dropped == {"called after finish": 1}
    # threads of earlier tests may end meanwhile
    assert threading.active_count() <= threads
    assert open_files() <= descriptors
    assert len(event_files(tmp_path)) == 4


def test_many_threads_lose_nothing(tmp_path):
    """Rows of several threads are all in one readable file."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")

    def work(thread):
        for step in range(100):
            tracker.log({f"t{thread}": float(step), "h": Histogram.from_array(np.arange(9.0))}, step=step)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracker.finish()
    reader = EventAccumulator(str(tmp_path / "r"), size_guidance={"scalars": 0}).Reload()
    for n in range(8):
        assert [(event.step, event.value) for event in reader.Scalars(f"t{n}")] == [(step, step) for step in range(100)]
    assert tracker.report().delivered == 800


def test_a_forked_child_leaves_the_file_alone(tmp_path):
    """A child's calls and its exit change nothing in the parent's file."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    tracker.log({"x": 1.0}, step=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python and JAX, that to fork beside threads is unwise
        child = os.fork()
    if child == 0:
        tracker.log({"x": 9.0}, step=9)
        tracker.writer.add_scalar("x", 9.0, 9)
        tracker.flush()
        tracker.finish()
        os._exit(0 if tracker.report().dropped else 1)
    assert os.waitpid(child, 0)[1] == 0
    tracker.log({"x": 2.0}, step=1)
    tracker.finish()
    assert points(tmp_path / "r") == [(0, 1.0), (1, 2.0)]


def test_a_writer_of_the_users_own(tmp_path):
    """A SummaryWriter made elsewhere is continued in its file, its thread and queue gone."""
    threads = threading.active_count()
    writer = SummaryWriter(str(tmp_path))
    writer.add_scalar("x", 1.0, 0)
    tracker = TensorboardTracker(writer)
    tracker.log({"x": 2.0}, step=1)
    writer.add_scalar("x", 3.0, 2)
    tracker.flush()
    assert points(tmp_path) == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert len(event_files(tmp_path)) == 1
    tracker.finish()
    deadline = time.monotonic() + 20
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= threads


@pytest.mark.parametrize("whose", ["ours", "the user's"])
@pytest.mark.parametrize("acts", ["cl", "cul", "culcul", "cu", "cucucl", "clfcuf", "cf", "cufl"])
def test_a_writer_closed_by_the_user_is_reopened(tmp_path, monkeypatch, whose, acts):
    """Whatever comes after `writer.close()`, rows or calls of the writer's own, nothing is lost within one second."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.5)
    folder = tmp_path / "r"
    tracker = TensorboardConfig(str(tmp_path)).init("r") if whose == "ours" else _around(SummaryWriter(str(folder)))
    for step, act in enumerate("l" + acts):
        if act == "c":
            tracker.writer.close()
        elif act == "f":
            tracker.flush()
        elif act == "l":
            tracker.log({"x": 1.0}, step=step)
        else:
            tracker.writer.add_scalar("x", 2.0, step)
    tracker.finish()
    expected = [(step, 1.0 if act == "l" else 2.0) for step, act in enumerate("l" + acts) if act in "lu"]
    assert points(folder) == expected
    report = tracker.report()
    assert (report.accepted, report.pending) == (report.delivered, 0) == (acts.count("l") + 1, 0)


def test_curves_in_folders_of_their_own_survive_a_close(tmp_path, monkeypatch):
    """What `add_scalars` writes beside the run's file is kept too where the writer is closed within a second."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.5)
    tracker = TensorboardConfig(str(tmp_path), filename_suffix=".mine").init("r")
    for step in range(3):
        tracker.writer.add_scalars("group", {"a": float(step)}, step)
        tracker.writer.close()
    tracker.finish()
    assert points(tmp_path / "r" / "group" / "a", "group") == [(step, step) for step in range(3)]
    assert all(path.name.count(".mine.") == 1 for path in event_files(tmp_path))


def _around(writer):
    """A tracker around a writer that was used before, closed and used again."""
    tracker = TensorboardTracker(writer)
    writer.close()
    return tracker


def test_an_exit_without_finish_loses_nothing(tmp_path):
    """A bare tracker that nobody finishes is written out when the interpreter ends."""
    code = f"""
from trackway.backends.tensorboard import TensorboardConfig
tracker = TensorboardConfig({str(tmp_path)!r}).init("r")
for step in range(5): tracker.log({{"x": 1.0}}, step=step)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    assert len(points(tmp_path / "r")) == 5


@pytest.mark.parametrize("scheme", ["memory://tb-urls", "file://{}", "simplecache::memory://tb-cached"])
def test_any_url_is_a_log_directory(tmp_path, scheme):
    """Events go to whatever file system the URL names, and are there after a flush."""
    url = scheme.format(tmp_path)
    tracker = TensorboardConfig(url).init("r")
    for step in range(30):
        tracker.log({"x": float(step)}, step=step)
    tracker.flush()
    place = f"{url.removeprefix('simplecache::')}/r"
    assert len(points(place)) == 30
    tracker.log({"x": 99.0}, step=99)
    tracker.writer.add_scalars("group", {"a": 1.0}, 0)
    tracker.finish()
    assert points(place)[-1] == (99, 99.0)


def test_objects_stay_small(monkeypatch):
    """An object store gets a next object once one is large; readers early and late see all in order."""
    monkeypatch.setattr(_tensorboard_files, "_SEGMENT", 1000)
    tracker = TensorboardConfig("memory://tb-segments").init("r")
    live = None
    for step in range(120):
        tracker.log({"x": float(step), "text": "x" * 90}, step=step)
        if step % 3 == 2:
            tracker.flush()
            live = live or EventAccumulator("memory://tb-segments/r", size_guidance={"scalars": 0})
            live.Reload()
    tracker.finish()
    live.Reload()
    fs, path = _tensorboard_files.place_of("memory://tb-segments/r")
    assert len(fs.ls(path)) > 12
    assert points("memory://tb-segments/r") == [(step, step) for step in range(120)]
    assert [event.step for event in live.Scalars("x")] == list(range(120))


def test_a_url_without_its_package_names_it():
    """An unknown scheme is an error at the start."""
    with pytest.raises(ConfigError, match="nosuch"):
        TensorboardConfig("nosuch://bucket/x").init("r")


def test_without_tensorboardx_the_error_names_the_extra(monkeypatch):
    """The message is the command that helps."""
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ConfigError, match=r'pip install "trackway\[tensorboard\]"'):
        TensorboardConfig("x").init("r")


def test_a_full_disk_is_survived(tmp_path, monkeypatch):
    """No row raises while there is no room; once there is, all that waited is written in order."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    tracker.log({"x": 0.0}, step=0)
    tracker.flush()
    full, real = [True], os.write

    def write(descriptor, data):
        if not full[0]:
            return real(descriptor, data)
        return real(descriptor, data[:5]) if len(data) % 2 else _no_space()

    monkeypatch.setattr(os, "write", write)
    for step in range(1, 200):
        tracker.log({"x": float(step)}, step=step)
    with pytest.raises(OSError, match="No space"):
        tracker.flush()
    assert tracker.report().failed["write"] >= 1
    full[0] = False
    tracker.log({"x": 200.0}, step=200)
    tracker.finish()
    assert points(tmp_path / "r") == [(step, step) for step in range(201)]


def _no_space():
    """Fail as a full disk does."""
    raise OSError(28, "No space left on device")
