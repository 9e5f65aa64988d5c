"""One writer per run directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from pathlib import Path

import pytest
from programs import content, run_program, started

from trackway.errors import RunBusyError, TrackwayError
from trackway.run import Run
from trackway.store import LocalTracker, _lease, read_rows

HOLD = "run = begin()\nrun.log({'a': 1})\nprint(os.getpid(), flush=True)\ntime.sleep(20)"
HERE = os.uname().nodename


def _written_by(folder, *, age=0.0, state="running", **writer):
    """A run directory as another process left it, or still writes it; its heartbeat is *age* seconds old."""
    with LocalTracker(folder) as tracker:
        tracker.log({"a": 1})
    run = content(folder)
    run.update(state=state, heartbeat=time.time() - age)
    run["attempts"][-1].update({"host": HERE, "pid": os.getpid(), "state": state, "end": None} | writer)
    (folder / "run.json").write_text(json.dumps(run))
    return folder


@pytest.fixture
def no_locks(monkeypatch):
    """A file system without locks."""

    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.fixture
def fast(monkeypatch):
    """Heartbeats of 0.1 s."""
    monkeypatch.setattr(_lease, "HEARTBEAT", 0.1)
    monkeypatch.setattr(_lease, "_POLL", 0.01)


def _beating(folder, stop):
    """Renew the heartbeat of *folder* until *stop* is set."""
    while not stop.wait(0.02):
        run = content(folder) | {"heartbeat": time.time()}
        (folder / "new").write_text(json.dumps(run))
        (folder / "new").replace(folder / "run.json")


def test_second_process_is_refused(tmp_path):
    """It is told which process of which host writes, how long ago that gave a sign of life, and what to do."""
    with started(HOLD, tmp_path) as process:
        with pytest.raises(RunBusyError) as raised:
            LocalTracker(tmp_path, exclusive=True)
        rows = (tmp_path / "metrics.jsonl").read_bytes()
        assert len(content(tmp_path)["attempts"]) == 1
    message = str(raised.value)
    assert f"process {process.first_line.strip()} on {HERE} (heartbeat " in message
    assert str(tmp_path) in message
    assert "wait until it ends, or end it, or give another run id" in message
    assert rows == (tmp_path / "metrics.jsonl").read_bytes()
    assert isinstance(raised.value, TrackwayError)


def test_second_run_of_a_process_is_refused(tmp_path):
    """It is told that it is this very process, whose first run goes on; once that is finished there is room."""
    with Run([], LocalTracker(tmp_path, exclusive=True)) as run:
        with pytest.raises(RunBusyError, match=r"by this process.*finish that run first"):
            LocalTracker(tmp_path, exclusive=True)
        run.log({"a": 1})
    LocalTracker(tmp_path, exclusive=True).finish()
    assert [row["a"] for row in read_rows(tmp_path)] == [1]


def test_bare_tracker_still_shares(tmp_path, caplog):
    """A tracker that does not ask for the directory alone adds its rows, and says so."""
    with LocalTracker(tmp_path, exclusive=True) as first, LocalTracker(tmp_path) as second:
        first.log({"a": 1})
        second.log({"b": 1})
    assert len(read_rows(tmp_path)) == 2
    assert "is being written by someone else too" in caplog.text


def test_other_ranks_have_a_file_of_their_own(tmp_path):
    """Processes of one job write side by side; a second one of a rank is refused."""
    trackers = [LocalTracker(tmp_path, rank=rank, exclusive=True) for rank in range(3)]
    with pytest.raises(RunBusyError, match="another process"):
        LocalTracker(tmp_path, rank=1, exclusive=True)
    for tracker in trackers:
        tracker.finish()


def test_killed_process_is_succeeded_at_once(tmp_path):
    """A lock that is free on this host is taken over, however young the heartbeat."""
    with started(HOLD, tmp_path) as process:
        process.kill()
        process.wait(20)
    assert content(tmp_path)["state"] == "running"
    with LocalTracker(tmp_path, exclusive=True) as tracker:
        tracker.log({"a": 2})
    assert [attempt["state"] for attempt in content(tmp_path)["attempts"]][1:] == ["finished"]
    assert [row["_attempt"] for row in read_rows(tmp_path) if "_attempt" in row] == [2]


def test_living_process_of_another_host_keeps_the_run(tmp_path, fast, caplog):
    """Its heartbeat moves: the run is refused as soon as that is seen, and nothing is touched."""
    folder = _written_by(tmp_path / "run", host="node-7", pid=4711)
    before, stop = (folder / "metrics.jsonl").read_bytes(), threading.Event()
    beating = threading.Thread(target=_beating, args=(folder, stop))
    beating.start()
    try:
        with caplog.at_level("INFO", "trackway"), pytest.raises(RunBusyError, match="process 4711 on node-7"):
            LocalTracker(folder, exclusive=True)
    finally:
        stop.set()
        beating.join()
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert caplog.text.count("whether it still lives is seen within 0 s") == 1
    assert not any(name.startswith(str(folder)) for name in map(os.path.realpath, _descriptors()))


def _descriptors():
    """Paths under which Linux shows what this process has open."""
    return [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


@pytest.mark.parametrize("age", [0.0, -3600.0, 100.0])
def test_dead_process_of_another_host_is_succeeded(tmp_path, fast, caplog, age):
    """Its heartbeat stands still, whatever the clocks say: the run is taken over, and that is said."""
    folder = _written_by(tmp_path / "run", host="node-7", pid=4711, age=age)
    with LocalTracker(folder, exclusive=True) as tracker:
        tracker.log({"a": 2})
    assert [row["a"] for row in read_rows(folder)] == [1, 2]
    assert "taken over from process 4711 on node-7" in caplog.text


def test_run_that_ends_while_it_is_watched_is_free(tmp_path, fast):
    """A process of another host that finishes meanwhile makes room."""
    folder = _written_by(tmp_path / "run", host="node-7", pid=4711)
    ended = json.dumps(content(folder) | {"state": "finished", "heartbeat": time.time()})
    timer = threading.Timer(0.05, (folder / "run.json").write_text, (ended,))
    timer.start()
    LocalTracker(folder, exclusive=True).finish()
    timer.join()
    assert content(folder)["state"] == "finished"


@pytest.mark.parametrize("state", ["finished", "failed", "interrupted", "preempted"])
def test_run_that_has_ended_is_free(tmp_path, state, monkeypatch):
    """However it ended on whichever host, nobody waits."""
    monkeypatch.setattr(_lease, "_watch", lambda *_: pytest.fail("there is nothing to wait for"))
    folder = _written_by(tmp_path / "run", host="node-7", state=state)
    LocalTracker(folder, exclusive=True).finish()
    assert len(content(folder)["attempts"]) == 2


def test_without_locks_a_process_that_is_gone_is_succeeded_at_once(tmp_path, no_locks, monkeypatch):
    """On a file system without locks the process table of this host tells; also where its number is ours by chance."""
    monkeypatch.setattr(_lease, "_watch", lambda *_: pytest.fail("there is nothing to wait for"))
    gone = run_program("print(os.getpid())", tmp_path / "x").stdout.strip()
    for number, pid in enumerate((int(gone), os.getpid())):
        folder = _written_by(tmp_path / str(number), pid=pid)
        LocalTracker(folder, exclusive=True).finish()
        assert len(content(folder)["attempts"]) == 2


def test_without_locks_a_living_process_is_watched(tmp_path, no_locks, fast):
    """A process of this host that lives keeps the run if the heartbeat moves, and loses it if not."""
    folder = _written_by(tmp_path / "run", pid=os.getppid())
    stop = threading.Event()
    beating = threading.Thread(target=_beating, args=(folder, stop))
    beating.start()
    try:
        with pytest.raises(RunBusyError, match=f"process {os.getppid()} on {HERE}"):
            LocalTracker(folder, exclusive=True)
    finally:
        stop.set()
        beating.join()
    LocalTracker(folder, exclusive=True).finish()


def test_without_locks_a_second_run_of_a_process_is_refused(tmp_path, no_locks):
    """The process itself knows what it has open."""
    with LocalTracker(tmp_path, exclusive=True), pytest.raises(RunBusyError, match="by this process"):
        LocalTracker(tmp_path, exclusive=True)
    LocalTracker(tmp_path, exclusive=True).finish()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"attempts": []}', '{"attempts": [1], "state": "running"}'])
def test_damaged_manifest_names_nobody(tmp_path, text):
    """Where run.json does not say who writes, the lock decides alone."""
    (tmp_path / "run.json").write_text(text)
    _lease.claim(tmp_path, "ours")
    _lease.claim(tmp_path, "unknown")
    with pytest.raises(RunBusyError, match="another process"):
        _lease.claim(tmp_path, "taken")
