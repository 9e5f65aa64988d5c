"""Trackers in the background: slow, failing, hanging, forked."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest

from trackway.errors import ConfigError, FatalTrackerError
from trackway.testing import FailingTracker, RecordingTracker, SlowTracker
from trackway.tracker import BackgroundPolicy, BackgroundTracker, CompositeTracker

QUICK = BackgroundPolicy(finish_timeout=0.5)


def test_rows_arrive_in_order_and_finish_waits_for_them():
    """Everything logged before `finish` is delivered, in order."""
    inner = RecordingTracker()
    tracker = BackgroundTracker(SlowTracker(inner, seconds=0.001))
    for step in range(200):
        tracker.log({"i": step}, step=step)
    tracker.log_summary({"best": 1})
    tracker.finish()
    assert [step for step, _ in inner.rows] == list(range(200))
    assert inner.summary == {"best": 1}
    assert inner.finished
    report = tracker.report()
    assert (report.accepted, report.delivered, report.pending) == (200, 200, 0)


def test_flush_reaches_the_tracker_behind():
    """`flush` returns when all is delivered and the tracker behind is flushed."""
    inner = RecordingTracker()
    tracker = BackgroundTracker(inner)
    tracker.log({"a": 1}, step=0)
    tracker.flush()
    assert inner.rows == [(0, {"a": 1})]
    assert inner.flushes == 1
    tracker.finish()


def test_a_hanging_tracker_neither_stops_log_nor_finish(caplog):
    """Behind a tracker that never returns, `log` is quick, and `finish` ends at its bound and says what it owes."""
    hanging = SlowTracker(seconds=None)
    tracker = BackgroundTracker(hanging, BackgroundPolicy(queue_size=10, finish_timeout=0.3))
    start = time.perf_counter()
    for step in range(1000):
        tracker.log({"a": 1}, step=step)
    logged = time.perf_counter()
    tracker.finish()
    finished = time.perf_counter()
    assert logged - start < 1.0
    assert 0.25 < finished - logged < 2.0
    report = tracker.report()
    assert report.accepted == 1000
    assert report.pending in (10, 11)  # the thread may have taken the first before the queue was full, or not
    assert report.dropped == {"queue of 10 rows full": 1000 - report.pending}
    assert f"finish did not end within 0.3 s; {report.pending} rows are still queued" in caplog.text
    hanging.release()


@pytest.mark.parametrize(
    ("on_full", "kept"),
    [("spill", [0, 1, 2, 3]), ("drop_newest", [0, 1, 2, 3]), ("drop_oldest", [0, 7, 8, 9]), ("block", [0, 1, 2, 3])],
)
def test_a_full_queue_drops_as_the_policy_says(on_full, kept):
    """The row in hand and three queued ones are kept; which of the others are dropped is the policy's choice."""
    inner = RecordingTracker()
    slow = SlowTracker(inner, seconds=None)
    tracker = BackgroundTracker(slow, BackgroundPolicy(queue_size=3, on_full=on_full, block_timeout=0.02))
    tracker.log({"i": 0}, step=0)
    while slow.calls == 0:
        time.sleep(0.001)
    for step in range(1, 10):
        tracker.log({"i": step}, step=step)
    tracker.log_summary({"never": "dropped"})
    slow.release()
    tracker.finish()
    assert [step for step, _ in inner.rows] == kept
    assert inner.summary == {"never": "dropped"}
    report = tracker.report()
    assert report.accepted == report.delivered + sum(report.dropped.values()) == 10


def test_blocking_waits_for_room_and_loses_nothing():
    """Under "block" a caller waits for room; with a live tracker nothing is dropped."""
    inner = RecordingTracker()
    policy = BackgroundPolicy(queue_size=2, on_full="block")
    tracker = BackgroundTracker(SlowTracker(inner, seconds=0.002), policy)
    for step in range(50):
        tracker.log({"i": step}, step=step)
    tracker.finish()
    assert [step for step, _ in inner.rows] == list(range(50))


def test_a_failing_tracker_is_given_up_after_so_many_failures():
    """After `disable_after` failures in a row the tracker is not called any more, and every row is accounted for."""
    failing = FailingTracker(methods=("log",))
    tracker = BackgroundTracker(failing, BackgroundPolicy(disable_after=3))
    for step in range(10):
        tracker.log({"a": 1}, step=step)
    tracker.finish()
    assert failing.calls == 3
    report = tracker.report()
    assert report.failed == {"log": 3}
    assert report.dropped == {"given up after 3 failed calls in a row": 7}


def test_a_success_resets_the_count_of_failures():
    """Failures that do not follow each other do not disable a tracker."""
    tracker = BackgroundTracker(FailingTracker(RecordingTracker(), methods=("log",)), BackgroundPolicy(disable_after=2))
    for step in range(5):
        tracker.log({"a": 1}, step=step)
        tracker.log_summary({"a": 1})
    tracker.finish()
    assert tracker.report().failed == {"log": 5}


def test_a_tracker_that_calls_sys_exit_does_not_end_the_worker():
    """Even `SystemExit` from a backend is one counted failure."""
    inner = RecordingTracker()
    tracker = BackgroundTracker(FailingTracker(inner, error=SystemExit(3), methods=("log_summary",)))
    tracker.log_summary({"a": 1})
    tracker.log({"a": 1}, step=0)
    tracker.finish()
    assert inner.rows == [(0, {"a": 1})]


def test_a_required_tracker_raises_from_the_next_call():
    """A failure of a required tracker surfaces in the training loop at the next call, and again at finish."""
    tracker = BackgroundTracker(FailingTracker(error=OSError("quota"), methods=("log",)), QUICK, required=True)
    tracker.log({"a": 1}, step=0)
    tracker.flush()
    with pytest.raises(FatalTrackerError, match="quota"):
        tracker.log({"a": 2}, step=1)
    with pytest.raises(FatalTrackerError, match="quota"):
        tracker.finish()


def test_a_required_tracker_that_hangs_is_told_at_finish():
    """A required tracker that does not finish in time is an error, not only a warning."""
    hanging = SlowTracker(seconds=None)
    tracker = BackgroundTracker(hanging, BackgroundPolicy(finish_timeout=0.1), required=True)
    tracker.log({"a": 1}, step=0)
    with pytest.raises(FatalTrackerError, match="did not end within"):
        tracker.finish()
    hanging.release()


def test_device_values_are_fetched_by_the_worker():
    """A JAX array still being computed does not hold up `log`; its value arrives."""
    jnp = pytest.importorskip("jax.numpy")
    inner = RecordingTracker()
    tracker = BackgroundTracker(inner)
    tracker.log({"x": jnp.ones((400, 400)) @ jnp.ones((400, 400)), "s": jnp.float32(2)}, step=0)
    tracker.finish()
    [(_, row)] = inner.rows
    assert row["s"] == 2.0
    assert row["x"][0][0] == 400.0


def test_nothing_is_left_behind_when_idle():
    """A tracker that was never used starts no thread and can be collected."""
    tracker = BackgroundTracker(RecordingTracker("idle"))
    assert "trackway-idle" not in [thread.name for thread in threading.enumerate()]
    tracker.finish()
    gone = weakref.ref(tracker)
    del tracker
    gc.collect()
    assert gone() is None


def test_a_program_that_forgets_finish_loses_nothing(tmp_path):
    """At a normal exit of the interpreter what is queued is still delivered."""
    out = tmp_path / "out.txt"
    program = f"""
        from trackway.tracker import BackgroundTracker
        from trackway.testing import SlowTracker, RecordingTracker
        inner = RecordingTracker()
        tracker = BackgroundTracker(SlowTracker(inner, seconds=0.005))
        inner.finish = lambda: open({str(out)!r}, "w").write(str(len(inner.rows)))
        for step in range(50):
            tracker.log({{"a": step}}, step=step)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=20)
    assert out.read_text() == "50"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_is_a_noop_even_in_the_middle_of_work():
    """A child forked while threads log and the worker works can log and finish at once, and harms nothing."""
    inner = RecordingTracker()
    tracker = CompositeTracker([BackgroundTracker(SlowTracker(inner, seconds=0.0005))])
    stop = threading.Event()

    def work():
        while not stop.is_set():
            tracker.log({"a": 1})
            time.sleep(0.0005)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            tracker.log({"child": 1})
            tracker.flush()
            tracker.finish()
            os._exit(0)
        codes.append(_exit_code(child, seconds=20))
    stop.set()
    for thread in threads:
        thread.join(20)
    tracker.finish()
    assert codes == [0] * 10
    assert all("child" not in row for _, row in inner.rows)
    assert len(inner.rows) == tracker.loggers[0].report().accepted


def _exit_code(child, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


@pytest.mark.parametrize(
    ("field", "value"),
    [("queue_size", 0), ("block_timeout", -1), ("disable_after", 0), ("finish_timeout", 0), ("on_full", "explode")],
)
def test_limits_that_make_no_sense_are_refused(field, value):
    """A policy says which of its fields is wrong."""
    with pytest.raises(ConfigError, match=field):
        BackgroundPolicy(**{field: value})
