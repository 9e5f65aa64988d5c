"""Which tracker a row of compiled code reaches, with threads, event loops and forks about."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import jax
import jax.numpy as jnp
import pytest

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import BackgroundTracker, current_tracker


def slow_step():
    """A compiled step whose row arrives on a thread of JAX's, because its value takes a moment to compute."""

    @jax.jit
    def step_fn(x):
        y = jax.lax.fori_loop(0, 30, lambda i, v: jnp.sin(v) @ v * 1e-3, x)
        trackway.log({"y": y[0, 0]}, step=1)
        return y

    return step_fn


X = jnp.ones((64, 64))


def in_thread(work):
    """Run *work* on a thread and wait for it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def log_three(step_fn, tracker):
    """Run the step three times in a block of *tracker*."""
    with current_tracker(tracker):
        for _ in range(3):
            step_fn(X)


def test_a_worker_threads_tracker_gets_the_rows():
    """A training loop on a thread other than the main one gets the rows of its compiled functions."""
    tracker = RecordingTracker()
    in_thread(lambda: log_three(slow_step(), tracker))
    assert len(tracker.rows) == 3


def test_a_compiled_step_serves_one_run_after_the_other():
    """Two runs on two threads that share one compiled step get their own rows."""
    step_fn, first, second = slow_step(), RecordingTracker("first"), RecordingTracker("second")
    in_thread(lambda: log_three(step_fn, first))
    in_thread(lambda: log_three(step_fn, second))
    assert (len(first.rows), len(second.rows)) == (3, 3)


def test_a_worker_with_its_own_tracker_beside_one_of_the_main_thread():
    """The tracker of the thread that traced the function goes before the main thread's."""
    main, own = RecordingTracker("main"), RecordingTracker("own")
    with current_tracker(main):
        in_thread(lambda: log_three(slow_step(), own))
    assert (len(main.rows), len(own.rows)) == (0, 3)


def test_inner_blocks_of_one_thread_go_first():
    """A step traced under an outer tracker logs to the inner one while that is current."""
    step_fn, outer, inner = slow_step(), RecordingTracker("outer"), RecordingTracker("inner")

    def work():
        with current_tracker(outer):
            step_fn(X)
            jax.effects_barrier()
            log_three(step_fn, inner)

    in_thread(work)
    assert (len(outer.rows), len(inner.rows)) == (1, 3)


def test_cells_of_a_notebook():
    """In an event loop, as in a notebook, each block gets the rows of the step that an earlier one compiled."""
    step_fn, trackers = slow_step(), [RecordingTracker(str(i)) for i in range(3)]

    async def cell(tracker):
        """Run one cell."""
        log_three(step_fn, tracker)

    async def notebook():
        """Run the cells as tasks, one after the other."""
        for tracker in trackers:
            await asyncio.create_task(cell(tracker))

    asyncio.run(notebook())
    assert [len(tracker.rows) for tracker in trackers] == [3, 3, 3]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_child_forked_with_callbacks_under_way_does_not_wait_for_them():
    """In a forked child flushing, finishing and leaving the block return at once."""
    step_fn, inner = slow_step(), RecordingTracker()
    with current_tracker(BackgroundTracker(inner)) as tracker:
        for _ in range(20):
            step_fn(X)
        child = os.fork()
        if child == 0:
            tracker.flush()
            tracker.finish()
            os._exit(0)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (ended := os.waitpid(child, os.WNOHANG))[0]:
            time.sleep(0.01)
        if not ended[0]:
            os.kill(child, 9)
        assert ended == (child, 0)
        tracker.finish()
    assert len(inner.rows) == 20
