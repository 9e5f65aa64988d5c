"""Commit callbacks: who is called, when, in which order, in which context, and what their failures do."""

from __future__ import annotations

import contextvars
import threading

import pytest
from stored import lines_of

import trackway
from trackway.errors import FatalTrackerError
from trackway.run import Run
from trackway.store import LocalTracker, read_rows
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import RequiredTracker

WHO = contextvars.ContextVar("who", default="nobody")
WAIT = 10


class Gate:
    """A callback that stops at the first row until it is opened."""

    def __init__(self):
        """Start closed."""
        self.entered, self.opened, self.rows = threading.Event(), threading.Event(), []

    def __call__(self, row):
        """Note the row, the thread and the context."""
        self.rows.append((row["_step"], threading.current_thread().name, WHO.get()))
        self.entered.set()
        assert self.opened.wait(WAIT)

    @property
    def steps(self):
        """The steps of the rows so far."""
        return [step for step, _, _ in self.rows]


@pytest.fixture
def spawn():
    """Return a function that runs another on a thread, and gives an event that tells when it has ended."""
    threads, failures = [], []

    def start(work, name="worker"):
        ended = threading.Event()

        def guarded():
            try:
                work()
            except BaseException as error:
                failures.append(error)
            finally:
                ended.set()

        threads.append(threading.Thread(target=guarded, name=name, daemon=True))
        threads[-1].start()
        return ended

    yield start
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert failures == []


@pytest.fixture
def gate(run):
    """A gate among the callbacks of the run; it is open at the end of the test."""
    gate = Gate()
    run.on_commit(gate)
    yield gate
    gate.opened.set()


def test_a_callback_gets_step_and_time_and_then_the_metrics(run):
    """Nested as they were logged, in a dictionary of its own."""
    seen = []
    run.on_commit(seen.append)
    run.on_commit(seen.append)
    run.log({"loss": 0.5, "tree": {"a": [1]}}, step=4, commit=True)
    assert list(seen[0]) == ["_step", "_time", "loss", "tree"]
    assert seen[0] == seen[1]
    assert type(seen[0]) is dict
    assert seen[0] is not seen[1]
    assert seen[0]["tree"]["a"] is not seen[1]["tree"]["a"]


def test_callbacks_the_printer_and_trackers_are_called_in_that_order(tmp_path):
    """Callbacks in order of registration, then the line, then the trackers, once per row, after the file has it."""
    order, path = [], tmp_path / "run"

    class Noting(trackway.Tracker):
        log_hyperparameters = log_summary = log_artifact = lambda self, *_, **__: None

        def __init__(self, name):
            self.name = name

        def log(self, metrics, *, step, commit=None):
            order.append((self.name, step))

        def finish(self):
            """Do nothing."""

    with Run([Noting("t1"), Noting("t2")], LocalTracker(path), print=lambda line: order.append(("line", line))) as run:
        run.on_commit(lambda row: order.append(("first", row["_step"], len(run.history(include_open=False)))))
        run.on_commit(lambda row: order.append(("second", row["_step"])))
        run.log({"x": 1}, step=0)
        run.log({"x": 2}, step=1)
        run.log({}, commit=True)
    one = [("first", 0, 1), ("second", 0), ("line", "step 0: x=1"), ("t1", 0), ("t2", 0)]
    assert order == [*one, ("first", 1, 2), ("second", 1), ("line", "step 1: x=2"), ("t1", 1), ("t2", 1)]


def test_a_callback_can_be_removed(run):
    """It gets no row that is committed afterwards; each registration of one function is ended by itself."""
    seen = []
    first, second = run.on_commit(seen.append), run.on_commit(seen.append)
    run.log({"x": 0})
    first()
    first()
    run.log({"x": 1})
    second()
    run.log({"x": 2})
    assert [row["x"] for row in seen] == [0, 0, 1]


def test_a_callback_may_remove_itself(run, recorder):
    """In the midst of a row; those behind it and later rows are none the worse."""
    seen = []

    def once(row):
        seen.append(row["x"])
        remove()

    remove = run.on_commit(once)
    run.on_commit(lambda row: seen.append(-row["x"]))
    run.log({"x": 1})
    run.log({"x": 2})
    assert seen == [1, -1, -2]
    assert len(recorder.rows) == 2


@pytest.mark.parametrize("error", [ValueError("bad"), RuntimeError(), RecursionError("deep"), KeyError("x")])
def test_what_a_callback_raises_is_counted_and_keeps_the_row_from_nobody(run, recorder, caplog, error):
    """The training loop, the other callbacks and the trackers do not notice; it is said once."""
    seen = []

    def fail(_):
        raise error

    run.on_commit(fail)
    run.on_commit(seen.append)
    for step in range(3):
        run.log({"x": step})
    assert [row["x"] for row in seen] == [0, 1, 2]
    assert len(recorder.rows) == len(lines_of(run)) == 3
    assert run.report().run.failed == {"on_commit": 3}
    assert sum("on_commit failed" in record.message for record in caplog.records) == 1


def test_an_interrupt_in_a_callback_reaches_the_caller_and_no_row_is_lost_or_told_twice(run, recorder):
    """Ctrl+C goes through; the row goes on to the others with the next call."""
    seen, interrupts = [], [KeyboardInterrupt()]

    def interrupted(row):
        if interrupts:
            raise interrupts.pop()
        seen.append(("first", row["x"]))

    run.on_commit(interrupted)
    run.on_commit(lambda row: seen.append(("second", row["x"])))
    with pytest.raises(KeyboardInterrupt):
        run.log({"x": 0})
    run.log({"x": 1})
    assert seen == [("second", 0), ("first", 1), ("second", 1)]
    assert recorder.rows == [(0, {"x": 0}), (1, {"x": 1})]


def test_a_slow_callback_does_not_keep_another_thread_from_merging(run, recorder, gate, spawn):
    """While a callback is at work, uncommitted values of other threads go to the open row at once."""
    ended = spawn(lambda: run.log({"x": 0}))
    assert gate.entered.wait(WAIT)
    assert spawn(lambda: run.log({"a": 1}, commit=False)).wait(20), "a merge waited for a callback"
    assert spawn(lambda: run.add({"seconds": 0.5})).wait(20), "add waited for a callback"
    assert spawn(lambda: run.log({"b": 1}, step=1)).wait(20), "a merge with a step waited for a callback"
    assert not ended.is_set()
    gate.opened.set()
    assert ended.wait(WAIT)
    run.log({}, commit=True)
    assert recorder.rows == [(0, {"x": 0}), (1, {"a": 1, "seconds": 0.5, "b": 1})]


def test_a_slow_tracker_does_not_keep_another_thread_from_merging(tmp_path, spawn):
    """The same for a backend that takes its time."""
    gate = Gate()

    class Slow(trackway.Tracker):
        name = "slow"
        log_hyperparameters = log_summary = log_artifact = lambda self, *_, **__: None

        def log(self, metrics, *, step, commit=None):
            gate({"_step": step})

        def finish(self):
            """Do nothing."""

    with Run([Slow()], LocalTracker(tmp_path)) as run:
        spawn(lambda: run.log({"x": 0}))
        assert gate.entered.wait(WAIT)
        merged = spawn(lambda: run.log({"a": 1}, commit=False)).wait(20)
        gate.opened.set()
        assert merged, "a merge waited for a tracker"
    assert gate.steps == [0, 1]


def test_who_commits_waits_for_the_row_to_be_delivered(run, recorder, gate, spawn):
    """Also where another thread is at it; rows are told serially, in order of commit, on the thread that is at it."""
    WHO.set("main")
    spawn(lambda: (WHO.set("first"), run.log({"x": 0})), "first")
    assert gate.entered.wait(WAIT)
    ended = spawn(lambda: (WHO.set("second"), run.log({"x": 1})), "second")
    while run.report().rows < 2:
        ended.wait(0.01)
    assert not ended.wait(0.05)
    assert gate.steps == [0]
    assert [row["x"] for row in lines_of(run)] == [0, 1]  # accepted rows can be read already
    gate.opened.set()
    assert ended.wait(WAIT)
    assert gate.rows[0] == (0, "first", "first")
    assert (gate.rows[1][0], gate.rows[1][2]) == (1, "second")  # the context is that of the commit
    assert [step for step, _ in recorder.rows] == [0, 1]


@pytest.mark.parametrize(
    "wait", [Run.flush, lambda run: run.flush(commit_open=True), Run.finish], ids=["flush", "commit_open", "finish"]
)
def test_flush_and_finish_wait_for_what_is_being_delivered(run, recorder, gate, spawn, wait):
    """They return once every callback and every tracker has every row that was committed."""
    spawn(lambda: run.log({"x": 0}))
    assert gate.entered.wait(WAIT)
    ended = spawn(lambda: wait(run))
    assert not ended.wait(0.05)
    gate.opened.set()
    assert ended.wait(WAIT)
    assert recorder.rows == [(0, {"x": 0})]


def test_context_variables_are_those_of_the_commit(run):
    """Each row is told in a copy of the context that committed it; what a callback sets there stays there."""
    seen = []

    def note(_):
        seen.append(WHO.get())
        WHO.set("callback")

    run.on_commit(note)
    run.on_commit(note)
    for who in ("a", "b"):
        WHO.set(who)
        run.log({"x": 1}, commit=False)
        run.log({"y": 1})
    assert (seen, WHO.get()) == (["a", "a", "b", "b"], "b")


def test_the_current_tracker_in_a_callback_is_that_of_the_commit(tmp_path):
    """A verb in a callback talks to the run whose thread committed the row, whoever delivers it."""
    recorder = RecordingTracker()
    with Run([recorder]) as run:
        run.on_commit(lambda row: None if "echo" in row else trackway.log({"echo": row["x"]}))
        thread = threading.Thread(target=contextvars.copy_context().run, args=(run.log, {"x": 1}))
        thread.start()
        thread.join(WAIT)
    assert recorder.rows == [(0, {"x": 1}), (1, {"echo": 1})]


def test_a_callback_may_log_and_commit(run, recorder):
    """The sinks behind it get its row first, then everyone the new one; the call in the callback returns after that."""
    seen = []

    def echo(row):
        seen.append(("echo", row["_step"]))
        if row["_step"] % 2 == 0:
            run.log({"echo": row["_step"]})
            seen.append(("told", [step for step, _ in recorder.rows]))

    run.on_commit(echo)
    run.on_commit(lambda row: seen.append(("behind", row["_step"])))
    run.log({"x": 1})
    assert seen == [("echo", 0), ("behind", 0), ("echo", 1), ("behind", 1), ("told", [0, 1])]
    assert recorder.rows == [(0, {"x": 1}), (1, {"echo": 0})]
    assert [row["_step"] for row in lines_of(run)] == [0, 1]


def test_a_callback_may_merge_flush_read_and_report(run, recorder):
    """Everything but the end of the run is open to it."""
    seen = []

    def look(row):
        run.log({f"next/{row['_step']}": 1}, commit=False)
        run.flush()
        run.summary["best"] = row["x"]
        seen.append((run.open_step(), dict(run.summary)["x"], run.report().rows, run.state_dict()["next_step"]))

    run.on_commit(look)
    run.log({"x": 5})
    run.log({"x": 6})
    assert seen == [(1, 5, 1, 2), (2, 6, 2, 3)]
    assert recorder.rows == [(0, {"x": 5}), (1, {"next/0": 1, "x": 6})]
    assert recorder.summary == {"best": 6}


def test_a_callback_may_commit_the_open_row_by_flush(run, recorder):
    """It is delivered within the call, like any other row."""
    run.on_commit(lambda row: run.flush(commit_open=True) if "x" in row else None)
    run.on_commit(lambda row: run.log({"y": row["_step"]}, commit=False) if "x" in row else None)
    run.log({"x": 1})
    run.log({"x": 2})
    assert [step for step, _ in recorder.rows] == [0, 1]
    assert recorder.rows[1][1] == {"y": 0, "x": 2}


def test_recursion_without_end_ends(run, recorder):
    """A callback that logs a row whenever a row is committed is stopped; everyone has the same rows, and it goes on."""
    calls = []

    def again(row):
        calls.append(row["_step"])
        if len(calls) < 3000:  # so that a failure of this test comes to an end, too
            run.log({"x": row["_step"]})

    run.on_commit(again)
    run.log({"x": -1})
    assert len(calls) < 1000
    assert run.report().run.failed["on_commit"] >= 1
    assert calls == list(range(len(calls)))
    assert [step for step, _ in recorder.rows] == [row["_step"] for row in lines_of(run)] == calls
    run.log({"x": 0})
    assert calls == list(range(len(calls)))
    assert [step for step, _ in recorder.rows] == calls


def test_a_required_tracker_stops_the_loop_although_a_callback_logged(tmp_path):
    """Its failure is not taken for one of the callback in whose call it happened."""
    seen = []

    def echo(row):
        seen.append(row["_step"])
        if row["_step"] == 0:
            run.log({"echo": 1})

    run = Run([RequiredTracker(FailingTracker(methods=("log",)))], LocalTracker(tmp_path))
    run.on_commit(echo)
    with pytest.raises(FatalTrackerError, match="failing is declared `required: true`"):
        run.log({"x": 1})
    run.finish()
    assert seen == [0, 1]
    assert [row["_step"] for row in read_rows(tmp_path)] == [0, 1]


def test_threads_and_a_callback_that_logs_agree_on_one_order(run, recorder):
    """Four threads commit while a callback commits too: nothing is lost, nobody waits for ever."""
    seen = []

    def echo(row):
        seen.append(row["_step"])
        if "i" in row:
            run.log({"echo": row["i"]})

    run.on_commit(echo)
    start = threading.Barrier(4)

    def work():
        start.wait(WAIT)
        for i in range(25):
            run.log({"i": i})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    run.flush()
    assert seen == [step for step, _ in recorder.rows] == list(range(200))
    assert [row["_step"] for row in lines_of(run)] == seen
