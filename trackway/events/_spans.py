"""How long a part of the program takes."""

# ruff: noqa: SLF001 - spans look at one another

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar, final

from trackway import _notices
from trackway.errors import FatalTrackerError
from trackway.events._attributes import plain
from trackway.events._waiting import wait_for
from trackway.tracker import Span
from trackway.tracker._ambient import NOTHING, ambient
from trackway.tracker._callbacks import DEFERRED, raise_deferred
from trackway.tracker._current import active_tracker
from trackway.tracker._delivery import send
from trackway.tracker._dispatch import Call
from trackway.tracker._verbs import tracing
from trackway.values._text import describe_error

__all__ = ["span"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_MAX_PATH = 1000  # characters: a recursive function must not make ever longer ones
_WAITS = -1000
"""State of one that waits for what a function returns. Others: how often it was entered; below zero not to measure."""

_current: ContextVar[span | None] = ContextVar("trackway_span", default=None)
_next_id = itertools.count(1).__next__
_perf_counter = time.perf_counter
_time = time.time
_new = tuple.__new__


class _Thread(threading.local):
    """The thread that asks, looked up once: both calls take longer than a span should."""

    def __init__(self) -> None:
        self.who = (threading.get_native_id(), threading.current_thread().name)


_thread = _Thread()


def _other_process() -> None:
    global _thread  # noqa: PLW0603 - the thread that goes on in a forked child has another number there
    _thread = _Thread()


os.register_at_fork(after_in_child=_other_process)


@final
class span:  # noqa: N801 - used like a function
    """Measure how long a block or a function takes, and hand it to the current tracker.

    A run adds the seconds to its open row as `time/<name>`, so that a row has the sum of all that was measured while
    it was open, and writes a line to `spans.jsonl`, from which `trackway trace` makes a timeline.

    ```python
    with trackway.span("data", batch=32):
        batch = next(batches)


    @trackway.span("evaluate")
    def evaluate(params): ...
    ```

    Spans nest: one that begins inside another has it as parent, and `epoch/data` as its path. Every thread has its
    own nesting; an asyncio task begins in the span that was open where the task was made. An exception that leaves the
    block is noted, and goes on. Where no tracker is set, this is said once and the time is not kept. Inside a function
    that JAX traces nothing is kept, and that is said once: the block would measure the tracing, not the run. Put the
    span around the call of the compiled function; as JAX returns before the device is done, have the result waited
    for:

    ```python
    with trackway.span("forward") as s:
        loss = s.wait(forward(params, batch))
    ```

    A decorated function is measured at every call: from the call to its return; an async function from its first run
    to its end, with what it awaits; a generator, also an async one, from the first `next` to its end, its `close`, or
    the exception that ends it, as one span, with the time that whoever iterates takes in between. How long the
    generator itself ran is its attribute `running`, in seconds. Spans of whoever iterates are not inside it.

    One object may be used again, one block after the other; a decorator by any number of threads at once.

    Args:
        name: What is measured; any text but an empty one. Inside of `trackway.scope` its names come before it.
        wait: Decorators only: wait until what the function returns is computed. A block says what to wait for by
            `wait`, the method.
        attributes: What else to keep of it, in `spans.jsonl`: numbers, text and the like. Arrays that a device is
            computing are not waited for; their type and shape is kept.

    Raises:
        TypeError: if *name* is no text; at the beginning of a block, for `wait=True`.
        ValueError: if *name* is empty.
    """

    variable = _current
    """Holds the innermost span of the thread or task."""
    _parent: span | None

    __slots__ = (
        "_attributes",
        "_began",
        "_id",
        "_name",
        "_parent",
        "_path",
        "_start",
        "_state",
        "_step",
        "_took",
        "name",
    )

    def __init__(self, name: str, /, *, wait: bool = False, **attributes: Any) -> None:
        self.name = name if type(name) is str and name else _checked(name)
        self._attributes = attributes
        self._state = _WAITS if wait else 0

    @property
    def seconds(self) -> float:
        """How long the block took, or has taken so far; 0 for one that is not measured."""
        return _perf_counter() - self._began if self._state > 0 else getattr(self, "_took", 0.0)

    def set(self, /, **attributes: Any) -> None:
        """Add attributes, or replace those of the same names; until the end of the block."""
        self._attributes = {**self._attributes, **attributes}

    def wait(self, tree: T) -> T:
        """Wait until the arrays in *tree* are computed, and return it.

        JAX arrays are waited for, in everything that JAX takes for a tree and else in mappings, lists and tuples; for
        PyTorch tensors their device is. In a function that JAX traces, this only returns *tree*.
        """
        if not ("jax" in sys.modules and tracing()):
            wait_for(tree)
        return tree

    def __enter__(self) -> span:
        if self._state:
            return self._enter_wrongly()
        if "jax" in sys.modules and tracing():
            _say_traced(self.name)
            self._state = -1
            return self
        state = ambient()
        if state is NOTHING:
            self._name = name = self.name
            self._step = None
        elif state.muted:
            self._state = -1
            return self
        else:
            self._name = name = f"{state.prefix}{self.name}"
            self._step = state.step
        parent = _current.get()
        while parent is not None and parent._state <= 0:  # they were left in another order than entered
            parent = parent._parent
        self._parent = parent
        self._id = _next_id()
        self._state = 1
        _current.set(self)
        if parent is None:
            self._path = name
            self._start = _time()
            self._began = _perf_counter()
        else:
            above = parent._path
            self._path = f"{above}/{name}" if len(above) < _MAX_PATH else f"…/{name}"
            self._began = began = _perf_counter()
            self._start = parent._start + (began - parent._began)  # inside of it, whatever the clock does
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state != 1:
            self._state -= 1 if self._state > 0 else -1
            return
        self._took = took = _perf_counter() - self._began
        self._state = 0
        parent = self._parent
        if _current.get() is self:
            _current.set(parent)
        attributes = self._attributes
        done = _new(
            Span,
            (
                self._name,
                self._path,
                self._start,
                took,
                self._id,
                None if parent is None else parent._id,
                *_thread.who,
                plain(attributes) if attributes else None,
                None if exc is None or exc_type is GeneratorExit else describe_error(exc),
                self._step,
            ),
        )
        if exc is None:
            _hand_over(done)
        else:
            with contextlib.suppress(FatalTrackerError):  # it must not mask the block's own
                _hand_over(done)

    def _enter_wrongly(self) -> span:
        if self._state == _WAITS:
            raise TypeError(
                f"span {self.name!r}: wait=True is for decorators, whose result is waited for; in a block say what to "
                "wait for: `with trackway.span(...) as s: out = s.wait(f(x))`"
            )
        self._state += 1 if self._state > 0 else -1
        _notices.warn_once(
            ("span entered twice", self.name),
            f"span {self.name!r} was entered again before its block ended, and the inner block is not measured; make "
            "one for each block, by `with trackway.span(...)`",
        )
        return self

    def __call__(self, function: F) -> F:
        from trackway.events._decorated import decorated

        return decorated(function, self._copy, wait=self._state == _WAITS)

    def _copy(self) -> span:
        return span(self.name, **self._attributes)

    def __repr__(self) -> str:
        return f"span({self.name!r})"


def _checked(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"span takes the name of what is measured, a text, got {type(name).__name__}; a decorator needs one, too: "
            '`@trackway.span("evaluate")`'
        )
    if not name:
        raise ValueError("span takes the name of what is measured, got an empty text; give one such as 'data'")
    return str.__str__(name)


def _say_traced(name: str) -> None:
    _notices.warn_once(
        "span in a trace",
        f"span {name!r} is inside a function that JAX traces, where it would measure the tracing, and is left out; put "
        "it around the call of the compiled function, with `s.wait(result)` to have the device waited for (shown once)",
    )


def _hand_over(done: Span) -> None:
    tracker = active_tracker()
    if tracker is None:
        _notices.warn_once(
            "no tracker",
            "trackway.span was used while no tracker is set, and its time is not kept; wrap the code in `with "
            "trackway.current_tracker(tracker):`, on the thread that logs, or call "
            "`trackway.set_global_tracker(tracker)` (shown once)",
        )
        return
    if DEFERRED:
        raise_deferred()
    if tracker.self_contained:
        tracker.log_span(done)
    else:
        send(Call("log_span", (done,)), tracker)
