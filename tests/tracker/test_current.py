"""The current tracker, in blocks, threads and tasks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from trackway.errors import LifecycleError, NoTrackerError, TrackerFinishError, TrackwayWarning
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import (
    CompositeTracker,
    NoopTracker,
    RequiredTracker,
    current_tracker,
    get_tracker,
    log,
    log_artifact,
    log_hyperparameters,
    log_summary,
    set_global_tracker,
)


def test_block_yields_the_tracker_and_restores_the_earlier_one():
    """Blocks nest, and each yields its tracker."""
    outer, inner = NoopTracker("outer"), NoopTracker("inner")
    with current_tracker(outer) as a:
        with current_tracker(inner) as b:
            assert current_tracker() is b is inner
        assert current_tracker() is a is outer


def test_block_restores_after_an_exception():
    """An exception in the block leaves the earlier tracker current."""
    outer = NoopTracker("outer")
    with current_tracker(outer):
        with pytest.raises(ValueError, match="boom"), current_tracker(NoopTracker("inner")):
            raise ValueError("boom")
        assert current_tracker() is outer


def test_current_tracker_block_does_not_finish():
    """`current_tracker(t)` leaves finishing to the caller, `with t` does it."""
    tracker = RecordingTracker()
    with current_tracker(tracker):
        log({"a": 1})
    assert not tracker.finished
    with tracker:
        log({"a": 2})
    assert tracker.finished
    assert [row for _, row in tracker.rows] == [{"a": 1}, {"a": 2}]


def test_with_tracker_marks_failure_before_finish():
    """When the block raises, the tracker learns of it and is finished, and the exception goes on."""
    tracker = RecordingTracker()
    with pytest.raises(ValueError, match="diverged"), tracker:
        raise ValueError("diverged")
    assert isinstance(tracker.error, ValueError)
    assert tracker.finished


@pytest.mark.parametrize(("code", "failed"), [(0, False), (None, False), (3, True)])
def test_sys_exit_counts_as_failure_by_its_code(code, failed):
    """`sys.exit(0)` in the block is a normal end, any other code a failure."""
    tracker = RecordingTracker()
    with pytest.raises(SystemExit), tracker:
        raise SystemExit(code)
    assert (tracker.error is not None) is failed


def test_no_tracker_is_an_error_when_asked_for():
    """Asking for the current tracker where none is set raises with the cure."""
    with pytest.raises(NoTrackerError, match=r"with current_tracker\(tracker\)"):
        current_tracker()
    with pytest.raises(NoTrackerError):
        get_tracker("wandb")


def test_verbs_without_a_tracker_warn_once():
    """Instrumented code runs without a tracker: one warning, then silence."""
    with pytest.warns(TrackwayWarning, match="no tracker is set") as caught:
        log({"a": 1})
        log({"a": 2})
        log_summary({"a": 1})
        log_hyperparameters({"a": 1})
        log_artifact(__file__)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_threads_see_the_main_threads_tracker():
    """Worker threads without a tracker of their own use the one that the main thread entered."""
    tracker = RecordingTracker()
    with current_tracker(tracker), ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: log({"i": i}, step=i), range(20)))
    assert sorted(step for step, _ in tracker.rows) == list(range(20))


def test_a_threads_own_tracker_is_its_own():
    """A tracker entered on a worker thread serves that thread alone."""
    main, own = RecordingTracker("main"), RecordingTracker("own")
    inside, checked = threading.Event(), threading.Event()

    def work():
        with current_tracker(own):
            inside.set()
            checked.wait(20)
            log({"where": "worker"})

    with current_tracker(main):
        thread = threading.Thread(target=work)
        thread.start()
        assert inside.wait(20)
        assert current_tracker() is main
        log({"where": "main"})
        checked.set()
        thread.join(20)
    assert [row for _, row in own.rows] == [{"where": "worker"}]
    assert [row for _, row in main.rows] == [{"where": "main"}]


def test_tasks_see_their_own_tracker():
    """Asyncio tasks that enter different trackers do not disturb each other."""
    trackers = [RecordingTracker(str(i)) for i in range(3)]

    async def log_rows(tracker):
        with current_tracker(tracker):
            for _ in range(5):
                await asyncio.sleep(0)
                log({"name": tracker.name})

    async def main():
        """Run them all at once."""
        await asyncio.gather(*map(log_rows, trackers))

    asyncio.run(main())
    for tracker in trackers:
        assert [row["name"] for _, row in tracker.rows] == [tracker.name] * 5


def test_a_task_that_outlives_the_block_does_not_keep_its_tracker():
    """A task that copied the context of a block sees the outer tracker once the block is left."""
    outer, inner = NoopTracker("outer"), NoopTracker("inner")

    async def main():
        """Leave the block while a task that was started in it waits."""
        left = asyncio.Event()

        async def late():
            """Ask once the block is left."""
            await left.wait()
            return current_tracker()

        with current_tracker(outer):
            with current_tracker(inner):
                task = asyncio.create_task(late())
            left.set()
            return await task

    assert asyncio.run(main()) is outer


def test_blocks_may_be_left_in_any_order():
    """Two blocks of one tracker, or left crosswise, take off what they put on."""
    first, second = NoopTracker("first"), NoopTracker("second")
    a, b = current_tracker(first), current_tracker(second)
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)
    assert current_tracker() is second
    b.__exit__(None, None, None)
    with pytest.raises(NoTrackerError):
        current_tracker()


def test_global_tracker_serves_where_no_block_does():
    """`set_global_tracker` holds until undone; a block goes before it; a second one is refused."""
    tracker = NoopTracker("global")
    undo = set_global_tracker(tracker)
    assert current_tracker() is tracker
    with current_tracker(NoopTracker("block")) as block:
        assert current_tracker() is block
    with pytest.raises(LifecycleError, match="set_global_tracker"):
        set_global_tracker(NoopTracker("other"))
    undo()
    with pytest.raises(NoTrackerError):
        current_tracker()


def test_get_tracker_looks_through_composites_and_wrappers():
    """`get_tracker` finds a backend by name at any depth; the reference's example works with `.log`."""
    wandb, tensorboard = RecordingTracker("wandb"), RecordingTracker("tensorboard")
    nested = CompositeTracker([RequiredTracker(wandb), CompositeTracker([tensorboard])])
    with current_tracker(nested):
        log({"foo": 1}, step=0)
        get_tracker("wandb").log({"foo": 2}, step=1)
        assert get_tracker("tensorboard") is tensorboard
        assert get_tracker("composite") is nested
        with pytest.raises(KeyError, match="composite, tensorboard, wandb"):
            get_tracker("mlflow")
    assert wandb.rows == [(0, {"foo": 1}), (1, {"foo": 2})]


def test_failures_at_the_end_of_a_block_do_not_mask_its_exception():
    """A required tracker that fails to finish raises at the end of a good block, and keeps silent at a bad one."""

    def composite():
        return CompositeTracker([RequiredTracker(FailingTracker(methods=("finish",)))])

    with pytest.raises(TrackerFinishError), composite():
        pass
    with pytest.raises(ZeroDivisionError), composite():
        raise ZeroDivisionError


def test_a_failing_mark_failed_does_not_keep_trackers_from_finishing():
    """Every tracker is finished, also where a required one fails to take the news of the failure."""
    healthy = RecordingTracker()
    required = RequiredTracker(FailingTracker(methods=("mark_failed",)))
    with pytest.raises(ValueError, match="diverged"), CompositeTracker([required, healthy]):
        raise ValueError("diverged")
    assert healthy.finished


def test_undoing_an_earlier_global_tracker_keeps_the_later():
    """The undo of a call that another has replaced does nothing."""
    undo = set_global_tracker(NoopTracker("first"))
    set_global_tracker(None)
    later = NoopTracker("later")
    set_global_tracker(later)
    undo()
    assert current_tracker() is later


def test_the_only_tracker_of_the_process_serves_threads_without_one():
    """A pool inside a worker thread, and the next cell of a notebook, use the one tracker that is active."""
    tracker = RecordingTracker()

    def work():
        with current_tracker(tracker), ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda i: log({"i": i}), range(4)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert sorted(row["i"] for _, row in tracker.rows) == [0, 1, 2, 3]

    async def enter():
        """A cell that enters the tracker and leaves it entered."""
        tracker.__enter__()

    async def use():
        """The next cell."""
        log({"cell": 2})

    async def notebook():
        """Run the cells as tasks."""
        await asyncio.create_task(enter())
        await asyncio.create_task(use())

    asyncio.run(notebook())
    assert tracker.rows[-1][1] == {"cell": 2}
    tracker.__exit__(None, None, None)


def test_of_several_trackers_none_is_guessed():
    """A thread without a tracker, beside two threads with one each, is told that none is set."""
    ready, done = threading.Barrier(3), threading.Event()

    def work(tracker):
        with current_tracker(tracker):
            ready.wait(20)
            done.wait(20)

    threads = [threading.Thread(target=work, args=(RecordingTracker(str(i)),)) for i in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(20)
    with pytest.warns(TrackwayWarning, match="on the thread that logs"):
        log({"a": 1})
    done.set()
    for thread in threads:
        thread.join(20)
