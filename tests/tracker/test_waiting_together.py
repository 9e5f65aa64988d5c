"""Small rows that are put one after the other are delivered together: which, when, and that none gets lost."""

from __future__ import annotations

import os
import queue
import threading

import pytest

from trackway.store import LocalTracker, read_rows
from trackway.tracker import Call
from trackway.tracker._delivery import _fifos, deliver_late, deliver_waiting
from trackway.tracker._fifo import Fifo, never_waiting

TOGETHER = 16
BOUND = 64


class Rows:
    """Late rows that are ready when a test says so."""

    def __init__(self, name, *, ready=False, small=True):
        """Bring one row that has *name*."""
        self.names, self.small, self.error = (name,), small, None
        self.parts = (self,)
        self._ready = threading.Event()
        if ready:
            self._ready.set()

    def arrive(self):
        """Be ready."""
        self._ready.set()

    def is_ready(self):
        """Tell whether they are."""
        return self._ready.is_set()

    def calls(self):
        """Return the row."""
        if self.error is not None:
            raise self.error
        assert self._ready.wait(20)
        return [row(self.names[0])]


def row(name):
    """Return the call that logs *name*."""
    return Call("log", ({name: 1.0},), {"step": 0})


@pytest.fixture
def got():
    """Names of the rows delivered so far."""
    return []


@pytest.fixture
def fifo(got):
    """A queue that notes what it delivers."""
    return Fifo(lambda call: got.extend(call.payload))


def line_up(fifo, *names, **options):
    """Have late rows of *names* wait, together where they may; return them."""
    return [wait(fifo, Rows(name, **options)) for name in names]


def wait(fifo, rows):
    """Have *rows* wait, together with others where they may; return them."""
    if not fifo.join(rows):
        fifo.put(rows, lazily=True)
    return rows


def numbered(count):
    """Return as many names."""
    return [f"{number:03}" for number in range(count)]


def test_rows_join_those_put_before_and_arrive_in_order(fifo, got):
    """They wait together, nothing is delivered before the last of them is ready, and then all are, in order."""
    first, second, third = line_up(fifo, "a", "b", "c")
    assert len(fifo) == 3
    third.arrive()
    first.arrive()
    fifo.put(row("host"))
    assert got == []
    second.arrive()
    fifo.drain(block=False)
    assert (got, len(fifo)) == (["a", "b", "c", "host"], 0)


def test_a_blocking_drain_delivers_what_has_joined(fifo, got):
    """`drain(block=True)` waits for rows that joined others, too."""
    rows = line_up(fifo, "a", "b")
    timer = threading.Timer(0.05, lambda: [one.arrive() for one in rows])
    timer.start()
    fifo.drain(block=True)
    assert got == ["a", "b"]
    timer.join()


@pytest.mark.parametrize(
    ("last", "lazily", "small"),
    [
        (row("call"), True, True),
        (Rows("heavy", small=False), True, True),
        (Rows("not put lazily"), False, True),
        (Rows("small"), True, False),
    ],
)
def test_what_takes_nothing_in(fifo, last, lazily, small):
    """Calls, rows of much memory and those put to be delivered at once stay alone; rows of much memory join none."""
    waits = Rows("waits")
    fifo.put(waits)
    fifo.put(last, lazily=lazily)
    assert not fifo.join(Rows("joins", small=small))
    assert len(fifo) == 2
    for one in (waits, last):
        getattr(one, "arrive", int)()


def test_nothing_joins_an_empty_queue(fifo, got):
    """Where nothing waits there is nothing to join, also after a delivery."""
    assert not fifo.join(Rows("a", ready=True))
    line_up(fifo, "b", ready=True)
    assert not fifo.join(Rows("c", ready=True))
    assert got == ["b"]


def test_rows_join_only_the_last(fifo, got):
    """What is logged in between keeps its place: rows after it begin anew."""
    (first,) = line_up(fifo, "a")
    fifo.put(row("host"))
    second, third = line_up(fifo, "b", "c")
    for one in (first, second, third):
        one.arrive()
    fifo.drain(block=False)
    assert got == ["a", "host", "b", "c"]


def test_as_many_as_are_delivered_together(fifo, got):
    """Rows that would be one too many begin anew, and what is ready by then is delivered."""
    rows = line_up(fifo, *numbered(TOGETHER))
    assert not fifo.join(Rows("one too many"))
    for one in rows:
        one.arrive()
    assert got == []
    line_up(fifo, "next")
    assert (got, len(fifo)) == (numbered(TOGETHER), 1)


def test_no_row_joins_one_that_has_waited_for_long(fifo, got, monkeypatch):
    """Beyond their patience rows are delivered when the next is put."""
    (first,) = line_up(fifo, "first")
    monkeypatch.setattr("trackway.tracker._fifo._PATIENCE", 0.0)
    first.arrive()
    line_up(fifo, "second")
    assert (got, len(fifo)) == (["first"], 1)


def test_nothing_joins_rows_that_are_being_delivered(in_thread):
    """While their delivery is under way neither the tracker itself nor another thread adds to them."""
    got, joined = [], []

    def deliver(call):
        got.extend(call.payload)
        joined.append(fifo.join(Rows("own", ready=True)))
        assert in_thread(lambda: joined.append(fifo.join(Rows("other", ready=True))))

    fifo = Fifo(deliver)
    rows = line_up(fifo, "a", "b")
    for one in rows:
        one.arrive()
    fifo.drain(block=True)
    assert (got, joined) == (["a", "b"], [False] * 4)


def test_nothing_joins_rows_that_were_found_ready():
    """Who has seen that nothing is to be waited for must not meet a row that is."""
    fifo = Fifo(lambda _call: None)
    rows = Rows("a")
    waiting = fifo.add(rows, joinable=True)
    rows.arrive()
    assert waiting.ready()
    assert not fifo.join(Rows("b"))
    fifo.drain(block=True)


def test_callbacks_of_compiled_code_do_not_wait_for_rows_that_joined(fifo, got, in_thread):
    """In `never_waiting` the rows before one that is not ready are left as well, and nothing blocks."""
    first, second = line_up(fifo, "first", "second")
    first.arrive()

    def work():
        with never_waiting():
            fifo.drain(block=True)

    assert in_thread(work)
    assert (got, len(fifo)) == ([], 2)
    second.arrive()
    fifo.drain(block=True)
    assert got == ["first", "second"]


def test_an_interrupt_in_the_midst_loses_nothing(fifo, got):
    """Ctrl+C while one of several is read leaves it and those behind it, and delivers none twice."""
    rows = line_up(fifo, "a", "b", "c")
    for one in rows:
        one.arrive()
    rows[1].error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fifo.drain(block=True)
    assert got == ["a"]
    assert not fifo.join(Rows("d"))
    rows[1].error = None
    fifo.put(row("host"))
    assert (got, len(fifo)) == (["a", "b", "c", "host"], 0)


def test_rows_that_cannot_be_read_cost_themselves(fifo, got, caplog):
    """Those that were to be delivered along with them arrive."""
    rows = line_up(fifo, "before", "unreadable", "after")
    rows[1].error = ValueError("no such buffer")
    for one in rows:
        one.arrive()
    fifo.drain(block=True)
    assert got == ["before", "after"]
    assert "rows of unreadable could not be read and are lost: ValueError" in caplog.text


def test_the_bound_counts_rows(fifo, got):
    """As many small rows wait as if each were alone; with one more, the oldest are waited for down to half."""
    rows = line_up(fifo, *numbered(BOUND))
    assert (got, len(fifo)) == ([], BOUND)
    thread = threading.Thread(target=lambda: line_up(fifo, "last"))
    thread.start()
    for one in rows[: BOUND - TOGETHER]:
        one.arrive()
    thread.join(20)
    assert not thread.is_alive()
    assert (got, len(fifo)) == (numbered(BOUND - TOGETHER), TOGETHER + 1)
    for one in rows:
        one.arrive()


def test_a_queue_of_few_rows_has_none_wait_together(got):
    """Where fewer rows may wait than are delivered together, the bound holds all the same."""
    fifo = Fifo(lambda call: got.extend(call.payload), max_pending_rows=1)
    rows = line_up(fifo, *numbered(8))
    assert (got, len(fifo)) == ([], 8)
    for one in rows:
        one.arrive()
    line_up(fifo, "last", ready=True)
    assert (got, len(fifo)) == ([*numbered(8), "last"], 0)


def test_an_owner_with_a_thread_of_its_own(fifo, got):
    """Rows join what was added, which that thread delivers, and all of it."""
    stop = threading.Event()

    def drain():
        while not stop.wait(0.001):
            fifo.drain(block=False)
        fifo.drain(block=True)

    thread = threading.Thread(target=drain)
    thread.start()
    for name in numbered(300):
        one = Rows(name, ready=int(name) % 3 == 0)
        if not fifo.join(one):
            fifo.add(one, joinable=True)
        one.arrive()
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert (got, len(fifo)) == (numbered(300), 0)


def test_rows_of_several_threads(got):
    """Whoever delivers: no row is lost or comes twice, and those of each thread stay in order."""
    fifo = Fifo(lambda call: got.extend(call.payload))
    computed = queue.SimpleQueue()

    def compute():
        while (rows := computed.get()) is not None:
            rows.arrive()

    def work(letter):
        for name in numbered(300):
            rows = Rows(letter + name)
            computed.put(rows)
            wait(fifo, rows)
            if int(name) % 7 == 0:
                fifo.put(row(f"{letter}{name} host"))

    device = threading.Thread(target=compute)
    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abc"]
    for thread in (device, *threads):
        thread.start()
    for thread in threads:
        thread.join(20)
    computed.put(None)
    device.join(20)
    fifo.drain(block=True)
    assert len(got) == len(set(got)) == 3 * (300 + 43)
    for letter in "abc":
        own = [name for name in got if name[0] == letter]
        assert own == sorted(own)


class Numbers(Rows):
    """Late rows of a number each, and of whatever else is given for one of them."""

    def __init__(self, name, number, step=None):
        super().__init__(name)
        self._call = Call("log", ({name: number},), {"step": step})

    def calls(self):
        """Return the row."""
        return [self._call]


def test_a_run_directory_writes_them_together(tmp_path, monkeypatch):
    """What arrives together is written with one call up to a row that is more than numbers, in order, each once."""
    write, rows_written = os.write, []

    def counted(fd, data):
        rows_written.extend(rows for rows in [bytes(data).count(b'"_step"')] if rows)
        return write(fd, data)

    tracker = LocalTracker(tmp_path / "run")
    values = [1.0, 2, True, None, "text", {"nested": 1.0}, float("nan"), 8.0]
    waiting = [Numbers("x", value) for value in values]
    deliver_late(Rows("first"), tracker)  # which never arrives by itself
    first = _fifos[id(tracker)]._waiting[0].items[0]
    for rows in waiting:
        deliver_late(rows, tracker)
    monkeypatch.setattr("trackway.store._writer.os.write", counted)
    for rows in (first, *waiting):
        rows.arrive()
    deliver_waiting(tracker)
    found = [(one["_step"], one.get("x", one.get("x/nested"))) for one in read_rows(tmp_path / "run")]
    assert repr(found[1:]) == repr(list(enumerate([1.0, 2, True, None, "text", {"nested": 1.0}, float("nan"), 8.0], 1)))
    assert rows_written[0] >= 5
    assert sum(rows_written) == 9
    tracker.finish()
    report = tracker.report()
    assert (report.accepted, report.delivered, report.failed) == (9, 9, {})


def test_a_step_that_is_too_large_costs_no_other_row(tmp_path):
    """The row that has no step is counted as failed, and those around it are in the file."""
    tracker = LocalTracker(tmp_path / "run")
    waiting = [Numbers("x", 1.0, 2**63 - 1), Numbers("x", 2.0), Numbers("x", 3.0, 4)]
    for rows in waiting:
        deliver_late(rows, tracker)
    for rows in waiting:
        rows.arrive()
    deliver_waiting(tracker)
    assert [(one["_step"], one["x"]) for one in read_rows(tmp_path / "run")] == [(2**63 - 1, 1.0), (4, 3.0)]
    tracker.finish()
    assert tracker.report().accepted == 2


def test_an_array_that_cannot_be_asked_has_arrived(fifo, got):
    """Who reads it is told; it does not hold up the rows behind it for ever."""

    class Gone:
        def is_ready(self):
            """Fail as a deleted array does."""
            raise RuntimeError

    rows = Rows("gone", ready=True)
    rows.parts = (Gone(), Gone())
    fifo.put(rows)
    assert got == ["gone"]
