"""The rows of several processes, read side by side: complete or not, live, from directories and from URLs."""

from __future__ import annotations

import json

import pytest

import trackway
from trackway.cli import main
from trackway.store import read_history


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Return a function that starts a run as the process of a rank."""

    def begin(rank, place=tmp_path, **options):
        monkeypatch.setenv("RANK", str(rank))
        return trackway.start(**{"run_id": "job", "dir": place, **options})

    return begin


def log(run, steps):
    """Log a row for each of *steps* to *run*, and have it in the file."""
    for step in steps:
        run.log({"x": 100 * run.store.rank + step}, step=step)
    run.flush(commit_open=True)


def places(rows):
    """Step and rank of each row."""
    return [(row["_step"], row["_rank"]) for row in rows]


def test_processes_that_start_at_different_times(start, tmp_path):
    """The rows of those that are there can be read, also before rank 0 has begun, and without a word."""
    with start(1) as late:
        log(late, range(2))
        for rows in (
            late.history(ranks="all"),
            read_history(tmp_path / "job", ranks="all"),
            trackway.read_run(tmp_path / "job").history(ranks="all"),
        ):
            assert places(rows) == [(0, 1), (1, 1)]
        with start(0) as first:
            log(first, range(1, 3))
            first.log({"x": 5}, step=5)
            assert places(first.history(ranks="all")) == [(0, 1), (1, 0), (1, 1), (2, 0), (5, 0)]
            assert places(late.history(ranks="all")) == [(0, 1), (1, 0), (1, 1), (2, 0)]


def test_nothing_is_said_of_a_process_that_has_not_begun(start, tmp_path, caplog):
    """A missing file of rows is none that cannot be read; a missing run is an error all the same."""
    with start(2) as run:
        log(run, range(2))
        run.history(ranks="all")
    caplog.clear()
    assert places(read_history(tmp_path / "job", ranks="all")) == [(0, 2), (1, 2)]
    assert caplog.text == ""
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError):
        read_history(tmp_path / "none", ranks="all")


def test_a_torn_tail_costs_one_row_of_one_process(start, tmp_path):
    """What a killed process was writing is left out; its other rows, and those of the others, are there."""
    for rank in range(3):
        with start(rank) as run:
            log(run, range(3))
    shard = tmp_path / "job" / "metrics.rank1.jsonl"
    shard.write_bytes(shard.read_bytes()[:-5])
    expected = [(step, rank) for step in range(3) for rank in range(3) if (step, rank) != (2, 1)]
    assert places(read_history(tmp_path / "job", ranks="all")) == expected
    with start(1) as run:  # which is started anew
        log(run, range(3, 4))
    assert places(read_history(tmp_path / "job", ranks="all")) == [*expected, (3, 1)]


def test_a_job_that_goes_on_with_another_number_of_processes(start, tmp_path):
    """Each process goes on in its own file, from the checkpoint on; one that is new has no earlier rows."""
    state = {"run_id": "job", "next_step": 2}
    for rank in range(2):
        with start(rank) as run:
            log(run, range(4))
    for rank in range(3):
        with start(rank, resume_state=state) as run:
            log(run, range(2, 3))
    rows = read_history(tmp_path / "job", ranks="all")
    assert places(rows) == [*((step, rank) for step in range(2) for rank in range(2)), (2, 0), (2, 1), (2, 2)]
    with start(0, resume_state=state) as run:
        log(run, range(2, 3))
    assert places(read_history(tmp_path / "job", ranks="all")) == places(rows)


def test_a_live_run_on_an_object_store_shows_all_processes(start, tmp_path, monkeypatch):
    """What has reached the store of the other processes is in the history of each."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    url = f"file://{tmp_path}/store"
    with start(1, url) as other:
        log(other, range(2))
    assert places(read_history(f"{url}/job", ranks="all")) == [(0, 1), (1, 1)]
    with start(0, url) as first:
        log(first, range(2))
        assert places(first.history(ranks="all")) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert places(read_history(f"{url}/job", ranks="all")) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(FileNotFoundError):
        read_history(f"{url}/none", ranks="all")


def test_the_command_line_shows_all_processes(start, tmp_path, capsys):
    """`trackway history --ranks all` prints the rank of each row."""
    for rank in range(2):
        with start(rank) as run:
            log(run, range(1))
    capsys.readouterr()
    assert main(["history", str(tmp_path / "job"), "--ranks", "all", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["_step"], row["_rank"], row["x"]) for row in rows] == [(0, 0, 0), (0, 1, 100)]
