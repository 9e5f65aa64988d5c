"""Arrays of a device that arrive when a test says so."""

from __future__ import annotations

import threading

import numpy as np
import pytest


class LateArray:
    """An array that is still being computed, as far as its protocol goes; reading it waits for `arrive`."""

    def __init__(self, value, dtype=np.float32, shape=()):
        """Hold *value* back."""
        self.dtype, self.shape, self.size = np.dtype(dtype), shape, int(np.prod(shape))
        self.reads = 0
        self.error = None
        self.waited_in_vain = False
        self._value = np.full(shape, value, dtype)
        self._arrived = threading.Event()

    def arrive(self):
        """Let it be read."""
        self._arrived.set()

    def arrive_after(self, seconds):
        """Let it be read some time from now."""
        timer = threading.Timer(seconds, self.arrive)
        timer.daemon = True
        timer.start()

    def copy_to_host_async(self):
        """Begin nothing."""

    def is_ready(self):
        """Tell whether it arrived."""
        return self._arrived.is_set()

    def __array__(self, dtype=None, copy=None):
        self.reads += 1
        error, self.error = self.error, None
        if error is not None:
            raise error
        if not self._arrived.wait(20):
            self.waited_in_vain = True
        return self._value


@pytest.fixture
def late():
    """Return a function that makes an array which arrives when told to; at the end of the test all do."""
    made = []

    def make(value, dtype=np.float32, shape=()):
        made.append(LateArray(value, dtype, shape))
        return made[-1]

    yield make
    for array in made:
        array.arrive()
    assert not any(array.waited_in_vain for array in made)


@pytest.fixture
def in_thread():
    """Return a function that runs another on a thread and says whether it ended; all have at the end of the test."""
    threads = []

    def run(work, seconds=20.0):
        thread = threading.Thread(target=work, daemon=True)
        threads.append(thread)
        thread.start()
        thread.join(seconds)
        return not thread.is_alive()

    yield run
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
