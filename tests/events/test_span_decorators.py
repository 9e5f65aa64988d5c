"""Spans around functions of every kind, and under JAX."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import threading
import time

import pytest

from trackway.events import span


def test_each_call_of_a_function_is_a_span(kept):
    """The function keeps its name and signature; calls inside calls nest."""

    @span("fact", kind="test")
    def fact(n: int) -> int:
        """Multiply."""
        return n * fact(n - 1) if n else 1

    assert fact(2) == 2
    assert kept.paths() == ["fact/fact/fact", "fact/fact", "fact"]
    assert kept.spans[0].attributes == {"kind": "test"}
    assert (fact.__name__, fact.__doc__, list(inspect.signature(fact).parameters)) == ("fact", "Multiply.", ["n"])


def test_methods_of_every_kind(kept):
    """Plain, static and class methods get what they get otherwise."""

    class Model:
        @span("plain")
        def plain(self):
            return self

        @span("static")
        @staticmethod
        def static():
            return 1

        @classmethod
        @span("class")
        def own(cls):
            return cls

    model = Model()
    assert (model.plain(), model.static(), Model.own()) == (model, 1, Model)
    assert kept.paths() == ["plain", "static", "class"]


def test_threads_may_share_a_decorated_function(kept):
    """Calls at the same time are spans of their own."""
    both = threading.Barrier(2)

    @span("work")
    def work():
        both.wait(20)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.paths() == ["work", "work"]


@pytest.mark.parametrize("thing", [3, "text", dict, property(len)])
def test_what_is_no_function_cannot_be_decorated(thing):
    """It says what can."""
    with pytest.raises(TypeError, match="decorates functions"):
        span("data")(thing)


def test_a_name_is_needed(kept):
    """`@span` without a name says so where it stands."""
    with pytest.raises(TypeError, match="a decorator needs one"):

        @span
        def work(): ...


# --- generators ---


def test_a_generator_is_one_span_from_first_next_to_end(kept):
    """Its time begins with the first `next`, not with the call; how long it ran itself is an attribute."""

    @span("batches")
    def batches():
        for n in range(3):
            time.sleep(0.002)
            yield n
        return "end"

    assert inspect.isgeneratorfunction(batches)
    generator = batches()
    time.sleep(0.02)
    begun = time.perf_counter()
    assert next(generator) == 0
    time.sleep(0.02)
    assert list(generator) == [1, 2]
    passed = time.perf_counter() - begun
    (done,) = kept.spans
    assert 0.026 <= done.seconds <= passed
    assert 0.006 <= done.attributes["running"] <= done.seconds - 0.02


def test_who_iterates_is_not_inside_the_generator(kept):
    """Spans of the loop's body are beside it; those of the generator's body inside, also across a `yield`."""

    @span("batches")
    def batches():
        with span("read"):
            yield 1
            with span("parse"):
                pass

    with span("epoch"):
        for _ in batches():
            with span("train"):
                pass
    assert kept.paths() == ["epoch/train", "epoch/batches/read/parse", "epoch/batches/read", "epoch/batches", "epoch"]


def test_a_generator_passes_everything_through(kept):
    """What is sent, thrown and returned reaches the other side."""

    @span("talk")
    def talk():
        got = yield "first"
        try:
            yield got
        except KeyError as error:
            yield f"caught {error}"
        return "returned"

    generator = talk()
    assert next(generator) == "first"
    assert generator.send("sent") == "sent"
    assert generator.throw(KeyError(1)) == "caught 1"
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == "returned"
    assert [done.error for done in kept.spans] == [None]


def test_a_generator_that_fails_or_is_closed(kept):
    """An error is noted; closing, and being forgotten, is none, and ends the span."""
    closed = []

    @span("items")
    def items(error=None):
        try:
            yield 1
            if error:
                raise error
        finally:
            closed.append(True)

    with pytest.raises(ValueError, match="bad"):
        list(items(ValueError("bad")))
    generator = items()
    next(generator)
    generator.close()
    forgotten = items()
    next(forgotten)
    del forgotten
    gc.collect()
    assert [done.error for done in kept.spans] == ["ValueError: bad", None, None]
    assert len(closed) == 3
    with span("after"):
        pass
    assert kept.paths()[-1] == "after"


def test_a_generator_may_go_on_in_another_span(kept):
    """Ending inside another block than it began in, it leaves that one's nesting as it was."""

    @span("items")
    def items():
        yield 1

    generator = items()
    with span("first"):
        next(generator)
    with span("second"):
        assert list(generator) == []
        with span("inner"):
            pass
    assert kept.paths() == ["first", "first/items", "second/inner", "second"]


def test_a_context_manager_can_be_decorated(kept):
    """A generator function below `contextmanager` works as without."""

    @contextlib.contextmanager
    @span("open")
    def opened():
        yield "file"

    with opened() as file:
        assert file == "file"
    assert kept.paths() == ["open"]


# --- async ---


def test_an_async_function_is_measured_with_what_it_awaits(kept):
    """Not the call, which returns at once; it stays an async function."""

    @span("fetch")
    async def fetch(n):
        """Wait, as for a reply."""
        await asyncio.sleep(0.005)
        return n

    async def main():
        """Run it all."""
        return await asyncio.gather(fetch(1), fetch(2))

    assert inspect.iscoroutinefunction(fetch)
    assert asyncio.run(main()) == [1, 2]
    assert kept.paths() == ["fetch", "fetch"]
    assert all(done.seconds >= 0.004 for done in kept.spans)


def test_an_async_generator_is_one_span(kept):
    """From its first item to its end; whoever iterates is not inside."""

    @span("stream")
    async def stream():
        """Yield two items."""
        for n in range(2):
            await asyncio.sleep(0)
            yield n

    async def main():
        """Run it all."""
        async for _ in stream():
            with span("use"):
                await asyncio.sleep(0)

    assert inspect.isasyncgenfunction(stream)
    asyncio.run(main())
    assert kept.paths() == ["use", "use", "stream"]
    assert kept.spans[-1].attributes["running"] <= kept.spans[-1].seconds


def test_an_async_generator_passes_everything_through(kept):
    """What is sent and thrown reaches it, closing ends it, and an error is noted."""

    @span("talk")
    async def talk():
        """Answer."""
        got = yield "first"
        try:
            yield got
        except KeyError:
            yield "caught"
        raise ValueError("end")

    async def main():
        """Run it all."""
        generator = talk()
        said = [await anext(generator), await generator.asend("sent"), await generator.athrow(KeyError(1))]
        with pytest.raises(ValueError, match="end"):
            await anext(generator)
        early = talk()
        await anext(early)
        await early.aclose()
        return said

    assert asyncio.run(main()) == ["first", "sent", "caught"]
    assert [done.error for done in kept.spans] == ["ValueError: end", None]


def test_objects_and_partial_functions_are_recognised(kept):
    """A partial of an async function, and an object with an async call, are measured to their end."""

    class Fetcher:
        async def __call__(self):
            await asyncio.sleep(0.002)

    async def fetch(n):
        """Wait, as for a reply."""
        await asyncio.sleep(n)

    async def main():
        """Run it all."""
        await span("object")(Fetcher())()
        await span("partial")(functools.partial(fetch, 0.002))()

    asyncio.run(main())
    assert [done.seconds >= 0.002 for done in kept.spans] == [True, True]
