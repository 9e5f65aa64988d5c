"""The thread that takes alerts to places that may be slow, or away."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

from trackway import _notices
from trackway._locks import new_lock
from trackway.alerts._channels import Channel
from trackway.alerts._rule import Alert
from trackway.errors import LifecycleError
from trackway.tracker._ledger import Ledger

__all__ = ["Courier"]

_LONGEST_DELAY = 60.0
_FULL = "the queue was full, and it had waited longest"
_LEFT = "not delivered when the run ended"
_NO_THREAD = "no thread can be started"
_GIVEN_UP = "given up, every attempt failed"


@final
@dataclass(eq=False, slots=True)
class _Parcel:
    """An alert on its way to one channel.

    Attributes:
        alert: The alert as the rule gave it.
        message: The alert as it is told.
        number: Its place in the order in which alerts came up.
        context: The context variables of whoever committed the row.
        attempts: How often it was tried.
    """

    alert: Alert
    message: Alert
    number: int
    context: contextvars.Context
    attempts: int = 0


@final
@dataclass(eq=False, slots=True)
class _Line:
    """What waits for one channel, in order.

    Attributes:
        due: When it may be tried again.
        failures: Calls that failed in a row.
        down: Whether an alert was given up since the last one that arrived.
        hurried: How many are tried without a pause between, at the end.
    """

    name: str
    channel: Channel
    waiting: deque[_Parcel] = field(default_factory=deque)
    due: float = 0.0
    failures: int = 0
    down: bool = False
    hurried: int = 0


@final
class Courier:
    """Delivers alerts on a thread of its own, which starts with the first one. Thread-safe.

    Each channel gets its alerts one at a time, those that never failed in their order. After one that failed a channel
    is left alone for *delay* seconds, then for twice as long each time, a minute at most; meanwhile the other channels
    are served. The alert itself lines up again behind the others: a service may refuse one, and take the next. An alert
    that failed *retries* + 1 times is given up; the others are tried once each then, until one arrives.
    """

    def __init__(
        self, *, limit: int, retries: int, delay: float, ledger: Ledger, give_back: Callable[[Alert, str], None]
    ) -> None:
        """Let *limit* alerts wait; count in *ledger*, and tell *give_back* what is given up, and by which channel."""
        self._limit = limit
        self._retries = retries
        self._delay = delay
        self._ledger = ledger
        self._give_back = give_back
        self._lines: dict[str, _Line] = {}
        self._changed = threading.Condition(new_lock())
        self._count = self._numbers = 0
        self._carried: tuple[_Line, _Parcel] | None = None
        self._thread: threading.Thread | None = None
        self._deadline: float | None = None
        self._left = self._settling = False
        self._pid = os.getpid()

    @property
    def inside(self) -> bool:
        """Whether this is the thread that delivers."""
        return threading.current_thread() is self._thread and os.getpid() == self._pid

    @property
    def pending(self) -> int:
        """Deliveries that wait, or are under way."""
        return self._count + (self._carried is not None or self._settling)

    def put(self, name: str, channel: Channel, alert: Alert, message: Alert) -> None:
        """Have *message* delivered by *channel*, which is called *name*; never waits for it."""
        lost: list[tuple[str, _Parcel, str]] = []
        with self._changed:
            line = self._lines.setdefault(name, _Line(name, channel))
            self._numbers += 1
            line.waiting.append(_Parcel(alert, message, self._numbers, contextvars.copy_context()))
            self._count += 1
            if self._count > self._limit:
                lost.append((*self._take_oldest(), _FULL))
            if not self._has_thread():
                lost += [(*self._take_oldest(), _LEFT if self._left else _NO_THREAD) for _ in range(self._count)]
            self._changed.notify_all()
        for which, parcel, reason in lost:
            self._lose(which, parcel, reason)

    def _take_oldest(self) -> tuple[str, _Parcel]:
        line = min((one for one in self._lines.values() if one.waiting), key=lambda one: one.waiting[0].number)
        self._count -= 1
        return line.name, line.waiting.popleft()

    def _has_thread(self) -> bool:
        if self._left:
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="trackway-alerts", daemon=True)
            self._thread = thread  # before the start: a signal handler that logs must not start a second one
            try:
                thread.start()
            except RuntimeError:
                self._thread = None
        return self._thread is not None

    def _lose(self, name: str, parcel: _Parcel, reason: str) -> None:
        self._ledger.drop(name, reason)
        self._give_back(parcel.alert, name)

    # --- on the thread ---

    def _work(self) -> None:
        while (item := self._take()) is not None:
            line, parcel = item
            error: BaseException | None = None
            try:
                parcel.context.run(line.channel.deliver, parcel.message)
            except BaseException as raised:  # the thread must outlive even a callable that calls sys.exit
                error = raised
            self._settle(line, parcel, error)

    def _take(self) -> tuple[_Line, _Parcel] | None:
        """Wait for an alert whose channel may be tried; None at the end."""
        with self._changed:
            while True:
                now = time.monotonic()
                waiting = [line for line in self._lines.values() if line.waiting]
                if self._deadline is not None and (not waiting or now >= self._deadline):
                    return None
                ready = [line for line in waiting if line.due <= now]
                if ready:
                    line = min(ready, key=lambda one: one.waiting[0].number)
                    self._count -= 1
                    self._carried = (line, line.waiting.popleft())
                    return self._carried
                times = [line.due for line in waiting] + ([] if self._deadline is None else [self._deadline])
                self._changed.wait(min(times) - now if times else None)

    def _settle(self, line: _Line, parcel: _Parcel, error: BaseException | None) -> None:
        """Note what became of an alert that was tried."""
        with self._changed:
            if self._left:  # and counted as lost
                return
            self._carried = None
            was_down = line.down
            again = error is not None and self._is_worth_another(line, parcel, error)
            line.hurried -= 1
            if line.hurried > 0:  # at the end each is tried
                line.due = 0.0
            if error is None:
                line.due, line.failures, line.down = 0.0, 0, False
            elif again:
                line.waiting.append(parcel)
                self._count += 1
            self._settling = not again
        if error is not None:
            self._ledger.fail(line.name, error, "; training goes on")
            if not again:
                self._lose(line.name, parcel, _GIVEN_UP)
        else:
            self._ledger.deliver()
            if was_down:
                _notices.logger.warning("alerts: %s works again", line.name)
        with self._changed:
            self._settling = False
            self._changed.notify_all()

    def _is_worth_another(self, line: _Line, parcel: _Parcel, error: BaseException) -> bool:
        line.failures += 1
        parcel.attempts += 1
        line.due = time.monotonic() + min(self._delay * 2 ** min(line.failures - 1, 16), _LONGEST_DELAY)
        given_up = line.down or parcel.attempts > self._retries or isinstance(error, LifecycleError)
        line.down = given_up
        return not given_up

    # --- for those who wait ---

    def flush(self, timeout: float) -> bool:
        """Wait until nothing waits or is under way, *timeout* seconds at most; return whether it came to that."""
        if self.inside or os.getpid() != self._pid:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: not self.pending, timeout)

    def stop(self, timeout: float) -> None:
        """Deliver what waits, without waiting for the next attempt's time, and end; count what *timeout* is short for.

        A call that hangs then is left behind on its thread, which does not keep the program from ending.
        """
        with self._changed:
            now = time.monotonic()
            self._deadline = now + timeout
            for line in self._lines.values():
                line.due, line.failures, line.hurried = 0.0, 0, len(line.waiting)
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join(timeout)
        lost = []
        with self._changed:
            self._left = True
            if self._carried is not None:
                line, parcel = self._carried
                lost.append((line.name, parcel))
            lost += [self._take_oldest() for _ in range(self._count)]
            self._carried = None
        for name, parcel in lost:
            self._lose(name, parcel, _LEFT)
        if lost:
            _notices.logger.error("alerts: %d not delivered when the run ended: %s", len(lost), _listed(lost))


def _listed(lost: list[tuple[str, _Parcel]]) -> str:
    shown = [f"{parcel.message.title!r} to {name}" for name, parcel in lost[:5]]
    return ", ".join(shown) + (", ..." if len(lost) > len(shown) else "")
