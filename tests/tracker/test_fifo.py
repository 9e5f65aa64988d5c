"""The queue of rows that wait for a device: order, bounds, threads, interrupts."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from programs import wait_for

from trackway.errors import FatalTrackerError
from trackway.tracker import Call
from trackway.tracker._fifo import MAX_ROWS, Fifo, never_waiting


class Rows:
    """Late rows that are ready when a test says so."""

    def __init__(self, *names, ready=True, error=None, small=False):
        """Bring one row for each of *names*."""
        self.names, self.error, self.asked, self.small = names, error, 0, small
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
        """Return the rows."""
        assert self._ready.wait(20)
        self.asked += 1
        if self.error is not None:
            raise self.error
        return [row(name) for name in self.names]


def row(name, value=1.0):
    """Return the call that logs *value* as *name*."""
    return Call("log", ({name: value},), {"step": 0})


@pytest.fixture
def got():
    """Names of the rows delivered so far."""
    return []


@pytest.fixture
def fifo(got):
    """A queue that notes what it delivers."""
    return Fifo(lambda call: got.extend(call.payload))


def test_what_is_ready_is_delivered_by_put(fifo, got):
    """A row with nothing before it is delivered at once."""
    fifo.put(row("a"))
    assert (got, len(fifo)) == (["a"], 0)


def test_a_row_waits_for_those_before_it(fifo, got, late):
    """Rows that are ready stay behind one that is not, and all arrive in order once it is."""
    first, second = late(1), late(2)
    fifo.put(row("first", first))
    fifo.put(row("host"))
    fifo.put(row("second", second))
    second.arrive()
    fifo.drain(block=False)
    assert (got, len(fifo)) == ([], 3)
    first.arrive()
    fifo.put(row("last"))
    assert (got, len(fifo)) == (["first", "host", "second", "last"], 0)


def test_every_value_of_a_row_has_to_be_ready(fifo, got, late):
    """Nested values and those in lists are waited for too, and arrive as numbers."""
    inner, listed = late(1), late(2)
    rows = []
    fifo = Fifo(lambda call: rows.append(call.payload))
    fifo.put(Call("log", ({"a": {"b": inner}, "c": [0.0, listed]},), {"step": 0}))
    inner.arrive()
    fifo.drain(block=False)
    assert rows == []
    listed.arrive()
    fifo.drain(block=False)
    assert rows == [{"a": {"b": 1.0}, "c": [0.0, 2.0]}]


def test_put_waits_only_beyond_the_bound(got, late, in_thread):
    """Up to the bound nothing is waited for; with more, as many of the oldest as are too many."""
    fifo = Fifo(lambda call: got.extend(call.payload), max_pending_rows=3)
    arrays = [late(i) for i in range(5)]
    for i in range(3):
        fifo.put(row(f"r{i}", arrays[i]))
    assert [array.reads for array in arrays] == [0] * 5
    arrays[0].arrive_after(0.05)
    fifo.put(row("r3", arrays[3]))
    assert (got, len(fifo)) == (["r0"], 3)
    assert not in_thread(lambda: fifo.put(row("r4", arrays[4])), seconds=0.05)
    assert wait_for(lambda: len(fifo) == 4)
    for array in arrays:
        array.arrive()
    fifo.drain(block=True)
    assert got == [f"r{i}" for i in range(5)]


def test_rows_of_the_host_count_towards_a_wider_bound(fifo, got, late):
    """Rows that hold nothing of a device do not make the caller wait, until there are very many."""
    array = late(1)
    fifo.put(row("first", array))
    for i in range(MAX_ROWS - 1):
        fifo.put(row(f"host{i}"))
    assert (got, len(fifo)) == ([], MAX_ROWS)
    array.arrive_after(0.05)
    fifo.put(row("last"))
    assert (len(got), got[0], got[-1], len(fifo)) == (MAX_ROWS + 1, "first", "last", 0)


def test_drain_waits_only_if_told_to(fifo, got, late):
    """`drain(block=False)` leaves what is not ready, `drain(block=True)` leaves nothing."""
    array = late(1)
    fifo.put(row("a", array))
    fifo.drain(block=False)
    assert got == []
    array.arrive_after(0.05)
    fifo.drain(block=True)
    assert (got, len(fifo)) == (["a"], 0)


def test_add_delivers_nothing(fifo, got):
    """An owner with a thread of its own adds, and drains where it wants to."""
    fifo.add(row("a"))
    assert (got, len(fifo)) == ([], 1)
    assert threading.Thread(target=fifo.drain, kwargs={"block": True}).run() is None
    assert got == ["a"]


def test_late_rows_are_asked_once_and_stay_in_order(fifo, got):
    """Rows of unknown number take their place among the others; none is a number too."""
    rows = Rows("b", "c", ready=False)
    fifo.put(row("a"))
    fifo.put(rows)
    fifo.put(Rows())
    fifo.put(row("d"))
    assert got == ["a"]
    rows.arrive()
    fifo.drain(block=False)
    assert (got, rows.asked, len(fifo)) == (["a", "b", "c", "d"], 1, 0)


def test_late_rows_that_raise_cost_themselves(fifo, got, caplog):
    """Rows that break their promise not to raise are lost, with a message that names them."""
    fifo.put(Rows("loss", "acc", error=ValueError("no such buffer")))
    fifo.put(row("next"))
    assert got == ["next"]
    assert "rows of loss, acc could not be read and are lost: ValueError: no such buffer" in caplog.text


def test_rows_logged_during_a_delivery_come_after_what_waits(late):
    """What a tracker logs while it gets a row is delivered after the rows that were there before."""
    got = []

    def deliver(call):
        got.extend(call.payload)
        if "hook" not in call.payload:
            fifo.put(row("hook"))
            fifo.drain(block=True)  # returns: the delivery it is part of cannot be waited for

    fifo = Fifo(deliver)
    array = late(1)
    fifo.put(row("a", array))
    fifo.put(row("b"))
    array.arrive()
    fifo.drain(block=True)
    assert (got, len(fifo)) == (["a", "b", "hook", "hook"], 0)


def test_a_tracker_that_logs_without_end_is_told():
    """A row logged at every delivery ends in a RecursionError at the log call, as a plain call would."""
    errors = []

    def deliver(_call):
        try:
            fifo.put(row("again"))
        except RecursionError as error:
            errors.append(error)

    fifo = Fifo(deliver)
    fifo.put(row("a"))
    assert len(errors) == 1
    assert "logs another row whenever" in str(errors[0])
    assert len(fifo) == 0


def test_a_required_trackers_failure_comes_out_after_the_rest_is_delivered():
    """A fatal error reaches who delivers, once everything that was due is delivered."""
    got = []

    def deliver(call):
        got.extend(call.payload)
        if "bad" in call.payload:
            raise FatalTrackerError("quota")

    fifo = Fifo(deliver)
    for name in ("bad", "good", "bad2"):
        fifo.add(row(name))
    with pytest.raises(FatalTrackerError, match="quota"):
        fifo.drain(block=True)
    assert (got, len(fifo)) == (["bad", "good", "bad2"], 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupt_while_waiting_loses_nothing(fifo, got, late, error):
    """Ctrl+C while a value is waited for leaves the row in its place for the next call."""
    array = late(1)
    fifo.put(row("a", array))
    array.error = error
    with pytest.raises(type(error)):
        fifo.drain(block=True)
    assert (got, len(fifo)) == ([], 1)
    array.arrive()
    fifo.put(row("b"))
    assert got == ["a", "b"]


def test_an_interrupted_delivery_is_not_made_twice():
    """What an interrupt broke off is not tried again; the other rows of the same item and those behind it are."""
    got = []

    def deliver(call):
        got.extend(call.payload)
        if "b" in call.payload:
            raise KeyboardInterrupt

    fifo = Fifo(deliver)
    fifo.add(Rows("a", "b", "c"))
    fifo.add(row("d"))
    with pytest.raises(KeyboardInterrupt):
        fifo.drain(block=True)
    fifo.drain(block=True)
    assert (got, len(fifo)) == (["a", "b", "c", "d"], 0)


def test_rows_of_each_thread_stay_in_order(late):
    """Many threads lose no row, deliver none twice, none at the same time, and each in its own order."""
    got, active = [], []

    def deliver(call):
        active.append(1)
        assert len(active) == 1
        got.append(call.payload["who"])
        active.clear()

    fifo = Fifo(deliver)

    def work(thread):
        for i in range(200):
            fifo.put(Call("log", ({"who": [thread, i]},), {"step": i}))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    array = late(1)
    fifo.put(Call("log", ({"who": [9, 0], "x": array},), {"step": 0}))
    for thread in threads:
        thread.start()
    array.arrive()
    for thread in threads:
        thread.join(20)
    fifo.drain(block=True)
    assert len(got) == 801
    for n in range(4):
        assert [i for who, i in got if who == n] == list(range(200))


def test_a_blocking_drain_waits_for_the_delivery_of_another_thread(in_thread):
    """Once `drain(block=True)` has returned, also what another thread was delivering has arrived."""
    entered, go_on, got = threading.Event(), threading.Event(), []

    def deliver(call):
        entered.set()
        assert go_on.wait(20)
        got.extend(call.payload)

    fifo = Fifo(deliver)
    assert not in_thread(lambda: fifo.put(row("a")), seconds=0.02)
    assert entered.wait(20)
    fifo.put(row("b"))  # left to the thread that delivers
    assert got == []
    threading.Timer(0.05, go_on.set).start()
    fifo.drain(block=True)
    assert got == ["a", "b"]


def test_callbacks_of_compiled_code_never_wait(fifo, got, late, in_thread):
    """In `never_waiting` rows line up beyond the bound, and even a blocking drain comes back."""
    arrays = [late(i) for i in range(12)]

    def work():
        with never_waiting():
            for array in arrays:
                fifo.put(row("a", array))
            fifo.drain(block=True)

    assert in_thread(work)
    assert (got, len(fifo)) == ([], 12)
    for array in arrays:
        array.arrive()
    with never_waiting():
        fifo.put(row("b"))  # what is ready is delivered all the same
    assert got == ["a"] * 12 + ["b"]


def test_what_is_to_be_kept_is_kept_until_then(late):
    """The object given with a row lives as long as the row waits, and no longer."""

    class Thing:
        pass

    fifo, array, thing = Fifo(lambda _call: None), late(1), Thing()
    alive = weakref.ref(thing)
    fifo.put(row("a", array), keep=thing)
    del thing
    gc.collect()
    assert alive() is not None
    array.arrive()
    fifo.drain(block=False)
    gc.collect()
    assert alive() is None


def test_rows_put_lazily_gather_while_the_next_is_not_ready(fifo, got):
    """In a loop whose steps are under way, rows that are ready wait for company, and all go with the first that is."""
    steps = [Rows(f"{step}", ready=False) for step in range(3)]
    for step in steps:
        fifo.put(step, lazily=True)
        step.arrive()
        assert got == []
    fifo.put(row("host"))
    assert got == ["0", "1", "2", "host"]


def test_a_row_put_lazily_that_is_ready_is_delivered_at_once(fifo, got):
    """Where nothing has to be waited for, nothing waits."""
    fifo.put(Rows("a"), lazily=True)
    assert (got, len(fifo)) == (["a"], 0)


def test_a_row_does_not_wait_for_company_for_long(fifo, got, monkeypatch):
    """What is ready and has waited for its time goes with the next put."""
    monkeypatch.setattr("trackway.tracker._fifo._PATIENCE", 0.0)
    first = Rows("first", ready=False)
    fifo.put(first, lazily=True)
    first.arrive()
    fifo.put(Rows("second", ready=False), lazily=True)
    assert (got, len(fifo)) == (["first"], 1)


@pytest.mark.parametrize(("small", "bound"), [(False, 8), (True, 64)])
def test_rows_put_lazily_wait_up_to_the_bound(fifo, got, small, bound):
    """Beyond the bound the oldest are waited for, down to half of it, so that not every step has to wait."""
    rows = [Rows(f"{number}", ready=False, small=small) for number in range(bound + 1)]
    for one in rows[:-1]:
        fifo.put(one, lazily=True)
    assert got == []
    thread = threading.Thread(target=lambda: fifo.put(rows[-1], lazily=True))
    thread.start()
    for one in rows[: bound // 2 + 1]:
        one.arrive()
    thread.join(20)
    assert not thread.is_alive()
    assert got == [f"{number}" for number in range(bound // 2 + 1)]
    assert len(fifo) == bound // 2
