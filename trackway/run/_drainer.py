"""The thread that delivers rows whose values arrive while nobody logs."""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, final

from trackway import _notices
from trackway.errors import FatalTrackerError
from trackway.tracker import Call
from trackway.tracker._callbacks import defer
from trackway.tracker._fifo import Fifo

__all__ = ["Drainer", "weakly"]

_INTERVAL = 0.1
_PATIENCE = 1.0


@final
class Drainer:
    """Delivers what waits in *fifo* and is ready, ten times a second while anything does.

    A training loop that goes on logging delivers its rows itself, several at once, between two steps; this one is for
    when it pauses. The thread starts with the first row that waits, ends when nobody holds the queue any more, and
    never waits for a device.
    """

    def __init__(self, fifo: Fifo, name: str) -> None:
        self._fifo = weakref.ref(fifo)
        self._name = name
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()  # unlike an event it may be used by signal handlers
        self._awake = False
        self._stopped = False
        self._thread: threading.Thread | None = None
        weakref.finalize(fifo, self.stop, wait=False).atexit = False

    def wake(self) -> None:
        """Begin, unless it is at it."""
        if not self._awake and not self._stopped:
            self._awake = True
            self._tokens.put(None)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread = thread
        try:
            thread.start()
        except RuntimeError as error:  # of the interpreter's end, or out of threads
            _notices.log_once("no drain thread", f"{self._name}: no thread can be started: {error}")

    def _run(self) -> None:
        while not self._stopped:
            self._tokens.get()
            while self._awake and not self._stopped:
                with contextlib.suppress(queue.Empty):
                    self._tokens.get(timeout=_INTERVAL)  # only `stop` cuts it short
                self._drain()

    def _drain(self) -> None:
        fifo = self._fifo()
        if fifo is None or self._stopped:
            return
        try:
            fifo.drain(block=False)
        except FatalTrackerError as error:
            defer(error)  # for the next call on the training thread
        except Exception as error:
            _notices.log_once(("drain", type(error)), f"{self._name}: {type(error).__name__}: {error}", error)
        if not fifo:
            self._awake = False
            if fifo:  # put in between, by someone who found it awake
                self._awake = True

    def stop(self, *, wait: bool = True) -> None:
        """End, and wait a moment for the thread: what it may be delivering is waited for by who drains the queue."""
        self._stopped = True
        self._tokens.put(None)
        thread = self._thread
        if wait and thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def forget(self) -> None:
        """Have no thread, as in a forked child."""
        self._stopped, self._thread = True, None


def weakly(perform: Callable[[Call], Any]) -> Callable[[Call], Any]:
    """Have *perform*, a method, called without keeping its object: the table of queues would keep every run."""
    alive = weakref.WeakMethod(perform)

    def deliver(call: Call) -> Any:
        method = alive()
        assert method is not None  # what waits keeps it
        return method(call)

    return deliver
