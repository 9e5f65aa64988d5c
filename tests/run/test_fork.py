"""A forked child and its parent's run."""

from __future__ import annotations

import pytest
from programs import content, run_program

from trackway.store import read_rows

PARENT = """
import gc, logging, signal
run = begin(BackgroundTracker(Lines()))
run.log({"n": 0}, step=0)
run.log({"n": 1}, step=1)
pid = os.fork()
if pid == 0:
    signal.alarm(5)
    child()
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == CODE, status
run.log({"n": 2}, step=2)
run.finish()
"""


def _forked(folder, child, code=0):
    """Run a parent whose child does *child*; return the finished process."""
    lines = "\n    ".join(child.strip().splitlines())
    program = f"def child():\n    {lines}\n{PARENT.replace('CODE', str(code))}"
    done = run_program(program, folder)
    assert done.returncode == 0, done.stderr
    assert [row["n"] for row in read_rows(folder)] == [0, 1, 2]
    assert content(folder)["state"] == "finished"
    assert len(content(folder)["attempts"]) == 1
    backend = [line.split()[0] for line in folder.with_suffix(".backend").read_text().splitlines()]
    assert backend == ["0", "1", "2", "finish"]
    return done


@pytest.mark.parametrize(
    ("child", "code"),
    [
        ("os._exit(0)", 0),
        ("sys.exit(3)", 3),
        ("sys.exit()", 0),
        ("1 / 0", 1),
        ("run.finish(); sys.exit()", 0),
        ("global run; run = None; gc.collect(); sys.exit()", 0),
        ("with run:\n    sys.exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("raise KeyboardInterrupt", -2),
    ],
)
def test_child_that_ends_leaves_the_run_alone(tmp_path, child, code):
    """However a child ends, the parent's run is neither finished nor cut nor marked, and goes on."""
    _forked(tmp_path / "run", child, code)


def test_calls_in_a_child_are_counted_and_said_once(tmp_path):
    """Rows of a child go nowhere; they are counted there, one message says so, and nothing waits."""
    child = """
for step in range(100):
    run.log({"n": step}, step=step)
run.log({"n": -1})
run.flush()
run.log_summary({"n": -1})
run.rewind(0)
run.mark_failed(ValueError())
assert run.summary["n"] is not None
assert run.report().run.dropped.popitem()[1] == 105, run.report()
assert threading.active_count() == 1, threading.enumerate()
run.finish()
os._exit(0)
"""
    done = _forked(tmp_path / "run", child)
    assert done.stderr.count("run: log: dropped: called in a forked child; start a tracker of its own there") == 1
    assert content(tmp_path / "run", "summary.json") == {"n": 2}


def test_child_has_a_run_of_its_own(tmp_path):
    """A run that is started in the child works there, at its end too, and has its own handlers."""
    child = """
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
own = Run([], LocalTracker(sys.argv[1] + "-own"))
assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
own.on_commit(lambda row: None)
own.log({"n": 5}, step=5)
sys.exit(6)
"""
    _forked(tmp_path / "run", child, 6)
    assert [row["n"] for row in read_rows(tmp_path / "run-own")] == [5]
    assert content(tmp_path / "run-own")["state"] == "failed"


def test_child_that_outlives_its_parent_does_not_hold_the_run(tmp_path):
    """Once the parent is gone the directory is free, though its child goes on."""
    program = """
    run = begin()
    run.log({"n": 0})
    if os.fork() == 0:
        os.close(1), os.close(2)
        time.sleep(1)
        os._exit(0)
    os._exit(0)
    """
    assert run_program(program, tmp_path / "run").returncode == 0
    done = run_program("begin().log({'n': 1})", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert [(row["_step"], row["n"]) for row in read_rows(tmp_path / "run")] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("last", ["return", "os._exit(0)"])
def test_child_forked_by_a_callback(tmp_path, last):
    """A callback that forks, in the midst of a delivery: the child gets out of it and delivers nothing."""
    program = f"""
    parent = os.getpid()
    run = begin(Lines())
    children = []
    def callback(row):
        if os.getpid() == parent:
            pid = os.fork()
            if pid == 0:
                signal.alarm(5)
                {last}
            children.append(os.waitpid(pid, os.WNOHANG if "{last}" == "return" else 0)[0] or pid)
    run.on_commit(callback)
    run.log({{"n": 0}}, step=0, commit=True)
    if os.getpid() != parent:
        run.log({{"n": 9}}, step=9, commit=True)
        sys.exit()
    run.log({{"n": 1}}, step=1, commit=True)
    if os.getpid() != parent:
        sys.exit()
    run.finish()
    """
    done = run_program(program, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert [row["n"] for row in read_rows(tmp_path / "run")] == [0, 1]
    backend = (tmp_path / "run.backend").read_text().splitlines()
    assert [line.split()[0] for line in backend] == ["0", "1", "finish"]


def test_fork_while_threads_log(tmp_path):
    """Children forked while other threads hold every lock hang in no call of the run."""
    program = """
    run = begin(BackgroundTracker(Lines()))
    stop = threading.Event()
    def work(name):
        n = 0
        while not stop.is_set():
            run.log({name: n})
            n += 1
            time.sleep(0.0002)
    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads: thread.start()
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            signal.alarm(5)
            run.log({"child": 1})
            run.log_summary({"child": 1})
            run.flush()
            run.finish()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    stop.set()
    for thread in threads: thread.join()
    run.finish()
    """
    done = run_program(program, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path / "run")
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    assert not any("child" in row for row in rows)
