"""Many threads and tasks that log to one run."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import trackway
from trackway.run import Run
from trackway.store import LocalTracker, read_rows
from trackway.tracker import BackgroundTracker

THREADS, ROWS = 32, 300


def _in_threads(work):
    """Call *work* on 32 threads that begin together, with their numbers."""
    ready = threading.Barrier(THREADS)

    def begin(number):
        ready.wait(20)
        work(number)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_threads_lose_and_double_nothing(tmp_path, recorder):
    """32 threads, 300 rows each: all in the directory, at callbacks and trackers, once, in one and the same order."""
    seen = []
    behind = type(recorder)("behind")
    with Run([recorder, BackgroundTracker(behind)], LocalTracker(tmp_path)) as run:
        run.on_commit(seen.append)
        _in_threads(lambda number: [run.log({f"t{number}": n, "n": n, "thread": number}) for n in range(ROWS)])
    rows = read_rows(tmp_path)
    assert [row["_step"] for row in rows] == list(range(THREADS * ROWS))
    for number in range(THREADS):
        assert [row["n"] for row in rows if row["thread"] == number] == list(range(ROWS))
    order = [(row["_step"], row["thread"], row["n"]) for row in rows]
    assert [(row["_step"], row["thread"], row["n"]) for row in seen] == order
    for tracker in (recorder, behind):
        assert [(step, row["thread"], row["n"]) for step, row in tracker.rows] == order
    assert run.report().rows == THREADS * ROWS
    assert run.report().run.dropped == {}


def test_threads_that_share_rows_merge_into_them(tmp_path):
    """Threads that add to the open row of one another: no value is lost, whichever row it ends in."""
    with Run([], LocalTracker(tmp_path)) as run:
        _in_threads(lambda number: [run.log({f"{number}/{n}": n}, commit=n % 10 == 9) for n in range(ROWS)])
    rows = read_rows(tmp_path)
    values = Counter(name for row in rows for name in row if not name.startswith("_"))
    assert values == Counter(f"{number}/{n}" for number in range(THREADS) for n in range(ROWS))
    assert [row["_step"] for row in rows] == list(range(len(rows)))


def test_threads_add_up(tmp_path):
    """Numbers that threads `add` to one open row sum up exactly."""
    with Run([], LocalTracker(tmp_path)) as run:
        _in_threads(lambda _: [run.add({"tokens": 1}) for _ in range(ROWS)])
    assert [row["tokens"] for row in read_rows(tmp_path)] == [THREADS * ROWS]


def test_tasks_of_an_event_loop(tmp_path, recorder):
    """Tasks that log between awaits: nothing is lost, each one's rows are in order, and callbacks see its context."""

    async def work(number):
        """Log as one task."""
        for n in range(20):
            trackway.log({"task": number, "n": n})
            await asyncio.sleep(0)

    async def main():
        """Run the tasks."""
        await asyncio.gather(*(work(number) for number in range(50)))

    with Run([recorder], LocalTracker(tmp_path)) as run:
        asyncio.run(main())
    assert run.report().rows == 1000
    for number in range(50):
        assert [row["n"] for _, row in recorder.rows if row["task"] == number] == list(range(20))
    assert [row["_step"] for row in read_rows(tmp_path)] == list(range(1000))


def test_finish_while_threads_log(tmp_path, recorder):
    """Rows before the end are whole everywhere, those after it are counted, and nobody hangs or raises."""
    run = Run([recorder], LocalTracker(tmp_path))
    logged = []

    def work(number):
        for n in range(ROWS):
            if number == 0 and n == 100:
                run.finish()
            run.log({"thread": number, "n": n})
            logged.append(1)

    _in_threads(work)
    rows = read_rows(tmp_path)
    assert len(logged) == THREADS * ROWS
    assert [row["_step"] for row in rows] == [step for step, _ in recorder.rows] == list(range(len(rows)))
    assert sum(run.report().run.dropped.values()) == THREADS * ROWS - len(rows)
