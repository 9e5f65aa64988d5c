"""What became of everything that a tracker was given: counted, and said once per name."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import final

from trackway import _notices
from trackway._locks import new_lock
from trackway.values import Row, redacted_text

__all__ = ["Ledger", "Lifecycle", "Report"]

_MAX_SAID = 1000


@final
@dataclass(frozen=True)
class Report:
    """Counts of one tracker at one moment.

    Attributes:
        name: The tracker's name.
        accepted: Rows taken over from the caller.
        delivered: Rows handed to the place where this tracker keeps them.
        pending: Rows accepted and still under way.
        converted: Reason to number of values that were stored in another form than they were given.
        dropped: Reason to number of values, rows or calls that were not stored.
        failed: Method to number of calls that raised.
    """

    name: str
    accepted: int = 0
    delivered: int = 0
    pending: int = 0
    converted: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.accepted} accepted, {self.delivered} delivered, {self.pending} pending"]
        for title, counts in (
            ("converted", self.converted),
            ("dropped", self.dropped),
            ("failed", self.failed),
        ):
            if counts:
                parts.append(f"{title}: " + ", ".join(f"{reason} x{n}" for reason, n in sorted(counts.items())))
        return "; ".join(parts)


@final
class Ledger:
    """Counts what one tracker converts, drops and fails at; thread-safe.

    The first value of each name and reason is also told on the `trackway` logger.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._rows: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = {
            "converted": Counter(),
            "dropped": Counter(),
            "failed": Counter(),
        }
        self._said: set[tuple[str, str]] = set()
        self._lock = new_lock()

    def accept(self, rows: int = 1) -> None:
        """Count rows taken over from the caller."""
        with self._lock:
            self._rows["accepted"] += rows

    def accept_row(self, row: Row) -> None:
        """Count a row taken over, and the values in it that normalising had to give another form."""
        with self._lock:
            self._rows["accepted"] += 1
        self.count_downgrades(row)

    def count_downgrades(self, row: Row) -> None:
        """Count the values that normalising had to give another form, or leave out; it has said so itself."""
        with self._lock:
            for _, reason, lost in row.downgrades:
                kind = "dropped" if lost else "converted"
                self._counts[kind][reason.partition(": ")[0]] += 1  # what follows the colon differs by value

    def deliver(self, rows: int = 1) -> None:
        """Count rows that reached their place."""
        with self._lock:
            self._rows["delivered"] += rows

    def convert(self, key: str, reason: str, *, lossless: bool = False) -> None:
        """Count a value that was stored in another form; one that lost nothing by it is not worth a message."""
        if lossless:
            with self._lock:
                self._counts["converted"][reason] += 1
        else:
            self._count("converted", key, reason)

    def drop(self, key: str, reason: str, amount: int = 1) -> None:
        """Count *amount* values, rows or calls that were not stored."""
        self._count("dropped", key, reason, amount)

    def fail(self, method: str, error: BaseException, cure: str = "") -> None:
        """Count a call that raised."""
        with self._lock:
            self._counts["failed"][method] += 1
        self._say(method, type(error).__name__, f"{self.name}.{method} failed: {_told(error)}{cure}", error)

    def _count(self, kind: str, key: str, reason: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[kind][reason] += amount
        if (key, reason) not in self._said:
            self._say(key, reason, f"{self.name}: {key}: {kind}: {reason}")

    def _say(self, key: str, reason: str, message: str, error: BaseException | None = None) -> None:
        if (key, reason) in self._said:  # as nearly always
            return
        with self._lock:
            if (key, reason) in self._said or len(self._said) >= _MAX_SAID:
                return
            self._said.add((key, reason))
        _notices.logger.warning("%s (further ones are only counted)", message)
        if error is not None:
            _notices.logger.debug("traceback of the above", exc_info=error)

    def report(self, pending: int = 0) -> Report:
        """Return the counts as they stand."""
        with self._lock:
            counts = {kind: dict(counter) for kind, counter in self._counts.items()}
            return Report(self.name, self._rows["accepted"], self._rows["delivered"], pending, **counts)


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {redacted_text(str(error))}"
    except Exception:
        return type(error).__name__


@final
class Lifecycle:
    """Whether a tracker still takes calls: not after `finish`, and not in a forked child of its process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pid = os.getpid()
        self._finished = False
        self._lock = new_lock()

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return self._finished

    @property
    def foreign(self) -> bool:
        """Whether this is a forked child, which must touch neither the parent's files nor its threads."""
        return os.getpid() != self._pid

    def accepts(self, method: str) -> bool:
        """Return whether a call of *method* may go on; one that may not is counted as dropped."""
        if self.foreign:
            self._ledger.drop(method, "called in a forked child; start a tracker of its own there")
            return False
        if self._finished:
            self._ledger.drop(method, "called after finish")
            return False
        return True

    def end(self) -> bool:
        """Close for further calls; return whether the caller is the one who has to clean up."""
        if self.foreign:
            return False
        with self._lock:
            first, self._finished = not self._finished, True
        return first
