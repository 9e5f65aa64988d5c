"""Rows of the verbs whose values are still on a device: not waited for, in order, never lost, for every tracker."""

from __future__ import annotations

import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trackway.errors import FatalTrackerError, StepError
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import (
    BackgroundTracker,
    Call,
    CompositeTracker,
    FilteredTracker,
    FilterPolicy,
    NoopTracker,
    RequiredTracker,
    Tracker,
    current_tracker,
    log,
    log_artifact,
    log_hyperparameters,
    log_summary,
)
from trackway.tracker._delivery import deliver_late
from trackway.values import Pending


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


def values(tracker):
    """Return the rows without their steps."""
    return [row for _, row in tracker.rows]


class Plugin(Tracker):
    """A tracker as a user writes one: five methods, and no word about devices."""

    name = "plugin"

    def __init__(self):
        self.calls = []

    def log(self, metrics, *, step, commit=None):
        self.calls.append(("log", dict(metrics)))

    def log_hyperparameters(self, hparams):
        """Note the call."""
        self.calls.append(("log_hyperparameters", dict(hparams)))

    def log_summary(self, metrics):
        """Note the call."""
        self.calls.append(("log_summary", dict(metrics)))

    def log_artifact(self, artifact_path, *, name=None, type=None):
        """Note the call."""
        self.calls.append(("log_artifact", name))

    def finish(self):
        self.calls.append(("finish", None))


def test_log_does_not_wait_and_keeps_the_order(tracker, late):
    """A row whose value is not ready is passed over by nothing, and arrives as numbers."""
    array = late(0.5)
    log({"loss": array}, step=0)
    log({"lr": 0.1}, step=1)
    assert (tracker.rows, array.reads) == ([], 0)
    array.arrive()
    log({"lr": 0.2}, step=2)
    assert tracker.rows == [(0, {"loss": 0.5}), (1, {"lr": 0.1}), (2, {"lr": 0.2})]


def test_only_the_ninth_row_waits(tracker, late):
    """Eight rows with values on a device may wait; the ninth call waits for the first of them."""
    arrays = [late(i) for i in range(9)]
    for step in range(8):
        log({"i": arrays[step]}, step=step)
    assert tracker.rows == []
    arrays[0].arrive_after(0.05)
    log({"i": arrays[8]}, step=8)
    assert tracker.rows == [(0, {"i": 0.0})]


def test_every_verb_keeps_its_place(late):
    """Summary and hyper-parameters come after the rows that were logged before them."""
    plugin, array = Plugin(), late(1)
    with current_tracker(plugin):
        log({"a": array}, step=0)
        log_summary({"best": 1})
        log_hyperparameters({"lr": 0.1})
        assert plugin.calls == []
        array.arrive()
    assert [method for method, _ in plugin.calls] == ["log", "log_summary", "log_hyperparameters"]


def test_a_summary_on_a_device_is_not_waited_for(tracker, late):
    """Values of a summary may be on a device too."""
    array = late(3)
    log_summary({"best": array})
    assert (tracker.summary, array.reads) == ({}, 0)
    array.arrive()
    log({"a": 1}, step=0)
    assert tracker.summary == {"best": 3.0}


def test_an_artifact_is_stored_before_the_call_returns(tracker, late, tmp_path):
    """The file may be deleted after the call, so what waits is delivered first and then the artifact."""
    array, path = late(1), tmp_path / "weights.bin"
    path.write_bytes(b"w")
    log({"a": array}, step=0)
    array.arrive_after(0.05)
    log_artifact(path)
    path.unlink()
    assert tracker.rows == [(0, {"a": 1.0})]
    assert tracker.artifacts == [("weights.bin", None, b"w")]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: inner,
        lambda inner: CompositeTracker([inner, BackgroundTracker(NoopTracker())]),
        lambda inner: FilteredTracker(inner, FilterPolicy(prefix="p/")),
        RequiredTracker,
    ],
)
def test_a_tracker_that_is_called_directly_somewhere_has_rows_wait(wrap, late):
    """Whatever stands in front: as long as one backend would have to wait, the rows do."""
    inner, array = RecordingTracker(), late(1)
    with current_tracker(wrap(inner)):
        log({"a": array}, step=0)
        assert (inner.rows, array.reads) == ([], 0)
        array.arrive()
    assert [list(row.values()) for row in values(inner)] == [[1.0]]


@pytest.mark.parametrize(
    "wrap",
    [
        BackgroundTracker,
        lambda inner: CompositeTracker([BackgroundTracker(inner), NoopTracker()]),
        lambda inner: FilteredTracker(BackgroundTracker(inner), FilterPolicy(exclude=["no"])),
    ],
)
def test_trackers_in_the_background_get_rows_at_once(wrap, late, in_thread):
    """Who waits on a thread of its own is handed the row as it is."""
    inner, array = RecordingTracker(), late(1)
    wrapped = wrap(inner)
    with current_tracker(wrapped):
        assert in_thread(lambda: log({"a": array}, step=0))
        log({"b": 2}, step=1)
        assert array.reads <= 1  # by the worker, if it was that fast
        array.arrive()
    wrapped.finish()
    assert inner.rows == [(0, {"a": 1.0}), (1, {"b": 2})]


def test_a_failing_tracker_does_not_reach_the_caller(late, caplog):
    """Failures at rows that had to wait are counted and said once, like all others."""
    failing = FailingTracker(RecordingTracker("failing"))
    with current_tracker(failing):
        arrays = [late(i) for i in range(3)]
        for array in arrays:
            log({"a": array})
        assert failing.calls == 0
        for array in arrays:
            array.arrive()
        log({"a": 1})
    assert failing.calls == 4
    assert caplog.text.count("failing.log failed: RuntimeError") == 1


def test_a_required_tracker_reaches_the_caller_of_a_later_verb(late):
    """A failure that shows when a row is delivered comes out of the call that delivers it."""
    array = late(1)
    with current_tracker(RequiredTracker(FailingTracker(RecordingTracker("failing"), methods=("log",)))):
        log({"a": array})
        array.arrive()
        with pytest.raises(FatalTrackerError, match="failing is declared `required: true`"):
            log_summary({"b": 1})


def test_a_tracker_that_logs_while_it_gets_a_row(late):
    """What a tracker logs itself comes after what waits, without a deadlock."""

    class Chatty(Plugin):
        def log(self, metrics, *, step, commit=None):
            super().log(metrics, step=step)
            if "seconds" not in metrics:
                log({"seconds": 0.1})
                self.flush()

    chatty, array = Chatty(), late(1)
    with current_tracker(chatty):
        log({"a": array})
        log({"b": 2})
        array.arrive()
    got = [metrics for _, metrics in chatty.calls]
    assert got == [{"a": 1.0}, {"b": 2}, {"seconds": 0.1}, {"seconds": 0.1}]


def test_threads_share_the_queue_of_a_tracker(tracker, late):
    """Rows of several threads to one tracker are all delivered, each thread's in its order."""
    array = late(1)
    log({"first": array}, step=0)
    threads = [threading.Thread(target=lambda n=n: [log({"n": n, "i": i}) for i in range(50)]) for n in range(3)]
    for thread in threads:
        thread.start()
    array.arrive()
    for thread in threads:
        thread.join(20)
    log({"last": 1})
    tracker.flush()
    rows = values(tracker)
    assert (rows[0], len(rows)) == ({"first": 1.0}, 152)
    for n in range(3):
        assert [row["i"] for row in rows if row.get("n") == n] == list(range(50))


def test_two_trackers_do_not_wait_for_each_other(late):
    """Each tracker has a queue of its own."""
    first, second = RecordingTracker("first"), RecordingTracker("second")
    with current_tracker(first):
        array = late(1)
        log({"a": array})
        with current_tracker(second):
            log({"b": 2})
        assert (first.rows, values(second)) == ([], [{"b": 2}])
        array.arrive()


def test_a_tracker_lives_as_long_as_rows_wait_for_it(late):
    """A tracker that nobody holds gets its rows, and is let go with its queue."""
    array, tracker = late(1), Plugin()
    calls, alive = tracker.calls, weakref.ref(tracker)
    block = current_tracker(tracker)
    block.__enter__()
    log({"a": array})
    array.arrive()
    block.__exit__(None, None, None)
    del tracker, block
    gc.collect()
    assert calls == [("log", {"a": 1.0})]
    assert alive() is None


class Rows:
    """Late rows that are ready when a test says so."""

    names = ("loss",)
    small = False

    def __init__(self, *payloads):
        """Bring one row for each of *payloads*."""
        self.arrived = threading.Event()
        self.payloads = payloads
        self.parts = (self,)

    def is_ready(self):
        """Tell whether they are."""
        return self.arrived.is_set()

    def calls(self):
        """Return the rows."""
        assert self.arrived.wait(20)
        return [Call("log", (payload,), {"step": None}) for payload in self.payloads]


@pytest.mark.parametrize("wrap", [lambda inner: inner, BackgroundTracker])
def test_late_rows_keep_their_place_at_every_tracker(wrap, in_thread):
    """Rows that are not known yet hold back what is logged after them, also for a tracker in the background."""
    inner = RecordingTracker()
    wrapped, rows = wrap(inner), Rows({"a": 1}, {"a": 2})
    with current_tracker(wrapped):
        deliver_late(rows, wrapped)
        log({"b": 1})
        assert inner.rows == []
        rows.arrived.set()
    wrapped.finish()
    assert inner.rows == [(0, {"a": 1}), (1, {"a": 2}), (2, {"b": 1})]


def test_late_rows_meet_a_required_tracker():
    """A failure of a required tracker comes out of the call that hands over rows that are ready."""
    rows = Rows({"a": 1})
    rows.arrived.set()
    with pytest.raises(FatalTrackerError, match="required"):
        deliver_late(rows, RequiredTracker(FailingTracker(methods=("log",))))


def test_a_step_on_a_device_is_not_waited_for(tracker, late):
    """A row whose step is still being computed keeps its place and gets that step."""
    step = late(7, np.int32)
    log({"a": 1}, step=step)
    log({"b": 2})
    assert (tracker.rows, step.reads) == ([], 0)
    step.arrive()
    log({"c": 3})
    assert tracker.rows == [(7, {"a": 1}), (8, {"b": 2}), (9, {"c": 3})]
    assert all(type(number) is int for number, _ in tracker.rows)


@pytest.mark.parametrize("wrap", [BackgroundTracker, lambda t: FilteredTracker(t, FilterPolicy(every_steps=2))])
def test_a_step_on_a_device_passes_wrappers(wrap, late):
    """Wrappers that look at the step, or hand the row on, meet it as a number."""
    inner, first, second = RecordingTracker(), late(4, np.uint8), late(6, np.int64, (1,))
    wrapped = wrap(inner)
    with current_tracker(wrapped):
        log({"a": 1}, step=first)
        log({"a": 2}, step=second)
        first.arrive()
        second.arrive()
    wrapped.finish()
    assert inner.rows == [(4, {"a": 1}), (6, {"a": 2})]


@pytest.mark.parametrize(
    ("dtype", "shape"), [(np.float32, ()), (np.bool_, ()), (np.int32, (2,)), (np.complex64, ()), (np.int32, (0,))]
)
def test_a_wrong_step_on_a_device_is_refused_at_the_call(tracker, late, dtype, shape):
    """Type and shape are known at once, and the payload is not touched."""
    payload = (i for i in range(3))
    with pytest.raises(StepError, match="step must be one integer, got an array of type"):
        log({"a": payload}, step=late(1, dtype, shape))
    assert list(payload) == [0, 1, 2]


@pytest.mark.parametrize(("value", "reason"), [(2**63, "fit in 64 bits"), (None, "could not be read from the device")])
def test_a_step_that_turns_out_wrong_costs_its_row(tracker, late, caplog, value, reason):
    """What is wrong with a step only its number tells; the row is counted as failed, and training goes on."""
    step = late(value or 0, np.uint64)
    log({"a": 1}, step=step)
    log({"b": 2}, step=5)
    step.error = None if value else OSError("device lost")
    step.arrive()
    log({"c": 3}, step=6)
    assert tracker.rows == [(5, {"b": 2}), (6, {"c": 3})]
    assert reason in caplog.text


def test_jax_values_and_steps_that_are_still_computed(tracker):
    """With real arrays: rows arrive in order with their values and steps, and donation does not touch them."""

    @jax.jit
    def train(x):
        zero = jax.lax.fori_loop(0, 60, lambda _, a: jnp.tanh(a @ a), x)[0, 0] * 0
        return [zero + i for i in range(12)], [jnp.int32(zero) + 3 + i for i in range(12)]

    for y, step in zip(*train(jnp.ones((300, 300))), strict=True):
        log({"y": y}, step=step)
        y.delete()
    tracker.flush()
    assert tracker.rows == [(3 + i, {"y": float(i)}) for i in range(12)]
    log({"z": 1}, step=jnp.int32(40))
    log({"z": 2}, step=jnp.arange(41, 42).block_until_ready())
    tracker.flush()
    assert tracker.rows[-2:] == [(40, {"z": 1}), (41, {"z": 2})]


def test_a_pending_of_a_users_own_is_a_late_value(tracker, late):
    """A `Pending` in a payload is treated like an array on a device."""
    array = late(2)
    log({"a": Pending(array)}, step=0)
    assert tracker.rows == []
    array.arrive()
    log({"b": 1}, step=1)
    assert tracker.rows == [(0, {"a": 2.0}), (1, {"b": 1})]
