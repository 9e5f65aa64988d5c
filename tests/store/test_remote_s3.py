"""Runs on S3, as a server on this machine speaks it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from programs import wait_for
from remote_stores import spools  # noqa: F401 - a fixture
from s3_server import s3_server

import trackway
from trackway.backends.local import LocalConfig
from trackway.errors import ConfigError, RunBusyError, TrackerFinishError
from trackway.store import LocalTracker, _lease, _mirror, _mirror_files, _remote_store, read_history, read_rows
from trackway.store._remote import Remote

pytestmark = pytest.mark.server
URL = "s3://bucket/runs"


@pytest.fixture(scope="module")
def running():
    """One server for the tests of this file."""
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running, monkeypatch):
    """The server, with an empty bucket; a failure is followed by another try soon."""
    for name in Remote("s3://bucket").children():
        Remote("s3://bucket").remove(name)
    monkeypatch.setattr(_mirror, "_FIRST_DELAY", 0.1)
    monkeypatch.setattr(_mirror, "_LONGEST_DELAY", 0.2)
    running.away = False
    running.clear()
    yield running
    running.away = False


def write(run_id, rows):
    """Write a run of so many rows."""
    with trackway.start([LocalConfig(upload_interval=60.0)], dir=URL, run_id=run_id):
        for step in range(rows):
            trackway.log({"loss": step / 7, "accuracy": 1 - step / 1e6}, step=step)


def test_a_run_is_written_continued_and_read(server):
    """What `trackway.start` writes is what the readers find."""
    write("a", 10)
    with trackway.start(dir=URL, run_id="a", resume="must") as run:
        assert run.store.last_step == 9
        trackway.log({"loss": 0.0})
    assert [row["_step"] for row in read_rows(f"{URL}/a")] == list(range(11))
    assert read_history(f"{URL}/a", 1)[0] == {
        "_step": 10,
        "_time": read_rows(f"{URL}/a")[-1]["_time"],
        "_attempt": 2,
    } | {"loss": 0.0}


def test_requests_and_bytes_are_linear_in_the_rows(server, monkeypatch):
    """Of twice the rows, twice the bytes are sent; each segment is one request, and none is sent again."""
    monkeypatch.setattr(_mirror, "SEGMENT", 1 << 14)
    costs = []
    for rows in (500, 1000, 2000):
        server.clear()
        write(f"r{rows}", rows)
        size = sum(size for name, size in Remote(f"{URL}/r{rows}").listing().items() if name.startswith("metrics/"))
        costs.append((server.requests["PUT"], server.received - size))
        assert size > 60 * rows
    assert [puts for puts, _ in costs] == sorted(puts for puts, _ in costs)
    assert costs[2][0] - costs[1][0] <= 2 * (costs[1][0] - costs[0][0]) + 4
    assert max(others for _, others in costs) < 20_000


def test_claiming_a_run_that_is_written_is_refused(server, monkeypatch):
    """Of two claims of one run, the second is refused, also by a process that knows nothing of the first."""
    monkeypatch.setattr(_lease, "HEARTBEAT", 0.5)
    program = (
        "import os, sys; from trackway.errors import *; from trackway.store import LocalTracker, _lease\n"
        "_lease.HEARTBEAT, _lease._POLL = 0.5, 0.1\n"
        "os.uname = lambda real=os.uname(): type(real)(('x', 'other', *real[2:]))\n"
        "try:\n    LocalTracker(sys.argv[1])\nexcept RunBusyError as error:\n    print(error)"
    )
    with LocalTracker(f"{URL}/a", upload_interval=0.3) as tracker:
        tracker.log({"x": 1})
        with pytest.raises(RunBusyError, match="process"):
            LocalTracker(f"{URL}/a")
        command = [sys.executable, "-c", program, f"{URL}/a"]
        other = subprocess.run(command, capture_output=True, text=True, env=None)
    assert "is being written by process" in other.stdout, other.stderr
    assert len(read_rows(f"{URL}/a")) == 1


def test_a_reader_sees_what_was_written_since_it_last_looked(server, monkeypatch):
    """No listing is taken from a cache, in one process either."""
    monkeypatch.setattr(_mirror, "_POLL", 0.05)
    with LocalTracker(f"{URL}/a", upload_interval=0.1) as tracker:
        for number in range(3):
            tracker.log({"x": number})
            tracker.flush()
            assert wait_for(lambda n=number: Remote(f"{URL}/a").children("metrics")[n:])
            assert [row["x"] for row in read_rows(f"{URL}/a")] == list(range(number + 1))
            assert read_history(f"{URL}/a", 1)[0]["x"] == number


def test_the_last_rows_need_the_last_segments_only(server, monkeypatch):
    """Reading from the end asks for the objects at the end, however many there are; reading all asks for each once."""
    monkeypatch.setattr(_mirror, "SEGMENT", 1 << 12)
    write("a", 1000)
    assert len(Remote(f"{URL}/a").children("metrics")) > 15
    server.clear()
    assert [row["_step"] for row in read_history(f"{URL}/a", 5)] == list(range(995, 1000))
    assert server.requests["GET"] <= 8
    server.clear()
    assert len(read_history(f"{URL}/a")) == 1000
    assert server.sent < 1.5 * 80 * 1000


def test_an_outage_costs_nothing_but_time(server, caplog, monkeypatch):
    """Training goes on; it is said once, counted, and everything is there once the store is."""
    monkeypatch.setattr(_mirror, "_POLL", 0.05)
    with trackway.start([LocalConfig(upload_interval=0.1)], dir=URL, run_id="a") as run:
        trackway.log({"x": 0}, commit=True)
        run.flush()
        assert wait_for(lambda: Remote(f"{URL}/a").children("metrics"))
        server.away = True
        trackway.log({"x": 1}, commit=True)
        assert wait_for(lambda: run.report().store.failed.get("trackway-store", 0) >= 3)
        server.away = False
        assert wait_for(lambda: len(read_rows(f"{URL}/a")) == 2)
    assert caplog.text.count("is tried again") == 1
    assert caplog.text.count("is there again") == 1
    assert [row["x"] for row in read_rows(f"{URL}/a")] == [0, 1]


def test_the_end_of_a_run_waits_for_a_store_that_is_away_for_a_bounded_time(server, monkeypatch):
    """The error says where the run is; the next start of it on this machine brings it."""
    monkeypatch.setattr(_remote_store, "PATIENCE", 0.5)
    run = trackway.start(dir=URL, run_id="a")
    trackway.log({"x": 0}, commit=True)
    server.away = True
    with pytest.raises(TrackerFinishError) as raised:
        run.finish()
    assert f"is started again on this machine in {run.store.directory}" in str(raised.value.exceptions[0])
    assert len(read_rows(run.store.directory)) == 1
    server.away = False
    with trackway.start(dir=URL, run_id="a"):
        trackway.log({"x": 1})
    assert [row["x"] for row in read_rows(f"{URL}/a")] == [0, 1]
    assert not run.store.directory.exists()


def test_a_large_artifact_is_brought_in_parts_beside_the_rows(server, tmp_path, monkeypatch):
    """It is never in memory as a whole, and is there when the run has ended."""
    monkeypatch.setattr(_mirror_files, "_SETTLED", 0)
    data = bytes(range(256)) * (36 << 10)
    (tmp_path / "weights").write_bytes(data)
    with trackway.start(dir=URL, run_id="a"):
        trackway.log_artifact(tmp_path / "weights")
    assert Remote(f"{URL}/a").get("artifacts/weights") == data


@pytest.mark.parametrize("finish", ["", "run.finish()"])
def test_a_program_that_simply_ends_leaves_a_whole_run(server, finish):
    """Also where it never finishes the run: that is done while connections can still be opened."""
    program = f"import sys, trackway\nrun = trackway.start(dir=sys.argv[1], run_id='a')\nrun.log({{'x': 1}})\n{finish}"
    done = subprocess.run([sys.executable, "-c", program, URL], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["x"] for row in read_rows(f"{URL}/a")] == [1]
    assert b'"state":"finished"' in Remote(f"{URL}/a").get("run.json")


def test_a_tracker_that_nobody_finishes_brings_its_rows_at_exit(server):
    """Its state stays "running", as in a directory."""
    program = "import sys; from trackway.store import LocalTracker; LocalTracker(sys.argv[1]).log({'x': 1})"
    program = program.replace("LocalTracker(sys.argv[1])", "t = LocalTracker(sys.argv[1]); t")
    done = subprocess.run([sys.executable, "-c", program, f"{URL}/a"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["x"] for row in read_rows(f"{URL}/a")] == [1]


def test_a_bucket_that_is_not_there_stops_the_start(server):
    """The error names the URL and what to look at; no bucket is made."""
    with pytest.raises(ConfigError, match=r"s3://nowhere/a .*check the URL"):
        trackway.start(dir="s3://nowhere", run_id="a")
    with pytest.raises(OSError):
        Remote("s3://nowhere").get("x")
