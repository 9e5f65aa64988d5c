"""Events and spans: files of lines beside the rows."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from trackway._locks import new_lock
from trackway.store._layout import EVENTS, SPANS, lines_name, torn_lines_name
from trackway.store._writer import LineWriter
from trackway.tracker import Ledger
from trackway.tracker._event_record import event_record
from trackway.tracker._row_time import begun_at
from trackway.tracker._span import Span
from trackway.values import Row, normalise

__all__ = ["Journals", "span_record"]

_CURE = "; training goes on"

Encode = Callable[[dict[str, Any]], bytes]


def span_record(span: Span) -> dict[str, Any]:
    """Return what the line of a span holds; what a span has not is left out."""
    record: dict[str, Any] = {
        "name": span.name,
        "path": span.path,
        "start": span.start,
        "seconds": span.seconds,
        "id": span.id,
        "parent": span.parent,
        "thread": span.thread,
        "thread_name": span.thread_name,
        "pid": os.getpid(),
    }
    for name in ("step", "error"):
        if (value := getattr(span, name)) is not None:
            record[name] = value
    if span.attributes:
        record["attributes"] = dict(normalise(span.attributes, reserved=False))
    return record


@final
class Journals:
    """The files `events.jsonl` and `spans.jsonl` of a run directory, made with their first line. Thread-safe.

    An event is in its file when `event` returns. Spans wait in memory for the next `write`: they may come a hundred
    thousand times a second.
    """

    def __init__(self, directory: Path, rank: int, ledger: Ledger, encode: Encode) -> None:
        """Write below *directory*; what goes wrong is counted in *ledger*."""
        self._ledger = ledger
        self._events = _Journal(directory, EVENTS, rank, ledger, encode)
        self._spans = _Journal(directory, SPANS, rank, ledger, encode)
        self._waiting: deque[Span] = deque()
        self.put_span: Callable[[Span], None] = self._waiting.append
        """Takes a span; in time that does not show beside what it measures."""

    def event(self, event: str, payload: Row, step: int | None) -> None:
        """Write one event."""
        try:
            self._events.append([event_record(event, payload, step, begun_at())])
        except Exception as error:
            self._ledger.fail("log_event", error, _CURE)

    def write(self) -> None:
        """Write the spans that wait, and what the disk refused before."""
        records = []
        while self._waiting:
            try:
                records.append(span_record(self._waiting.popleft()))
            except IndexError:  # another thread writes as well
                break
            except Exception as error:
                self._ledger.fail("log_span", error, _CURE)
        if records:
            self._spans.append(records)
        for journal in (self._events, self._spans):
            journal.retry()

    def sync(self) -> None:
        """Write what waits, and wait for the disk."""
        self.write()
        for journal in (self._events, self._spans):
            journal.sync()

    def close(self) -> None:
        """Write what waits, and close the files; what could not be written is counted as dropped."""
        self.sync()
        for journal in (self._events, self._spans):
            journal.close()

    def forget(self) -> None:
        """Have no line, as in a forked child, whose parent writes them, and no file: its lock is the parent's."""
        self._waiting.clear()
        for journal in (self._events, self._spans):
            journal.forget()


@final
class _Journal:
    def __init__(self, directory: Path, kind: str, rank: int, ledger: Ledger, encode: Encode) -> None:
        self._writer = LineWriter(directory / lines_name(kind, rank), directory / torn_lines_name(kind, rank))
        self._kind = kind
        self._ledger = ledger
        self._encode = encode
        self._lock = new_lock()
        self._opened = False

    def append(self, records: list[dict[str, Any]]) -> None:
        lines = []
        for record in records:
            try:
                lines.append(self._encode(record) + b"\n")
            except Exception as error:
                self._ledger.fail(self._kind, error, _CURE)
        if not lines:
            return
        with self._lock:
            self._opened = True
            if not self._writer.append_all(lines):
                self._ledger.drop(self._kind, "lines that came after the end", len(lines))
        self._writer.said.tell()

    def retry(self) -> None:
        if not self._opened:
            return
        with self._lock:
            self._writer.renew()
            if self._writer.waiting:
                self._writer.drain_if_due()
        self._writer.said.tell()

    def sync(self) -> None:
        if not self._opened:
            return
        with self._lock:
            self._writer.drain()
        try:
            self._writer.sync()
        except OSError as error:
            self._ledger.fail(self._kind, error, _CURE)

    def forget(self) -> None:
        self._writer.close()

    def close(self) -> None:
        with self._lock:
            self._writer.close()
        if self._writer.lost:
            self._ledger.drop(self._kind, "lines that could not be written", self._writer.lost)
