"""W&B runs against a server on this machine: what it gets, and what happens when it fails, is slow or goes away."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_wandb import FakeWandb
from wandb_records import read_records, record_files

import trackway
from trackway.backends.wandb import WandbConfig
from trackway.errors import ConfigError
from trackway.tracker import BackgroundPolicy

pytestmark = pytest.mark.server

KEY = "0" * 40


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server, to which W&B's client turns, with a key."""
    for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        folder = tmp_path / "wandb-home" / name
        folder.mkdir(parents=True)
        monkeypatch.setenv(f"WANDB_{name}", str(folder))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("WANDB_SERVICE", "WANDB_MODE", "WANDB_PROJECT", "WANDB_CONSOLE"):
        monkeypatch.delenv(name, raising=False)
    with FakeWandb() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield server
        import wandb

        wandb.teardown()  # the service of this process, which others would join


PROGRAM = """
import logging, os, sys
import trackway
from trackway.backends.wandb import WandbConfig
from trackway.tracker import BackgroundPolicy
logging.basicConfig(level=logging.INFO, format="%(message)s")
folder, begin, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
wandb = WandbConfig(save_code=False, init_timeout=5, finish_timeout=float(os.environ.get("SECONDS_TO_END", "20")))
"""
LOOP = """
with trackway.start([wandb], dir=folder, run_id="run") as run:
    for step in range(begin, end):
        trackway.log({"loss": 1 / (step + 1)}, step=step)
print(run.report())
"""


def run_program(folder: Path, begin: int, end: int, source: str = LOOP, **environment: str):
    """Run a program that logs steps, in a process of its own."""
    words = [sys.executable, "-c", PROGRAM + source, str(folder), str(begin), str(end)]
    return subprocess.run(words, capture_output=True, text=True, timeout=90, env=os.environ | environment)


def rows(begin: int, end: int) -> list[dict[str, float]]:
    """Return the rows that the program logs."""
    return [{"_step": step, "loss": 1 / (step + 1)} for step in range(begin, end)]


def plain(found):
    """W&B writes 1.0 as 1."""
    return [{name: float(value) if name == "loss" else value for name, value in row.items()} for row in found]


def test_what_the_server_gets(server, tmp_path):
    """History, config, summary, artifact, alert, tags and exit code arrive as they were logged."""
    source = """
with trackway.start([WandbConfig(save_code=False, tags=["t"])], dir=folder, run_id="run") as run:
    trackway.log_hyperparameters({"lr": 0.1})
    for step in range(begin, end):
        trackway.log({"loss": 1 / (step + 1)}, step=step)
    trackway.log_hyperparameters({"lr": 0.2})
    trackway.log_summary({"best": 0.25})
    with open("weights.bin", "wb") as file:
        file.write(b"123")
    trackway.log_artifact("weights.bin", type="model")
    os.unlink("weights.bin")
    trackway.get_tracker("wandb").alert("title", "text", level="error")
"""
    done = run_program(tmp_path / "runs", 0, 50, f"os.chdir({str(tmp_path)!r})" + source)
    assert done.returncode == 0, done.stderr
    run = server.runs["run"]
    assert plain(run.rows) == rows(0, 50)
    assert (run.config["lr"], run.summary["best"], run.tags, run.exit_code) == (0.2, 0.25, ["t"], 0)
    assert [(one["artifactCollectionName"], one["state"], one["files"]) for one in server.artifacts.values()] == [
        ("weights.bin", "COMMITTED", {"weights.bin": b"123"})
    ]
    assert [(alert["title"], alert["severity"]) for alert in server.alerts] == [("title", "ERROR")]
    assert server.unknown == []
    assert f"{server.url}/me/trackway/runs/run" in done.stderr


def test_a_run_is_continued_where_the_server_is(server, tmp_path):
    """A second start appends; what the server lacks of the first one, because it lost it, is delivered first."""
    assert run_program(tmp_path, 0, 10).returncode == 0
    del server.runs["run"].lines[9], server.runs["run"].lines[8]
    server.runs["run"].summary["_step"] = 7
    done = run_program(tmp_path, 10, 15)
    assert done.returncode == 0, done.stderr
    assert plain(server.runs["run"].rows) == rows(0, 15)
    assert "wandb: got 2 rows that it had missed before" in done.stderr


@pytest.mark.parametrize(("steps", "missing"), [((0, 1, 2, 1), 3), ((0, 1, 2, 1, 3, 100), 101)])
def test_what_is_missing_after_late_rows(server, tmp_path, steps, missing):
    """A resumed run goes on behind its highest step, whatever numbers its rows have at W&B."""
    wandb = WandbConfig(save_code=False, background=False, dir=str(tmp_path))
    tracker = wandb.init("run")
    for step in steps:
        tracker.log({"loss": step}, step=step, commit=True)
    tracker.finish()
    tracker = wandb.init("run")
    assert tracker.first_missing_step() == missing
    tracker.log({"loss": 0.5}, step=missing, commit=True)
    tracker.finish()
    last = server.runs["run"].rows[-1]
    assert (last["loss"], last["trackway/step"]) == (0.5, missing)


def test_a_start_that_fails_beside_another_run_is_kept_offline(server, tmp_path, caplog):
    """The first try leaves its id in use, so the second has one of its own; neither ends the other run."""
    other = WandbConfig(save_code=False, background=False, mode="offline", dir=str(tmp_path / "other")).init("other")
    server.refuse = lambda operation: 500 if operation == "UpsertBucket" else None
    wandb = WandbConfig(save_code=False, background=False, init_timeout=1, dir=str(tmp_path / "run"))
    for folder, tracker in (("run", wandb.init("run")), ("other", other)):
        tracker.log({"loss": 1}, step=0)
        tracker.finish()
        (path,) = (path for path in record_files(tmp_path / folder) if "offline" in path.parent.name)
        assert read_records(path).rows == [{"_step": 0, "loss": 1}]
    assert "`wandb sync --id run " in caplog.text


def test_a_key_that_is_none_is_an_error(server, tmp_path, monkeypatch):
    """It is a fault of the configuration, unlike no key at all."""
    import wandb

    monkeypatch.setenv("WANDB_API_KEY", "short")
    with pytest.raises(wandb.Error, match="API key must have"):
        WandbConfig(save_code=False, background=False, dir=str(tmp_path)).init("run")


def test_a_server_that_fails_for_a_while_gets_every_row_once(server, tmp_path):
    """Errors of the server are tried again."""
    refused = iter([500, 503, 503])
    server.refuse = lambda operation: next(refused, None) if operation == "file_stream" else None
    done = run_program(tmp_path, 0, 30)
    assert done.returncode == 0, done.stderr
    assert plain(server.runs["run"].rows) == rows(0, 30)
    assert server.runs["run"].exit_code == 0


def test_a_run_that_the_server_refuses_is_an_error(server, tmp_path):
    """A wrong key is a fault of the configuration: it is told at once, or the tracker is left out if so configured."""
    server.refuse = lambda operation: 401 if operation == "UpsertBucket" else None
    with pytest.raises(ConfigError, match=r"trackers \(wandb\) could not be started: CommError: refused"):
        trackway.start([WandbConfig(save_code=False)], dir=tmp_path / "a", run_id="a")
    skipped = WandbConfig(save_code=False, on_init_error="skip")
    with trackway.start([skipped], dir=tmp_path / "b", run_id="b") as run:
        trackway.log({"loss": 1.0}, step=0)
    assert run.report().rows == 1
    server.refuse = lambda operation: None
    with trackway.start([WandbConfig(save_code=False)], dir=tmp_path / "c", run_id="a"):
        trackway.log({"loss": 1.0}, step=0)
    assert len(server.runs["a"].rows) == 1


def _children():
    """Return the ids of the processes of W&B's service."""
    done = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if "wandb-core" in line}


def test_a_server_that_dies_costs_nothing_and_gets_the_rest_later(server, tmp_path):
    """Training goes on, the end is bounded, no process stays; the next start delivers the rest, each row once."""
    before = _children()
    source = """
import threading
with trackway.start([wandb], dir=folder, run_id="run") as run:
    for step in range(begin, end):
        trackway.log({"loss": 1 / (step + 1)}, step=step)
        if step == 49:
            run.flush(commit_open=True)
            print("half", flush=True)
            sys.stdin.readline()
"""
    words = [sys.executable, "-c", PROGRAM + source, str(tmp_path), "0", "100"]
    environment = os.environ | {"SECONDS_TO_END": "3"}
    program = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert program.stdout.readline() == "half\n"
        deadline = time.monotonic() + 30
        while len(server.runs["run"].rows) < 50:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        server.kill()
        went_on = time.monotonic()
        _, errors = program.communicate("\n", timeout=60)
    finally:
        program.kill()
    assert program.returncode == 0, errors
    assert time.monotonic() - went_on < 25
    assert "wandb sync" in errors
    assert len(trackway.store.read_history(tmp_path / "run", None)) == 100
    deadline = time.monotonic() + 10
    while _children() - before:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    with FakeWandb() as back:
        back.runs = server.runs
        done = run_program(tmp_path, 100, 110, WANDB_BASE_URL=back.url)
        assert done.returncode == 0, done.stderr
        assert plain(back.runs["run"].rows) == rows(0, 110)


def test_without_a_key_the_run_is_kept_offline(server, tmp_path, monkeypatch):
    """It is said loudly, and `wandb sync` uploads the same rows later."""
    done = run_program(tmp_path, 0, 20, WANDB_API_KEY="", NETRC="/dev/null")
    assert done.returncode == 0, done.stderr
    assert "wandb: OFFLINE, because" in done.stderr
    assert server.runs == {}
    (path,) = record_files(tmp_path)
    assert plain(read_records(path).rows) == rows(0, 20)
    synced = subprocess.run(
        [sys.executable, "-m", "wandb", "sync", str(path.parent)], capture_output=True, text=True, timeout=60
    )
    assert synced.returncode == 0, synced.stderr
    assert plain(server.runs["run"].rows) == rows(0, 20)


def test_without_a_server_the_run_is_kept_offline(server, tmp_path):
    """A server that cannot be reached is given up after `init_timeout` and a little more."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    source = LOOP.replace("[wandb]", "[WandbConfig(save_code=False, init_timeout=1, finish_timeout=5)]")
    done = run_program(tmp_path, 0, 5, source, WANDB_BASE_URL=url)
    assert done.returncode == 0, done.stderr
    assert "wandb: OFFLINE, because" in done.stderr
    path = next(path for path in record_files(tmp_path) if "offline-run" in str(path))
    assert plain(read_records(path).rows) == rows(0, 5)


def test_an_exception_is_a_failed_run(server, tmp_path):
    """The exit code that the server gets is that of a program that failed."""
    source = """
with trackway.start([wandb], dir=folder, run_id="run"):
    trackway.log({"loss": 1.0}, step=0)
    raise ValueError("diverged")
"""
    assert run_program(tmp_path, 0, 0, source).returncode == 1
    assert server.runs["run"].exit_code == 1


def test_a_tracker_with_a_small_queue_loses_nothing(server, tmp_path):
    """Rows that the queue has no room for reach the server, too."""
    config = WandbConfig(save_code=False, background=BackgroundPolicy(queue_size=10))
    with trackway.start([config], dir=tmp_path, run_id="run") as run:
        for step in range(2000):
            trackway.log({"loss": 1 / (step + 1)}, step=step)
    assert plain(server.runs["run"].rows) == rows(0, 2000)
    assert run.report().trackers[0].delivered == 2000
