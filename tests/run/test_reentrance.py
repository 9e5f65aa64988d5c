"""Calls in the midst of others: from callbacks while rows wait for values, and from signal handlers at any moment."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from programs import run_program

import trackway.run
from trackway.run import Run
from trackway.store import LocalTracker, read_rows
from trackway.testing import RecordingTracker

OWN_CODE = str(Path(trackway.run.__file__).parent)


class Interruption:
    """Raises a signal at the line number *at* of those of the run's own code that are executed in the block."""

    def __init__(self, at):
        """Count from zero."""
        self.at, self.lines = at, 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def _trace(self, frame, event, _):
        if event == "line":
            self.lines += 1
            if self.lines - 1 == self.at:
                signal.raise_signal(signal.SIGUSR1)
        return self._trace if frame.f_code.co_filename.startswith(OWN_CODE) else None


@pytest.fixture
def on_signal():
    """Return a function that sets the handler of a signal."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda work: signal.signal(signal.SIGUSR1, lambda number, frame: work())
    signal.signal(signal.SIGUSR1, before)


def _at_step(run, i):
    with trackway.current_tracker(run), trackway.at_step(10_000 + i * 10):
        trackway.log({"main": i})


CALLS = {  # and whether only some lines are tried, because the call waits for the disk
    "a row": (lambda run, i: run.log({"main": i}), 1),
    "a step that advances": (lambda run, i: run.log({"main": i}, step=10_000 + i * 10), 1),
    "at_step": (_at_step, 1),
    "flush": (lambda run, i: (run.log({"main": i}, commit=False), run.flush(commit_open=True)), 5),
    "add": (lambda run, i: (run.add({"main": i}), run.log({}, commit=True)), 1),
}


@pytest.mark.parametrize(("call", "stride"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_signal_handler_may_log_in_the_midst_of_a_line(tmp_path, on_signal, call, stride, commit):
    """Whichever line of the run's code it interrupts: no value is lost or doubled, and everyone has the same order."""
    recorder, seen = RecordingTracker(), []
    with Run([recorder], LocalTracker(tmp_path)) as run:
        run.on_commit(seen.append)
        number, at = 0, 0
        on_signal(lambda: run.log({f"handler/{number}": number}, commit=commit))
        while True:
            with Interruption(at) as interruption:
                call(run, number)
            if interruption.lines <= at:
                break
            number, at = number + 1, at + stride
    rows = [row for _, row in recorder.rows]
    assert [row["main"] for row in rows if "main" in row] == list(range(number + 1))
    assert [n for n in range(number) if sum(f"handler/{n}" in row for row in rows) != 1] == []
    assert [row["_step"] for row in seen] == [step for step, _ in recorder.rows]
    assert [row["_step"] for row in read_rows(tmp_path)] == [step for step, _ in recorder.rows]
    assert run.report().late == 0
    assert at > 20


MEET = """
    import itertools
    import numpy as np

    class Late:
        dtype, shape, size, ready = np.dtype("float32"), (), 1, False
        copy_to_host_async = lambda self: None
        is_ready = lambda self: self.ready
        __array__ = lambda self, dtype=None, copy=None: np.array(1, "float32")

    def met(name, call):
        late, entered, opened = Late(), threading.Event(), threading.Event()
        run = Run([], LocalTracker(sys.argv[1] + "/" + name))

        def callback(row):
            if "x" in row:
                entered.set()
                opened.wait(20)
                call(run)

        run.on_commit(callback)
        thread = threading.Thread(target=lambda: run.log({"x": 0}), daemon=True)
        thread.start()
        entered.wait(20)
        run.log({"y": late})
        late.ready = True
        while run.report().rows < 2:  # until the run's own thread has committed it, and has to tell it
            time.sleep(0.01)
        opened.set()
        thread.join(20)
        if thread.is_alive():
            print(name, "hangs")
        else:
            Late.ready = True
            run.finish()
            print(name, run.report().rows)
        Late.ready = False

    met("artifact", lambda run: run.log_artifact(sys.executable))
    met("late rows", lambda run: [run.log({"c": Late()}) for _ in range(20)])
    met("host rows", lambda run: [run.log({"c": i}) for i in range(1100)])
    met("summary", lambda run: run.log_summary({"best": Late()}))
    met("flush", lambda run: run.flush())
    met("commit open", lambda run: (run.log({"z": 1}, commit=False), run.flush(commit_open=True)))
    met("rewind", lambda run: run.rewind(0))
    met("reading", lambda run: (run.state_dict(), dict(run.summary), run.report(), run.open_step()))
    met("finish", lambda run: run.finish())
    sys.stdout.flush()
    os._exit(0)
"""


def test_a_callback_does_not_wait_for_a_row_that_waits_for_it(tmp_path):
    """The run's own thread has a row to tell while a callback is at work, which calls the run: neither hangs."""
    done = run_program(MEET, tmp_path / "run", seconds=60)
    assert done.stdout.splitlines() == [
        "artifact 2",
        "late rows 22",
        "host rows 1102",
        "summary 2",
        "flush 2",
        "commit open 3",
        "rewind 2",
        "reading 2",
        "finish 2",
    ], done.stderr
