"""From the spans of a run to the trace event format, which Perfetto and Chrome open."""

from __future__ import annotations

import itertools
import json
import math
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

__all__ = ["SpanFile", "Timed", "counter_events", "read_spans", "trace_events"]

_MAX_LINE = 1 << 24  # bytes
_MICRO = 1e6
_CLOSE = 1e-6  # seconds: as near as moments of our time come in a float
_MAX_INTEGER = 2**53
_MAX_NUMBER = 2**31  # of a process or thread, in Perfetto


@final
class Timed(NamedTuple):
    """One span as a line of `spans.jsonl` has it.

    Attributes:
        start: Seconds since 1970.
        seconds: Its length.
        name: What was measured.
        id: Its number in the process.
        parent: That of the enclosing span, or None.
        thread: The thread's number.
        about: What else the line says.
    """

    start: float
    seconds: float
    name: str
    id: Any
    parent: Any
    thread: int
    about: dict[str, Any]

    @property
    def end(self) -> float:
        """When it ended, in seconds since 1970."""
        return self.start + self.seconds


@final
class SpanFile(NamedTuple):
    """What a file of spans holds.

    Attributes:
        processes: The spans of each process, by its number, in the order of the file.
        damaged: Lines that are no spans, such as a torn last one.
    """

    processes: dict[int, list[Timed]]
    damaged: int


def read_spans(path: str | os.PathLike[str]) -> SpanFile:
    """Return the spans in the file *path*, which may be from a stranger, and still be written.

    Raises:
        FileNotFoundError: if there is no such file.
        OSError: if it is a link or no regular file, or cannot be read.
    """
    processes: dict[int, list[Timed]] = {}
    damaged = 0
    with _opened(Path(path)) as file:
        while line := file.readline(_MAX_LINE):
            found = _parsed(line)
            if found is None:
                damaged += bool(line.strip(b"\n"))  # an empty one may end what was torn
            else:
                processes.setdefault(found[0], []).append(found[1])
    return SpanFile(processes, damaged)


def _opened(path: Path) -> BinaryIO:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path.name} is no regular file")
    return os.fdopen(fd, "rb")


def _parsed(line: bytes) -> tuple[int, Timed] | None:
    """Return the process and the span of a line, None if it is none."""
    try:
        record = json.loads(line)
        start, seconds = float(record["start"]), float(record["seconds"])
        name, thread, process = record["name"], record["thread"], record.get("pid", 0)
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError):
        return None
    if not (math.isfinite(start) and math.isfinite(seconds) and seconds >= 0 and isinstance(name, str)):
        return None
    if type(thread) is not int or type(process) is not int:
        return None
    about = {key: record[key] for key in ("path", "step", "error", "attributes", "thread_name") if key in record}
    return process, Timed(start, seconds, name, record.get("id"), record.get("parent"), thread, about)


def trace_events(spans: Sequence[Timed], *, process: int, title: str, begin: float) -> Iterator[dict[str, Any]]:
    """Yield the trace events of one process: its name, those of its threads, and one of each span.

    In a trace the spans of a thread have to lie inside one another or apart. Those that overlap otherwise, as of
    asyncio tasks that take turns, get further tracks: `MainThread (2)`.

    Args:
        spans: The spans, in any order.
        process: The number that the process has in the trace.
        title: Its name.
        begin: What moment is 0 in the trace, in seconds since 1970.
    """
    process = abs(process) % _MAX_NUMBER
    yield _named("process_name", title, process, 0)
    threads: dict[int, list[Timed]] = {}
    for span in sorted(spans, key=lambda span: (span.start, -span.seconds)):
        threads.setdefault(span.thread, []).append(span)
    numbers = _Numbers(threads)
    for thread, own in threads.items():
        names = Counter(str(span.about.get("thread_name") or f"thread {thread}") for span in own)
        name = names.most_common(1)[0][0]
        tracks: list[int] = []
        for track, span, end in _placed(own):
            if track == len(tracks):
                tracks.append(numbers.of(thread) if track == 0 else numbers.new())
                yield _named("thread_name", name if track == 0 else f"{name} ({track + 1})", process, tracks[-1])
            yield {
                "name": span.name,
                "cat": "span",
                "ph": "X",
                "ts": _micro(span.start - begin),
                "dur": max(0.0, round(_micro(end - begin) - _micro(span.start - begin), 3)),
                "pid": process,
                "tid": tracks[track],
                "args": _arguments(span),
            }


def counter_events(rows: Iterable[dict[str, Any]], *, process: int, begin: float) -> Iterator[dict[str, Any]]:
    """Yield a counter event for each finite number in *rows*, flat ones with `_time`: a curve of each metric."""
    for row in rows:
        moment: Any = row.get("_time")
        if not _is_finite(moment):
            continue
        for name, value in row.items():
            if name[:1] != "_" and _is_finite(value):
                yield {
                    "name": name,
                    "ph": "C",
                    "ts": _micro(float(moment) - begin),
                    "pid": abs(process) % _MAX_NUMBER,
                    "args": {"value": float(value)},
                }


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def _micro(seconds: float) -> float:
    return round(seconds * _MICRO, 3)


def _named(kind: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _arguments(span: Timed) -> dict[str, Any]:
    return {key: _told(value) for key, value in span.about.items() if key != "thread_name"}


def _told(value: Any) -> Any:
    """Return *value* with texts in the place of what JSON, or whoever reads it, takes for no number."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        return str(value) if value.bit_length() < 1000 else f"<integer of {value.bit_length()} bits>"  # noqa: PLR2004
    if isinstance(value, dict):
        return {key: _told(item) for key, item in value.items()}
    return [_told(item) for item in value] if isinstance(value, list) else value


@final
class _Numbers:
    """Numbers of tracks: those of the threads where they can be, and others for further tracks."""

    def __init__(self, threads: Iterable[int]) -> None:
        self._taken = {thread for thread in threads if 0 < thread < _MAX_NUMBER}
        self._next = itertools.count(max(self._taken, default=0) // 2 + _MAX_NUMBER // 2)

    def of(self, thread: int) -> int:
        return thread if thread in self._taken else self.new()

    def new(self) -> int:
        return next(number for number in self._next if number not in self._taken)


def _placed(spans: Iterable[Timed]) -> Iterator[tuple[int, Timed, float]]:
    """Yield each span with its track and its end; *spans* are those of a thread in the order of their beginning.

    It lies on its parent, or else on an empty track.
    """
    tracks: list[list[tuple[float, Any]]] = []  # what is open on each: end and id
    for span in spans:
        for stack in tracks:
            while stack and stack[-1][0] <= span.start + _CLOSE:
                stack.pop()
        end, track = span.end, _track_of(span, tracks)
        if track == len(tracks):
            tracks.append([])
        if tracks[track]:
            end = min(end, tracks[track][-1][0])  # it may seem to end later, as moments are rounded
        tracks[track].append((end, span.id))
        yield track, span, end


def _track_of(span: Timed, tracks: list[list[tuple[float, Any]]]) -> int:
    empty = len(tracks)
    for number, stack in enumerate(tracks):
        if not stack:
            empty = min(empty, number)
        elif span.parent is not None and stack[-1][1] == span.parent and span.end <= stack[-1][0] + _CLOSE:
            return number
    return empty
