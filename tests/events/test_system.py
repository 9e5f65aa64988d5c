"""The sampler of system metrics."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest

import trackway
from trackway.errors import TrackwayWarning
from trackway.events import SystemMetrics
from trackway.run import Run
from trackway.store import LocalTracker
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import CompositeTracker


@pytest.fixture
def run(tmp_path):
    """Return a run, which is current and finished at the end."""
    with Run(store=LocalTracker(tmp_path / "a", run_id="a")) as run:
        yield run


def until(condition, seconds=20.0):
    """Wait for *condition*, and return whether it came true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def has_samples(run):
    """Whether the open row has a sample with all that is known."""
    row = run.history(1)[-1]
    return {"system/rss_bytes", "system/cpu_percent"} <= set(row)


def test_samples_go_to_the_open_row(run):
    """They are merged with what is logged, and stop with the block."""
    trackway.log({"loss": 0.5}, step=3)
    with SystemMetrics(0.01) as metrics:
        assert metrics.running
        assert until(lambda: has_samples(run))
    assert not metrics.running
    (row,) = run.history(None)
    assert (row["_step"], row["loss"]) == (3, 0.5)
    assert row["system/rss_bytes"] > 1 << 20
    assert row["system/cpu_percent"] >= 0


def test_a_sample_makes_no_row(run, caplog):
    """Between rows it is left out; where there never is an open row, that is said at the end."""
    trackway.log({"loss": 0.5})
    taken = []
    metrics = SystemMetrics(0.01)
    metrics.sample = lambda: taken.append(1) or {"system/rss_bytes": 1}
    with metrics:
        assert until(lambda: len(taken) >= 3)
    assert [set(row) for row in run.history(None)] == [{"_step", "_time", "loss"}]
    assert "no row was open" in caplog.text


def test_rows_are_never_late_for_it(run):
    """However fast rows follow one another, none is dropped and none is made."""
    metrics = SystemMetrics(0.01)
    metrics._interval = 0.0001
    with metrics:
        for step in range(3000):
            trackway.log({"loss": 0.5}, step=step)
    run.flush(commit_open=True)
    rows = run.history(None)
    assert [row["_step"] for row in rows] == list(range(3000))
    assert run.report().late == 0


def test_it_ends_with_the_run(tmp_path):
    """Nobody has to stop it."""
    metrics = SystemMetrics(0.01)
    with Run(store=LocalTracker(tmp_path / "a", run_id="a")):
        metrics.start()
        assert metrics.running
    assert until(lambda: not metrics.running)


def test_it_ends_when_nobody_has_the_tracker():
    """It does not keep one alive that was forgotten."""
    tracker = CompositeTracker([RecordingTracker()])
    metrics = SystemMetrics(0.01)
    with trackway.current_tracker(tracker):
        metrics.start()
    del tracker
    assert until(lambda: gc.collect() >= 0 and not metrics.running)


def test_it_may_be_started_and_stopped_any_number_of_times(run):
    """A second start does nothing, nor does a second stop; afterwards it starts again."""
    metrics = SystemMetrics(0.01, run, prefix="host/")
    before = threading.active_count()
    metrics.start()
    metrics.start()
    assert threading.active_count() == before + 1
    metrics.stop()
    metrics.stop()
    assert threading.active_count() == before
    trackway.log({"loss": 0.5}, step=0)
    with metrics:
        assert until(lambda: "host/cpu_percent" in run.history(1)[-1])


def test_without_a_tracker_it_warns_once():
    """It is not started then."""
    metrics = SystemMetrics(0.01)
    with pytest.warns(TrackwayWarning, match="while no tracker is set"):
        metrics.start()
    metrics.start()
    assert not metrics.running
    metrics.stop()


def test_a_tracker_that_fails_does_not_end_it(caplog):
    """Its failure is said once."""
    asked = []

    class Rows(RecordingTracker):
        def open_step(self):
            asked.append(1)
            return 0

    with SystemMetrics(0.01, FailingTracker(Rows(), methods=("log",))) as metrics:
        assert until(lambda: len(asked) >= 3)
        assert metrics.running
    assert caplog.text.count("failed") == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_has_no_sampler_until_it_starts_one(run):
    """There stopping does nothing, and starting makes a thread of the child's own."""
    metrics = SystemMetrics(0.01)
    metrics.start()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            running = [metrics.running]
            metrics.stop()
            metrics.start()
            running.append(metrics.running)
            metrics.stop()
            code = int([*running, metrics.running] != [False, True, False])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert metrics.running
    metrics.stop()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"interval": 0}, ValueError),
        ({"interval": float("nan")}, ValueError),
        ({"interval": float("inf")}, ValueError),
        ({"interval": "10"}, TypeError),
        ({"prefix": 3}, TypeError),
        ({"tracker": "run"}, TypeError),
        ({"device": "gpu:x"}, ValueError),
    ],
)
def test_wrong_arguments(arguments, error):
    """They are told where they are given, not on the thread."""
    with pytest.raises(error):
        SystemMetrics(**arguments)


def test_the_names_can_be_had_without_a_prefix():
    """An empty prefix leaves the plain names."""
    assert "rss_bytes" in SystemMetrics(prefix="").sample()
