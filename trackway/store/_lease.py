"""Who may write to a run directory: one process at a time.

On one host the lock on the file of rows tells. Between hosts, and on file systems without locks, `run.json` does: it
names host and process of the latest attempt, and its heartbeat is renewed for as long as that one lives.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from trackway import _notices
from trackway.errors import RunBusyError
from trackway.store._layout import MANIFEST
from trackway.values import decode

__all__ = ["HEARTBEAT", "Lock", "claim"]

HEARTBEAT = 10.0
"""Seconds between two heartbeats."""
_FRESH = 3.0  # intervals after which a lease without a heartbeat has ended
_WATCHED = 3.5  # intervals for which one is watched: clocks of two hosts may differ, so that its age proves nothing
_POLL = 1.0

Lock: TypeAlias = Literal["ours", "taken", "unknown"]
"""What became of the try to lock the file of rows; "unknown" on a file system without locks."""


class _Lease(NamedTuple):
    """What `run.json` says about who writes."""

    running: bool
    host: str
    pid: int
    heartbeat: float

    @property
    def here(self) -> bool:
        return self.host == os.uname().nodename

    @property
    def age(self) -> float:
        return time.time() - self.heartbeat


def claim(directory: Path, lock: Lock, *, primary: bool = True) -> None:
    """Return once *directory* may be written to, in the place of a process that has ended if need be.

    Where only a heartbeat can tell whether that has, it is watched for three and a half intervals.

    Args:
        directory: The run directory.
        lock: What became of the try to lock its file of rows.
        primary: Whether `run.json` is this process's to keep; of the other ranks it says nothing.

    Raises:
        RunBusyError: if someone else writes to it.
    """
    lease = _read(directory) if primary else None
    if lock == "taken":
        raise _busy(directory, lease)
    if lease is None or not lease.running or (lease.here and (lock == "ours" or _is_gone(lease.pid))):
        return
    if lease.age < _FRESH * HEARTBEAT:
        _watch(directory, lease)
    _notices.logger.warning(
        "local: the run in %s is taken over from process %d on %s, which gives no sign of life",
        directory,
        *lease[2:0:-1],
    )


def _watch(directory: Path, first: _Lease) -> None:
    patience = _WATCHED * HEARTBEAT
    _notices.logger.info(
        "local: process %d on %s wrote to %s %.0f s ago; whether it still lives is seen within %.0f s",
        first.pid,
        first.host,
        directory,
        max(0.0, first.age),
        patience,
    )
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        time.sleep(_POLL)
        lease = _read(directory)
        if lease is None or not lease.running:
            return
        if lease != first:
            raise _busy(directory, lease)


def _busy(directory: Path, lease: _Lease | None) -> RunBusyError:
    if lease is None or not lease.running:
        who, cure = "another process, of which run.json says nothing", "wait until it ends"
    elif lease.here and lease.pid == os.getpid():
        who, cure = f"this process, {lease.pid} on {lease.host}", "finish that run first"
    else:
        who, cure = f"process {lease.pid} on {lease.host}", "wait until it ends, or end it"
    seen = "" if lease is None else f" (heartbeat {max(0.0, lease.age):.0f} s ago)"
    return RunBusyError(
        f"local: the run in {directory} is being written by {who}{seen}; a run has one writer at a time: {cure}, or "
        "give another run id"
    )


def _is_gone(pid: int) -> bool:
    """Whether no process of this host can be the one that was called *pid*; for a file system without locks."""
    if pid == os.getpid():
        return True  # an earlier one, in a container that was started again: a tracker of this process is known
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _read(directory: Path) -> _Lease | None:
    """What run.json says; None where there is none, or one that says nothing of the kind."""
    try:
        content: Any = decode((directory / MANIFEST).read_bytes())
        attempt = content["attempts"][-1]
        host, pid, heartbeat = attempt["host"], attempt["pid"], content["heartbeat"]
        running = content["state"] == "running"
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None
    if not isinstance(host, str) or type(pid) is not int or pid <= 0 or not isinstance(heartbeat, int | float):
        return None
    return _Lease(running, host, pid, float(heartbeat))
