"""Rows that come together, handed to a run directory as one."""

from __future__ import annotations

from collections import deque

import pytest

from trackway.store import LocalTracker, read_rows
from trackway.tracker import Call


def row_of(number):
    """Return the call that logs *number*."""
    return Call("log", ({"x": float(number)},), {"step": None})


class Interrupted(deque):
    """Calls during which Ctrl+C comes: instead of taking one off, when so many are left."""

    left = -1

    def popleft(self):
        """Take off the first one."""
        if len(self) == self.left:
            self.left = -1
            raise KeyboardInterrupt
        return super().popleft()


@pytest.mark.parametrize("left", range(6))
def test_an_interrupted_write_is_gone_on_with(tmp_path, left):
    """Rows that the run directory has taken, but were not taken off, are not written twice; nor is any lost."""
    tracker = LocalTracker(tmp_path / "run")
    calls = Interrupted(map(row_of, range(5)))
    calls.left = left
    if left:
        with pytest.raises(KeyboardInterrupt):
            tracker.take_rows(calls)
        assert len(calls) == left
        calls.append(row_of(5))
    tracker.take_rows(calls)
    tracker.flush()
    rows = [(one["_step"], one["x"]) for one in read_rows(tmp_path / "run")]
    assert rows == [(number, float(number)) for number in range(6 if left else 5)]
    tracker.finish()


class Disturbed(deque):
    """Calls in the midst of which a signal handler logs a row."""

    handler = staticmethod(lambda: None)

    def __iter__(self):
        for number, call in enumerate(super().__iter__()):
            if number == 3:
                self.handler()
            yield call


def test_a_row_of_a_signal_handler_has_a_step_of_its_own(tmp_path):
    """A handler that logs to the directory itself while rows are handed over: each row has a step of its own."""
    tracker = LocalTracker(tmp_path / "run")
    calls = Disturbed(map(row_of, range(5)))
    handled = iter([-1.0])
    calls.handler = lambda: [tracker.log({"x": value}) for value in handled]
    tracker.take_rows(calls)
    tracker.finish()
    rows = read_rows(tmp_path / "run")
    assert [one["_step"] for one in rows] == list(range(6))
    assert [one["x"] for one in rows] == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    assert not any("_patch" in one for one in rows)
    assert len(calls) == 0
