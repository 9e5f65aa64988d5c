"""What is put while a batch is being written is written as well, and a flush behind it comes back."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import trackio_server  # noqa: F401 - sets Trackio's folder
from programs import wait_for

from trackway.backends._trackio_places import Entry, Place
from trackway.backends._trackio_sender import Sender
from trackway.tracker import Ledger


class Slow(Place):
    """Keeps rows in memory, as slowly as the test wants."""

    def __init__(self):
        super().__init__(SimpleNamespace(config={}))
        self.entries, self.writing, self.go = [], threading.Event(), threading.Event()

    def rows(self, entries, config):
        """Wait, then take them."""
        self.writing.set()
        assert self.go.wait(20)
        self.entries += entries

    def alerts(self, alerts):
        """Take none."""

    def last_step(self):
        """Say that nothing is there."""

    def known_config(self):
        """Say that nothing is there."""
        return {}


def test_a_flush_behind_what_was_put_during_a_write_comes_back():
    """Rows that are put while others are being written go with the same delivery, and count as done."""
    place = Slow()
    sender = Sender(place, Ledger("trackio"))
    try:
        sender.put(Entry(0, {}, "", "a"))
        assert place.writing.wait(20)
        sender.put(Entry(1, {}, "", "b"))
        place.go.set()
        assert wait_for(lambda: len(place.entries) == 2)
        sender.flush(2.0)
        assert [entry.step for entry in place.entries] == [0, 1]
        assert sender.waiting_rows == 0
    finally:
        sender.close(5.0)
