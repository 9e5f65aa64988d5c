"""The example with every kind of tracker at once, and each of them read back."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb_records import read_records, record_files

from trackway.store import StoredRun
from trackway.values import flatten

CONFIG = Path(__file__).parents[2] / "examples" / "digits_everywhere.yaml"
NAME = "train/loss"


@pytest.fixture(scope="module")
def folder(run_example, tmp_path_factory):
    """Train for one epoch by the file of the examples, with whatever services keep in a folder of the test."""
    folder = tmp_path_factory.mktemp("everywhere")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
            patch.setenv(f"WANDB_{name}", str(folder / "wandb" / name))
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("TRACKIO_DIR", str(folder / "trackio"))
        arguments = ("--config_path", str(CONFIG), "--trainer.epochs", "1", "--trainer.tracking.run_id", "all")
        run_example(folder, *arguments)
    return folder


@pytest.fixture(scope="module")
def stored(folder):
    """Return the run directory."""
    return StoredRun(folder / "runs" / "all")


@pytest.fixture(scope="module")
def losses(stored):
    """Return the loss of every step, as the run directory has it."""
    found = {row["_step"]: value for row in stored.history(None) if (value := _loss(row)) is not None}
    assert len(found) >= 20
    return found


def _loss(row):
    nested = row.get("train")
    return row[NAME] if NAME in row else nested.get("loss") if isinstance(nested, dict) else None


def test_tensorboard_has_it(folder, losses):
    """Every step, to the precision of its event files."""
    accumulator = EventAccumulator(str(folder / "runs" / "tensorboard" / "all"), size_guidance={"scalars": 0})
    accumulator.Reload()
    found = {event.step: event.value for event in accumulator.Scalars(NAME)}
    assert found == {step: np.float32(value) for step, value in losses.items()}


def test_wandb_has_it(folder, losses, stored):
    """Every step exactly, and the hyper-parameters."""
    (path,) = record_files(folder / "runs" / "all")
    records = read_records(path)
    assert {row["_step"]: row[NAME] for row in records.rows if NAME in row} == losses
    assert {name: records.config[name] for name in stored.config} == stored.config
    assert records.code == 0


def test_trackio_has_it(folder, losses, stored):
    """Every step exactly, and the hyper-parameters, flattened."""
    with closing(sqlite3.connect(folder / "trackio" / "digits.db")) as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
        (config,) = database.execute("SELECT config FROM configs").fetchone()
    found = defaultdict(dict)
    for step, metrics in rows:  # events are rows of their own, beside those of their steps
        found[step].update(json.loads(metrics))
    assert {step: metrics[NAME] for step, metrics in found.items() if NAME in metrics} == losses
    assert flatten(stored.config).items() <= json.loads(config).items()


def test_nothing_was_lost_anywhere(stored):
    """The run ended well, and every tracker was handed every row."""
    assert stored.state == "finished"
    notes = {path.stem: json.loads(path.read_text()) for path in (stored.path / "delivery").glob("*.json")}
    last = stored.history(1)[0]["_step"]
    assert {name: note["step"] for name, note in notes.items()} == dict.fromkeys(
        ("tensorboard", "wandb", "trackio"), last
    )
