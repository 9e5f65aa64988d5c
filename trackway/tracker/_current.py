"""The current tracker: which one the verbs talk to.

Two places hold it. A context variable serves the thread or asyncio task that entered the block; a process-wide list
serves threads that start with an empty context, the user's own workers and JAX's callback threads: they see what the
main thread entered outside an event loop.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TypeAlias, final, overload

from trackway._locks import new_lock
from trackway.errors import FatalTrackerError, LifecycleError, NoTrackerError, TrackerFinishError
from trackway.tracker._callbacks import defer, forget_deferred, raise_deferred
from trackway.tracker._delivery import settle
from trackway.tracker._dispatch import Call
from trackway.tracker._interface import Tracker, check_tracker
from trackway.tracker._isolation import Isolation

__all__ = [
    "Owner",
    "active_tracker",
    "current_tracker",
    "leave",
    "owner",
    "pop",
    "push",
    "set_global_tracker",
    "tracker_of",
    "withdraw",
]

Owner: TypeAlias = tuple[int | None, int | None]


@final
class _Entry:
    """One entering of a tracker.

    Attributes:
        tracker: The tracker.
        owner: The thread, and in an event loop the task, that entered it.
        shared: Whether it serves threads that have none of their own.
        active: False once it was left, also for the contexts that copied it.
    """

    __slots__ = ("active", "owner", "shared", "tracker")

    def __init__(self, tracker: Tracker, owner: Owner) -> None:
        self.tracker = tracker
        self.owner = owner
        self.shared = owner == (threading.main_thread().ident, None)
        self.active = True


_in_context: ContextVar[tuple[_Entry, ...]] = ContextVar("trackway_current", default=())
_entries: tuple[_Entry, ...] = ()  # all that are active in this process, the latest last
_global: _Entry | None = None
_lock = new_lock()
_isolation = Isolation()


def active_tracker() -> Tracker | None:
    """Return the current tracker, or None. Safe from any thread."""
    own = _in_context.get()
    if own and own[-1].active:
        return own[-1].tracker
    entry = (
        _last(own, lambda entry: entry.active)
        or _last(_entries, lambda entry: entry.shared)
        or _global
        or (_entries[-1] if len({id(entry.tracker) for entry in _entries}) == 1 else None)
    )
    return entry.tracker if entry is not None else None


def tracker_of(owner: Owner | None) -> Tracker | None:
    """Return the tracker for a row that arrives on a thread of JAX's, from a function traced by *owner*.

    That thread has no context. Best is what serves the owner of the function, if that still has a tracker; next what
    serves every thread; and last the latest that anyone entered, as in a notebook whose cells run as tasks.
    """
    own = _in_context.get()
    entry = (
        _last(own, lambda entry: entry.active)
        or _last(_entries, lambda entry: entry.owner == owner)
        or _last(_entries, lambda entry: entry.shared)
        or (_entries[-1] if _entries else None)
        or _global
    )
    return entry.tracker if entry is not None else None


def _last(entries: tuple[_Entry, ...], suits: Callable[[_Entry], bool]) -> _Entry | None:
    return next((entry for entry in reversed(entries) if suits(entry)), None)


def owner() -> Owner:
    """Return who is running: the thread, and in an event loop the task."""
    events = sys.modules.get("asyncio.events")  # importing asyncio costs 30 ms
    loop = events._get_running_loop() if events is not None else None  # noqa: SLF001 - the one way to ask without raising
    if loop is None:
        return threading.get_ident(), None
    return threading.get_ident(), id(sys.modules["asyncio"].current_task(loop) or loop)


@overload
def current_tracker() -> Tracker: ...
@overload
def current_tracker(tracker: Tracker) -> AbstractContextManager[Tracker]: ...
def current_tracker(tracker: Tracker | None = None) -> Tracker | AbstractContextManager[Tracker]:
    """Get the current tracker, or set it for a block.

    Without an argument, returns the tracker that the verbs of this thread or task talk to. With one, returns a
    context manager that makes *tracker* current for the block, yields it, and restores the earlier one at the end,
    also after an exception. It does not finish the tracker; `with tracker:` does both.

    Entered on the main thread outside a running event loop, the block also serves every thread that has no current
    tracker of its own. Entered elsewhere it serves that thread or task; and those without a tracker of their own, as
    long as no other tracker is set or current anywhere in the process.

    >>> from trackway.tracker import NoopTracker, current_tracker, log
    >>> with current_tracker(NoopTracker()) as tracker:
    ...     log({"loss": 0.5}, step=0)
    ...     current_tracker().log({"loss": 0.4}, step=1)

    Raises:
        NoTrackerError: if asked for the current tracker while none is set.
    """
    if tracker is not None:
        return _block(check_tracker(tracker, "current_tracker"))
    active = active_tracker()
    if active is None:
        raise NoTrackerError(
            "no current tracker is set; wrap the code in `with current_tracker(tracker):`, or call "
            "`set_global_tracker(tracker)` once at start-up"
        )
    return active


@contextlib.contextmanager
def _block(tracker: Tracker) -> Iterator[Tracker]:
    entry = push(tracker)
    try:
        try:
            yield tracker
        except BaseException:
            with contextlib.suppress(FatalTrackerError):  # it must not mask the block's own
                settle(tracker)
            raise
        settle(tracker)
    finally:
        pop(entry)


def push(tracker: Tracker) -> _Entry:
    """Make *tracker* current; undone by `pop`."""
    global _entries  # noqa: PLW0603 - the process-wide half of the state
    entry = _Entry(tracker, owner())
    _in_context.set((*_in_context.get(), entry))
    with _lock:
        _entries = (*_entries, entry)
    return entry


def pop(entry: _Entry) -> None:
    """Take *entry* off wherever it stands, also from another thread or context than it was pushed in."""
    global _entries  # noqa: PLW0603
    entry.active = False
    _in_context.set(tuple(e for e in _in_context.get() if e.active))
    with _lock:
        _entries = tuple(e for e in _entries if e.active)


def withdraw(tracker: Tracker) -> None:
    """Take *tracker* off wherever it stands, also where it is the global one."""
    global _global  # noqa: PLW0603
    for entry in (*_in_context.get(), *_entries):
        if entry.active and entry.tracker is tracker:
            pop(entry)
    if _global is not None and _global.tracker is tracker:
        _global = None


def leave(tracker: Tracker, error: BaseException | None) -> None:
    """End a `with tracker:` block: tell the tracker of a failure, finish it, restore the earlier one.

    What goes wrong while finishing never masks *error*; without one, only failures that are meant to be seen go out.
    """
    try:
        try:
            settle(tracker)
        except FatalTrackerError as failure:
            defer(failure)  # the tracker is finished first
        if error is not None and not _is_clean_exit(error):
            with contextlib.suppress(FatalTrackerError):  # said again by finish
                _isolation.call(Call("mark_failed", (error,)), tracker)
        _isolation.call(Call("finish"), tracker)
        raise_deferred()
    except (FatalTrackerError, TrackerFinishError):
        if error is None:
            raise
    finally:
        forget_deferred()  # raised above, or masked by the block's own: the next run must not meet it
        entry = _last(_in_context.get(), lambda e: e.active and e.tracker is tracker)
        entry = entry or _last(_entries, lambda e: e.tracker is tracker)
        if entry is not None:
            pop(entry)


def _is_clean_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (0, None)


def set_global_tracker(tracker: Tracker | None) -> Callable[[], None]:
    """Set the tracker that serves where no `current_tracker(...)` block does, for programs without one main block.

    None takes the present one off, after what waits for it is delivered. Not meant to be called from several threads
    at once.

    Returns:
        A function that undoes the call.

    Raises:
        LifecycleError: if another tracker is set already.
        FatalTrackerError: if a tracker declared `required: true` failed at what waited for it.
    """
    global _global  # noqa: PLW0603 - that is what the function is for
    before = _global
    if tracker is not None and before is not None and before.tracker is not tracker:
        raise LifecycleError(
            f"a global tracker is set already ({before.tracker.name}); call `set_global_tracker(None)` first, or use "
            "`with current_tracker(tracker):` for a part of the program"
        )
    now = _Entry(check_tracker(tracker, "set_global_tracker"), owner()) if tracker is not None else None
    if now is None and before is not None:
        settle(before.tracker)
    _global = now

    def undo() -> None:
        global _global  # noqa: PLW0603
        if _global is now:
            if now is not None:
                settle(now.tracker)
            _global = before

    return undo
