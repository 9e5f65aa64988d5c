"""A run delivered to a W&B server on this machine, twice."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fake_wandb import FakeWandb

from trackway.replay import replay

pytestmark = pytest.mark.server

TO = {"type": "wandb", "project": "p", "save_code": False, "finish_timeout": 20}
PROGRAM = f"""
import sys
from trackway.replay import replay
report = replay(sys.argv[1], to={TO})
print(report.rows, report.skipped, report.complete)
"""


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
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        yield server


def replayed(folder):
    """Replay in a process of its own; return what it printed."""
    words = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def steps(server):
    """The steps of the rows that the server has, and whether their values are right."""
    rows = server.runs["long"].rows
    assert all(row["loss"] == pytest.approx(1 / (row["_step"] + 1)) for row in rows)
    return [row["_step"] for row in rows]


def test_twice_is_once_and_what_the_server_lost_comes_again(long, server):
    """A second replay adds nothing; one after a lost end delivers what the server lacks, and no row twice."""
    folder = long(40)
    assert replayed(folder) == ["40", "0", "True"]
    assert steps(server) == list(range(40))
    assert server.runs["long"].exit_code == 0
    again = replay(folder, to=TO)  # which starts nothing
    assert (again.rows, again.skipped, steps(server)) == (0, 40, list(range(40)))
    (note,) = (folder / "replay").glob("wandb-*.json")
    note.write_text(note.read_text().replace('"finished"', '""'))  # as if it had not come to the end
    run = server.runs["long"]
    del run.lines[39], run.lines[38]
    run.summary["_step"] = 37
    assert replayed(folder) == ["2", "38", "True"]
    assert steps(server) == list(range(40))
