"""Whatever ends a run, or a part of one, delivers what waits first."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trackway.errors import FatalTrackerError
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import (
    BackgroundTracker,
    CompositeTracker,
    FilteredTracker,
    FilterPolicy,
    RequiredTracker,
    Tracker,
    current_tracker,
    log,
    set_global_tracker,
)


class Plugin(Tracker):
    """A tracker as a user writes one: five methods, and no word about devices."""

    name = "plugin"

    def __init__(self):
        self.calls = []

    def log(self, metrics, *, step, commit=None):
        self.calls.append(dict(metrics))

    def log_hyperparameters(self, hparams):
        """Ignore them."""

    def log_summary(self, metrics):
        """Ignore it."""

    def log_artifact(self, artifact_path, *, name=None, type=None):
        """Ignore it."""

    def finish(self):
        self.calls.append("finish")


class Flushed(Plugin):
    """Overrides what `Plugin` inherits, and calls it."""

    def flush(self):
        """Note the call."""
        super().flush()
        self.calls.append("flush")

    def finish(self):
        super().finish()
        self.calls.append("finished")


class Mixin:
    """Brings a method, and is no tracker."""

    def flush(self):
        """Note the call."""
        self.calls.append("mixed flush")


class Mixed(Mixin, Plugin):
    """Has a method from elsewhere."""


@pytest.fixture
def waiting(late):
    """Return a function that has one row wait for a tracker; it arrives a moment later."""

    def wait(tracker):
        array = late(1)
        with_tracker = set_global_tracker(tracker)
        log({"a": array}, step=0)
        array.arrive_after(0.05)
        return with_tracker

    yield wait
    set_global_tracker(None)


@pytest.mark.parametrize(
    ("make", "method", "calls"),
    [
        (Plugin, "finish", ["finish"]),
        (Plugin, "flush", []),
        (Flushed, "finish", ["finish", "finished"]),
        (Flushed, "flush", ["flush"]),
        (Mixed, "flush", ["mixed flush"]),
    ],
)
def test_a_direct_call_on_a_users_tracker(waiting, make, method, calls):
    """`flush` and `finish` called on the tracker itself deliver first, inherited or overridden, once."""
    tracker = make()
    waiting(tracker)
    assert tracker.calls == []
    getattr(tracker, method)()
    assert tracker.calls == [{"a": 1.0}, *calls]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: CompositeTracker([inner]),
        lambda inner: FilteredTracker(inner, FilterPolicy(prefix="p/")),
        RequiredTracker,
        lambda inner: CompositeTracker([BackgroundTracker(inner), RecordingTracker()]),
    ],
)
@pytest.mark.parametrize("method", ["flush", "finish"])
def test_a_direct_call_on_a_wrapper(waiting, wrap, method):
    """The library's own wrappers do it too."""
    inner = RecordingTracker()
    wrapped = wrap(inner)
    waiting(wrapped)
    getattr(wrapped, method)()
    assert [list(row.values()) for _, row in inner.rows] == [[1.0]]
    wrapped.finish()
    assert inner.finished


def test_a_member_with_rows_of_its_own_is_finished_with_them(waiting):
    """A tracker that rows wait for gets them also when another one in front of it is finished."""
    inner = RecordingTracker()
    member = FilteredTracker(inner, FilterPolicy(prefix="p/"))
    waiting(member)
    CompositeTracker([member]).finish()
    assert inner.rows == [(0, {"p/a": 1.0})]


def test_methods_keep_their_names_and_signatures():
    """What is put around a method does not hide it."""
    assert Flushed.flush.__doc__ == "Note the call."
    assert Flushed.finish.__qualname__ == "Flushed.finish"
    assert Plugin.flush is Tracker.flush


def test_the_end_of_a_block_delivers(late):
    """After `with current_tracker(t)` nothing waits for it, and a failed block keeps its error."""
    tracker, array, other = RecordingTracker(), late(1), late(2)

    def failed_block():
        with current_tracker(tracker):
            log({"a": other}, step=1)
            raise ZeroDivisionError

    with current_tracker(tracker):
        log({"a": array}, step=0)
        array.arrive_after(0.05)
    assert tracker.rows == [(0, {"a": 1.0})]
    other.arrive_after(0.05)
    with pytest.raises(ZeroDivisionError):
        failed_block()
    assert tracker.rows == [(0, {"a": 1.0}), (1, {"a": 2.0})]


def test_with_tracker_delivers_before_it_finishes(late):
    """`with tracker:` delivers, then marks a failure, then finishes."""
    order = []

    class Ordered(Plugin):
        def log(self, metrics, *, step, commit=None):
            order.append("log")

        def mark_failed(self, error):
            """Note it."""
            order.append("mark_failed")

        def finish(self):
            order.append("finish")

    array = late(1)

    def failed_block():
        with Ordered():
            log({"a": array}, step=0)
            raise ZeroDivisionError

    array.arrive_after(0.05)
    with pytest.raises(ZeroDivisionError):
        failed_block()
    assert order == ["log", "mark_failed", "finish"]


@pytest.mark.parametrize("enter", [current_tracker, lambda tracker: tracker])
def test_a_required_trackers_failure_comes_out_at_the_end_of_a_good_block(late, enter):
    """A fatal failure at a row that waited ends a good block, and does not mask the error of a bad one."""

    def block(composite, error):
        with enter(composite):
            array = late(1)
            log({"a": array}, step=0)
            array.arrive()
            if error is not None:
                raise error

    for error in (None, ZeroDivisionError):
        healthy = RecordingTracker()
        composite = CompositeTracker([RequiredTracker(FailingTracker(methods=("log",))), healthy])
        with pytest.raises(error or FatalTrackerError):
            block(composite, error)
        assert healthy.rows == [(0, {"a": 1.0})]
        assert healthy.finished is (enter is not current_tracker)


def test_finish_ends_the_tracker_also_where_a_row_is_fatal(late, waiting):
    """A direct `finish` delivers, finishes all the same, and then raises."""
    healthy = RecordingTracker()
    composite = CompositeTracker([RequiredTracker(FailingTracker(methods=("log",))), healthy])
    waiting(composite)
    with pytest.raises(FatalTrackerError, match="required"):
        composite.finish()
    assert healthy.finished


@pytest.mark.parametrize("end", [lambda undo: undo(), lambda _undo: set_global_tracker(None)])
def test_taking_off_the_global_tracker_delivers(waiting, end):
    """Undoing `set_global_tracker`, or setting None, leaves nothing behind."""
    tracker = Plugin()
    end(waiting(tracker))
    assert tracker.calls == [{"a": 1.0}]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_leaves_the_parents_rows_alone(late):
    """What waits is delivered by the parent alone; the child's own rows are not held up by it."""
    tracker, array = Plugin(), late(1)
    with current_tracker(tracker):
        log({"a": array}, step=0)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                log({"b": 2}, step=1)
                tracker.flush()
                os.write(write, repr(tracker.calls).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1000) == b"[{'b': 2}]"
        os.close(read)
        os.close(write)
        array.arrive()
        tracker.flush()
    assert tracker.calls == [{"a": 1.0}]


PROGRAM = r"""
import numpy as np, trackway
from trackway.testing import FailingTracker, SlowTracker
from trackway.tracker import BackgroundTracker, CompositeTracker, FilteredTracker, FilterPolicy
from trackway.tracker import RequiredTracker, Tracker

class Printing(Tracker):
    name = "printing"
    def log(self, metrics, *, step, commit=None): print(f"{step} {dict(metrics)}\n", end="", flush=True)
    def log_hyperparameters(self, hparams): ...
    def log_summary(self, metrics): ...
    def log_artifact(self, artifact_path, *, name=None, type=None): ...
    def finish(self): print("finish\n", end="", flush=True)

class NeverReady:
    dtype, shape, size = np.dtype("float32"), (), 1
    def __init__(self, value): self.value = value
    def copy_to_host_async(self): ...
    def is_ready(self): return False
    def __array__(self, dtype=None, copy=None): return np.array(self.value, np.float32)

trackway.set_global_tracker(TRACKER)
VALUES
for step, value in enumerate(values):
    trackway.log({"x": value}, step=step)
END
"""
NEVER_READY = "values = map(NeverReady, range(5))"
COMPUTING = """
import jax, jax.numpy as jnp
@jax.jit
def slow(x):
    y = jax.lax.fori_loop(0, 300, lambda _, a: jnp.tanh(a @ a), x)[0, 0] * 0
    return [y + i for i in range(5)]
values = slow(jnp.ones((300, 300)))
"""


def run(tracker, values, end):
    """Run the program; return what it printed, but for the end of its trackers, and its errors."""
    program = PROGRAM.replace("TRACKER", tracker).replace("VALUES", values).replace("END", end)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    return [line for line in ended.stdout.splitlines() if line != "finish"], ended.stderr


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)"])
@pytest.mark.parametrize(
    "tracker",
    [
        "Printing()",
        "CompositeTracker([Printing()])",
        "CompositeTracker([BackgroundTracker(Printing()), Printing()])",
        "FilteredTracker(CompositeTracker([Printing(), BackgroundTracker(SlowTracker(Printing()))]), FilterPolicy())",
    ],
)
def test_a_program_that_just_ends_delivers(tracker, end):
    """At the exit of the interpreter what waits is delivered, before the trackers behind are closed."""
    (first, *lines), errors = run(tracker, NEVER_READY, f"print('end of program', flush=True)\n{end}")
    assert (first, errors) == ("end of program", "")
    expected = [f"{step} {{'x': {float(step)}}}" for step in range(5)]
    assert sorted(lines) == sorted(expected * tracker.count("Printing"))


def test_rows_of_the_background_worker_and_waiting_ones_both_arrive():
    """The worker of a tracker starts with the first row that is delivered; those that still wait at exit come after."""
    wait = "for i in range(5, 15):\n    trackway.log({'x': NeverReady(i)}, step=i)"
    lines, errors = run("CompositeTracker([BackgroundTracker(Printing()), Printing()])", NEVER_READY, wait)
    assert errors == ""
    assert sorted(lines) == sorted([f"{step} {{'x': {float(step)}}}" for step in range(15)] * 2)


def test_what_jax_still_computes_at_exit_arrives():
    """Values are read before JAX closes its devices."""
    lines, errors = run("Printing()", COMPUTING, "")
    assert errors == ""
    assert lines == [f"{step} {{'x': {float(step)}}}" for step in range(5)]


def test_a_failure_at_exit_is_said():
    """A required tracker that fails at what is delivered at exit is at least heard of."""
    _, errors = run("RequiredTracker(FailingTracker(Printing()))", NEVER_READY, "")
    assert errors.count("declared `required: true` and failed in log") == 1
