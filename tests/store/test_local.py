"""The run directory as `LocalTracker` writes it."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from trackway.errors import ConfigError, StepError
from trackway.store import LocalTracker, read_rows
from trackway.tracker import CompositeTracker, log
from trackway.values import Histogram


def _json(path):
    """The content of a JSON file."""
    return json.loads(path.read_bytes())


def test_one_log_is_one_line_with_reserved_keys_first(tmp_path):
    """A row is in the file when `log` returns: step, Unix time, then the metrics in their order."""
    with LocalTracker(tmp_path / "run") as tracker:
        before = time.time()
        tracker.log({"loss": 0.5, "train": {"acc": 1}}, step=42)
        line = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert line.endswith(b"}\n")
    row = json.loads(line)
    assert list(row) == ["_step", "_time", "loss", "train"]
    assert before <= row["_time"] <= time.time()
    assert (row["_step"], row["loss"], row["train"]) == (42, 0.5, {"acc": 1})


def test_step_none_counts_on_from_the_last_one(tmp_path):
    """Without a step a row gets the last one + 1; explicit steps of any order are stored as given."""
    with LocalTracker(tmp_path) as tracker:
        for step in (None, None, 10, None, -3, None, np.int64(7)):
            tracker.log({}, step=step)
    assert [row["_step"] for row in read_rows(tmp_path)] == [0, 1, 10, 11, -3, -2, 7]


def test_wrong_arguments_raise_before_anything_is_written(tmp_path):
    """A step that is no integer and a payload that is no mapping are the caller's errors; no row is left by them."""
    with LocalTracker(tmp_path) as tracker:
        with pytest.raises(StepError):
            tracker.log({"loss": 1.0}, step=0.5)
        with pytest.raises(TypeError):
            tracker.log([1.0], step=0)
    assert read_rows(tmp_path) == []


@pytest.mark.parametrize("strict", [False, True])
def test_values_read_back_equal(tmp_path, strict):
    """Numbers JSON has no form for come back from the file, in strict JSON too."""
    values = {"nan": math.nan, "inf": [1.0, -math.inf], "big": 2**70, "text": "é\n\udc80", "none": None, "zero": -0.0}
    with LocalTracker(tmp_path, strict_json=strict) as tracker:
        tracker.log(values, step=1)
        tracker.log_summary({"best": math.inf})
    (row,) = read_rows(tmp_path)
    assert math.isnan(row.pop("nan"))
    assert {key: value for key, value in row.items() if key[0] != "_"} == {
        k: v for k, v in values.items() if k != "nan"
    }
    assert math.copysign(1, row["zero"]) == -1
    if strict:
        line = (tmp_path / "metrics.jsonl").read_text()
        parsed = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in strict JSON"))
        assert list(parsed)[:3] == ["_step", "_time", "_nonfinite"]
        json.loads((tmp_path / "summary.json").read_bytes(), parse_constant=pytest.fail)


def test_histogram_stands_in_the_row(tmp_path):
    """A histogram is written out in its line, with its type."""
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"grads": Histogram.from_array(np.arange(100.0), num_bins=4)}, step=0)
    (row,) = read_rows(tmp_path)
    assert row["grads"]["_type"] == "histogram"
    assert row["grads"]["counts"] == [25, 25, 25, 25]


def test_threads_lose_and_tear_nothing(tmp_path):
    """Rows of 32 threads are all there, each whole, each thread's in its order, with no step given twice."""
    tracker = LocalTracker(tmp_path, sync_interval=0.01)

    def work(number):
        for n in range(300):
            tracker.log({"thread": number, "n": n, "text": "x" * (n % 50)})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracker.finish()
    rows = read_rows(tmp_path)
    assert len(rows) == 32 * 300
    assert [row["_step"] for row in rows] == list(range(32 * 300))
    for number in range(32):
        assert [row["n"] for row in rows if row["thread"] == number] == list(range(300))


def test_summary_follows_without_being_asked(tmp_path):
    """The last values are on disk within about the interval, without flush or finish."""
    tracker = LocalTracker(tmp_path, sync_interval=0.05)
    tracker.log({"loss": 0.25}, step=0)
    path = tmp_path / "summary.json"
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not path.exists():
        time.sleep(0.02)
    assert _json(path) == {"loss": 0.25}
    tracker.finish()


def test_finish_ends_the_run_once(tmp_path):
    """After `finish` the state is finished, calls are counted and do nothing, and finishing again is fine."""
    tracker = LocalTracker(tmp_path)
    tracker.log({"loss": 1.0}, step=0)
    tracker.finish()
    tracker.finish()
    tracker.log({"loss": 2.0}, step=1)
    tracker.log_summary({"best": 1})
    tracker.log_hyperparameters({"lr": 1})
    tracker.log_artifact(__file__)
    tracker.flush()
    assert len(read_rows(tmp_path)) == 1
    assert sum(tracker.report().dropped.values()) == 5
    run = _json(tmp_path / "run.json")
    assert (run["format"], run["state"], run["id"]) == (1, "finished", tmp_path.name)
    assert run["attempts"][0]["end"] >= run["attempts"][0]["start"]


def test_with_block_that_raises_leaves_a_failed_run(tmp_path):
    """The error that ended a block is in run.json, and the rows before it are kept."""
    tracker = LocalTracker(tmp_path)

    def train():
        with tracker:
            log({"loss": 1.0}, step=0)
            return 1 / 0

    with pytest.raises(ZeroDivisionError):
        train()
    run = _json(tmp_path / "run.json")
    assert run["state"] == "failed"
    assert run["error"] == {"type": "ZeroDivisionError", "message": "division by zero"}
    assert len(read_rows(tmp_path)) == 1


def test_run_json_says_who_ran_what(tmp_path, monkeypatch):
    """Command, process, host and versions of an attempt are noted; environment variables are not."""
    monkeypatch.setenv("MY_API_KEY", "very-secret-value")
    LocalTracker(tmp_path).finish()
    (attempt,) = _json(tmp_path / "run.json")["attempts"]
    assert attempt["pid"] == os.getpid()
    assert attempt["command"] == sys.argv
    assert attempt["python"] == ".".join(map(str, sys.version_info[:3]))
    assert b"very-secret-value" not in (tmp_path / "run.json").read_bytes()


def test_other_ranks_write_their_rows_alone(tmp_path):
    """A process of rank 1 keeps its rows in a file of its own and touches nothing that the primary one writes."""
    with LocalTracker(tmp_path, rank=1) as tracker:
        tracker.log({"loss": 1.0}, step=5)
        tracker.log_summary({"best": 1.0})
        tracker.log_hyperparameters({"lr": 0.1})
        tracker.log_artifact(__file__)
        tracker.flush()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.rank1.jsonl"]
    assert read_rows(tmp_path / "metrics.rank1.jsonl")[0]["_step"] == 5


def test_rank_is_found_out(tmp_path, monkeypatch):
    """The rank comes from the launcher's environment where it is not given."""
    monkeypatch.setenv("RANK", "2")
    LocalTracker(tmp_path).finish()
    assert (tmp_path / "metrics.rank2.jsonl").exists()


def test_start_says_where_the_record_goes(tmp_path, caplog, monkeypatch):
    """One line of information names the directory, which stays the same after a change of working directory."""
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.INFO, "trackway"):
        tracker = LocalTracker("runs/mine")
    monkeypatch.chdir("/")
    tracker.log({"loss": 1.0}, step=0)
    tracker.finish()
    assert tracker.directory == tmp_path / "runs" / "mine"
    assert f"run mine is kept in {tracker.directory}" in caplog.text
    assert len(read_rows(tracker.directory)) == 1


@pytest.mark.parametrize("place", ["file/run", "/proc/trackway-run"])
def test_directory_that_cannot_be_made_is_a_configuration_error(tmp_path, monkeypatch, place):
    """A run that could keep nothing fails at its start, and the message names the directory and the cure."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written: .*TRACKWAY_DIR"):
        LocalTracker(place)


def test_directory_of_a_later_format_is_left_alone(tmp_path):
    """A run written by a later version is not touched."""
    (tmp_path / "run.json").write_text('{"format": 2, "id": "x"}')
    with pytest.raises(ConfigError, match="format 2"):
        LocalTracker(tmp_path)
    assert (tmp_path / "run.json").read_text() == '{"format": 2, "id": "x"}'


def test_downgraded_value_is_counted(tmp_path):
    """A value stored as text is in the report, and its neighbour is kept."""
    with LocalTracker(tmp_path) as tracker:
        with pytest.warns(UserWarning, match="thing"):
            tracker.log({"thing": object(), "loss": 1.0}, step=0)
        assert sum(tracker.report().converted.values()) == 1
    assert read_rows(tmp_path)[0]["loss"] == 1.0


def _run(program, *arguments):
    """Start a program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)], stdout=subprocess.PIPE
    )


def test_killed_process_loses_no_row(tmp_path):
    """Rows logged before SIGKILL are all in the file, the summary is about a second old, and the run goes on."""
    process = _run(
        """
        import sys, time
        from trackway.store import LocalTracker
        tracker = LocalTracker(sys.argv[1], sync_interval=0.1)
        tracker.log_summary({"best": 1})
        for step in range(1000):
            tracker.log({"loss": step}, step=step)
        print("logged", flush=True)
        time.sleep(60)
        """,
        tmp_path,
    )
    assert process.stdout.readline() == b"logged\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert [row["_step"] for row in read_rows(tmp_path)] == list(range(1000))
    assert _json(tmp_path / "run.json")["state"] == "running"
    with LocalTracker(tmp_path) as tracker:
        tracker.log({"loss": -1})
    assert read_rows(tmp_path)[-1]["_step"] == 1000
    assert _json(tmp_path / "summary.json") == {"loss": -1, "best": 1}
    assert [attempt["state"] for attempt in _json(tmp_path / "run.json")["attempts"]] == ["running", "finished"]


def test_exit_without_finish_keeps_the_summary(tmp_path):
    """A program that forgets `finish` has its rows and summary on disk; its state still says running."""
    process = _run(
        """
        import sys
        from trackway.store import LocalTracker
        LocalTracker(sys.argv[1], sync_interval=60).log({"loss": 0.5}, step=3)
        """,
        tmp_path,
    )
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert _json(tmp_path / "summary.json") == {"loss": 0.5}
    assert _json(tmp_path / "run.json")["state"] == "running"


def test_forked_child_writes_nothing(tmp_path):
    """A child of fork leaves the parent's files alone, at its exit too, and the parent goes on."""
    process = _run(
        """
        import os, sys
        from trackway.store import LocalTracker
        tracker = LocalTracker(sys.argv[1], sync_interval=60)
        tracker.log({"n": 0}, step=0)
        pid = os.fork()
        if pid == 0:
            tracker.log({"n": -1}, step=-1)
            tracker.log_summary({"child": 1})
            tracker.flush()
            tracker.finish()
            print(sum(tracker.report().dropped.values()), flush=True)
            sys.exit()
        os.waitpid(pid, 0)
        tracker.log({"n": 1}, step=1)
        tracker.finish()
        """,
        tmp_path,
    )
    out, _ = process.communicate(timeout=20)
    assert out == b"3\n"
    assert [row["n"] for row in read_rows(tmp_path)] == [0, 1]
    assert _json(tmp_path / "summary.json") == {"n": 1}


def test_child_that_outlives_the_parent_does_not_hold_the_run(tmp_path):
    """The lock on a run goes with the process that wrote it, though a forked child lives on."""
    process = _run(
        """
        import os, sys, time
        from trackway.store import LocalTracker
        tracker = LocalTracker(sys.argv[1])
        tracker.log({"n": 0}, step=0)
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            time.sleep(60)
        else:
            time.sleep(0.2)
            os._exit(0)
        """,
        tmp_path,
    )
    child = int(process.stdout.readline())
    try:
        process.wait(20)
        with (tmp_path / "metrics.jsonl").open("ab") as file:
            file.write(b'{"torn')
        with LocalTracker(tmp_path) as tracker:
            tracker.log({"n": 1})
        assert [row["n"] for row in read_rows(tmp_path)] == [0, 1]
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_log_in_a_signal_handler_does_not_hang(tmp_path):
    """A handler that logs while the main thread logs ends, and both rows are whole."""
    tracker = LocalTracker(tmp_path)

    def handler(*_):
        tracker.log({"handler": 1})
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # not periodic: a slow machine would interrupt the handler itself

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        for n in range(3000):
            tracker.log({"n": n})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    tracker.finish()
    rows = read_rows(tmp_path)
    assert [row["n"] for row in rows if "n" in row] == list(range(3000))
    assert any("handler" in row for row in rows)
    assert tracker.report().delivered == len(rows)


def test_works_behind_a_composite(tmp_path):
    """Two stores side by side get the same rows."""
    trackers = [LocalTracker(tmp_path / name) for name in "ab"]
    with CompositeTracker(trackers):
        log({"loss": 1.0}, step=0)
    assert read_rows(tmp_path / "a")[0]["loss"] == read_rows(tmp_path / "b")[0]["loss"] == 1.0


def test_start_finish_start_in_one_process(tmp_path):
    """The same directory can be opened again after `finish`, as a second attempt."""
    for _ in range(2):
        with LocalTracker(tmp_path) as tracker:
            tracker.log({"loss": 1.0})
    assert [row["_step"] for row in read_rows(tmp_path)] == [0, 1]
    assert [attempt["number"] for attempt in _json(tmp_path / "run.json")["attempts"]] == [1, 2]


def test_continuing_a_finished_run_is_said(tmp_path, caplog):
    """A run id used again by mistake mixes two trainings: a run that had finished and is continued gets a warning."""
    for _ in range(2):
        with LocalTracker(tmp_path / "line") as tracker:
            tracker.log({"a": 1})
    (message,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert message.startswith("local: run line had finished and is continued, attempt 2;")


def test_continuing_a_run_that_was_killed_is_no_news(tmp_path, caplog):
    """A preempted run that goes on under its id is what ids are for."""
    program = f"""
import os
from trackway.store import LocalTracker
LocalTracker({str(tmp_path / "line")!r}).log({{"a": 1}})
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", program], timeout=30)
    LocalTracker(tmp_path / "line").finish()
    assert [r for r in caplog.records if r.levelname == "WARNING"] == []
