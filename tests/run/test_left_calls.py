"""Rows that a thread leaves to the one that is writing: seen by nobody, and never lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import trackway
from trackway.errors import StepError
from trackway.run import Run
from trackway.store import read_rows

WAIT = 20.0


class Held:
    """Holds a run at the row of step 0 until `go` is set."""

    def __init__(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        append = run._core._append
        assert append is not None

        def held(*row):
            if row[0] == 0:
                self.reached.set()
                assert self.go.wait(WAIT)
            return append(*row)

        monkeypatch.setattr(run._core, "_append", held)
        self.thread = threading.Thread(target=run.log, args=({"first": 0},))

    def __enter__(self) -> None:
        self.thread.start()
        assert self.reached.wait(WAIT)

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.thread.join(WAIT)


def test_a_thread_that_logs_does_not_wait_for_another_ones_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is left to the thread that is writing, and is in the store, behind that one's, when it is done."""
    with trackway.start(dir=tmp_path, run_id="run") as run:
        with Held(run, monkeypatch):
            run.log({"second": 1})
            run.log({"third": 2})
        assert run.summary["third"] == 2
    assert [(row["_step"], *set(row) - {"_step", "_time"}) for row in read_rows(tmp_path / "run")] == [
        (0, "first"),
        (1, "second"),
        (2, "third"),
    ]


def test_only_so_many_rows_are_left_to_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who logs more than it takes to keep the writing thread busy waits like everybody else."""
    with trackway.start(dir=tmp_path, run_id="run") as run:

        def flood() -> None:
            for number in range(1000):
                run.log({"number": number})

        flooding = threading.Thread(target=flood)
        with Held(run, monkeypatch):
            flooding.start()
            flooding.join(0.2)
            assert flooding.is_alive()
            assert len(run._core._calls) <= 65
        flooding.join(WAIT)
    assert [row.get("number") for row in read_rows(tmp_path / "run")] == [None, *range(1000)]


def test_an_error_of_a_step_is_raised_where_the_row_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the policy "error" no row is left to another thread, which would get the error."""
    with trackway.start(dir=tmp_path, run_id="run", step_policy="error") as run:
        errors = []

        def late() -> None:
            try:
                run.log({"late": 1}, step=-5)
            except StepError as error:
                errors.append(error)

        thread = threading.Thread(target=late)
        with Held(run, monkeypatch):
            thread.start()
            thread.join(0.1)
            assert thread.is_alive()
        thread.join(WAIT)
        assert len(errors) == 1


def test_a_callback_runs_on_the_thread_that_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody is told of rows, each is delivered by the time that its own call returns."""
    seen = []
    with trackway.start(dir=tmp_path, run_id="run") as run:
        run.on_commit(lambda row: seen.append(row["_step"]))

        def log() -> None:
            run.log({"second": 1})
            seen.append("returned")

        thread = threading.Thread(target=log)
        with Held(run, monkeypatch):
            thread.start()
            thread.join(0.1)
            assert thread.is_alive()
        thread.join(WAIT)
    assert seen.index(1) < seen.index("returned")


def test_rows_are_left_to_a_thread_that_waits_for_its_turn_too(tmp_path: Path) -> None:
    """Who comes while another one waits does not wait as well, and its row is there for whoever reads."""
    with trackway.start(dir=tmp_path, run_id="run") as run:
        first = threading.Thread(target=run.log, args=({"first": 0},))
        with run._core.lock:
            first.start()
            while not run._core._expected:
                first.join(0.001)
            second = threading.Thread(target=run.log, args=({"second": 1},))
            second.start()
            second.join(WAIT)
            assert not second.is_alive()
            assert run.summary["second"] == 1
        first.join(WAIT)
        assert run.report().rows == 2
    assert [set(row) - {"_step", "_time"} for row in read_rows(tmp_path / "run")] == [{"second"}, {"first"}]


def test_every_thread_reads_what_it_has_logged(tmp_path: Path) -> None:
    """Whoever writes a row, the thread that logged it finds it in summary and history at once."""
    missed = []
    with trackway.start(dir=tmp_path, run_id="run") as run:

        def work(name: str) -> None:
            for number in range(100):
                run.log({name: number})
                if run.summary[name] != number or run.history(None, metrics=name)[-1][name] != number:
                    missed.append((name, number))

        threads = [threading.Thread(target=work, args=(f"thread{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    assert missed == []
    assert len(read_rows(tmp_path / "run")) == 400


def test_a_left_row_that_cannot_be_made_stands_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step beyond 64 bits is counted, reaches no other thread, and the rows behind it are made."""
    with trackway.start(dir=tmp_path, run_id="run") as run:
        held = Held(run, monkeypatch)
        with held:
            run.log({"last": 1}, step=2**63 - 1)
            run.log({"beyond": 1})
            run.log({"beyond": 2})
        run.log({"after": 1}, step=2**63 - 1)
        assert run.report().run.failed == {"log": 1}
    assert "after" in read_rows(tmp_path / "run")[-1]
