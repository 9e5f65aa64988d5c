"""Following a run that is being written."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from run_files import stranger

import trackway
from trackway.cli._tail import _Rows
from trackway.store import LocalTracker

ROOT = Path(trackway.__file__).parents[1]


class Follower:
    """A `trackway tail` in a process of its own, whose lines can be waited for."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trackway.cli", "tail", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        )
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def next(self):
        """Return the next line."""
        return self._lines.get(timeout=30)

    def end(self):
        """Return the exit code and what was printed until then."""
        code = self.process.wait(30)
        self._reader.join(30)
        rest = []
        while not self._lines.empty():
            rest.append(self._lines.get())
        return code, rest


@pytest.fixture
def follow():
    """Return a function that starts a follower, which is stopped at the end of the test."""
    started = []

    def start(*arguments):
        started.append(Follower(*arguments))
        return started[-1]

    yield start
    for follower in started:
        if follower.process.poll() is None:
            follower.process.kill()
        follower.process.wait(30)
        follower.process.stdout.close()


def test_tail_prints_rows_as_they_come_and_ends_with_the_run(tmp_path, follow):
    """It begins with the last rows, leaves out what is not asked for, and says how the run ended."""
    with LocalTracker(tmp_path / "a", run_id="a") as tracker:
        for step in range(5):
            tracker.log({"loss": step / 2, "lr": 0.1}, step=step)
        tail = follow(tmp_path / "a", "-n", 2, "-m", "loss")
        assert [tail.next(), tail.next()] == ["step 3: loss=1.5", "step 4: loss=2"]
        tracker.log({"lr": 0.1}, step=5)
        tracker.log({"loss": 3.0}, step=6)
        assert tail.next() == "step 6: loss=3"
    assert tail.end() == (0, ["trackway: run a is finished"])


def test_tail_follows_a_run_that_is_started_again(tmp_path, follow):
    """A preempted run is waited for; its next attempt is announced, with the step at which it begins."""
    rows = [{"_step": step, "_time": 1.0, "loss": 0.5} for step in range(3)]
    folder = stranger(tmp_path / "a", manifest={"state": "preempted", "attempts": [{"number": 1}]}, rows=rows)
    tail = follow(folder, "-n", 1)
    assert tail.next() == "step 2: loss=0.5"
    assert "is preempted; waiting for it to be started again" in tail.next()
    with LocalTracker(folder, run_id="a") as tracker:
        tracker.log({"loss": 0.25}, step=1)
        assert tail.next() == "trackway: attempt 2 begins at step 1"
        assert tail.next() == "step 1: loss=0.25"
    assert tail.end() == (0, ["trackway: run a is finished"])


def test_tail_without_following_ends_at_once(tmp_path, call):
    """Also while the run goes on."""
    with LocalTracker(tmp_path / "a", run_id="a") as tracker:
        tracker.log({"loss": 0.5}, step=0)
        assert call("tail", tmp_path / "a", "--no-follow") == (0, "step 0: loss=0.5\n", "")


def test_tail_as_json_has_an_object_on_each_line(tmp_path, call):
    """With step and time."""
    folder = stranger(tmp_path / "a", rows=[{"_step": step, "_time": 1.0, "loss": 0.5} for step in range(3)])
    said = call("tail", folder, "--json", "-n", 2)
    assert [json.loads(line) for line in said.out.splitlines()] == [
        {"_step": 1, "_time": 1.0, "loss": 0.5},
        {"_step": 2, "_time": 1.0, "loss": 0.5},
    ]


def test_only_whole_lines_are_rows(tmp_path):
    """A line that is half written is a row once it is whole, and one that its writer cut off is none."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"_step":0}\n{"_st')
    rows = _Rows(path)
    assert rows.skip_to_end() == 12
    assert list(rows.new()) == []
    with path.open("ab") as file:
        file.write(b'ep":1}\n{"_step":2')
    assert list(rows.new()) == [{"_step": 1}]
    os.truncate(path, 24)
    with path.open("ab") as file:
        file.write(b'{"_step":3}\n\xff\n')
    assert list(rows.new()) == [{"_step": 3}]


def test_a_file_that_is_replaced_or_comes_later_is_read_from_its_beginning(tmp_path, capsys):
    """As when a run is begun anew in the same place."""
    path = tmp_path / "metrics.jsonl"
    rows = _Rows(path)
    assert (rows.skip_to_end(), list(rows.new())) == (0, [])
    path.write_bytes(b'{"_step":0}\n{"_step":1}\n')
    assert list(rows.new()) == [{"_step": 0}, {"_step": 1}]
    (tmp_path / "new").write_bytes(b'{"_step":7}\n')
    (tmp_path / "new").replace(path)
    assert list(rows.new()) == [{"_step": 7}]
    assert "was replaced" in capsys.readouterr().err
