"""Trackio runs at a self-hosted server on 127.0.0.1, which may go away and come back."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from trackio_server import TOKEN, configuration, free_port, new_project, rows, runs, serve

import trackway
from trackway.backends.trackio import TrackioConfig
from trackway.config import RunContext
from trackway.config._context import entered
from trackway.errors import ConfigError
from trackway.values import Image

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server for the tests that let it run."""
    with serve(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def project():
    """A project of the test's own."""
    return new_project()


def config(project, url, **fields):
    """Return the configuration of a run at the server, in the calling thread."""
    return TrackioConfig(project, server_url=url, **{"background": False, **fields})


def threads_of(tracker):
    """Return the threads that belong to a tracker and still run."""
    ours = {tracker.run._client_thread, tracker._sender._thread}
    return [thread for thread in threading.enumerate() if thread in ours]


def test_a_run_arrives(served, project, tmp_path):
    """Rows, hyper-parameters, summary, media, alerts and artifacts are at the server, under the names they had."""
    picture = Image(np.arange(12, dtype=np.uint8).reshape(2, 2, 3), caption="c")
    (tmp_path / "w.bin").write_bytes(b"123")
    with trackway.start([config(project, served.url)], dir=tmp_path / "runs", run_id="sent") as run:
        trackway.log_hyperparameters({"lr": 0.1, "model": {"width": 3}, "odd": float("nan")})
        for step in range(20):
            trackway.log({"loss": 1 / (step + 1), "odd": float("inf")}, step=step)
        trackway.log({"picture": picture}, step=20)
        run.flush()
        assert [step for step, _ in rows(project, "sent", served.folder)] == list(range(20))
        trackway.log_artifact(tmp_path / "w.bin", type="model")
        trackway.log_summary({"best": 0.5})
        run.backends.alert("look", level="warning")
    found = rows(project, "sent", served.folder)
    assert found[:20] == [(step, {"loss": 1 / (step + 1), "odd": "Infinity"}) for step in range(20)]
    path = served.folder / "media" / found[20][1]["picture"]["file_path"]
    assert path.read_bytes() == picture.to_png()
    expected = {"lr": 0.1, "model/width": 3, "odd": "NaN", "summary/best": 0.5}
    assert configuration(project, "sent", served.folder) == expected
    (blob,) = (served.folder / "artifacts" / project / "blobs").rglob("?" * 64)
    assert blob.read_bytes() == b"123"
    report = run.report().trackers[-1]
    assert (report.accepted, report.delivered, report.pending, report.dropped, report.failed) == (21, 21, 0, {}, {})


def test_a_resumed_run_stays_one(served, project):
    """What a later process logs belongs to the same run; its configuration joins that of the first."""
    first = config(project, served.url, name="shown").init("again")
    first.log_hyperparameters({"lr": 0.1, "kept": 1})
    first.log({"a": 1}, step=0)
    first.finish()
    with entered(RunContext("again", "", resumed=True, next_step=1, attempt=2)):
        second = config(project, served.url, name="shown").init("again")
    assert second.first_missing_step() == 1
    second.log_hyperparameters({"lr": 0.2})
    second.log({"a": 2})
    second.finish()
    assert runs(project, served.folder) == {"again": "shown"}
    assert rows(project, "again", served.folder) == [(0, {"a": 1}), (1, {"a": 2})]
    assert configuration(project, "again", served.folder) == {"lr": 0.2, "kept": 1}


def test_superseded_steps_get_names_of_their_own(served, project):
    """Where the server has a step already, rows of a new attempt are `attempt_<n>/<name>`, and beyond it as usual."""
    first = config(project, served.url).init("rewound")
    for step in range(4):
        first.log({"a": step}, step=step)
    first.finish()
    with entered(RunContext("rewound", "", resumed=True, next_step=2, attempt=2)):
        second = config(project, served.url).init("rewound")
    second.rewind(2)
    for _ in range(2):
        second.log({"a": 9})
    second.flush()
    assert second.first_missing_step() == 4
    second.log({"a": 9})
    second.finish()
    assert rows(project, "rewound", served.folder)[4:] == [
        (2, {"attempt_2/a": 9}),
        (3, {"attempt_2/a": 9}),
        (4, {"a": 9}),
    ]


def test_first_missing_step_is_that_after_the_last_to_arrive(served, project):
    """An attempt that went over steps again and broke off is missing what it had not sent, not what lies beyond."""
    tracker = config(project, served.url).init("broken")
    assert tracker.first_missing_step() == 0
    for step in (0, 1, 2, 3):
        tracker.log({"a": step}, step=step)
    tracker.rewind(1)
    tracker.log({"a": 5}, step=1)
    tracker.flush()
    assert tracker.first_missing_step() == 2
    tracker.finish()


@pytest.mark.parametrize("resume", ["must", "allow", "never"])
def test_resuming_by_name(served, project, resume):
    """As in Trackio, `must` and `allow` find a run by its name, and `never` starts another."""
    first = config(project, served.url, name="shown").init("first")
    first.log({"a": 1}, step=0)
    first.finish()
    second = config(project, served.url, name="shown", resume=resume).init("second")
    second.log({"a": 2}, step=1)
    second.finish()
    assert len(runs(project, served.folder)) == (2 if resume == "never" else 1)


def test_resume_must_without_a_run_is_refused(served, project):
    """`must` says so where there is nothing to be resumed, and where the server cannot be asked."""
    with pytest.raises(ConfigError, match="has no run"):
        config(project, served.url, resume="must").init("none")
    with pytest.raises(ConfigError, match="cannot be asked"):
        config(project, f"http://127.0.0.1:{free_port()}?write_token=x", resume="must").init("none")


def test_a_wrong_token_is_said_and_loses_nothing(served, project):
    """A server that refuses the token makes `flush` raise, and the rows wait on this machine for the next start."""
    wrong = config(project, served.url.replace(TOKEN, "wrong"), finish_timeout=10).init("refused")
    wrong.log({"a": 1}, step=0)
    with pytest.raises(RuntimeError, match="write_token"):
        wrong.flush()
    wrong.finish()
    assert (wrong.report().pending, threads_of(wrong)) == (1, [])
    right = config(project, served.url).init("refused")
    right.log({"a": 2}, step=1)
    right.finish()
    assert rows(project, "refused", served.folder) == [(0, {"a": 1}), (1, {"a": 2})]


def test_a_server_that_is_away_from_the_start(project):
    """The start waits for nothing, training is not held up, and the end is bounded and leaves no thread."""
    tracker = config(project, f"http://127.0.0.1:{free_port()}?write_token={TOKEN}", finish_timeout=10).init("away")
    before = time.monotonic()
    for step in range(500):
        tracker.log({"a": step}, step=step)
    assert tracker.first_missing_step() is None
    tracker.finish()
    assert time.monotonic() - before < 12
    assert (tracker.report().pending, tracker.report().delivered, tracker.report().dropped) == (500, 0, {})
    assert threads_of(tracker) == []


def test_a_server_that_goes_away_and_comes_back(project, tmp_path):
    """A server killed in mid-run costs no row: what it missed arrives when it is back, each row once, with media."""
    port = free_port()
    tracker = None
    with serve(tmp_path, port) as server:
        tracker = config(project, server.url).init("run")
        tracker.log({"a": 0}, step=0)
        tracker.flush()
    picture = Image(np.zeros((2, 2), np.uint8))
    for step in range(1, 50):
        tracker.log({"a": step, "picture": picture} if step == 7 else {"a": step}, step=step)
    with pytest.raises(ConnectionError, match="out of reach"):
        tracker.flush()
    with serve(tmp_path, port):
        tracker.flush()
        found = rows(project, "run", tmp_path)
        assert [(step, row["a"]) for step, row in found] == [(step, step) for step in range(50)]
        assert (tmp_path / "media" / found[7][1]["picture"]["file_path"]).read_bytes() == picture.to_png()
        tracker.finish()
    assert (tracker.report().delivered, tracker.report().pending, tracker.report().dropped) == (50, 0, {})


def test_a_run_that_ends_while_the_server_is_away_is_completed_by_the_next_start(project, tmp_path):
    """Rows and media that could not be sent are kept here, and sent by the next process, each row once."""
    port = free_port()
    with serve(tmp_path, port) as server:
        first = config(project, server.url, finish_timeout=8).init("run")
        first.log({"a": 0}, step=0)
        first.flush()
    picture = Image(np.zeros((2, 2), np.uint8))
    first.log({"a": 1, "picture": picture}, step=1)
    first.log({"a": 2}, step=2)
    first.finish()
    assert first.report().pending == 2
    with serve(tmp_path, port) as server:
        second = config(project, server.url).init("run")
        assert second.first_missing_step() == 1
        second.log({"a": 2}, step=2)  # as a store does that sends again what is missing
        second.log({"a": 3}, step=3)
        second.finish()
    found = sorted(rows(project, "run", tmp_path), key=lambda row: row[0])
    assert [(step, row["a"]) for step, row in found] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert (tmp_path / "media" / found[1][1]["picture"]["file_path"]).read_bytes() == picture.to_png()


def test_a_killed_process_is_made_good_from_the_run_directory(project, tmp_path):
    """After a kill with the server away the run is continued elsewhere in time, and the server gets each row once."""
    port = free_port()
    program = (
        "import sys, os, signal, trackway\n"
        "from trackway.backends.trackio import TrackioConfig\n"
        "project, url, folder = sys.argv[1:]\n"
        "trackway.start([TrackioConfig(project, server_url=url)], dir=folder, run_id='run')\n"
        "run = trackway.tracker.current_tracker()\n"
        "for step in range(5): trackway.log({'a': step}, step=step)\n"
        "run.flush()\n"
        "print('sent', flush=True)\n"
        "sys.stdin.readline()\n"
        "for step in range(5, 40): trackway.log({'a': step}, step=step)\n"
        "trackway.log({'last': 1}, step=40)\n"
        "import time; time.sleep(1.5)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    pipe = subprocess.PIPE
    folder = tmp_path / "runs"
    with serve(tmp_path, port) as server:
        command = [sys.executable, "-c", program, project, server.url, str(folder)]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert process.stdout.readline() == "sent\n", process.communicate()[1]
    process.communicate("go\n", timeout=60)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    kept = [json.loads(line)["_step"] for line in lines]
    with (
        serve(tmp_path, port) as server,
        trackway.start([config(project, server.url, background=True)], dir=folder, run_id="run", resume="must") as run,
    ):
        trackway.log({"a": -1}, step=kept[-1] + 1)
        run.flush()
    assert [step for step, _ in rows(project, "run", tmp_path)] == [*kept, kept[-1] + 1]
    assert runs(project, tmp_path) == {"run": "run"}
