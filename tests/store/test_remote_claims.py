"""One writer per run on an object store, and what is there after a writer was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from programs import wait_for
from remote_stores import spools  # noqa: F401 - a fixture

import trackway
from trackway.backends.local import LocalConfig
from trackway.errors import ConfigError, RunBusyError, TrackerFinishError
from trackway.store import LocalTracker, StoredRun, _lease, _mirror, _remote_claim, read_rows
from trackway.store._remote import Remote
from trackway.store._remote_claim import Claim

WRITE = """
import sys, time
from trackway.store import LocalTracker, _lease
_lease.HEARTBEAT = 0.2
tracker = LocalTracker(sys.argv[1], upload_interval=float(sys.argv[2]))
for number in range(1_000_000):
    tracker.log({"x": number})
    print(number, time.monotonic(), flush=True)
    time.sleep(0.001)
"""


@pytest.fixture
def fast(monkeypatch):
    """Heartbeats of 0.2 s."""
    monkeypatch.setattr(_lease, "HEARTBEAT", 0.2)
    monkeypatch.setattr(_lease, "_POLL", 0.02)
    monkeypatch.setattr(_mirror, "_POLL", 0.02)


@pytest.fixture
def url(tmp_path):
    """A run on a store that several processes see."""
    return f"file://{tmp_path}/store/a"


def elsewhere(tmp_path, monkeypatch, name):
    """Have no spool of before, as on another machine."""
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


def alien(remote, *, age=0.0, end=None, number=1):
    """Leave the claim of a process of another machine."""
    content = {"token": "t", "host": "elsewhere", "pid": 1, "heartbeat": time.time() - age, "end": end}
    remote.put(f"claims/{number:08d}.json", json.dumps(content).encode())


def killed(url, interval, seconds):
    """Write to *url* in another process, and kill it; return the numbers of its rows and when each was logged."""
    command = [sys.executable, "-c", WRITE, url, str(interval)]
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline().startswith("0 ")
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        ended = time.monotonic()
        whole = process.stdout.read().rpartition("\n")[0]  # the last line may be torn
        told = [line.split() for line in whole.splitlines()]
    return [(int(number), float(when) - ended) for number, when in told]


def test_a_killed_writer_loses_at_most_an_interval(url, tmp_path, monkeypatch, fast):
    """Another machine sees all rows but those of the last interval, and goes on behind them."""
    rows = killed(url, 0.4, 1.5)
    surely = [number for number, when in rows if when < -0.4 - 0.5]  # half a second for a busy machine
    found = [row["x"] for row in read_rows(url)]
    assert len(surely) > 100
    assert found == list(range(len(found)))
    assert found[-1] >= surely[-1]
    assert len(Remote(url).children("metrics")) < 12
    elsewhere(tmp_path, monkeypatch, "other")
    with LocalTracker(url) as tracker:
        assert tracker.attempt == 2
        tracker.log({"x": -1})
    again = read_rows(url)
    assert [row["x"] for row in again] == [*found, -1]
    assert again[-1]["_step"] == again[-2]["_step"] + 1


def test_the_same_machine_brings_what_a_killed_writer_left(url, fast, spools):  # noqa: F811 - a fixture
    """No row is lost, though none was on the store, and nothing is there twice."""
    rows = killed(url, 60, 0.5)
    with LocalTracker(url) as tracker:
        tracker.log({"x": -1})
    found = [row["x"] for row in read_rows(url)]
    assert found[:-1] == list(range(len(found) - 1))
    assert len(found) > rows[-1][0]
    assert found[-1] == -1
    assert list(spools.iterdir()) == []


def test_a_spool_that_the_run_went_on_without_is_set_aside(url, tmp_path, monkeypatch, fast, caplog):
    """What a killed writer left is neither brought, for it is superseded, nor deleted: a warning says where it is."""
    here = tempfile.tempdir
    killed(url, 60, 0.3)
    elsewhere(tmp_path, monkeypatch, "other")
    with LocalTracker(url) as tracker:
        tracker.log({"y": 1})
    monkeypatch.setattr(tempfile, "tempdir", here)
    with LocalTracker(url) as tracker:
        tracker.log({"y": 2})
    assert [row["y"] for row in read_rows(url) if "y" in row] == [1, 2]
    left = list(Path(here).glob("trackway-*/*.left-1"))
    assert len(left) == 1
    assert f"it is kept in {left[0]}" in caplog.text
    assert read_rows(left[0])[0]["x"] == 0


def test_a_live_writer_of_another_machine_is_left_alone(url, tmp_path, fast):
    """Its heartbeat changes while it is watched; nothing was touched."""
    remote = Remote(url)
    alien(remote)
    stop = threading.Event()

    def beat():
        while not stop.wait(0.05):
            alien(remote)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(RunBusyError, match="process 1 on elsewhere") as raised:
            LocalTracker(url)
    finally:
        stop.set()
        thread.join()
    assert url in str(raised.value)
    assert remote.children() == ["claims"]


@pytest.mark.parametrize("left", [{"age": 1000.0}, {"age": 0.0}, {"end": 1.0}])
def test_a_writer_that_is_gone_is_replaced(url, fast, left):
    """An old heartbeat, one that stands still and one that was ended make room."""
    remote = Remote(url)
    alien(remote, number=7, **left)
    with LocalTracker(url) as tracker:
        tracker.log({"x": 1})
    assert remote.children("claims") == ["00000008.json"]
    assert len(read_rows(url)) == 1


def test_who_was_replaced_writes_no_more(url, tmp_path, fast, caplog):
    """A writer that was cut off finds the other's claim, says so once, and keeps its rows in the spool."""
    tracker = LocalTracker(url, upload_interval=0.2)
    tracker.log({"x": 1})
    assert wait_for(lambda: Remote(url).children("metrics"))
    alien(Remote(url), number=2)
    Remote(url).put("metrics/00000002.jsonl", b'{"_step":1,"_time":1.0,"x":9}\n', new=True)
    assert wait_for(lambda: "has taken over" in caplog.text)
    tracker.log({"x": 2})
    with pytest.raises(TrackerFinishError) as raised:
        tracker.finish()
    assert [row["x"] for row in read_rows(url)] == [1, 9]
    assert [row["x"] for row in read_rows(tracker.directory)] == [1, 2]
    assert "process 1 on elsewhere has taken it over" in str(raised.value.exceptions[0])
    assert str(tracker.directory) in str(raised.value.exceptions[0])
    assert caplog.text.count("has taken over") == 1


@pytest.mark.parametrize("attempt", range(3))
def test_of_many_claims_at_once_one_is_granted(url, attempt):
    """Exclusive creation decides, whatever the order."""
    outcome = []
    ready = threading.Barrier(8)

    def claim():
        ready.wait()
        try:
            Claim(Remote(url), 0).acquire()
            outcome.append("granted")
        except RunBusyError:
            outcome.append("refused")

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome) == ["granted"] + ["refused"] * 7


class PlainFileSystem(MemoryFileSystem):
    """A store that cannot create an object exclusively."""

    protocol = "plain"

    def pipe_file(self, path, value):
        """Store an object; there is no other mode."""
        super().pipe_file(path, value)


def test_without_exclusive_creation_the_last_claim_counts(monkeypatch):
    """Both see it when they look again: the one is granted, the other is superseded at its next sign of life."""
    fsspec.register_implementation("plain", PlainFileSystem, clobber=True)
    monkeypatch.setattr(_lease, "HEARTBEAT", 0.0)
    remote = Remote("plain://bucket/a")
    first = Claim(remote, 0)
    first.acquire()
    with pytest.raises(RunBusyError):
        Claim(remote, 0).acquire()
    alien(remote, number=1)
    with pytest.raises(_remote_claim.Superseded, match="process 1 on elsewhere"):
        first.renew()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"token":1,"host":2,"pid":3,"heartbeat":4}', b"\xff"])
def test_a_damaged_claim_holds_nobody_up(url, content):
    """It counts as ended; the next number is taken."""
    Remote(url).put("claims/00000003.json", content)
    with LocalTracker(url):
        assert Remote(url).children("claims") == ["00000004.json"]


def test_a_folder_of_spools_that_others_could_change_is_not_used(url, tmp_path):
    """In a folder for all, someone else may have made it first."""
    (Path(tempfile.tempdir) / f"trackway-{os.getuid()}").chmod(0o777)
    with pytest.raises(Exception, match="open to others"):
        LocalTracker(url)


def test_a_segment_is_never_replaced(url, fast, caplog):
    """Rows of another process under the next number end the writing, even where no claim tells of it."""
    tracker = LocalTracker(url)
    Remote(url).put("metrics/00000001.jsonl", b'{"_step":0,"_time":1.0,"x":9}\n')
    tracker.log({"x": 1})
    with pytest.raises(TrackerFinishError, match="not all of the run was brought"):
        tracker.finish()
    assert [row["x"] for row in read_rows(url)] == [9]
    assert [row["x"] for row in read_rows(tracker.directory)] == [1]


class LossyFileSystem(MemoryFileSystem):
    """A store that takes an object and says that it did not, once for each segment."""

    protocol = "lossy"
    lost: set[str] = set()  # noqa: RUF012 - of all instances

    def pipe_file(self, path, value, mode="overwrite", **more):
        """Store an object, and fail."""
        super().pipe_file(path, value, mode=mode, **more)
        if "/metrics/" in path and path not in self.lost:
            self.lost.add(path)
            raise ConnectionResetError("the answer was lost")


def test_an_answer_that_was_lost_costs_and_doubles_nothing(fast, monkeypatch):
    """The same rows are sent again under the same number, also if more came meanwhile, and found to be there."""
    fsspec.register_implementation("lossy", LossyFileSystem, clobber=True)
    monkeypatch.setattr(_mirror, "_FIRST_DELAY", 0.05)
    LossyFileSystem.lost.clear()
    with LocalTracker("lossy://bucket/a", upload_interval=0.2) as tracker:
        tracker.log({"x": 0})
        assert wait_for(lambda: LossyFileSystem.lost)
        tracker.log({"x": 1})
    assert [row["x"] for row in read_rows("lossy://bucket/a")] == [0, 1]
    assert tracker.report().failed["trackway-store"] >= 2


def test_a_spool_that_was_cleaned_away_is_made_anew(url, fast, caplog):
    """What was brought stays, and later rows follow it; a warning says so."""
    with LocalTracker(url, sync_interval=0.05, upload_interval=0.2) as tracker:
        tracker.log({"x": 0, "text": "x" * 1000})
        assert wait_for(lambda: Remote(url).children("metrics"))
        (tracker.directory / "metrics.jsonl").unlink()
        assert wait_for((tracker.directory / "metrics.jsonl").exists)
        tracker.log({"x": 1})
    assert [row["x"] for row in read_rows(url)] == [0, 1]
    assert "was deleted or cut" in caplog.text


def test_a_rare_upload_still_shows_that_the_run_lives(url, fast):
    """Between two of them claim and run.json get heartbeats, and nothing there speaks of rows that are not."""
    remote = Remote(url)

    def beats():
        return [json.loads(remote.get(name))["heartbeat"] for name in ("claims/00000001.json", "run.json")]

    with LocalTracker(url, upload_interval=60.0, sync_interval=0.05) as tracker:
        tracker.log({"x": 0})
        tracker.flush()
        tracker._remote.bring_now(10)
        before = remote.get("summary.json"), json.loads(remote.get("run.json"))["summary_offset"]
        first = beats()
        tracker.log({"x": 1})
        assert wait_for(lambda: all(new > old for new, old in zip(beats(), first, strict=True)))
        assert before == (remote.get("summary.json"), json.loads(remote.get("run.json"))["summary_offset"])
        assert [row["x"] for row in read_rows(url)] == [0]
        assert StoredRun(url).state == "running"
    assert [row["x"] for row in read_rows(url)] == [0, 1]
    assert StoredRun(url).state == "finished"


@pytest.mark.parametrize("interval", [0, -1.0, float("nan"), True, "5"])
def test_an_interval_that_is_none_is_refused(url, interval):
    """The error names the field, and nothing is made."""
    with pytest.raises(ConfigError, match=r"upload_interval must be a number of seconds above 0, got"):
        trackway.start([LocalConfig(upload_interval=interval)], dir=url.removesuffix("/a"), run_id="a")
    assert Remote(url).children() == []
