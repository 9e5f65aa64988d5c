"""Rows of a loop whose steps are still being computed: they wait together, and arrive as if each were alone."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import pytest

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


@jax.jit
def slow(x):
    """Return *x* after a while."""
    busy = jax.lax.fori_loop(0, 20, lambda _, a: jnp.tanh(a @ a), jnp.full((200, 200), x))
    return x + 0 * busy[0, 0]


@trackway.jit
def step_fn(x):
    """Log x without a step and return x + 1."""
    trackway.log({"x": x})
    return x + 1


@trackway.jit
def numbered_fn(x):
    """Log x with itself as the step and return x + 1."""
    trackway.log({"numbered": x}, step=x.astype(int))
    return x + 1


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


def run(fn, x, count):
    """Return what *count* calls make of x."""
    for _ in range(count):
        x = fn(x)
    return x


def test_all_arrive_in_order(tracker):
    """More rows than wait together are delivered in order, and the host's keep their place among them."""
    x = slow(jnp.float32(0))
    for part in range(4):
        x = run(step_fn, x, 30)
        trackway.log({"host": part})
    tracker.flush()
    rows = [row for _, row in tracker.rows]
    assert [row["x"] for row in rows if "x" in row] == list(range(120))
    assert [at for at, row in enumerate(rows) if "host" in row] == [30, 61, 92, 123]


def test_what_surrounds_each_call_holds_for_its_row(tracker):
    """Scope, step and silence are those of the call, although the rows wait together."""
    x = step_fn(slow(jnp.float32(0)))
    with trackway.scope("train"):
        x = step_fn(x)
    with trackway.mute():
        x = step_fn(x)
    with trackway.at_step(7):
        x = step_fn(x)
    x = step_fn(x)
    tracker.flush()
    rows = [(step, row) for step, row in tracker.rows if row]
    assert [row for _, row in rows] == [{"x": 0.0}, {"train/x": 1.0}, {"x": 3.0}, {"x": 4.0}]
    assert [step for step, _ in rows][2] == 7


def in_threads(*works):
    """Run each of *works* on a thread and wait for all."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


class KeepsRowsOpen(RecordingTracker):
    """Has the row of an explicit step open until another step comes."""

    def __init__(self):
        """Begin with no row."""
        super().__init__()
        self.now, self.asked = None, []

    def log(self, metrics, *, step=None, commit=None):
        """Note what is asked for."""
        self.asked.append((*metrics, step, commit))
        self.now = step

    def open_step(self):
        """Return the step of the row."""
        return self.now


@pytest.mark.parametrize("arrived", [True, False])
def test_a_row_without_a_step_joins_the_one_that_is_open_when_it_arrives(arrived):
    """Which row is open depends on the rows before, also where they are delivered together."""
    with trackway.mute():
        numbered_fn(step_fn(slow(jnp.float32(3))))  # once compiled, all calls below are made before the first is ready
    with current_tracker(KeepsRowsOpen()) as tracker:
        x = slow(jnp.float32(3))
        results = [fn(x) for fn in (step_fn, numbered_fn, step_fn)]
        if arrived:
            jax.block_until_ready(results)
        tracker.flush()
    assert tracker.asked == [("x", None, None), ("numbered", 3, None), ("x", 3, False)]


def test_each_tracker_gets_its_own():
    """Rows that one compiled function logs to several trackers in turns wait for each of them."""
    trackers = [RecordingTracker("first"), RecordingTracker("second")]
    turn = threading.Barrier(2)

    def work(tracker, start):
        with current_tracker(tracker):
            x = slow(jnp.float32(start))
            for _ in range(20):
                turn.wait(20)
                x = step_fn(x)

    in_threads(*[lambda t=t, s=s: work(t, s) for t, s in zip(trackers, (0, 100), strict=True)])
    assert [[row["x"] for _, row in tracker.rows] for tracker in trackers] == [
        list(map(float, range(20))),
        list(map(float, range(100, 120))),
    ]


def test_threads_that_share_a_tracker(tracker):
    """Rows of several loops at once all arrive, each loop's in order."""
    starts = [0, 1000, 2000]
    in_threads(*[lambda s=s: run(step_fn, slow(jnp.float32(s)), 60) for s in starts])
    tracker.flush()
    values = [row["x"] for _, row in tracker.rows]
    assert len(values) == 180
    for start in starts:
        assert [x for x in values if start <= x < start + 1000] == [start + at for at in range(60)]
