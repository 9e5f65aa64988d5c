"""Every way in which a process can end leaves the run whole, with its state."""

from __future__ import annotations

import signal
import sys
import time
from collections import defaultdict

import pytest
from programs import content, errors_of, run_program, started

from trackway.errors import LifecycleError
from trackway.run import Run, _exits
from trackway.store import LocalTracker, read_rows

ROWS = """
run = begin(BackgroundTracker(Lines()))
run.log({"loss": 0.5}, step=0)
run.log({"loss": 0.25}, step=1)
"""
OPEN = "print('ready', flush=True); time.sleep(20)"
FOREVER = """
print('ready', flush=True)
step = 2
while True:
    run.log({"loss": 1 / step}, step=step)
    step += 1
"""


def _kept(folder):
    """Steps in the directory, steps that a tracker in the background got, and the latter's last word."""
    *lines, last = folder.with_suffix(".backend").read_text().splitlines()
    return [row["_step"] for row in read_rows(folder)], [int(line.split()[0]) for line in lines], last


def _ended(folder):
    """State and type of the error in run.json."""
    run = content(folder)
    assert run["attempts"][-1]["state"] == run["state"]
    assert run["attempts"][-1]["end"] is not None
    return run["state"], run.get("error", {}).get("type")


@pytest.mark.parametrize(
    ("last", "state", "error", "code"),
    [
        pytest.param("run.finish()", "finished", None, 0, id="finish"),
        pytest.param("", "finished", None, 0, id="end of the program"),
        pytest.param("1 / 0", "failed", "ZeroDivisionError", 1, id="exception"),
        pytest.param("sys.exit()", "finished", None, 0, id="exit"),
        pytest.param("sys.exit(0)", "finished", None, 0, id="exit 0"),
        pytest.param("sys.exit(3)", "failed", "SystemExit", 3, id="exit 3"),
        pytest.param("sys.exit('no data')", "failed", "SystemExit", 1, id="exit with a text"),
        pytest.param("raise KeyboardInterrupt", "interrupted", "KeyboardInterrupt", -2, id="interrupt"),
        pytest.param("with run: pass", "finished", None, 0, id="with"),
        pytest.param("with run: 1 / 0", "failed", "ZeroDivisionError", 1, id="exception in with"),
        pytest.param("with run: sys.exit(3)", "failed", "SystemExit", 3, id="exit 3 in with"),
        pytest.param("with run: sys.exit()", "finished", None, 0, id="exit in with"),
        pytest.param(
            "with run: raise KeyboardInterrupt", "interrupted", "KeyboardInterrupt", -2, id="interrupt in with"
        ),
    ],
)
def test_run_is_whole_however_the_program_ends(tmp_path, last, state, error, code):
    """The open row is committed everywhere, the summary written, the state noted; the exit code stays what it was."""
    folder = tmp_path / "run"
    done = run_program(ROWS + last, folder)
    assert done.returncode == code, done.stderr
    assert _kept(folder) == ([0, 1], [0, 1], "finish")
    assert _ended(folder) == (state, error)
    assert content(folder, "summary.json") == {"loss": 0.25}


def test_exit_code_is_in_the_manifest(tmp_path):
    """What `sys.exit` was given is the text of the error."""
    run_program(ROWS + "sys.exit(3)", tmp_path / "run")
    assert content(tmp_path / "run")["error"] == {"type": "SystemExit", "message": "3"}


@pytest.mark.parametrize(
    "caught",
    [
        "try:\n    sys.exit(3)\nexcept SystemExit:\n    pass",
        "def f():\n    try:\n        sys.exit(3)\n    except SystemExit as error:\n        return error.code\nf()",
        "thread = threading.Thread(target=sys.exit, args=(3,))\nthread.start()\nthread.join()",
    ],
)
def test_exit_that_is_caught_is_none(tmp_path, caught):
    """A `sys.exit(3)` that someone catches, or that ends another thread, does not make the run a failed one."""
    done = run_program(f"{ROWS}\n{caught}\nrun.log({{'loss': 1.0}}, step=2)", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert _ended(tmp_path / "run") == ("finished", None)


def test_exit_from_deep_inside_is_noticed(tmp_path):
    """Clean-up code on the way out, context managers and re-raising included, hides no exit code."""
    program = """
    import contextlib
    def main():
        with contextlib.ExitStack() as stack:
            stack.callback(print, "bye")
            try:
                sys.exit(5)
            except SystemExit:
                raise
            finally:
                print("finally")
    main()
    """
    done = run_program(ROWS.replace("\n", "\n    ") + program, tmp_path / "run")
    assert done.returncode == 5, done.stderr
    assert _ended(tmp_path / "run") == ("failed", "SystemExit")


def test_hooks_of_others_are_called_and_left_alone(tmp_path):
    """An `excepthook` that was there is called; one installed during the run stays, and sees the error too."""
    program = """
    sys.excepthook = lambda *args: print("before", args[0].__name__)
    run = begin()
    ours = sys.excepthook
    sys.excepthook = lambda *args: (print("later"), ours(*args))
    later = sys.excepthook
    other = Run()
    run.finish()
    other.finish()
    assert sys.excepthook is later
    again = Run()
    again.log({"x": 1})
    1 / 0
    """
    done = run_program(program, tmp_path / "run")
    assert done.stdout.split("\n")[:2] == ["later", "before ZeroDivisionError"], done.stderr


def test_hooks_go_with_the_last_run(tmp_path):
    """While no run is open the process is as if there had never been one; that holds for several at a time too."""
    before = (sys.excepthook, sys.exit, signal.getsignal(signal.SIGTERM))
    first, second = Run(), Run([], LocalTracker(tmp_path))
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert sys.excepthook is not before[0]
    first.finish()
    assert sys.exit is not before[1]
    second.finish()
    assert (sys.excepthook, sys.exit, signal.getsignal(signal.SIGTERM)) == before


def test_handler_of_the_program_is_not_replaced():
    """A program that deals with SIGTERM itself keeps its handler."""
    mine = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        installed = signal.getsignal(signal.SIGTERM)
        with Run():
            assert signal.getsignal(signal.SIGTERM) is installed
        assert signal.getsignal(signal.SIGTERM) is installed
    finally:
        signal.signal(signal.SIGTERM, mine)


def test_threads_that_outlive_the_main_thread_lose_nothing(tmp_path):
    """A run ends after threads that the interpreter waits for, and before trackers that these are the first to use."""
    program = """
    run = begin(BackgroundTracker(Lines()))
    def train():
        time.sleep(0.1)
        for step in range(20):
            run.log({"loss": step}, step=step)
    threading.Thread(target=train).start()
    """
    done = run_program(program, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert _kept(tmp_path / "run") == (list(range(20)), list(range(20)), "finish")
    assert _ended(tmp_path / "run") == ("finished", None)


def test_failure_at_exit_is_told(tmp_path):
    """Rows that could not be kept are told on the logger where there is nobody to raise to; the exit code stays."""
    program = """
    os.symlink("/dev/full", sys.argv[1] + "/metrics.jsonl")
    run = begin()
    run.log({"loss": 1.0}, step=0)
    """
    (tmp_path / "run").mkdir()
    done = run_program(program, tmp_path / "run")
    assert done.returncode == 0
    assert "1 rows of 1 could not be written" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("program", [OPEN, FOREVER])
def test_preempted_run_is_whole(tmp_path, program):
    """SIGTERM commits the open row, delivers, notes the state, and the process dies of the signal."""
    folder = tmp_path / "run"
    with started(ROWS + program, folder) as process:
        time.sleep(0.05)
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM, errors_of(process)
    steps, delivered, last = _kept(folder)
    assert steps == delivered == list(range(len(steps)))
    assert len(steps) >= 2
    assert last == "finish"
    assert _ended(folder) == ("preempted", "Preempted")
    assert content(folder, "summary.json")["loss"] == read_rows(folder)[-1]["loss"]


def test_several_signals_end_the_run_once(tmp_path):
    """Launchers that send SIGTERM to the process and to its group cut nothing short."""
    slow = ROWS + "run.on_commit(lambda row: time.sleep(0.3))\n" + OPEN
    with started(slow, tmp_path / "run") as process:
        for _ in range(5):
            process.terminate()
            time.sleep(0.02)
        assert process.wait(20) == -signal.SIGTERM
    assert _kept(tmp_path / "run") == ([0, 1], [0, 1], "finish")
    assert _ended(tmp_path / "run") == ("preempted", "Preempted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_in_the_midst_of_a_delivery(tmp_path, number):
    """A signal while a callback works: the row still reaches everyone, once, and so does the open one."""
    program = """
    run = begin(Lines())
    run.on_commit(lambda row: (print("in", flush=True), time.sleep(0.3)))
    run.log({"loss": 0.5}, step=0)
    run.log({"loss": 0.25}, step=1)
    time.sleep(20)
    """
    folder = tmp_path / "run"
    with started(program, folder) as process:
        time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(20) == -number
    assert _kept(folder) == ([0, 1], [0, 1], "finish")
    assert _ended(folder)[0] == ("preempted" if number == signal.SIGTERM else "interrupted")


def test_signal_in_the_midst_of_finish(tmp_path):
    """SIGTERM while the run ends by itself: it ends, and the process dies of the signal after that."""
    program = """
    run = begin(Lines())
    run.on_commit(lambda row: (print("in", flush=True), time.sleep(0.3)))
    run.log({"loss": 0.5}, step=0)
    run.finish()
    time.sleep(20)
    """
    with started(program, tmp_path / "run") as process:
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM
    assert _kept(tmp_path / "run") == ([0], [0], "finish")
    assert _ended(tmp_path / "run") == ("finished", None)


@pytest.mark.parametrize(
    "hang",
    [
        "run.on_commit(lambda row: row['_step'] == 1 and (print('in', flush=True), time.sleep(60)))",
        "run.on_commit(lambda row: row['_step'] == 1 and (print('in', flush=True), [lock.acquire() for _ in 'ab']))",
        "threading.Timer(0.1, print, ['in'], {'flush': True}).start(); stuck()",
    ],
)
def test_what_hangs_does_not_outlive_the_signal(tmp_path, hang):
    """Where a callback or a tracker hangs, in compiled code too, the process dies of SIGTERM all the same, in time."""
    program = f"""
    import ctypes
    from trackway.run import _signals
    _signals._PATIENCE = 0.5
    lock = threading.Lock()
    def stuck():
        mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
        Lines.finish = lambda self: [lock(mutex), lock(mutex)]
    run = begin(Lines())
    {hang}
    run.log({{"loss": 0.5}}, step=0)
    run.log({{"loss": 0.25}}, step=1)
    run.log({{"loss": 0.125}}, step=2)
    time.sleep(20)
    """
    with started(program, tmp_path / "run") as process:
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM, errors_of(process)
    assert [row["_step"] for row in read_rows(tmp_path / "run")] == [0, 1, 2]
    assert content(tmp_path / "run")["state"] == "preempted"
    assert content(tmp_path / "run", "summary.json") == {"loss": 0.125}


def test_interrupt_of_a_loop_tears_no_row(tmp_path):
    """Ctrl+C anywhere in a loop: rows are whole and in order; a tracker may miss the one during which it came."""
    folder = tmp_path / "run"
    with started(ROWS + FOREVER, folder) as process:
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
    steps, delivered, last = _kept(folder)
    assert steps == list(range(len(steps)))
    assert delivered == sorted(set(delivered))
    assert len(set(steps) - set(delivered)) <= 1
    assert last == "finish"
    assert _ended(folder) == ("interrupted", "KeyboardInterrupt")


def test_run_is_not_started_from_a_callback(run):
    """What starts runs is refused in a commit callback, and in the midst of a finish; elsewhere it is not."""
    raised = []

    def start(_row):
        with pytest.raises(LifecycleError, match="started from a commit, print or alert callback of run run") as error:
            _exits.refuse_in_callback()
        raised.append(error)

    run.on_commit(start)
    run.log({"loss": 0.5})
    run.log({"loss": 0.5}, step=1)
    run.finish()
    _exits.refuse_in_callback()
    assert len(raised) == 2


def test_worker_of_multiprocessing_ends_its_run(tmp_path):
    """A run that a forked worker process opens and does not finish is finished when the worker ends."""
    program = """
    import multiprocessing
    def work(fail):
        run = Run([], LocalTracker(f"{sys.argv[1]}-{fail}"))
        run.log({"loss": 0.5}, step=0)
        if fail:
            1 / 0
    context = multiprocessing.get_context("fork")
    for fail in (False, True):
        worker = context.Process(target=work, args=(fail,))
        worker.start()
        worker.join(20)
        assert worker.exitcode == fail, worker.exitcode
    """
    done = run_program(program, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert _ended(tmp_path / "run-False") == ("finished", None)
    assert _ended(tmp_path / "run-True") == ("failed", "ZeroDivisionError")
    assert [row["loss"] for row in read_rows(tmp_path / "run-True")] == [0.5]


@pytest.mark.parametrize(
    ("last", "code", "state"),
    [("", 0, "finished"), ("sys.exit(3)", 3, "failed"), ("os.kill(os.getpid(), signal.SIGTERM)", -15, "preempted")],
)
def test_values_on_a_device_are_waited_for(tmp_path, last, code, state):
    """Rows whose values are still being computed, in compiled functions too, are delivered before JAX is taken down."""
    program = f"""
    import trackway
    run = begin(BackgroundTracker(Lines()), step_policy="allow")  # a busy machine may call the host back late
    trackway.set_global_tracker(run)
    import jax, jax.numpy as jnp

    @jax.jit
    def train(x, step):
        x = jax.lax.fori_loop(0, 200, lambda i, x: jnp.tanh(x @ x), x)
        trackway.log({{"inside": x[0, 0]}}, step=step)
        return x

    x = jnp.ones((300, 300))
    for step in range(6):
        x = train(x, step)
        run.log({{"mean": x.mean()}}, step=step)
    run.log({{"open": 1.0}}, step=6)
    {last}
    """
    done = run_program(program, tmp_path / "run")
    assert done.returncode == code, done.stderr
    steps, delivered, end = _kept(tmp_path / "run")
    assert (set(steps), delivered, end) == (set(range(7)), steps, "finish")
    rows = defaultdict(dict)
    for row in read_rows(tmp_path / "run"):
        rows[row["_step"]].update(row)  # what a compiled function logged may come behind the row of the next step
    assert all({"inside", "mean"} <= rows[step].keys() for step in range(6))
    assert rows[6]["open"] == 1.0
    assert _ended(tmp_path / "run")[0] == state
