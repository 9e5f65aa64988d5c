"""The example of data-parallel training, as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trackway.store import StoredRun

EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed.py"


@pytest.mark.slow  # two processes that import JAX and scikit-learn, and train
def test_two_processes_train_and_are_one_run(tmp_path):
    """The loss is one curve, in TensorBoard too; the throughput is that of each process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRACKWAY_", "XLA_"))}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--processes", "2", "--steps", "60"],
        cwd=tmp_path,
        env=kept | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"rank 0: +\d+ images/s\nrank 1: +\d+ images/s\nloss 0\.\d+, accuracy 9\d", done.stdout)
    (directory,) = (path for path in (tmp_path / "runs").iterdir() if path.name != "tensorboard")
    stored = StoredRun(directory)
    assert stored.state == "finished"
    rows = stored.history(None, ranks="all")
    losses = [[row["train/loss"] for row in rows if row["_rank"] == rank] for rank in range(2)]
    assert len(losses[0]) == 60
    assert losses[0] == losses[1]
    throughput = [(row["_step"], row["_rank"]) for row in rows if "throughput/images_per_second" in row]
    assert throughput == [(step, rank) for step in (20, 40, 60) for rank in range(2)]
    reader = EventAccumulator(str(tmp_path / "runs" / "tensorboard" / stored.id), size_guidance={"scalars": 0}).Reload()
    assert [event.step for event in reader.Scalars("train/loss")] == list(range(1, 61))
