"""The page of the run directory says enough to write a reader."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import trackway
from trackway.store import read_history


@pytest.fixture
def read(pages):
    """Return the function `read` of the program on the page, which uses nothing of trackway."""
    (block,) = (block for block in pages["docs/run-directory.md"].blocks if block.title == "reader")
    assert "trackway" not in block.text
    namespace = {"Path": Path}
    exec(block.text, namespace)
    return namespace["read"]


def _both(read, path):
    rows = {row.pop("_step"): row for row in read_history(path)}
    for row in rows.values():
        row.pop("_attempt", None)
    return repr(read(path)), repr(rows)  # NaN equals nothing


def test_the_reader_on_the_page_reads_the_frozen_directory(read, root, caplog):
    """Its rows of every kind of line are those of the library."""
    caplog.set_level(logging.ERROR, "trackway")  # one line of the directory is damaged
    for name in ("metrics.jsonl", "metrics.rank1.jsonl"):
        shown, expected = _both(read, root / "tests" / "store" / "fixtures" / "format1" / name)
        assert shown == expected


def test_the_reader_on_the_page_reads_what_is_written_now(read, tmp_path):
    """Late rows, rewinds and several openings give it the same rows as the library."""
    for steps in ([0, 5, 2, 2, 6], [4, 3, 9], [6]):
        with trackway.start(dir=tmp_path, run_id="run", step_policy="allow") as run:
            for step in steps:
                trackway.log({"loss": step / 3, "group": {f"m{step}": float("nan")}}, step=step)
            run.rewind(1)
            trackway.log({"loss": len(steps), "group": {"n": 2**70}}, step=len(steps))
    shown, expected = _both(read, tmp_path / "run" / "metrics.jsonl")
    assert shown == expected
