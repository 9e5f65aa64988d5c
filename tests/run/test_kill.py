"""Processes killed at random moments."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from programs import content, run_program, started

from trackway.errors import RunBusyError
from trackway.run import Run
from trackway.store import LocalTracker, read_rows

BATCH = 5
TRAIN = """
def train():
    run = begin()
    told = os.open(sys.argv[1] + ".told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    step = 0 if run.store.last_step is None else run.store.last_step + 1
    print(os.getpid(), flush=True)
    while True:
        run.log({"loss": step / 7, "text": "x" * (step % 50), "nested": {"a": step}}, step=step)
        run.log({"twice": step}, commit=True, step=step)
        os.write(told, b"%d %f\\n" % (step, time.monotonic()))
        step += 1

print("ready", flush=True)
for _ in sys.stdin:  # forked, because starting Python anew takes ten times as long
    pid = os.fork()
    if pid == 0:
        train()
    print(os.waitpid(pid, 0)[1], flush=True)
"""


def _killed(nursery, folder, seconds):
    """Train in *folder* for a moment, kill the process; return the last steps that it knew to be logged.

    The last one of all, and the last one that was a second old.
    """
    print(file=nursery.stdin, flush=True)
    pid = int(nursery.stdout.readline())
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    assert int(nursery.stdout.readline()) == signal.SIGKILL
    lines = folder.with_suffix(".told").read_bytes().split(b"\n")[:-1]
    told = [(int(step), float(when)) for step, when in map(bytes.split, lines)]
    folder.with_suffix(".told").unlink()
    old = [step for step, when in told if when < killed - 1.0]
    return told[-1][0] if told else -1, old[-1] if old else -1


def _survives(folder, number, seed):
    """Kill *number* processes that continue one run, one after the other, and look at the rows after each."""
    chance = random.Random(seed)
    with started(TRAIN, folder) as nursery:
        for attempt in range(1, number + 1):
            seconds = 1.2 if attempt == number - 1 else chance.uniform(0.0, 0.06)
            last, old = _killed(nursery, folder, seconds)
            rows = read_rows(folder)
            steps = [row["_step"] for row in rows]
            assert steps == list(range(len(steps))), "a row is missing, or there twice"
            assert old < len(steps), "a row is missing that was a second old"
            assert last - len(steps) < BATCH, "more rows are missing than are written at once"
            assert all(row["loss"] == row["_step"] / 7 and row["twice"] == row["_step"] for row in rows)
            run = content(folder)
            assert run["state"] == "running"
            assert [attempt["number"] for attempt in run["attempts"]] == list(range(1, attempt + 1))
    with Run([], LocalTracker(folder, exclusive=True)) as run:
        assert dict(run.summary)["twice"] == len(steps) - 1
        run.log({"loss": 0.0})
    assert [row["_step"] for row in read_rows(folder)] == list(range(len(steps) + 1))


def test_killed_runs_lose_no_row_that_is_a_second_old(tmp_path):
    """Twenty kills at random moments: rows are there once and whole, but for the last few; the next one goes on."""
    _survives(tmp_path / "run", 20, seed=0)


@pytest.mark.slow  # eighty processes, one after the other
@pytest.mark.timeout(300)
def test_killed_runs_lose_no_row_at_length(tmp_path):
    """The same again and again, in runs that go on and on."""
    for seed in range(4):
        _survives(tmp_path / f"run{seed}", 20, seed=seed + 1)


def test_open_row_of_a_killed_process_is_not_made_up(tmp_path):
    """What was never committed is not in the file, and its step is free for the next process."""
    program = """
    run = begin()
    run.log({"a": 1}, step=0)
    run.log({"b": 2}, step=1)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run_program(program, tmp_path / "run").returncode == -signal.SIGKILL
    assert [row["_step"] for row in read_rows(tmp_path / "run")] == [0]
    with Run([], LocalTracker(tmp_path / "run", exclusive=True)) as run:
        run.log({"b": 3})
    assert [(row["_step"], row.get("b")) for row in read_rows(tmp_path / "run")] == [(0, None), (1, 3)]


def test_process_that_was_stopped_and_killed(tmp_path):
    """A process that hangs keeps the run for as long as it is there, and not a moment longer."""
    with started("run = begin()\nrun.log({'a': 1})\nprint('ready', flush=True)\ntime.sleep(20)", tmp_path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(RunBusyError):
            LocalTracker(tmp_path, exclusive=True)
        process.kill()
        process.wait(20)
    LocalTracker(tmp_path, exclusive=True).finish()
    assert content(tmp_path)["state"] == "finished"
