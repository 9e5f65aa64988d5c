"""What happens when event files cannot be written, or are taken away."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import fsspec
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trackway.backends import _tensorboard_events
from trackway.backends.tensorboard import TensorboardConfig
from trackway.tracker import BackgroundPolicy, BackgroundTracker


def points(logdir, tag="x"):
    """Steps and values of a tag in a folder or URL."""
    reader = EventAccumulator(str(logdir), size_guidance={"scalars": 0}).Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def _no_space():
    """Fail as a full disk does."""
    raise OSError(28, "No space left on device")


LIMITED = """
import resource, signal, sys, time
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from trackway.backends.tensorboard import TensorboardConfig
tracker = TensorboardConfig(sys.argv[1]).build("r")
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
for step in range(1000): tracker.log({"x": 1.0}, step=step)
tracker.finish()
print(tracker.report()); print(tracker.tracker.report())
"""


def test_a_file_that_may_not_grow_is_reported(tmp_path):
    """Behind its background thread a full disk costs no exception, and the end says how many events were lost."""
    command = [sys.executable, "-W", "error", "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "not written before the end" in done.stdout
    assert "File too large" in done.stderr
    assert 10 < len(points(tmp_path / "r")) < 100


def test_waiting_events_are_bounded(tmp_path, monkeypatch):
    """What waits for room does not fill the memory; the rest is counted as dropped."""
    monkeypatch.setattr(_tensorboard_events, "_BACKLOG", 10_000)
    monkeypatch.setattr(os, "write", lambda *_: _no_space())
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    for step in range(1000):
        tracker.log({"x": 1.0}, step=step)
    with pytest.raises(OSError, match="No space"):
        tracker.finish()
    report = tracker.report()
    assert (report.accepted, report.delivered, report.pending) == (1000, 0, 0)
    assert sum(report.dropped.values()) == 1001  # the header too
    assert any("64 MiB" in reason for reason in report.dropped)


def test_a_hanging_write_cannot_hold_training_up(tmp_path, monkeypatch):
    """With a disk that never answers, rows go in at once and finish ends within the policy's limit."""
    monkeypatch.setattr(_tensorboard_events, "_CLOSE_WAIT", 0.2)
    built = BackgroundTracker(TensorboardConfig(str(tmp_path)).init("r"), BackgroundPolicy(finish_timeout=1))
    answer = threading.Event()
    monkeypatch.setattr(os, "write", lambda _, data: answer.wait(60) and len(data))
    began = time.monotonic()
    for step in range(100):
        built.log({"x": 1.0}, step=step)
    built.finish()
    assert time.monotonic() - began < 20
    answer.set()
    built.tracker.writer.close()


def test_rows_count_as_delivered_once_the_file_has_them(tmp_path, monkeypatch):
    """Accepted rows are pending until they are written; half of them written counts as half."""
    tracker = TensorboardConfig(str(tmp_path), max_queue=1000).init("r")
    tracker.flush()
    real = os.write
    monkeypatch.setattr(os, "write", lambda *_: _no_space())
    for step in range(20):
        tracker.log({"x": 1.0}, step=step)
    with pytest.raises(OSError, match="No space"):
        tracker.flush()
    assert (tracker.report().accepted, tracker.report().delivered, tracker.report().pending) == (20, 0, 20)
    room = [400]

    def write(descriptor, data):
        taken = data[: room[0]]
        room[0] -= len(taken)
        return real(descriptor, taken) if taken else _no_space()

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space"):
        tracker.finish()
    report = tracker.report()
    assert 0 < report.delivered < 20
    assert report.delivered == len(points(tmp_path / "r"))
    assert report.delivered + report.dropped["not written before the end"] == 20
    assert report.pending == 0


def test_rows_in_an_object_store_are_pending_until_uploaded():
    """What would be lost with the process is not called delivered."""
    tracker = TensorboardConfig("memory://tb-pending").init("r")
    for step in range(30):
        tracker.log({"x": 1.0}, step=step)
    assert (tracker.report().delivered, tracker.report().pending) == (0, 30)
    tracker.finish()
    assert (tracker.report().delivered, tracker.report().pending) == (30, 0)


def test_rows_of_a_writer_that_is_closed_beneath_are_dropped(tmp_path):
    """A row that no file takes is not counted as delivered."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    tracker.log({"x": 1.0}, step=0)
    tracker.writer.file_writer.close()
    tracker.log({"x": 2.0}, step=1)
    tracker.finish()
    assert (tracker.report().accepted, tracker.report().delivered) == (2, 1)
    assert tracker.report().dropped == {"writer closed": 1}


def test_a_file_that_cannot_be_opened_again(tmp_path):
    """Rows after `writer.close()` that find no folder are dropped, not raised; later ones may be kept."""
    tracker = TensorboardConfig(str(tmp_path / "tb")).init("r")
    tracker.writer.close()
    shutil.rmtree(tmp_path / "tb")
    (tmp_path / "tb").write_text("in the way")
    tracker.log({"x": 1.0}, step=0)
    (tmp_path / "tb").unlink()
    tracker.log({"x": 2.0}, step=1)
    tracker.finish()
    assert points(tmp_path / "tb" / "r") == [(1, 2.0)]
    assert tracker.report().dropped == {"the event file cannot be opened again": 1}
    assert (tracker.report().accepted, tracker.report().delivered) == (2, 1)


def _remove_file(folder):
    """Delete the event file alone."""
    for path in folder.rglob("*tfevents*"):
        path.unlink()


@pytest.mark.parametrize("remove", [_remove_file, shutil.rmtree], ids=["file", "folder"])
def test_a_deleted_file_is_followed_by_a_new_one(tmp_path, caplog, remove):
    """It says so, rows after the deletion are in the new file, and the hyper-parameters are there again."""
    tracker = TensorboardConfig(str(tmp_path / "tb")).init("r")
    tracker.log_hyperparameters({"lr": 0.5})
    tracker.log({"x": 0.0}, step=0)
    tracker.flush()
    for start in (1, 21):
        remove(tmp_path / "tb")
        with caplog.at_level(logging.WARNING, "trackway"):
            for step in range(start, start + 20):
                tracker.log({"x": float(step)}, step=step)
            tracker.flush()
        assert points(tmp_path / "tb" / "r") == [(step, step) for step in range(start, start + 20)]
    assert len([record for record in caplog.records if "was deleted" in record.message]) == 2
    reader = EventAccumulator(str(tmp_path / "tb" / "r")).Reload()
    assert "_hparams_/session_start_info" in reader.summary_metadata
    tracker.finish()
    assert tracker.report().delivered == 41


def test_a_file_deleted_with_half_a_record_in_it(tmp_path, monkeypatch):
    """The record of which the deleted file had the beginning is whole in the new one."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    tracker.flush()
    real, room = os.write, [100]

    def write(descriptor, data):
        taken = data[: room[0]]
        room[0] -= len(taken)
        return real(descriptor, taken) if taken else _no_space()

    monkeypatch.setattr(os, "write", write)
    for step in range(5):
        tracker.log({"x": float(step)}, step=step)
    with pytest.raises(OSError, match="No space"):
        tracker.flush()
    assert 0 < tracker.report().delivered < 5
    kept = tracker.report().delivered
    _remove_file(tmp_path)
    monkeypatch.setattr(os, "write", real)
    tracker.finish()
    assert points(tmp_path / "r") == [(step, step) for step in range(kept, 5)]


def test_a_folder_that_cannot_be_made_again_is_tried_again(tmp_path):
    """With the deleted folder's place taken, events wait until it is free."""
    tracker = TensorboardConfig(str(tmp_path / "tb")).init("r")
    tracker.flush()
    shutil.rmtree(tmp_path / "tb")
    (tmp_path / "tb").write_text("in the way")
    tracker.log({"x": 1.0}, step=0)
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        tracker.flush()
    (tmp_path / "tb").unlink()
    tracker.finish()
    assert points(tmp_path / "tb" / "r") == [(0, 1.0)]


def test_a_deleted_object_is_whole_after_the_next_upload():
    """Rows before and after are there, since the object is uploaded anew each time."""
    tracker = TensorboardConfig("memory://tb-deleted").init("r")
    tracker.log({"x": 1.0}, step=0)
    tracker.flush()
    fsspec.filesystem("memory").rm("/tb-deleted/r", recursive=True)
    tracker.log({"x": 2.0}, step=1)
    tracker.finish()
    assert points("memory://tb-deleted/r") == [(0, 1.0), (1, 2.0)]


def test_a_signal_handler_that_logs_and_flushes(tmp_path):
    """A handler that interrupts a row or a write neither waits for it nor tears a record."""
    tracker = TensorboardConfig(str(tmp_path), max_queue=1).init("r")
    count = 0

    def handler(*_):
        nonlocal count
        count += 1
        tracker.log({"h": float(count)}, step=count)
        tracker.flush()
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # not periodic: a slow machine would interrupt the handler itself

    before = signal.signal(signal.SIGALRM, handler)
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        for step in range(3000):
            tracker.log({"x": float(step)}, step=step)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    tracker.finish()
    assert time.monotonic() - began < 30
    assert points(tmp_path / "r") == [(step, step) for step in range(3000)]
    assert count > 10
    assert sorted(value for _, value in points(tmp_path / "r", "h")) == list(range(1, count + 1))
