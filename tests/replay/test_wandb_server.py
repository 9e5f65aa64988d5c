"""A run delivered to a W&B server on this machine, twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil
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

KILLED = f"""
import sys
from trackway.replay import _delivery, replay
from trackway.replay._cursor import CursorFile
from trackway.replay._taker import Taker
_delivery._ROWS = 64
save = CursorFile.save
def until_killed(rows):
    print(rows, flush=True)
    sys.stdin.read()
def note(file, cursor):
    if cursor.rows < 150 or sys.argv[2] == "all noted":
        return save(file, cursor)
    if sys.argv[2] == "sent":
        import wandb
        wandb.run.finish()
    until_killed(cursor.rows)
CursorFile.save = note
Taker.finish = lambda *_: until_killed(400)
replay(sys.argv[1], to={TO})
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


def killed_at_a_note(folder, arrived):
    """Begin a replay that stops before it notes that it handed over the last rows; kill it and W&B's process."""
    command = [sys.executable, "-c", KILLED, str(folder), arrived]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        handed_over = int(process.stdout.readline())
        theirs = psutil.Process(process.pid).children(recursive=True)
        for one in (psutil.Process(process.pid), *theirs):
            one.kill()
    assert process.returncode == -signal.SIGKILL
    assert psutil.wait_procs(theirs, 10)[1] == []
    return handed_over


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


@pytest.mark.parametrize("arrived", ["sent", "not sent", "all noted"])
def test_after_a_kill_each_row_is_there_once(long, with_more, server, arrived):
    """A replay that is killed is completed by a further one, whether W&B got more by then than was noted, or less."""
    folder = with_more(long(400), 400)
    handed_over = killed_at_a_note(folder, arrived)
    (note,) = (folder / "replay").glob("wandb-*.json")
    noted = json.loads(note.read_text())["rows"]
    there = len(server.runs["long"].lines)
    assert (noted, handed_over) == (400, 400) if arrived == "all noted" else 0 < noted < handed_over < 400
    assert there == (handed_over if arrived == "sent" else 0)
    assert replayed(folder) == [str(400 - there), str(there), "True"]
    assert steps(server) == list(range(400))
    run = server.runs["long"]
    assert [row["n"] for row in run.rows] == list(range(400))
    assert [(row["_step"], row["event"], row["tick/at"]) for row in run.rows if "event" in row] == [
        (step, "tick", step) for step in range(0, 400, 50)
    ]
    assert (run.config["lr"], run.summary["best"], run.exit_code) == (0.1, 0.25, 0)
    made = [one for one in server.artifacts.values() if one["state"] == "COMMITTED"]
    assert {(one["artifactCollectionName"], *one["files"].values()) for one in made} == {("weights", b"weights")}
