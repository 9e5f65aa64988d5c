"""Trackers that are dropped, share a directory, follow a killed process, or are interrupted."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from trackway.store import LocalTracker, Summary, _reopen, read_rows

DESCRIPTORS = Path("/proc/self/fd")


def _json(path):
    """The content of a JSON file."""
    return json.loads(path.read_bytes())


def _open_files(folder):
    """How many descriptors of this process lead below *folder*."""
    links = []
    for path in DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):
            links.append(path.readlink())
    return sum(link.is_relative_to(folder) for link in links)


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="counts descriptors the way Linux shows them")
def test_dropped_trackers_leave_no_thread_and_no_open_file(tmp_path):
    """Trackers that nobody holds and nobody finished are closed, with rows and summary on disk and state running."""
    before = set(threading.enumerate())
    for n in range(20):
        tracker = LocalTracker(tmp_path / f"r{n}", sync_interval=60)
        tracker.log({"n": n})
        tracker.log_artifact(__file__)
        del tracker
    gc.collect()
    deadline = time.monotonic() + 20
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= before
    assert _open_files(tmp_path) == 0
    for n in range(20):
        assert _json(tmp_path / f"r{n}" / "summary.json") == {"n": n}
        assert _json(tmp_path / f"r{n}" / "run.json")["state"] == "running"
        assert len(_json(tmp_path / f"r{n}" / "run.json")["artifacts"]) == 1
    LocalTracker(tmp_path / "r0").finish()


def test_dropped_tracker_in_a_forked_child_leaves_the_parents_files_alone(tmp_path):
    """A child that forgets the parent's tracker writes nothing and the parent goes on."""
    program = """
        import gc, os, sys
        from trackway.store import LocalTracker
        tracker = LocalTracker(sys.argv[1], sync_interval=60)
        tracker.log({"n": 0}, step=0)
        pid = os.fork()
        if pid == 0:
            del tracker
            gc.collect()
            assert not os.path.exists(sys.argv[1] + "/summary.json")
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0
        tracker.log({"n": 1}, step=1)
        tracker.finish()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), tmp_path], timeout=20, check=False)
    assert done.returncode == 0
    assert [row["n"] for row in read_rows(tmp_path)] == [0, 1]


def test_second_tracker_on_a_directory_only_adds_its_rows(tmp_path, caplog):
    """While one tracker is open a second one keeps its steps apart and overwrites nothing; it says and counts it."""
    first = LocalTracker(tmp_path)
    first.log_summary({"best": 1.0})
    first.log_hyperparameters({"lr": 0.1})
    first.log({"x": 1}, step=4)
    second = LocalTracker(tmp_path)
    second.log({"y": 1})
    second.log_summary({"other": 2.0})
    second.log_hyperparameters({"lr": 9.0})
    second.log_artifact(__file__)
    first.log_summary({"best2": 1.5})
    for tracker in (first, second):
        tracker.finish()
    assert _json(tmp_path / "summary.json") == {"x": 1, "best": 1.0, "best2": 1.5}
    assert (tmp_path / "config.yaml").read_text() == "lr: 0.1\n"
    run = _json(tmp_path / "run.json")
    assert (run["state"], len(run["attempts"]), run["artifacts"]) == ("finished", 1, [])
    assert sorted(run["summary_keys"]) == [["best"], ["best2"]]
    assert [(row["_step"], "_attempt" in row) for row in read_rows(tmp_path)] == [(4, False), (5, False)]
    assert sum(second.report().dropped.values()) == 3
    assert caplog.text.count("written by someone else too") == 1


KILLED = """
    import os, sys
    from trackway.store import LocalTracker
    tracker = LocalTracker(sys.argv[1])
    tracker.log_summary({"s": 1})
    tracker.log({"val/acc": 0.9, "s": 5}, step=0)
    for i in range(3000):
        tracker.log({"loss": 1.0 * i}, step=i)
    os.kill(os.getpid(), 9)
"""


def test_summary_after_a_kill_misses_no_row(tmp_path):
    """Whatever was logged after the summary was last written is taken from the rows, however far back it lies."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), tmp_path], timeout=20, check=False)
    assert (tmp_path / "metrics.jsonl").stat().st_size > 2 * _reopen._BLOCK
    LocalTracker(tmp_path).finish()
    assert _json(tmp_path / "summary.json") == {"val/acc": 0.9, "loss": 2999.0, "s": 1}


def test_rows_that_the_summary_covers_are_not_read_again(tmp_path, monkeypatch):
    """Reopening reads only what was written since the summary was; run.json says up to where it reaches."""
    tracker = LocalTracker(tmp_path, sync_interval=60)
    for n in range(1000):
        tracker.log({"n": n, "early": 1})
    tracker.flush()
    assert _json(tmp_path / "run.json")["summary_offset"] == (tmp_path / "metrics.jsonl").stat().st_size
    tracker.log({"n": -1})
    read = []
    rows_from = _reopen._rows_from
    monkeypatch.setattr(_reopen, "_rows_from", lambda *a: (read.append(row) or row for row in rows_from(*a)))
    tracker._output.records = tracker._records = None  # what is left is what a killed process leaves
    tracker.finish()
    with LocalTracker(tmp_path):
        assert [row["n"] for row in read] == [-1]
    assert _json(tmp_path / "summary.json") == {"n": -1, "early": 1}


@pytest.mark.parametrize("offset", [0, 7, 10**9])
def test_offset_in_the_midst_of_a_line_reads_that_line(tmp_path, offset):
    """Wherever the noted offset lies, also behind a file that was cut since, no whole row after it is missed."""
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"a": 1})
    run = _json(tmp_path / "run.json")
    (tmp_path / "run.json").write_text(json.dumps(run | {"summary_offset": offset}))
    (tmp_path / "summary.json").write_text("{}")
    LocalTracker(tmp_path).finish()
    assert _json(tmp_path / "summary.json") == ({"a": 1} if offset < 100 else {})


def test_replay_is_bounded(tmp_path, monkeypatch, caplog):
    """Of a long file without a noted summary the last part is read, and it is said."""
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"early": 1})
        for n in range(100):
            tracker.log({"n": n})
    (tmp_path / "run.json").unlink()
    (tmp_path / "summary.json").unlink()
    monkeypatch.setattr(_reopen, "_MAX_REPLAY", 1000)
    LocalTracker(tmp_path).finish()
    assert _json(tmp_path / "summary.json") == {"n": 99}
    assert "the last ones are taken from it" in caplog.text


def test_what_a_killed_process_left_half_made_is_removed(tmp_path):
    """Temporary files and half-made copies go when the run is opened again; what else has such a name stays."""
    (tmp_path / "artifacts" / ".partial-1-0" / "deep").mkdir(parents=True)
    (tmp_path / "artifacts" / ".partial-99-7").write_text("x")
    (tmp_path / "artifacts" / ".partial-mine").write_text("x")
    for name in (".run.json.123-4.tmp", ".summary.json.1-0.tmp", ".mine.tmp"):
        (tmp_path / name).write_text("x")
    tracker = LocalTracker(tmp_path)
    (tmp_path / ".run.json.5-5.tmp").write_text("x")
    LocalTracker(tmp_path).finish()  # not the one that keeps the run: it touches nothing
    assert (tmp_path / ".run.json.5-5.tmp").exists()
    tracker.finish()
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".mine.tmp", ".run.json.5-5.tmp"]
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == [".partial-mine"]


def test_every_small_file_is_on_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    """A power cut after the timer's write leaves the old file or the new one, never an empty one."""
    order = []
    sync, replace = os.fsync, os.replace
    tracker = LocalTracker(tmp_path, sync_interval=60)
    tracker.log({"x": 1})
    monkeypatch.setattr("trackway.store._atomic.os.fsync", lambda fd: order.append("sync") or sync(fd))
    monkeypatch.setattr("pathlib.Path.replace", lambda path, target: order.append("replace") or replace(path, target))
    for file in tracker._records._files():
        file._not_before = 0.0
    tracker._records.save_due()
    assert order == ["sync", "replace"] * 2  # summary.json and run.json
    tracker.finish()


def test_rows_of_a_signal_handler_come_in_the_order_of_their_steps(tmp_path):
    """A handler that interrupts `log` anywhere leaves steps that rise, and both sequences whole."""
    tracker = LocalTracker(tmp_path)
    handled = []

    def handler(*_):
        handled.append(1)
        tracker.log({"h": len(handled)})
        signal.setitimer(signal.ITIMER_REAL, 0.0005)  # not periodic: a slow machine would interrupt the handler itself

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        for n in range(8000):
            tracker.log({"m": n})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    tracker.finish()
    rows = read_rows(tmp_path)
    assert [row["_step"] for row in rows] == list(range(8000 + len(handled)))
    assert [row["m"] for row in rows if "m" in row] == list(range(8000))
    assert [row["h"] for row in rows if "h" in row] == list(range(1, len(handled) + 1))
    assert not any("_patch" in row for row in rows)
    assert tracker.report().accepted == tracker.report().delivered == len(rows)


def test_row_logged_between_step_and_write_follows(tmp_path, monkeypatch):
    """At the very worst moment, after the outer row has its step, the inner one still comes after it."""
    tracker = LocalTracker(tmp_path, sync_interval=60)
    append = tracker._rows.append
    monkeypatch.setattr(
        tracker._rows, "append", lambda line: (b"outer" in line and tracker.log({"inner": 1})) or append(line)
    )
    tracker.log({"outer": 1})
    tracker.log({"outer": 2}, step=9)
    tracker.finish()
    assert [(row["_step"], "inner" in row) for row in read_rows(tmp_path)] == [
        (0, False), (1, True), (9, False), (10, True),
    ]  # fmt: skip


def test_log_does_not_wait_for_the_summary_of_many_names(tmp_path):
    """With 100,000 names in a group, and many beside it, freezing the summary takes no time that grows with them."""
    summary = Summary()
    summary.update({f"m{n}": float(n) for n in range(9_000)})
    summary.update({"layer": {f"m{n}": {"x": float(n)} for n in range(100_000)}})
    started = time.thread_time()
    for _ in range(1000):
        summary.freeze()
    assert time.thread_time() - started < 0.1
    last, _ = summary.freeze()
    before = json.dumps(last)
    durations = []
    for n in range(3):
        started = time.thread_time()
        summary.update({"m1": -1.0, "layer": {"m1": {"x": -1.0}, "new": n}})
        durations.append(time.thread_time() - started)
    assert min(durations[1:]) < 0.002  # the first one pays for the copy
    assert json.dumps(last) == before
    assert summary.snapshot()["layer"]["m1"] == {"x": -1.0}
