"""What a background tracker keeps, and for how long."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from trackway.errors import FatalTrackerError
from trackway.testing import FailingTracker, RecordingTracker, SlowTracker
from trackway.tracker import BackgroundPolicy, BackgroundTracker, CompositeTracker, RequiredTracker, Tracker


def test_artifacts_may_be_deleted_after_the_call(tmp_path):
    """An artifact is copied before the call returns: files, folders, and twice under one name."""
    inner = RecordingTracker()
    slow = SlowTracker(inner, seconds=0.05)
    tracker = BackgroundTracker(slow)
    for content in (b"one", b"two"):
        path = tmp_path / "weights.bin"
        path.write_bytes(content)
        tracker.log_artifact(path, type="model")
        path.unlink()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_bytes(b"a")
    tracker.log_artifact(artifact_path=str(folder), name="renamed")
    (folder / "a").write_bytes(b"changed")
    tracker.finish()
    expected = [("weights.bin", "model", b"one"), ("weights.bin", "model", b"two"), ("renamed", None, {"a": b"a"})]
    assert inner.artifacts == expected


def test_copies_of_artifacts_are_deleted_when_dealt_with(tmp_path):
    """The copy of an artifact is gone once the tracker has had it, long before finish."""
    tracker = BackgroundTracker(RecordingTracker())
    path = tmp_path / "weights.bin"
    path.write_bytes(b"x")
    for _ in range(3):
        tracker.log_artifact(path)
    tracker.flush()
    assert list(Path(tracker._staging._root).iterdir()) == []
    tracker.finish()


def test_a_tracker_that_was_given_up_keeps_no_copies_of_artifacts(tmp_path):
    """Once a tracker is called no more, copies meant for it do not fill the disk."""
    tracker = BackgroundTracker(FailingTracker(methods=("log_artifact",)), BackgroundPolicy(disable_after=1))
    path = tmp_path / "weights.bin"
    path.write_bytes(b"x")
    for _ in range(3):
        tracker.log_artifact(path)
    tracker.flush()
    assert list(Path(tracker._staging._root).iterdir()) == []
    tracker.finish()


def test_a_link_keeps_its_name(tmp_path):
    """An artifact given by a link bears the link's name, as without a background."""
    (tmp_path / "step-100.bin").write_bytes(b"x")
    (tmp_path / "latest").symlink_to(tmp_path / "step-100.bin")
    inner = RecordingTracker()
    tracker = BackgroundTracker(inner)
    tracker.log_artifact(tmp_path / "latest")
    tracker.finish()
    assert inner.artifacts == [("latest", None, b"x")]


def test_values_on_a_device_are_few_in_the_queue():
    """Behind a hanging tracker the queue holds host values, save for the last rows."""
    jax = pytest.importorskip("jax")
    hanging = SlowTracker(seconds=None)
    tracker = BackgroundTracker(hanging, BackgroundPolicy(finish_timeout=0.1))
    double = jax.jit(lambda x: x @ x * 1e-3)
    x = jax.numpy.ones((300, 300))
    before = len(jax.live_arrays())
    for step in range(100):
        x = double(x)
        tracker.log({"x": x[:2, :2]}, step=step)
    assert len(jax.live_arrays()) - before < 40
    hanging.release()
    tracker.finish()


def test_other_calls_are_bounded_and_do_not_push_rows_out():
    """Summaries without end fill neither the memory nor the room for rows."""
    inner = RecordingTracker()
    slow = SlowTracker(inner, seconds=None)
    tracker = BackgroundTracker(slow, BackgroundPolicy(queue_size=10))
    for i in range(1000):
        tracker.log_summary({"i": i})
    tracker.log({"a": 1}, step=0)
    slow.release()
    tracker.finish()
    assert inner.rows == [(0, {"a": 1})]
    assert tracker.report().dropped["queue of 10 rows full"] in {989, 990}  # the thread may have taken one by then


def test_flush_from_the_tracker_itself_does_not_wait_for_itself():
    """A tracker that flushes its own wrapper goes on at once."""

    class Flushing(RecordingTracker.__mro__[1]):
        name = "flushing"
        rows = 0
        outer = None

        def log(self, metrics, *, step, commit=None):
            self.rows += 1
            self.outer.flush()

        def log_hyperparameters(self, hparams): ...
        def log_summary(self, metrics): ...
        def log_artifact(self, artifact_path, *, name=None, type=None): ...
        def finish(self): ...

    inner = Flushing()
    inner.outer = BackgroundTracker(inner)
    start = time.monotonic()
    inner.outer.log({"a": 1})
    inner.outer.finish()
    assert inner.rows == 1
    assert time.monotonic() - start < 15


def test_bounds_of_several_hanging_trackers_do_not_add_up():
    """A composite of three hanging members finishes within the bound of one."""
    hanging = [SlowTracker(seconds=None) for _ in range(3)]
    composite = CompositeTracker(BackgroundTracker(h, BackgroundPolicy(finish_timeout=3)) for h in hanging)
    composite.log({"a": 1}, step=0)
    start = time.monotonic()
    composite.finish()
    assert time.monotonic() - start < 6
    for tracker in hanging:
        tracker.release()


def test_a_required_member_of_a_background_composite_is_heard():
    """A failure of a required tracker behind another wrapper surfaces all the same."""
    tracker = BackgroundTracker(CompositeTracker([RequiredTracker(FailingTracker(error=OSError("quota")))]))
    tracker.log({"a": 1}, step=0)
    tracker.flush()
    with pytest.raises(FatalTrackerError, match="quota"):
        tracker.log({"a": 2}, step=1)
    with pytest.raises(FatalTrackerError):
        tracker.finish()


def test_a_tracker_without_a_name_is_called_by_its_class():
    """Wrappers stand in front of trackers whose author forgot the name."""

    class Nameless(Tracker):
        def log(self, metrics, *, step, commit=None): ...
        def log_hyperparameters(self, hparams): ...
        def log_summary(self, metrics): ...
        def log_artifact(self, artifact_path, *, name=None, type=None): ...
        def finish(self): ...

    assert BackgroundTracker(Nameless()).name == RequiredTracker(Nameless()).name == "Nameless"


def test_one_worker_serves_all_threads():
    """Several threads that log first start one worker between them."""
    tracker = BackgroundTracker(RecordingTracker("all-threads"))
    go = threading.Event()
    threads = [threading.Thread(target=lambda: (go.wait(20), tracker.log({"a": 1}))) for _ in range(8)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(20)
    tracker.flush()
    assert [thread.name for thread in threading.enumerate()].count("trackway-all-threads") == 1
    tracker.finish()
    assert len(tracker.tracker.rows) == 8
