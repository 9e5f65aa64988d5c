"""From calls to committed rows, and from there to the store and everyone else."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.run._notifier import Notifier
from trackway.run._open_spans import OpenSpans
from trackway.run._rows import Committed, OpenRows, StepPolicy
from trackway.run._signals import in_signal_handler
from trackway.store import LocalTracker, Summary
from trackway.tracker import Ledger
from trackway.values import Row

__all__ = ["Core"]

_CURE = "; training goes on"
_MAX_DEPTH = 50
_MAX_LEFT = 64
_NOTHING = Row()
_SOON = 0.001

Observe: TypeAlias = Callable[[int, float, Row], Sequence[Any]]
"""Looks at a row: its step, time and values; returns the alerts that it raises."""

_Call: TypeAlias = tuple[str, Row, int | None, bool | None]
"""Method, values, step and commit."""


@final
class Core:
    """Makes rows of calls whose values are on the host. Thread-safe.

    A row is in the store, and lined up for the sinks of *notifier*, under the lock under which it is committed; the
    sinks are called outside of it, so that a slow one keeps no other thread from merging values into the open row. A
    call that a signal handler makes in the midst of another one of its thread follows that one.

    Attributes:
        ledger: Where failures are counted.
        notifier: Hands rows to everyone but the store.
        committed: Rows committed so far.
        run_id: The run's id.
        shut: Whether the run is at its end, and takes no more.
        spans: Those of which no row knows yet.
    """

    def __init__(
        self,
        store: LocalTracker | None,
        policy: StepPolicy,
        ledger: Ledger,
        run_id: str,
        on_rewind: Callable[[int], None],
    ) -> None:
        """Make rows for *store*, if there is one, after those that it holds; tell *on_rewind* of new attempts."""
        self.notifier = Notifier()
        self.committed = 0
        self._latest: Committed | None = None
        self.shut = False
        self._store = store
        self._append = None if store is None else store.append
        self.ledger = ledger
        self.run_id = run_id
        self._on_rewind = on_rewind
        self._lock = new_lock() if store is None else store.lock
        last = None if store is None else store.last_step
        self._rows = OpenRows(policy, next_step=0 if last is None else last + 1, last=last)
        self._resumed = last is not None
        self._merging = 0  # the thread that is at it, if any
        self._calls: deque[_Call] = deque()
        self._expected: list[None] = []  # one for each thread that waits for its turn
        self._sensitive = policy == "error"  # who logs has to see whether that is an error
        self._afterwards: deque[Callable[[], None]] = deque()
        self._depth = 0
        self._news = False  # whether the store has something to tell
        self._own_summary = None if store is not None and store.keeps_records else Summary()
        self.spans = OpenSpans(self._rows)
        self._waiting_spans = self.spans.waiting  # to ask, for each row, whether there are any takes less time so
        self._observe: Observe | None = None
        self._raise_alarm: Callable[[Sequence[Any]], Any] = bool
        self._rewound: Callable[[int], Any] = bool

    def take(self, method: str, row: Row, step: int | None, commit: bool | None) -> None:
        """Take a call of `log` or `add`, and deliver what is committed by it.

        Raises:
            StepError: for a late row under the policy "error".
            FatalTrackerError: from a sink.
        """
        if self.notifier.depth > _MAX_DEPTH and self.notifier.inside:
            raise RecursionError(f"run {self.run_id}: a commit callback logs another row whenever one is committed")
        if row.downgrades:
            self.ledger.count_downgrades(row)
        try:
            call = (method, row, step, commit)
            if not self._lock.acquire(blocking=False):
                if (self._merging or self._expected) and self._is_left(call):
                    return
                if not self._wait_turn():
                    self._calls.append(call)  # for the thread that has the turn
                    return
            try:
                if self._merging:  # by this very thread: a signal handler's call
                    self._calls.append(call)
                    return
                puts = self.notifier.puts
                if self._calls:
                    self._calls.append(call)
                else:
                    self._merging = threading.get_ident()
                    try:
                        self._merge(method, row, step, commit)
                    finally:
                        self._merging = 0
                if self._calls:
                    self._merge_rest()
                committed = self.notifier.puts != puts
            finally:
                self._lock.release()
            if self._news and self._store is not None:
                self._news = False
                self._store.tell()
            if committed:
                self.notifier.deliver()
        finally:
            if self._afterwards:
                self._go_on()

    def _is_left(self, call: _Call) -> bool:
        """Leave *call* to the thread that is merging, or about to, if nobody sees that it is made there, later.

        Threads that log all at once would wake one another for every row: one that waited has the lock long before it
        has the interpreter. Who reads what was logged, or ends the run, has such calls made first.
        """
        seen = self._sensitive or self.notifier.sinks or self._observe is not None
        if call[0] != "log" or seen or len(self._calls) >= _MAX_LEFT:
            return False
        self._calls.append(call)
        if not (self._merging or self._expected):  # it may not have looked again; one that still has the mark will
            with self._lock:
                self._merge_rest()
        return True

    def _merge_rest(self) -> None:
        """Merge what other threads left to this one, and what signal handlers logged meanwhile."""
        while self._calls:
            self._merging = threading.get_ident()
            try:
                while self._calls:
                    try:
                        self._merge(*self._calls[0])  # which stays there where Ctrl+C comes meanwhile
                    except Exception as error:
                        self._calls.popleft()
                        if self._sensitive:
                            raise
                        self.ledger.fail("log", error, _CURE)  # of another thread, as good as always
                    else:
                        self._calls.popleft()
            finally:
                self._merging = 0

    def settle(self) -> None:
        """Have all calls made that have returned."""
        if self._calls and self._merging != threading.get_ident():
            with self._lock:
                self._merge_rest()

    def _wait_turn(self) -> bool:
        """Wait for the lock; False in a signal handler, which may have interrupted what its holder waits for."""
        self._expected.append(None)
        try:
            if threading.get_ident() != threading.main_thread().ident:  # where no handler ever runs
                return self._lock.acquire()
            return self._lock.acquire(timeout=_SOON) or (not in_signal_handler() and self._lock.acquire())
        finally:
            self._expected.pop()  # before it looks what was left to it

    def _merge(self, method: str, row: Row, step: int | None, commit: bool | None) -> None:
        rows = self._rows
        if rows.taken:
            self._recover()
        if self._waiting_spans:
            row = self.spans.added_to(row, None if self._resumed else step, last=method == "commit" and bool(commit))
        if method == "commit":
            self._commit_open()
            self.shut = self.shut or bool(commit)
            return
        if self.shut:
            self.ledger.drop(method, "called after finish")
            return
        if method == "add":
            rows.add(row)
            return
        if method == "rewind":
            self._resumed = False
            self._rewind(step or 0)
            return
        if self._resumed and step is not None:
            self._resumed = False
            if rows.last is not None and step <= rows.last:
                self._rewind(step)
        late = rows.late
        rows.log(row, step, commit)
        taken = rows.taken
        while taken:
            self._commit(taken[0])
            taken.popleft()
        if rows.late != late:
            self._say_late(step)

    def fold_spans(self) -> None:
        """Sum up spans, where many came and no row; not where a row is being made."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._merging:
                    self.spans.added_to(_NOTHING, None)
            finally:
                self._lock.release()
        self.spans.rest()

    def _commit_open(self) -> None:
        if self._rows.step is not None:
            self._rows.take()
            self._commit(self._rows.taken[0])
            self._rows.taken.popleft()

    def _recover(self) -> None:
        """Finish with rows on which Ctrl+C came, in the order in which they were committed."""
        taken = self._rows.taken
        while taken:
            row = taken[0]
            if self._latest is not row:
                self._commit(row)
            elif self.notifier.latest is not row.values:
                stored = self._store is not None and self._store.latest is row.values
                self._hand_on(row, stored=stored)
            taken.popleft()

    def _commit(self, row: Committed) -> None:
        self.committed += 1
        self._latest = row
        if self._observe is not None:
            alerts = self._observe(row.step, row.time, row.values)
            if alerts:  # before anyone has the row
                self.notifier.put(row, [partial(self._alarm, alerts)])
        self._hand_on(row)

    def _hand_on(self, row: Committed, *, stored: bool = False) -> None:
        sinks = self.notifier.sinks
        if self._append is not None and not stored:
            try:
                if sinks and self._store is not None:
                    row = Committed(row.step, row.time, row.values, self._store.place(row.step, row.time))
                self._news = self._append(row.step, row.time, row.values) or self._news
            except Exception as error:
                self.ledger.fail("store", error, _CURE)
        if self._own_summary is not None:
            self._own_summary.update(row.values)
        if sinks:
            self.notifier.put(row)

    def watch(
        self,
        observe: Observe,
        raise_alarm: Callable[[Sequence[Any]], None],
        rewound: Callable[[int], None],
    ) -> None:
        """Have *observe* look at every row in order of commit, under `lock`, and *raise_alarm* told what it found.

        *rewound* is told the step at which a new attempt begins, under `lock` too.
        """
        self._observe, self._raise_alarm, self._rewound = observe, raise_alarm, rewound

    def _alarm(self, alerts: Sequence[Any], _row: Committed) -> None:
        self._raise_alarm(alerts)

    @property
    def lock(self) -> threading.RLock:
        """The re-entrant lock under which rows are committed."""
        return self._lock

    def _say_late(self, step: int | None) -> None:
        last = self._rows.last if self._rows.step is None else self._rows.step
        _notices.warn_once(
            ("late", self.run_id),
            f"run {self.run_id}: a row of step {step} came after step {last} and is dropped, as will be further ones "
            "(how many is told at the end); log steps in order, or choose step_policy='allow' to keep them",
        )

    def commit_open(self, *, last: bool = False) -> None:
        """Commit the open row, if there is one, and return when everything is delivered; take no more if *last*."""
        self.take("commit", _NOTHING, None, last)
        self.notifier.deliver()

    def close(self) -> None:
        """Commit the open row, whatever becomes of its delivery, and take no more."""
        with self._lock:
            self._merge_rest()
            self._merge("commit", _NOTHING, None, commit=True)

    def rewind(self, step: int) -> None:
        """Begin a new attempt at *step*."""
        self.take("rewind", _NOTHING, step, None)

    def _rewind(self, step: int) -> None:
        self._commit_open()
        self._rows.rewind(step)
        try:
            self._rewound(step)
        except Exception as error:
            self.ledger.fail("alerts", error, _CURE)
        if self._store is not None:
            self._store.rewind(step)
        self.notifier.put(Committed(step, 0.0, Row()), [lambda row: self._on_rewind(row.step)])  # in its place

    @property
    def open_step(self) -> int | None:
        """The step of the open row, or None."""
        return self._rows.step

    @property
    def last_step(self) -> int | None:
        """The highest committed step of this attempt; None before the first row."""
        return self._rows.last

    @property
    def next_step(self) -> int:
        """The step of the next row that comes without one, once the open one is committed."""
        return self._rows.next_step if self._rows.step is None else self._rows.step + 1

    @property
    def late(self) -> int:
        """Rows that were dropped for their step."""
        return self._rows.late

    def open_row(self) -> Committed | None:
        """Return a copy of the open row, or None."""
        with self._lock:
            if self.spans and self._rows.step is not None:
                self.spans.added_to(_NOTHING, None)
            return self._rows.peek()

    def summary(self) -> dict[str, object]:
        """Return the summary as it stands."""
        if self._own_summary is None:
            assert self._store is not None
            return self._store.summary()
        with self._lock:
            return self._own_summary.snapshot()

    def set_summary(self, values: Row) -> None:
        """Take values set by hand, where the store does not keep them."""
        if self._own_summary is not None:
            with self._lock:
                self._own_summary.set(values)

    @property
    def busy(self) -> bool:
        """Whether this thread is in the midst of a row or a delivery, or on the main thread in a block of `whole`."""
        me = threading.get_ident()
        return self._merging == me or self.notifier.inside or (self._depth > 0 and me == threading.main_thread().ident)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Have what a signal handler asks for in the block wait until its end."""
        main = threading.current_thread() is threading.main_thread()
        self._depth += main
        try:
            yield
        finally:
            self._depth -= main
            if self._afterwards:
                self._go_on()

    def afterwards(self, action: Callable[[], None]) -> None:
        """Have the main thread call *action* once it is no longer busy: with the next row at the latest."""
        self._afterwards.append(action)
        self._go_on()

    def _go_on(self) -> None:
        if threading.current_thread() is threading.main_thread():
            while self._afterwards and not self.busy:
                self._afterwards.popleft()()

    def abandon(self) -> None:
        """Take and deliver nothing any more, in a forked child."""
        self.shut = True
        self._calls.clear()
        self.spans.clear()
        self._afterwards.clear()
        self._expected.clear()
        self._merging = self._depth = 0
        self.notifier.forget()
