"""Events of rows of numbers are made from messages that are kept, and nothing of an earlier row is left in them."""

from __future__ import annotations

import threading

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary

from trackway.backends._tensorboard_scalars import ScalarEvents
from trackway.backends._tensorboard_tags import Tags
from trackway.tracker import Ledger
from trackway.values import Row


@pytest.fixture
def events():
    """Return what makes the events."""
    return ScalarEvents(Tags(Ledger("tensorboard")))


def anew(row, step, time):
    """Return the bytes of an event that is made for this row alone."""
    values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
    return Event(wall_time=time, step=step, summary=Summary(value=values)).SerializeToString()


@pytest.mark.parametrize("values", [(0.0, 0.0), (1e-45, -3e38), (7, 0), (-(2**24), 2**24), (0.1, 3)])
def test_the_bytes_are_those_of_an_event_of_its_own(events, values):
    """A message that was filled in before gives what a new one would, zeros included."""
    for step, time, first in ((5, 1.5, 1.0), (0, 0.0, values[0]), (-1, 2.5, -0.0)):
        row = Row({"a": first, "b": values[1]})
        assert events.of(row, step, time) == anew(row, step, time)


def test_rows_of_other_names_are_apart(events):
    """The order of the names counts, and so does each of them."""
    for row in (Row(a=1.0, b=2.0), Row(b=3.0, a=4.0), Row(a=5.0), Row(a=6.0, b=7.0)):
        assert events.of(row, 1, 1.0) == anew(row, 1, 1.0)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1e39, 1e-50, 2**24 + 1, True, "text", None, {"c": 1.0}, [1.0]]
)
def test_other_values_are_left_to_others(events, value):
    """A row with a value that is no ordinary number gets no event here, and takes no tag."""
    assert events.of(Row(a=1.0, b=value), 0, 0.0) is None
    assert events.of(Row(), 0, 0.0) is None
    assert not events._tags._tags


def test_many_sets_of_names_are_not_kept_for_ever(events):
    """Memory is bounded where every row has names of its own."""
    for number in range(1000):
        row = Row({f"name{number}": 1.0})
        assert events.of(row, number, 1.0) == anew(row, number, 1.0)
    assert len(events._kept) < 100


def test_threads_do_not_share_a_message(events):
    """Rows that several threads log at a time each come out whole."""
    wrong = []

    def log(number):
        for step in range(2000):
            row = Row(a=float(number), b=float(number))
            if events.of(row, step, float(number)) != anew(row, step, float(number)):
                wrong.append((number, step))

    threads = [threading.Thread(target=log, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
