"""Who may write to a run on an object store: one process at a time.

`claims/00000001.json` and so on: each writer makes the next one, which a store that can create an object exclusively
lets one process do. The highest number owns the run for as long as its heartbeat is renewed, and has no `end`. A writer
that finds a higher one than its own has been replaced and writes no more.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any, NamedTuple, final

from trackway import _notices
from trackway.errors import RunBusyError
from trackway.store import _lease
from trackway.store._remote import Remote
from trackway.values import decode, encode

__all__ = ["Claim", "Superseded", "claims_of"]

_NAME = re.compile(r"([0-9]{8,12})\.json")
_TRIES = 5
_ours: set[str] = set()  # tokens of claims that this process holds


class Superseded(Exception):  # noqa: N818 - the end of a claim, not an error of the caller's
    """Another process has taken the run over; the text says which."""


class _Holder(NamedTuple):
    """What a claim says."""

    token: str = ""
    host: str = "?"
    pid: int = 0
    heartbeat: float = 0.0
    ended: bool = True

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def claims_of(rank: int) -> str:
    """Return the folder of the claims of process *rank*."""
    return f"claims.rank{rank}" if rank else "claims"


@final
class Claim:
    """The right of one process of rank *rank* to write its part of the run. For one thread at a time."""

    def __init__(self, remote: Remote, rank: int) -> None:
        self._remote = remote
        self._folder = claims_of(rank)
        self._number = 0
        self._token = os.urandom(8).hex()
        self._renewed = 0.0

    def acquire(self) -> None:
        """Return once the run is this process's, in the place of one that has ended if need be.

        Where only the heartbeat can tell whether that has, it is watched for up to 35 seconds.

        Raises:
            RunBusyError: if another process writes to the run.
            OSError: if the store cannot be asked.
        """
        holder = _Holder()
        for _ in range(_TRIES):
            number, holder = self._highest()
            if not holder.ended and not _is_gone(holder):
                self._watch(holder)
            if self._create(number + 1):
                if not holder.ended:
                    _notices.logger.warning("local: the run in %s is taken over from %s", self._remote.url, holder)
                self._remove_below(number + 1)
                return
        raise self._busy(holder)

    def holder(self) -> str | None:
        """Return who writes to the run; None where nobody does, or that cannot be asked."""
        try:
            holder = self._highest()[1]
        except OSError:
            return None
        return None if holder.ended else str(holder)

    def _highest(self) -> tuple[int, _Holder]:
        numbers = [int(match[1]) for match in map(_NAME.fullmatch, self._remote.children(self._folder)) if match]
        for number in sorted(numbers, reverse=True)[:1]:
            with contextlib.suppress(FileNotFoundError):
                return number, self._read(number)
        return max(numbers, default=0), _Holder()

    def _read(self, number: int) -> _Holder:
        try:
            content = decode(self._remote.get(self._name(number)))
            token, host = content["token"], content["host"]
            pid, beat = content["pid"], content["heartbeat"]
        except (ValueError, RecursionError, LookupError, TypeError):
            return _Holder()
        if not isinstance(token, str) or not isinstance(host, str):
            return _Holder()
        if type(pid) is not int or pid <= 0 or not isinstance(beat, int | float):
            return _Holder()
        return _Holder(token, host, pid, float(beat), content.get("end") is not None)

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:08d}.json"

    def _content(self, end: float | None = None) -> bytes:
        host, pid, now = os.uname().nodename, os.getpid(), time.time()
        content: dict[str, Any] = {"token": self._token, "host": host, "pid": pid, "heartbeat": now, "end": end}
        return encode(content) + b"\n"

    def _create(self, number: int) -> bool:
        """Make the claim *number*; return whether it is this process's, and the highest."""
        _ours.add(self._token)
        with contextlib.suppress(FileExistsError):  # perhaps of this process: an answer may have been lost
            self._remote.put(self._name(number), self._content(), new=True)
        highest, holder = self._highest()  # where creating is not exclusive, the last one has it
        if highest != number or holder.token != self._token:
            self.forget()
            return False
        self._number, self._renewed = number, time.monotonic()
        return True

    def _remove_below(self, number: int) -> None:
        for name in self._remote.children(self._folder):
            match = _NAME.fullmatch(name)
            if match and int(match[1]) < number:
                with contextlib.suppress(OSError):
                    self._remote.remove(f"{self._folder}/{name}")

    def _watch(self, first: _Holder) -> None:
        if first.token in _ours:
            raise self._busy(first)
        if time.time() - first.heartbeat >= _lease._FRESH * _lease.HEARTBEAT:  # noqa: SLF001 - the same rules
            return
        patience = _lease._WATCHED * _lease.HEARTBEAT  # noqa: SLF001
        _notices.logger.info(
            "local: %s wrote to %s a moment ago; whether it still lives is seen within %.0f s",
            first,
            self._remote.url,
            patience,
        )
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(_lease._POLL)  # noqa: SLF001
            _, holder = self._highest()
            if holder.ended:
                return
            if holder != first:
                raise self._busy(holder)

    def _busy(self, holder: _Holder) -> RunBusyError:
        age = max(0.0, time.time() - holder.heartbeat)
        return RunBusyError(
            f"local: the run in {self._remote.url} is being written by {holder} (heartbeat {age:.0f} s ago); a run has "
            "one writer at a time: wait until it ends, or end it, or give another run id"
        )

    def renew(self) -> None:
        """Show a sign of life, if the last one is a heartbeat's time old.

        Raises:
            Superseded: if another process has taken the run over.
            OSError: if the store cannot be asked.
        """
        if time.monotonic() - self._renewed >= _lease.HEARTBEAT:
            self.check()
            self._remote.put(self._name(self._number), self._content())
            self._renewed = time.monotonic()

    def check(self) -> None:
        """See whether the run is still this process's; raises as `renew` does."""
        number, holder = self._highest()
        if number > self._number or (number == self._number and holder.token not in {"", self._token}):
            raise Superseded(str(holder))

    def release(self) -> None:
        """Leave the run to the next writer; raises as `renew` does."""
        self.forget()
        if self._number:
            self.check()
            self._remote.put(self._name(self._number), self._content(time.time()))

    def forget(self) -> None:
        """Have other claims of this process take this one for that of a process that is gone."""
        _ours.discard(self._token)


def _is_gone(holder: _Holder) -> bool:
    return holder.token not in _ours and holder.host == os.uname().nodename and _lease._is_gone(holder.pid)  # noqa: SLF001 - the same rules
