"""A directory of format 1, written once and kept as it is, is read as it was meant."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from trackway.store import StoredRun, read_history

RUN = Path(__file__).parent / "fixtures" / "format1"
HISTOGRAM_FIELDS = {"_type", "edges", "counts", "min", "max", "num", "sum"}


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.ERROR, "trackway")  # one line of the directory is damaged


def test_every_kind_of_line_is_read_as_it_was_meant():
    """Attempts, patches, literals, marks, media, a damaged line and a torn one give these rows."""
    rows = read_history(RUN)
    histogram = rows[6].pop("grads")
    assert set(histogram) >= HISTOGRAM_FIELDS
    assert (histogram["_type"], histogram["num"], histogram["sum"]) == ("histogram", 4, 5.75)
    assert math.isnan(rows[1]["train"].pop("loss"))
    assert rows[4].pop("sample")["path"] == "media/sample/4-0.png"
    assert rows == [
        {"_step": 0, "_time": 1754323200.25, "train": {"loss": 1.5}, "lr": 0.1},
        {"_step": 1, "_time": 1754323201.25, "train": {"accuracy": 0.5}, "lr": 0.05},
        {"_step": 2, "_time": 1754323202.25, "tokens": 2**70, "train": {"loss": 1.25}},
        {
            "_step": 3, "_time": 1754323203.25,
            "train": {"loss": math.inf}, "xs": [1.0, -math.inf], "eval": {"loss": 2.0},
        },
        {"_step": 4, "_time": 1754323204.25},
        {"_step": 5, "_time": 1754326800.25, "_attempt": 2, "train": {"loss": 1.0}, "note": "ü \udc80"},
        {"_step": 7, "_time": 1754326801.25, "_attempt": 2},
    ]  # fmt: skip


def test_the_last_rows_are_those_written_last():
    """The step of the late line is among the last two, and has its first line too."""
    rows = read_history(RUN, 2)
    assert [row["_step"] for row in rows] == [3, 7]
    assert rows[0]["eval"] == {"loss": 2.0}
    assert rows[0]["xs"] == [1.0, -math.inf]


def test_the_rows_of_all_ranks_stand_side_by_side():
    """The other process's rows follow those of the first one, step by step."""
    rows = read_history(RUN, ranks="all", metrics=["throughput", "train/loss"])
    assert [(row["_step"], row["_rank"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (5, 0), (5, 1)]
    assert rows[-1] == {"_step": 5, "_time": 1754326800.5, "_attempt": 2, "_rank": 1, "throughput": 125.0}


def test_what_is_kept_beside_the_rows_is_read():
    """Id, state, hyper-parameters, summary, attempts, artifacts and error are what the small files say."""
    run = StoredRun(RUN)
    assert (run.id, run.state, run.heartbeat) == ("digits", "failed", 1754326810.5)
    assert run.config == {"lr": 0.1, "model": {"width": 64}}
    assert run.summary["train"] == {"loss": 1.0}
    assert math.isnan(run.summary["worst"])
    assert [attempt["first_step"] for attempt in run.attempts] == [0, 5]
    assert [artifact["name"] for artifact in run.artifacts] == ["weights.txt"]
    assert run.error == {"type": "ValueError", "message": "no more data"}
    assert [row["_step"] for row in run.history(3, step_range=(None, 5))] == [2, 3, 4]
