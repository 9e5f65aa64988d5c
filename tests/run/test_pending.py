"""Rows whose values a device still computes: not waited for, in their place among the others, never left behind."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from late_array import Late
from programs import wait_for
from stored import lines_of

import trackway
from trackway.errors import FatalTrackerError, StepError, TrackwayWarning
from trackway.run import Run
from trackway.store import LocalTracker, read_history
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import BackgroundTracker, CompositeTracker, RequiredTracker


@pytest.fixture
def late():
    """Return a function that makes an array which arrives when told to; at the end of the test all do."""
    made = []

    def make(value, dtype=np.float32):
        made.append(Late(value, dtype))
        return made[-1]

    yield make
    for array in made:
        array.arrive()


@pytest.fixture
def begin(run, late):
    """Return a function that calls another on a thread, and gives what tells that it ended; it has in the end."""
    threads = []

    def start(work):
        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()
        return lambda seconds: threads[-1].join(seconds) or not threads[-1].is_alive()

    yield start
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def stored(run):
    """Return the lines of the run's file: pairs of a step and values."""
    return [(row["_step"], {k: v for k, v in row.items() if k[0] != "_"}) for row in lines_of(run)]


@pytest.mark.parametrize("log", [trackway.log, Run.log], ids=["verb", "method"])
def test_a_row_with_a_late_value_keeps_its_place(run, recorder, late, log):
    """It is passed over by nothing: rows of host values, sums and summaries line up behind it."""
    call = log if log is trackway.log else run.log
    array = late(0.5)
    call({"loss": array}, step=0)
    call({"lr": 0.1}, step=0)
    call({"lr": 0.2}, step=1)
    run.add({"seconds": 1.0})
    run.log_summary({"best": 1})
    call({"lr": 0.3}, step=2)
    assert (recorder.rows, recorder.summary, stored(run), run.open_step()) == ([], {}, [], None)
    assert run.report().pending == 6
    array.arrive()
    run.flush()
    rows = [(0, {"loss": 0.5, "lr": 0.1}), (1, {"lr": 0.2, "seconds": 1.0})]
    assert recorder.rows == stored(run) == rows
    assert (recorder.summary, run.open_step(), run.report().pending) == ({"best": 1}, 2, 0)


def test_merging_goes_by_the_order_of_the_calls(run, recorder, late):
    """A late value that was logged first does not win over a later one that was there at once."""
    array = late(1.0)
    run.log({"x": array, "tree": {"a": array}}, step=0)
    run.log({"x": 2.0, "tree": {"b": 2.0}}, step=0)
    run.log({}, commit=True)
    array.arrive()
    run.flush()
    assert recorder.rows == [(0, {"x": 2.0, "tree": {"a": 1.0, "b": 2.0}})]


def test_a_late_step_keeps_its_place(run, recorder, late):
    """A step on a device is not waited for either; `_step` is an integer in the end."""
    array = late(7, np.int32)
    run.log({"x": 1}, step=array)
    run.log({"y": 1}, step=7)
    run.log({"z": 1})
    assert recorder.rows == []
    array.arrive()
    run.flush()
    assert recorder.rows == [(7, {"x": 1, "y": 1, "z": 1})]
    assert type(recorder.rows[0][0]) is int


def test_a_late_step_that_lies_behind_is_late(run, recorder, late):
    """The policy holds for rows that waited, with one warning and a count."""
    array = late(3, np.int32)
    run.log({"x": 1}, step=5)
    run.log({"late": 1}, step=array)
    with pytest.warns(TrackwayWarning, match="step 3 came after step 5"):
        array.arrive()
        run.flush()
    run.log({"y": 1})
    assert (recorder.rows, run.report().late) == ([(5, {"x": 1, "y": 1})], 1)


def test_under_the_policy_error_a_late_step_raises_where_it_is_delivered(late, begin):
    """The caller that delivers it is told; the rows behind are not lost."""
    recorder, array, told = RecordingTracker(), late(3, np.int32), []

    def flush():
        with pytest.raises(StepError, match="step 3 lies behind step 5"):
            run.flush()
        told.append(True)

    with Run([recorder], step_policy="error") as run:
        run.log({"x": 1}, step=5)
        run.log({"late": 1}, step=array)
        ended = begin(flush)
        assert array.asked.wait(20)  # so that nobody else delivers it
        array.arrive()
        assert ended(20)
        assert told
        run.log({"y": 1})
    assert recorder.rows == [(5, {"x": 1, "y": 1})]


def test_only_the_ninth_row_waits(run, recorder, late, begin):
    """Eight rows of many device values may wait; the next call waits for the older half of them."""
    arrays = [late(np.full(1025, i)) for i in range(9)]
    for array in arrays:
        array.shape, array.size = (1025,), 1025
    for step in range(8):
        run.log({"x": arrays[step]}, step=step, commit=True)
    assert recorder.rows == []
    ended = begin(lambda: run.log({"x": arrays[8]}, step=8, commit=True))
    assert arrays[0].asked.wait(20)
    assert not ended(0)
    for array in arrays[:5]:
        array.arrive()
    assert ended(20)
    assert recorder.rows == [(step, {"x": [float(step)] * 1025}) for step in range(5)]


def test_sixty_four_rows_of_few_values_wait_together(run, recorder, late, begin):
    """They hold next to no memory of the device; with one more the call waits for the older half of them."""
    arrays = [late(i) for i in range(65)]
    for step in range(64):
        run.log({"x": arrays[step]}, step=step, commit=True)
    assert recorder.rows == []
    ended = begin(lambda: run.log({"x": arrays[64]}, step=64, commit=True))
    assert arrays[0].asked.wait(20)
    assert not ended(0)
    for array in arrays[:64]:
        array.arrive()
    assert ended(20)
    assert recorder.rows[:33] == [(step, {"x": float(step)}) for step in range(33)]


def test_a_row_is_delivered_while_nobody_logs(run, recorder, late):
    """Its values arrive after the last call: the run's own thread delivers it, and what waits behind it."""
    array = late(0.5)
    run.log({"loss": array}, step=0, commit=True)
    run.log({"lr": 0.1}, step=1, commit=True)
    array.arrive()
    assert wait_for(lambda: len(recorder.rows) == 2)
    assert recorder.rows == stored(run) == [(0, {"loss": 0.5}), (1, {"lr": 0.1})]


def test_callbacks_on_the_runs_own_thread_have_the_context_of_the_run(run, late):
    """A verb in a callback reaches the run, whoever delivers the row; its row comes after those that wait."""
    run.on_commit(lambda row: trackway.log({"echo": row["_step"]}) if "loss" in row else None)
    array = late(0.5)
    run.log({"loss": array}, step=0, commit=True)
    run.log({"lr": 0.1}, step=1, commit=True)
    array.arrive()
    assert wait_for(lambda: run.report().rows == 3)
    run.flush()
    assert stored(run) == [(0, {"loss": 0.5}), (1, {"lr": 0.1}), (2, {"echo": 0})]


WAITING = {
    "flush": (Run.flush, None),
    "flush commit_open": (lambda run: run.flush(commit_open=True), None),
    "finish": (Run.finish, None),
    "rewind": (lambda run: run.rewind(2), None),
    "state_dict": (lambda run: run.state_dict()["next_step"], 6),
    "summary[]": (lambda run: run.summary["x"], 0.5),
    "summary.get": (lambda run: run.summary.get("nothing"), None),
    "dict(summary)": (lambda run: dict(run.summary), {"x": 0.5, "y": 1}),
}


@pytest.mark.parametrize("way", WAITING)
def test_what_speaks_of_everything_logged_waits_for_late_values(run, recorder, late, begin, way):
    """It returns, and answers, once the rows are there."""
    array, answers = late(0.5), []
    wait, gives = WAITING[way]
    run.log({"x": array}, step=4, commit=True)
    run.log({"y": 1}, step=5, commit=True)
    ended = begin(lambda: answers.append(wait(run)))
    assert array.asked.wait(20)
    assert not ended(0)
    array.arrive()
    assert ended(20)
    assert answers == [gives]
    assert recorder.rows == [(4, {"x": 0.5}), (5, {"y": 1})]


def test_report_and_open_step_do_not_wait(run, late):
    """They say what is so now."""
    run.log({"x": 1}, step=4)
    run.log({"y": late(0.5)}, step=5)
    assert (run.open_step(), run.report().pending, run.report().rows) == (4, 1, 0)
    assert "1 pending" in str(run.report())


def test_a_value_that_cannot_be_read_costs_no_neighbour(run, recorder, late):
    """An array whose transfer fails leaves the others of its row, and the rows after it, whole; it is counted."""
    broken, array = late(1.0), late(2.0)
    broken.fail = True
    run.log({"broken": broken, "late": array, "ok": 1}, step=0, commit=True)
    run.log({"ok": 2}, step=1, commit=True)
    broken.arrive()
    array.arrive()
    run.flush()
    assert [step for step, _ in recorder.rows] == [0, 1]
    row = recorder.rows[0][1]
    assert (row["late"], row["ok"]) == (2.0, 1)
    assert sum(run.report().run.dropped.values()) == 1


def test_rows_of_jax_arrays_arrive_as_numbers(run, recorder):
    """Verbs and methods alike, arrays of any size, in the order of the steps."""
    double = jax.jit(lambda x: x * 2)
    for step in range(20):
        x = double(jnp.float32(step))
        (trackway.log if step % 2 else run.log)({"x": x, "vector": jnp.arange(2) + step}, step=step)
    run.flush(commit_open=True)
    assert recorder.rows == stored(run) == [(i, {"x": 2.0 * i, "vector": [i, i + 1]}) for i in range(20)]
    assert type(recorder.rows[0][1]["x"]) is float


def test_rows_of_compiled_code_keep_their_place_among_others(run, recorder):
    """A compiled step logs, then the host: one row for each step, in the order of the program."""

    @trackway.jit
    def step_fn(x, i):
        trackway.log({"loss": x * i}, step=i)
        return x + 1

    x = jnp.float32(1)
    for i in range(12):
        x = step_fn(x, i)
        trackway.log({"host": i}, step=i)
    trackway.log({"last": 1})
    run.flush()
    assert [step for step, _ in recorder.rows] == list(range(12))
    assert recorder.rows[3] == (3, {"loss": 12.0, "host": 3})
    assert recorder.rows[11] == (11, {"loss": 132.0, "host": 11, "last": 1})
    assert stored(run) == recorder.rows


def test_at_step_holds_for_compiled_code_and_commits_behind_it(run, recorder, late):
    """Everything in the block is one row, also what is not there yet when the block ends."""
    step_fn = trackway.jit(lambda x: trackway.log({"compiled": x}) or x)
    array = late(0.5)
    for step in (3, 4):
        with trackway.at_step(step):
            trackway.log({"late": array})
            step_fn(jnp.float32(step))
            trackway.log({"host": step})
    assert recorder.rows == []
    array.arrive()
    run.flush()
    assert recorder.rows == [(i, {"late": 0.5, "compiled": float(i), "host": i}) for i in (3, 4)]
    assert run.open_step() is None


def test_at_step_that_is_left_by_an_error_keeps_late_values(run, recorder, late):
    """The end of the row lines up behind its values."""
    array = late(0.5)
    with pytest.raises(KeyError), trackway.at_step(3):  # noqa: PT012
        trackway.log({"late": array})
        raise KeyError
    array.arrive()
    run.flush()
    assert recorder.rows == [(3, {"late": 0.5})]


def test_an_artifact_is_stored_before_the_call_returns(run, recorder, late, begin, tmp_path):
    """Its file may be gone afterwards: what waits is delivered first, then the artifact is taken."""
    path, array = tmp_path / "weights.bin", late(0.5)
    path.write_bytes(b"w")
    run.log({"x": array}, step=0, commit=True)
    ended = begin(lambda: (run.log_artifact(path), path.unlink()))
    assert array.asked.wait(20)
    assert not ended(0)
    array.arrive()
    assert ended(20)
    assert (recorder.rows, recorder.artifacts) == ([(0, {"x": 0.5})], [("weights.bin", None, b"w")])


def test_a_block_ends_with_everything_delivered(tmp_path, late, begin):
    """Leaving `with run:` waits for values and commits the open row."""
    recorder, array = RecordingTracker(), late(0.5)

    def work():
        with Run([recorder], LocalTracker(tmp_path / "other")):
            trackway.log({"x": array}, step=0)
            trackway.log({"y": 1}, step=1)

    ended = begin(work)
    assert array.asked.wait(20)
    assert not ended(0)
    array.arrive()
    assert ended(20)
    assert recorder.rows == [(0, {"x": 0.5}), (1, {"y": 1})]


def test_a_required_tracker_that_fails_at_a_late_row_stops_the_loop(late):
    """The next call of a verb raises, whichever thread met the failure."""
    run, array = Run([RequiredTracker(FailingTracker(methods=("log",)))]), late(0.5)
    with trackway.current_tracker(run):
        trackway.log({"x": array}, step=0, commit=True)
        array.arrive()
        with pytest.raises(FatalTrackerError, match="failing is declared"):
            wait_for(lambda: trackway.log({}, step=0))
    run.finish()


def test_after_finish_late_rows_are_refused(run, recorder, late):
    """They are counted like other calls after the end, and wait for nothing."""
    run.finish()
    run.log({"x": late(0.5)}, step=0)
    assert (recorder.rows, run.report().pending) == ([], 0)
    assert run.report().run.dropped == {"called after finish": 1}


@pytest.mark.parametrize("wrap", [lambda run: CompositeTracker([run]), BackgroundTracker])
def test_late_rows_behind_a_wrapper(late, wrap, tmp_path):
    """A run behind other trackers gets them in order, too."""
    recorder, array = RecordingTracker(), late(0.5)
    with wrap(Run([recorder], LocalTracker(tmp_path))):
        trackway.log({"x": array}, step=0)
        trackway.log({"y": 1}, step=0)
        trackway.log({"z": 1}, step=1)
        array.arrive()
    assert recorder.rows == [(0, {"x": 0.5, "y": 1}), (1, {"z": 1})]
    assert read_history(tmp_path, include_meta=False) == [{"x": 0.5, "y": 1}, {"z": 1}]


def test_threads_that_log_late_values_lose_nothing(run, recorder):
    """Four threads with arrays and host values: every row once, everyone in the same order."""
    start = threading.Barrier(4)

    def work(number):
        start.wait(20)
        for i in range(25):
            run.log({"who": number, "i": jnp.int32(i) if i % 2 else i})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    run.flush()
    assert [step for step, _ in recorder.rows] == list(range(100))
    for number in range(4):
        assert [row["i"] for _, row in recorder.rows if row["who"] == number] == list(range(25))
    assert stored(run) == recorder.rows
