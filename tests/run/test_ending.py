"""One end for a run, whoever asks for it: from threads, callbacks and signal handlers."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import weakref
from pathlib import Path

import pytest
from programs import wait_for

from trackway.errors import FatalTrackerError, LifecycleError, TrackerFinishError
from trackway.run import Run
from trackway.run._ending import Ending
from trackway.store import LocalTracker, read_rows
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import BackgroundTracker
from trackway.tracker._isolation import RequiredTracker

DESCRIPTORS = Path("/proc/self/fd")


def _waits(thread):
    """Return whether *thread* is waiting for an event."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None and frame.f_code is not threading.Event.wait.__code__:
        frame = frame.f_back
    return frame is not None


def _handling(number, handler):
    """Have *handler* called at the signal *number* within the block."""

    @contextlib.contextmanager
    def block():
        before = signal.signal(number, handler)
        try:
            yield
        finally:
            signal.signal(number, before)

    return block()


def _open_files(folder):
    """Files below *folder* that this process has open."""
    links = []
    for path in DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):
            links.append(path.readlink())
    return [link for link in links if link.is_relative_to(folder)]


def test_steps_are_taken_once_and_in_order():
    """Each step is taken, also after one that failed; what they raised is told together, to the first caller alone."""
    taken = []

    def failing():
        taken.append("b")
        raise OSError("b failed")

    ending = Ending("r", [lambda: taken.append("a"), failing, lambda: taken.append("c")])
    with pytest.raises(TrackerFinishError, match="run r did not end well") as raised:
        ending.reach()
    assert [str(error) for error in raised.value.exceptions] == ["b failed"]
    ending.reach()
    assert taken == ["a", "b", "c"]


def test_interrupt_cuts_no_step_that_follows():
    """Ctrl+C in one step is raised after the others are taken."""
    taken = []

    def interrupted():
        raise KeyboardInterrupt

    ending = Ending("r", [interrupted, lambda: taken.append("later")])
    with pytest.raises(KeyboardInterrupt):
        ending.reach()
    ending.reach()
    assert taken == ["later"]


def test_concurrent_callers_get_the_same_end(tmp_path):
    """Eight threads that finish a run wait for the one end, and all get the one failure."""
    run = Run([RequiredTracker(FailingTracker(methods=("finish",)))], LocalTracker(tmp_path))
    entered, release, failures = threading.Event(), threading.Event(), []
    run.on_commit(lambda _: (entered.set(), release.wait(20)))
    run.log({"x": 1}, step=0)

    def finish():
        try:
            run.finish()
        except TrackerFinishError as error:
            failures.append(error)

    threads = [threading.Thread(target=finish) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    assert wait_for(lambda: all(map(_waits, threads)))
    release.set()
    for thread in threads:
        thread.join(20)
    assert len(failures) == 8
    assert len({id(failure) for failure in failures}) == 1
    assert isinstance(failures[0].exceptions[0], FatalTrackerError)
    assert [row["_step"] for row in read_rows(tmp_path)] == [0]


def test_callback_may_not_finish(tmp_path, recorder):
    """`finish` in a commit, print or alert callback is refused, with the reason; the run goes on and ends as usual."""
    printed = []

    def stop(_):
        with pytest.raises(LifecycleError, match="from a commit, print or alert callback"):
            run.finish()
        printed.append(1)

    run = Run([recorder], LocalTracker(tmp_path), print=stop)
    run.on_commit(stop)
    run.log({"x": 1})
    run.log({"x": 2}, step=1)
    run.finish()
    assert len(printed) == 4
    assert [step for step, _ in recorder.rows] == [0, 1]
    assert run.report().run.failed == {}


def test_callback_that_lets_the_refusal_out_is_counted(tmp_path):
    """A callback that does not catch it harms nobody: it is counted as a failure of the callback."""
    with Run([], LocalTracker(tmp_path)) as run:
        run.on_commit(lambda _: run.finish())
        run.log({"x": 1})
        assert run.report().run.failed == {"on_commit": 1}
        assert run.report().state == "running"


def test_backend_may_not_finish_the_run_that_finishes_it(tmp_path, recorder):
    """Asked for in the midst of its own end, on the same thread, it is refused."""
    run = Run([recorder], LocalTracker(tmp_path))
    raised = []

    class Ring(RecordingTracker.__mro__[1]):
        name = "ring"
        log = log_summary = log_hyperparameters = log_artifact = lambda *_, **__: None

        def finish(self):
            with pytest.raises(LifecycleError, match="in the midst of its own end") as error:
                run.finish()
            raised.append(error)

    run.backends.loggers.append(Ring())
    run.finish()
    assert len(raised) == 1
    assert recorder.finished


def test_raising_callback_and_printer_cost_nothing(tmp_path, recorder):
    """Rows reach the store and every tracker although each callback and the printer raise."""

    def wrong(_):
        raise RuntimeError("no")

    with Run([recorder], LocalTracker(tmp_path), print=wrong) as run:
        run.on_commit(wrong)
        for step in range(5):
            run.log({"x": step}, step=step)
    assert [row["x"] for row in read_rows(tmp_path)] == list(range(5))
    assert [step for step, _ in recorder.rows] == list(range(5))
    assert run.report().run.failed == {"on_commit": 5, "print": 5}


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="counts descriptors the way Linux shows them")
def test_finished_run_leaves_no_thread_no_file_and_no_object(tmp_path):
    """After `finish` there is no thread, no descriptor and no reference left, and another run can begin at once."""
    before = set(threading.enumerate())
    for attempt in range(1, 4):
        run = Run([BackgroundTracker(RecordingTracker())], LocalTracker(tmp_path, exclusive=True))
        run.log({"x": attempt})
        run._drainer.wake()
        run.finish()
        assert set(threading.enumerate()) <= before
        assert _open_files(tmp_path) == []
    alive = weakref.ref(run)
    del run
    gc.collect()
    assert alive() is None
    assert [(row["_step"], row["x"]) for row in read_rows(tmp_path)] == [(0, 1), (1, 2), (2, 3)]
    attempts = json.loads((tmp_path / "run.json").read_bytes())["attempts"]
    assert [(attempt["number"], attempt["state"]) for attempt in attempts] == [(n, "finished") for n in (1, 2, 3)]


def test_handler_that_logs_in_a_loop_loses_and_reorders_nothing(tmp_path, recorder):
    """A signal handler that logs at any moment of a loop: every row once and in one order, everywhere."""
    run = Run([recorder], LocalTracker(tmp_path))
    seen, handled = [], []
    run.on_commit(lambda row: seen.append(row["_step"]))

    def handler(*_):
        run.log({"h": len(handled)})
        handled.append(1)
        signal.setitimer(signal.ITIMER_REAL, 0.0004)  # not periodic: a slow machine would interrupt the handler itself

    with _handling(signal.SIGALRM, handler):
        signal.setitimer(signal.ITIMER_REAL, 0.0004)
        for n in range(4000):
            run.log({"m": n})
        signal.setitimer(signal.ITIMER_REAL, 0)
    run.finish()
    rows = read_rows(tmp_path)
    assert len(handled) > 50
    assert [row["_step"] for row in rows] == list(range(4000 + len(handled)))
    assert [row["m"] for row in rows if "m" in row] == list(range(4000))
    assert [row["h"] for row in rows if "h" in row] == list(range(len(handled)))
    assert seen == [step for step, _ in recorder.rows] == [row["_step"] for row in rows]


def test_handler_in_a_callback_waits_for_no_other_thread(tmp_path):
    """A handler logs while another thread delivers, which waits for what the handler interrupted: nobody hangs."""
    run = Run([], LocalTracker(tmp_path))
    lock, inside, rows = threading.Lock(), threading.Event(), []

    def callback(row):
        inside.set()
        with lock:
            rows.append(row["_step"])

    run.on_commit(callback)
    with _handling(signal.SIGUSR1, lambda *_: run.log({"h": 1})):
        with lock:
            worker = threading.Thread(target=run.log, args=({"w": 1},))
            worker.start()
            assert inside.wait(20)
            os.kill(os.getpid(), signal.SIGUSR1)
        worker.join(20)
    run.flush()
    assert rows == [0, 1]
    run.finish()
    assert [set(row) & {"w", "h"} for row in read_rows(tmp_path)] == [{"w"}, {"h"}]


@pytest.mark.parametrize("where", ["callback", "loop", "backend"])
def test_handler_of_the_program_may_finish(tmp_path, where, recorder):
    """`finish` in a user's handler takes effect at once, or right after the row or delivery that it interrupted."""
    run = Run([recorder], LocalTracker(tmp_path))
    seen = []

    def handler(_number, _frame):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # what many handlers do first
        run.finish()

    def callback(row):
        if row["_step"] == 3:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert run.report().state == "running"
        seen.append(row["_step"])

    if where == "callback":
        run.on_commit(callback)
    with _handling(signal.SIGUSR1, handler):
        for step in range(5):
            run.log({"x": step}, step=step)
        if where == "loop":
            os.kill(os.getpid(), signal.SIGUSR1)
            assert run.report().state == "finished"
        elif where == "backend":
            recorder.flush = lambda: os.kill(os.getpid(), signal.SIGUSR1)
            run.flush()
            assert run.report().state == "finished"
        run.finish()
    assert run.report().state == "finished"
    steps = [row["_step"] for row in read_rows(tmp_path)]
    assert steps == [step for step, _ in recorder.rows] == list(range(5))
    assert json.loads((tmp_path / "run.json").read_bytes())["state"] == "finished"


def test_handler_that_finishes_at_any_moment_of_a_loop(tmp_path):
    """Wherever in a loop it comes: rows before are whole, once and in order, and later calls are counted."""
    for number in range(40):
        folder = tmp_path / str(number)
        recorder = RecordingTracker()
        run = Run([recorder], LocalTracker(folder, sync_interval=60))
        with _handling(signal.SIGALRM, lambda *_, run=run: run.finish()):
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + number * 0.00005)
            step = 0
            while not recorder.finished:
                run.log({"x": step}, step=step)
                step += 1
        run.finish()
        steps = [row["_step"] for row in read_rows(folder)]
        assert steps == [at for at, _ in recorder.rows] == list(range(len(steps)))
        assert step - len(steps) <= 1
        assert json.loads((folder / "run.json").read_bytes())["state"] == "finished"


def test_hanging_callback_keeps_no_other_thread_from_the_open_row(tmp_path):
    """While a callback hangs on one thread, another one adds values to the open row without waiting."""
    run = Run([], LocalTracker(tmp_path))
    entered, release = threading.Event(), threading.Event()
    run.on_commit(lambda _: (entered.set(), release.wait(20)))
    worker = threading.Thread(target=run.log, args=({"a": 1},))
    worker.start()
    assert entered.wait(20)
    run.log({"b": 1}, commit=False)
    run.log({"c": 1}, commit=False)
    assert run.open_step() == 1
    assert [row["_step"] for row in read_rows(tmp_path)] == [0]
    release.set()
    worker.join(20)
    run.finish()
    assert read_rows(tmp_path)[1].keys() >= {"b", "c"}


def test_finish_is_not_held_up_by_the_drain_thread(tmp_path):
    """The thread that delivers late rows is told to end, and is not waited for longer than it takes to hear it."""
    run = Run([], LocalTracker(tmp_path))
    run._drainer.wake()
    thread = run._drainer._thread
    assert wait_for(thread.is_alive)
    run._drainer.stop()
    assert not thread.is_alive()
    run.finish()
