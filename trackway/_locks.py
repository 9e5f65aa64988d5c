"""Locks that survive a fork and a signal handler.

A lock that another thread holds at the moment of a fork stays held for ever in the child; a plain lock that the main
thread holds when a signal arrives deadlocks a handler that logs. Locks made here are re-entrant, and are made new in
a forked child.
"""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["new_lock"]

_locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()


def new_lock() -> threading.RLock:
    """Return a re-entrant lock that is free in every forked child."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001 - what the standard library's own locks do


os.register_at_fork(after_in_child=_free_all)
