"""The queue of rows whose values are still on a device."""

from __future__ import annotations

import contextlib
import operator
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Protocol, TypeAlias, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.errors import FatalTrackerError, TrackerFinishError
from trackway.tracker._dispatch import Call

__all__ = ["MAX_PENDING_ROWS", "MAX_ROWS", "Fifo", "LateRows", "never_waiting"]

MAX_PENDING_ROWS = 8
"""Rows with values on a device that may wait before the caller does: they hold memory of the device."""
_SMALL_ROWS = 8  # rows of little memory that count as one of those
MAX_ROWS = 1000
"""Rows of any kind that may wait behind the first of those."""
_COMPANY = 16  # small rows that are delivered together
_PATIENCE = 0.05  # seconds that a row may wait for company
_MAX_DEPTH = 50  # of rows that are logged while a row that was logged while ... is delivered


class LateRows(Protocol):
    """Rows that are not known yet, not even how many."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of metrics in them, for messages."""

    @property
    def small(self) -> bool:
        """Whether they hold so little memory of a device that many of them may wait."""

    @property
    def parts(self) -> Sequence[Any]:
        """What has to arrive before `calls` returns without waiting: arrays and the like, asked by `is_ready`."""

    def calls(self) -> Sequence[Call]:
        """Return the calls that bring the rows, waiting for them if need be. Must not raise.

        Asked once, and once more where Ctrl+C came before they were delivered.
        """


Item: TypeAlias = Call | LateRows

_parts_of = operator.attrgetter("parts")
_gate = new_lock()  # held while rows join others, and while these are closed to them


@final
class _Waiting:
    """What is delivered together: one item, or small rows that were put one after the other.

    Attributes:
        items: The call or the rows, in order.
        open: Whether further rows may join. It stays false once it is.
        heavy: Whether they hold values of a device.
        small: Whether these are small.
        depth: How many deliveries it was logged in the midst of, one inside the other.
        keep: Kept alive until everything is delivered.
        done: Whether it is.
        since: When the first item was put.
    """

    __slots__ = (
        "_arrived",
        "_calls",
        "_is_whole",
        "_parts",
        "depth",
        "done",
        "heavy",
        "items",
        "keep",
        "open",
        "since",
        "small",
    )

    def __init__(self, item: Item, depth: int, keep: object, *, joinable: bool) -> None:
        self.items: list[Item] = [item]
        self.depth = depth
        self.keep = keep
        self.done = False
        self.since = time.monotonic()
        self._parts = item.waits_for() if isinstance(item, Call) else None  # None: those of all items
        self._arrived = 0  # of those, as far as it is known
        self._calls: list[deque[Call]] = []
        self._is_whole = False  # whether the first of those has the calls of all items
        self.heavy = self._parts is None or bool(self._parts)
        self.small = not isinstance(item, Call) and item.small
        self.open = joinable and self.small

    def ready(self) -> bool:
        """Tell whether there is nothing to wait for. If so nothing joins it any more, so that this remains true."""
        arrived = self._arrived  # read once: several threads may look
        for part in self._late(arrived):
            try:
                if not part.is_ready():
                    break
            except Exception:  # noqa: S110 - who reads it is told
                pass
            arrived += 1
        self._arrived = arrived
        with _gate:
            if next(self._late(arrived), None) is not None:  # maybe of a row that joined just now
                return False
            self.open = False
        return True

    def _late(self, start: int) -> Iterator[Any]:
        """Return the parts from number *start* on; put together by what is fast, for it is asked at every row."""
        parts = chain.from_iterable(map(_parts_of, self.items)) if self._parts is None else self._parts
        return islice(parts, start, None)

    def calls(self, *, together: bool) -> Iterator[deque[Call]]:
        """Yield the calls still to be made, waiting for their values; who makes one takes it off.

        They come item by item; all at once if *together*, and nothing has to be waited for.
        """
        with _gate:
            self.open = False
        if together and len(self.items) > 1 and not self._calls and self.ready():
            self._calls.append(deque(chain.from_iterable(map(_resolved, self.items))))
            self._is_whole = True
        if self._is_whole:
            yield self._calls[0]
            return
        for number, item in enumerate(self.items):
            if number == len(self._calls):  # not so after an interrupt, so that nothing is lost by one
                self._calls.append(deque(_resolved(item)))
            yield self._calls[number]


def _resolved(item: Item) -> Sequence[Call]:
    if isinstance(item, Call):
        try:
            return (item.resolved(),)
        except Exception:  # of the step; raised, and counted, once more where the call is made
            return (item,)
    try:
        return item.calls()
    except Exception as error:
        names = ", ".join(item.names[:3])
        message = f"rows of {names} could not be read and are lost: {type(error).__name__}: {error} (shown once)"
        _notices.log_once(("late rows", names, type(error)), message, error)
        return ()


_impatient = threading.local()
_fifos: weakref.WeakSet[Fifo] = weakref.WeakSet()


@contextlib.contextmanager
def never_waiting() -> Iterator[None]:
    """Have nothing in the block wait for a device or for another thread's delivery: what is not ready stays queued.

    For host callbacks of compiled functions: what they would wait for may be waiting for them.
    """
    before = getattr(_impatient, "on", False)
    _impatient.on = True
    try:
        yield
    finally:
        _impatient.on = before


@final
class Fifo:
    """Rows in order, each delivered when it is ready and all before it are. Starts no thread; thread-safe.

    One thread at a time delivers, whoever calls `put` or `drain`. What is logged while a row is delivered, by the
    tracker itself or in a signal handler, is queued and delivered after it. A forked child starts out empty.

    Args:
        deliver: Makes one call. `FatalTrackerError` and `TrackerFinishError` reach the caller of `put` or `drain` once
            everything else that was due is delivered; other exceptions do at once, and the next call goes on.
        deliver_rows: Makes several calls that come together, from the left on as far as it can, and takes each off when
            that is done; raises nothing but what interrupts. The others are made one by one. Only where no call depends
            on what those before it have done: all are asked for before the first is made.
        max_pending_rows: Rows with values on a device that may wait; with more, `put` waits for the oldest. Of rows
            that are `small`, eight times as many.
        busy: Tells whether the thread is in the midst of something that a delivery by another one waits for. Then
            neither `put` nor `drain` waits.
    """

    def __init__(
        self,
        deliver: Callable[[Call], Any],
        deliver_rows: Callable[[deque[Call]], None] | None = None,
        *,
        max_pending_rows: int = MAX_PENDING_ROWS,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._deliver = deliver
        self._deliver_rows = deliver_rows
        self._busy = busy
        self._max = max_pending_rows
        self._waiting: deque[_Waiting] = deque()
        self._heavy: deque[_Waiting] = deque()  # those with values on a device; its length is what counts
        self._light: deque[list[Item]] = deque()  # likewise, of those that are small; the lengths of all lists count
        self._turn = new_lock()
        self._deliverer: int | None = None
        self._depth = 0
        self._nested: _Waiting | None = None  # the last one logged in the midst of a delivery
        _fifos.add(self)

    def __len__(self) -> int:
        """Return the number of items that wait, including those that are being delivered."""
        return sum(len(waiting.items) for waiting in self._waiting.copy())

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, item: Item, *, keep: object = None, lazily: bool = False) -> None:
        """Append *item* and deliver what is ready, waiting for the oldest where too many wait.

        Args:
            item: A call, or rows that are not known yet.
            keep: Kept alive until the item is delivered.
            lazily: Deliver nothing while *item* is not ready, until many wait or one has waited for long: several at
                once take a fraction of the time that they take one by one, in between the steps of a training loop.
                Small rows may `join` it.

        Raises:
            RecursionError: if it is logged while a row is delivered, that one likewise, and so on without end.
        """
        alone = not self._waiting
        waiting = self.add(item, keep=keep, joinable=lazily)
        if not lazily:
            self._go(self._too_many)
        elif alone:
            if waiting.ready():
                self._go(_never)
        elif self._too_many():
            self._go(self._more_than_half)
        elif self._small_rows() > _COMPANY or self._overdue():
            self._go(_never)

    def add(self, item: Item, *, keep: object = None, joinable: bool = False) -> _Waiting:
        """Append *item* and deliver nothing, for an owner with a thread that calls `drain`; otherwise as `put`.

        Other small rows may `join` small rows that are *joinable*.
        """
        depth = self._depth + 1 if self._inside() else 0
        if depth > _MAX_DEPTH:
            raise RecursionError("a tracker logs another row whenever a row is delivered to it")
        room = (len(self._light) + 1) * _COMPANY <= self._max * _SMALL_ROWS
        waiting = _Waiting(item, depth, keep, joinable=joinable and room)
        if waiting.small:
            self._light.append(waiting.items)
        elif waiting.heavy:
            self._heavy.append(waiting)
        self._waiting.append(waiting)
        if depth:
            self._nested = waiting
        return waiting

    def join(self, rows: LateRows) -> bool:
        """Append small *rows* to the item that was put last, to be kept and delivered with it, and deliver nothing.

        It is what rows of a fast loop mostly do, and takes a fraction of the time of `put`.

        Returns:
            False if that item takes in nothing, or no more: nothing is appended, and the rows are to be put.
        """
        try:
            last = self._waiting[-1]
        except IndexError:
            return False
        if not rows.small or (self._deliverer is not None and self._inside()):
            return False
        if len(last.items) >= _COMPANY or time.monotonic() - last.since > _PATIENCE:
            return False
        with _gate:
            joins = last.open
            if joins:  # no call in between: a signal handler, whom the lock lets pass, could deliver what waits there
                last.items.append(rows)
        return joins

    def drain(self, *, block: bool) -> None:
        """Deliver what is ready or, if *block*, wait and deliver all that was put before the call.

        Also all that is logged while it is delivered. Returns at once in the midst of a delivery on the same thread.
        """
        last = self._last() if block else None
        self._go(lambda: last is not None and not (last.done and self._nested is None))

    def forget(self) -> None:
        """Give up all that waits."""
        self._waiting.clear()
        self._heavy.clear()
        self._light.clear()
        self._deliverer = self._nested = None

    def _inside(self) -> bool:
        return self._deliverer == threading.get_ident()

    def _too_many(self) -> bool:
        return self._more_than(self._max) or len(self._waiting) > MAX_ROWS

    def _more_than_half(self) -> bool:
        return self._more_than(self._max // 2) or len(self._waiting) > MAX_ROWS

    def _more_than(self, rows: int) -> bool:
        return len(self._heavy) > rows or self._small_rows() > rows * _SMALL_ROWS

    def _small_rows(self) -> int:
        return sum(map(len, self._light.copy()))

    def _overdue(self) -> bool:
        first = self._first()
        return first is not None and time.monotonic() - first.since > _PATIENCE

    def _first(self) -> _Waiting | None:
        try:
            return self._waiting[0]
        except IndexError:  # without a look at its length, which other threads change
            return None

    def _last(self) -> _Waiting | None:
        try:
            return self._waiting[-1]
        except IndexError:
            return None

    def _go(self, must: Callable[[], bool]) -> None:
        """Deliver what is ready, and what is not as long as it *must* be."""
        if self._inside():
            return
        if getattr(_impatient, "on", False) or self._busy():
            must = _never
        error = None
        while self._turn.acquire(blocking=must()):
            self._deliverer = threading.get_ident()
            try:
                while (first := self._first()) is not None and (must() or first.ready()):
                    failure = self._deliver_item(first)
                    error = error or failure
            finally:
                self._deliverer = None
                with contextlib.suppress(RuntimeError):  # it is new, and free, in a child forked by a delivery
                    self._turn.release()
            # another thread may have added one, and left it to this one, since the last look
            if (first := self._first()) is None or not first.ready():
                break
        if error is not None:
            raise error

    def _deliver_item(self, first: _Waiting) -> Exception | None:
        """Make the calls of *first*, then take it off; until then what is logged lines up behind it."""
        self._depth = first.depth
        error = None
        for calls in first.calls(together=self._deliver_rows is not None):
            if len(calls) > 1 and self._deliver_rows is not None:
                self._deliver_rows(calls)
            while calls:
                call = calls.popleft()  # before it is made: one that is interrupted must not be made twice
                try:
                    self._deliver(call)
                except (FatalTrackerError, TrackerFinishError) as stop:
                    error = error or stop
        if self._first() is first:  # not so in a child forked by the delivery
            self._waiting.popleft()
            if first.small:
                self._light.popleft()
            elif first.heavy:
                self._heavy.popleft()
        first.done = True
        if self._nested is first:
            self._nested = None
        return error


def _never() -> bool:
    return False


def _forget_all() -> None:
    """What waits in a forked child belongs to the parent, which delivers it."""
    for fifo in tuple(_fifos):
        fifo.forget()


os.register_at_fork(after_in_child=_forget_all)
