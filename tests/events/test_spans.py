"""Spans: what is measured, how it nests, and where it goes."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time

import pytest
from kept_spans import Spans

import trackway
from trackway.capture import mute, scope
from trackway.errors import FatalTrackerError, TrackwayWarning
from trackway.events import span
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import BackgroundTracker, CompositeTracker, RequiredTracker, Span, at_step, current_tracker


def test_a_block_is_measured(kept):
    """The span has its name, when it began, how long it took, and the thread."""
    before = time.time()
    with span("data", batch=32) as s:
        time.sleep(0.01)
        assert s.seconds >= 0.01
    (done,) = kept.spans
    assert (done.name, done.path, done.parent, done.error, done.step) == ("data", "data", None, None, None)
    assert before - 1e-3 <= done.start <= time.time()
    assert 0.01 <= done.seconds == s.seconds
    assert (done.thread, done.thread_name) == (threading.get_native_id(), threading.current_thread().name)
    assert done.attributes == {"batch": 32}


def test_spans_nest(kept):
    """One inside another has it as parent, lies inside it, and its path begins with the other's."""
    with span("epoch"):
        with span("data"):
            pass
        with span("train"), span("forward"):
            pass
    data, forward, train, epoch = kept.spans
    assert kept.paths() == ["epoch/data", "epoch/train/forward", "epoch/train", "epoch"]
    assert (data.parent, forward.parent, train.parent, epoch.parent) == (epoch.id, train.id, epoch.id, None)
    assert len({done.id for done in kept.spans}) == 4
    for inner, outer in ((data, epoch), (forward, train), (train, epoch)):
        assert outer.start <= inner.start
        assert inner.start + inner.seconds <= outer.start + outer.seconds + 1e-6


def test_an_exception_is_noted_and_goes_on(kept):
    """It reaches the caller as it was; the span says its type and text, and the next one does not nest inside."""
    with pytest.raises(ValueError, match="no batch"), span("data"):
        raise ValueError("no batch\nleft")
    with span("next"):
        pass
    assert [done.error for done in kept.spans] == ["ValueError: no batch", None]
    assert kept.paths() == ["data", "next"]


def test_an_exception_whose_text_raises_is_noted(kept):
    """A hostile exception reaches the caller all the same."""

    class OddError(Exception):
        def __str__(self):
            raise RuntimeError

    with pytest.raises(OddError), span("data"):
        raise OddError
    assert kept.spans[0].error == "OddError"


def test_spans_left_in_another_order_lose_no_parents(kept):
    """One that ends while a later one is open is nobody's parent afterwards, nor is the later one once it ended."""
    outer, inner = span("outer"), span("inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    with span("in inner"):
        pass
    inner.__exit__(None, None, None)
    with span("alone"):
        pass
    assert kept.paths() == ["outer", "outer/inner/in inner", "outer/inner", "alone"]


def test_a_span_left_open_by_a_generator_is_no_parent_after_its_end(kept):
    """A block in a generator that is closed late does not stay the parent of what follows."""

    def items():
        with span("inside"):
            yield 1

    generator = items()
    with span("outside"):
        next(generator)
    generator.close()
    with span("after"):
        pass
    assert kept.paths() == ["outside", "outside/inside", "after"]
    assert kept.spans[1].error is None, "closing a generator is no error"


def test_threads_nest_by_themselves(kept):
    """A span of another thread is not inside those of the thread that started it, and bears its own name."""

    def work():
        with span("outer"), span("inner"):
            pass

    with span("main"):
        thread = threading.Thread(target=work, name="loader")
        thread.start()
        thread.join()
    assert kept.paths() == ["outer/inner", "outer", "main"]
    assert [done.thread_name for done in kept.spans] == ["loader", "loader", threading.current_thread().name]
    assert kept.spans[0].thread != kept.spans[2].thread


def test_tasks_nest_by_themselves(kept):
    """Tasks that take turns on one thread do not get into each other's spans; all are in the one they were made in."""

    async def work(name):
        """Take turns with the others."""
        with span(name):
            await asyncio.sleep(0)
            with span("inner"):
                await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def main():
        """Run it all."""
        with span("all"):
            await asyncio.gather(*(work(f"task {n}") for n in range(3)))

    asyncio.run(main())
    expected = {f"all/task {n}{rest}" for n in range(3) for rest in ("", "/inner")} | {"all"}
    assert set(kept.paths()) == expected
    ids = {done.path: done.id for done in kept.spans}
    assert all(done.parent == ids.get(done.path.rpartition("/")[0]) for done in kept.spans)


def test_a_task_that_outlives_the_span_it_was_made_in(kept):
    """Once that has ended it is the parent of nothing new."""

    async def main():
        """Run it all."""
        begin = asyncio.Event()

        async def work():
            """Take turns with the others."""
            await begin.wait()
            with span("late"):
                pass

        with span("early"):
            task = asyncio.create_task(work())
        begin.set()
        await task

    asyncio.run(main())
    assert kept.paths() == ["early", "late"]


def test_a_span_may_end_in_another_context(kept):
    """Left in another context than it was entered in, it is measured, and that context keeps its own nesting."""
    s = span("moved")
    contextvars.copy_context().run(s.__enter__)
    with span("here"):
        s.__exit__(None, None, None)
        with span("inner"):
            pass
    assert kept.paths() == ["moved", "here/inner", "here"]


def test_one_object_serves_several_blocks(kept):
    """One after the other they are spans of their own."""
    data = span("data")
    for _ in range(3):
        with data:
            pass
    assert len({done.id for done in kept.spans}) == 3


def test_entering_an_open_span_warns_and_measures_the_outer_block(kept):
    """The inner block is left out, said once; the outer one is measured whole."""
    data = span("data")
    with data:
        with pytest.warns(TrackwayWarning, match="'data' was entered again"), data:
            pass
        with data, span("inner"):
            pass
    assert kept.paths() == ["data/inner", "data"]


def test_attributes_are_plain_values(kept):
    """Values that are not plain take a form that a file can keep; `set` adds to them until the end."""

    class Odd:
        def __repr__(self):
            raise RuntimeError

    with pytest.warns(TrackwayWarning, match="no plain form"), span("data", shape=(2, 3), name="x", self="me") as s:
        s.set(rows=5, odd=Odd())
    attributes = kept.spans[0].attributes
    assert attributes["shape"] == [2, 3]
    assert (attributes["name"], attributes["self"], attributes["rows"]) == ("x", "me", 5)
    assert isinstance(attributes["odd"], str)


@pytest.mark.parametrize("name", ["a/b", "\x1b[31m", "\ud800", "✓" * 5000, " "])
def test_hostile_names_are_kept(kept, name):
    """Any text is a name."""
    with span(name):
        pass
    assert kept.spans[0].name == name


@pytest.mark.parametrize(
    ("name", "error"), [(None, TypeError), (b"data", TypeError), (len, TypeError), ("", ValueError)]
)
def test_what_is_no_name_is_an_error(name, error):
    """It says what a name is."""
    with pytest.raises(error, match="takes the name"):
        span(name)


def test_paths_are_bounded(kept):
    """A function that calls itself does not make ever longer paths."""

    def deep(depth):
        with span("call"):
            if depth:
                deep(depth - 1)

    deep(400)
    assert max(map(len, kept.paths())) < 1100
    assert len(kept.spans) == 401


def test_without_a_tracker_it_warns_once():
    """Instrumented code runs in a unit test; what else would warn of that does not, afterwards."""
    with pytest.warns(TrackwayWarning, match="trackway.span was used while no tracker is set"), span("a"):
        pass
    with span("b"):
        pass
    trackway.log({"loss": 1.0})


def test_muted_spans_are_not_kept(kept):
    """`mute` holds for spans as for metrics."""
    with mute(), span("quiet"):
        pass
    with span("loud"):
        pass
    assert kept.paths() == ["loud"]


def test_a_scope_names_spans_and_a_step_is_noted(kept):
    """A scope's name comes before the span's, and the step is that of `at_step`."""
    with at_step(7), scope("actor"), span("data"):
        pass
    (done,) = kept.spans
    assert (done.name, done.path, done.step) == ("actor/data", "actor/data", 7)


def test_by_default_a_tracker_adds_the_seconds():
    """A tracker that knows nothing of spans gets a number named after them."""
    with current_tracker(RecordingTracker()) as tracker, span("data"):
        time.sleep(0.001)
    ((_, row),) = tracker.rows
    assert row["time/data"] >= 0.001


def test_every_wrapper_passes_spans_on():
    """Composite and background trackers hand the same span to those behind."""
    first, second = Spans(), Spans()
    with CompositeTracker([first, BackgroundTracker(second)]), span("data", batch=2):
        pass
    assert first.spans == second.spans
    assert first.spans[0].attributes == {"batch": 2}
    assert type(second.spans[0]) is Span


def test_a_tracker_that_fails_does_not_reach_the_program():
    """Its failure is told on the logger; the block goes on."""
    with current_tracker(FailingTracker(Spans(), methods=("log_span",))), span("data"):
        done = True
    assert done


def test_a_required_tracker_never_masks_the_error_of_the_block():
    """Without an error its failure goes out; with one that does."""
    with current_tracker(RequiredTracker(FailingTracker(Spans(), methods=("log_span",)))):
        with pytest.raises(FatalTrackerError), span("data"):
            pass
        with pytest.raises(KeyError), span("data"):
            raise KeyError


def test_a_run_adds_spans_to_its_open_row_and_keeps_them(tmp_path):
    """A row has the sum of what was measured while it was open; `spans.jsonl` has each."""
    with trackway.start(dir=tmp_path, run_id="a") as run:
        for step in range(2):
            trackway.log({"loss": 0.5}, step=step)
            for _ in range(2):
                with span("data"):
                    time.sleep(0.002)
        rows = run.history(None)
    assert all(row["time/data"] >= 0.004 for row in rows)
    assert len((tmp_path / "a" / "spans.jsonl").read_text().splitlines()) == 4


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_has_a_thread_of_its_own(kept):
    """There the number of the thread is another one."""
    with span("before"):
        pass
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with span("inside"):
                pass
            os.write(writer, str(kept.spans[-1].thread - os.getpid()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        assert file.read() == "0"
    os.waitpid(child, 0)
