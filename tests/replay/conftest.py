"""A run with everything in it, made once, and copies of it to be replayed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import trackway
from trackway.store import read_rows
from trackway.values import Audio, Histogram, Html, Image, Table, Text


def media():
    """One value of each kind that is kept in a file, and a histogram."""
    return {
        "image": Image(np.arange(48, dtype=np.uint8).reshape(4, 4, 3), caption="four by four"),
        "sound": Audio(np.linspace(-1, 1, 100, dtype=np.float32), 8000),
        "table": Table(["a", "b"], [[1, "x"], [2, "y"]]),
        "note": Text("plain *words*"),
        "page": Html("<p>page</p>"),
        "weights": Histogram.from_array(np.arange(20.0), num_bins=4),
    }


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Make the run `digits` once: two attempts, of which the second goes back to step 6 and fails at step 9."""
    base = tmp_path_factory.mktemp("made")
    weights = base / "weights.bin"
    with trackway.start(dir=base / "runs", run_id="digits", config={"lr": 0.1, "model": {"width": [1, 2]}}) as run:
        for step in range(10):
            trackway.log({"loss": 1 / (step + 1), "train": {"acc": step / 10}}, step=step)
            if step == 4:
                run.log_event("checkpoint", {"path": "model.pt"}, step=4)
        trackway.log(media(), step=9)
        weights.write_bytes(b"first")
        trackway.log_artifact(weights, name="weights", type="model")
        (base / "folder" / "inner").mkdir(parents=True)
        (base / "folder" / "inner" / "file.txt").write_text("text")
        trackway.log_artifact(base / "folder", name="folder")
    run = trackway.start(dir=base / "runs", run_id="digits")
    for step in range(6, 10):
        trackway.log({"loss": 100.0 + step, "odd": float("nan")}, step=step)
    weights.write_bytes(b"second")
    trackway.log_artifact(weights, name="weights", type="model")
    trackway.log_summary({"best": 0.25})
    run.mark_failed(ValueError("boom"))
    run.finish()
    return base / "runs" / "digits"


@pytest.fixture
def digits(made, tmp_path):
    """Return a copy of that run, which the test may change."""
    return shutil.copytree(made, tmp_path / "source" / "digits")


@pytest.fixture
def long(tmp_path):
    """Return a function that makes a finished run of so many rows."""

    def write(count, run_id="long"):
        folder = tmp_path / "source" / run_id
        folder.mkdir(parents=True)
        rows = [{"_step": step, "_time": 1.7e9 + step, "loss": 1 / (step + 1), "n": step} for step in range(count)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        manifest = {"format": 1, "id": run_id, "state": "finished", "attempts": [], "artifacts": []}
        (folder / "run.json").write_text(json.dumps(manifest))
        return folder

    return write


KILLED = """
import json, os, signal, sys
import trackway.replay._delivery as delivery
from trackway.replay import replay
delivery._ROWS = 700
def kill(progress):
    if progress.rows > 5000:
        os.kill(os.getpid(), signal.SIGKILL)
replay(sys.argv[1], to=json.loads(sys.argv[2]), on_progress=kill)
"""


@pytest.fixture
def killed():
    """Return a function that begins a replay in a process of its own, which is killed in the midst of the rows."""

    def begin(folder, to):
        words = [sys.executable, "-c", KILLED, str(folder), json.dumps(to)]
        done = subprocess.run(words, capture_output=True, timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    return begin


@pytest.fixture
def with_more():
    """Return a function that gives a run hyper-parameters, a summary, an artifact, and events every fifty rows."""

    def add(folder, count):
        events = [{"event": "tick", "_step": at, "_time": 1.7e9 + at + 0.5, "at": at} for at in range(0, count, 50)]
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        (folder / "config.yaml").write_text("lr: 0.1\n")
        (folder / "summary.json").write_text('{"best": 0.25}')
        (folder / "artifacts").mkdir()
        (folder / "artifacts" / "weights").write_text("weights")
        artifact = {"name": "weights", "type": "model", "path": "artifacts/weights"}
        manifest = json.loads((folder / "run.json").read_text())
        manifest |= {"summary_keys": [["best"]], "artifacts": [artifact]}
        (folder / "run.json").write_text(json.dumps(manifest))
        return folder

    return add


@pytest.fixture
def values():
    """Return a function that gives step and plain values of the rows in a run directory, superseded ones included."""

    def read(folder):
        return [
            (row["_step"], {name: value for name, value in row.items() if name[:1] != "_"}) for row in read_rows(folder)
        ]

    return read
