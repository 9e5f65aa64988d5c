"""An array of a device that takes its time."""

from __future__ import annotations

import threading

import numpy as np


class Late:
    """An array that is still being computed, as far as its protocol goes; reading it waits for `arrive`."""

    shape: tuple[int, ...] = ()
    size = 1

    def __init__(self, value, dtype=np.float32):
        """Hold *value* back."""
        self.dtype = np.dtype(dtype)
        self._value = np.asarray(value, dtype)
        self._arrived = threading.Event()
        self.fail = False
        self.asked = threading.Event()  # whether someone waits for it

    def arrive(self):
        """Let it be read."""
        self._arrived.set()

    def copy_to_host_async(self):
        """Begin nothing."""

    def is_ready(self):
        """Tell whether it arrived."""
        return self._arrived.is_set()

    def __array__(self, dtype=None, copy=None):
        self.asked.set()
        assert self._arrived.wait(20)
        if self.fail:
            raise RuntimeError("the device is gone")
        return self._value
