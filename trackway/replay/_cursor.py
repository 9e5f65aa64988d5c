"""How far a target has come with a run: a small file in the run's directory for each."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, final

import orjson

from trackway.replay._report import ReplayError
from trackway.store import StoredRun
from trackway.store._atomic import replace_file
from trackway.store._layout import is_url

__all__ = ["Cursor", "CursorFile", "NoFile", "cursor_file"]

FOLDER = "replay"
_FORMAT = 1
_MAX_BYTES = 1 << 16


@final
@dataclass
class Cursor:
    """What a target has got.

    Attributes:
        offset: The byte of the file of rows up to which.
        attempt: The attempt of the last row.
        last: The highest step of that attempt; None without a row.
        highest: The highest step of all; None without a row.
        rows: How many rows: those that are not for it included.
        events: The byte of the file of events up to which.
        artifacts: How many artifacts.
        config: What tells the hyper-parameters that it got from others.
        summary: Likewise the summary.
        state: The state of the run that it was told; empty where it has not come to that.
    """

    offset: int = 0
    attempt: int = 1
    last: int | None = None
    highest: int | None = None
    rows: int = 0
    events: int = 0
    artifacts: int = 0
    config: str = ""
    summary: str = ""
    state: str = ""

    @property
    def begun(self) -> bool:
        """Whether it has got a row."""
        return self.last is not None

    def take(self, step: int, attempt: int, end: int) -> None:
        """Note a row of *step* that ends at the byte *end*."""
        if attempt > self.attempt or self.last is None:
            self.attempt, self.last = attempt, step
        elif step > self.last:
            self.last = step
        if self.highest is None or self.last > self.highest:
            self.highest = self.last
        self.offset = end
        self.rows += 1


def _read(data: bytes) -> Cursor:
    """Return what is in a file; raises ValueError."""
    content = orjson.loads(data)
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError("it is of another format")
    names = {field.name for field in fields(Cursor)}
    cursor = Cursor(**{name: value for name, value in content.items() if name in names})
    numbers = (cursor.offset, cursor.attempt, cursor.rows, cursor.events, cursor.artifacts)
    steps = (cursor.last, cursor.highest)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("a number is none")
    if not all(step is None or type(step) is int for step in steps):
        raise ValueError("a step is none")
    return cursor


@final
class NoFile:
    """Stands for the file where a target cannot be told from others: a tracker that somebody else has started."""

    def open(self) -> Cursor:
        """Return that nothing was delivered."""
        return Cursor()

    def peek(self) -> Cursor:
        """Return the same."""
        return Cursor()

    def save(self, cursor: Cursor) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@final
class CursorFile:
    """The file of one target. One process at a time may open it, where it lies in a directory of this machine."""

    def __init__(self, place: str, name: str, target: str) -> None:
        """Keep it at *place*, a directory or a URL, as *name*; *target* is what it says, for people, it is of."""
        self._path = Path(place) / FOLDER / name
        self._remote = _remote(place) if is_url(place) else None
        self.shown = f"{place}/{FOLDER}/{name}"
        self._name = f"{FOLDER}/{name}"
        self._target = target
        self._lock = -1

    def open(self) -> Cursor:
        """Return what it says, and keep other processes from the target.

        Raises:
            ReplayError: if one is at it, if the file cannot be written, or is damaged.
        """
        if self._remote is None:
            try:
                self._path.parent.mkdir(exist_ok=True)
                self._lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise ReplayError(
                    f"{self.shown} cannot be written ({error.strerror or error}), so nothing would say what was "
                    "delivered; make the run directory writable, or replay a copy of it"
                ) from error
            self._claim()
        return self.peek()

    def _claim(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ReplayError(f"another process replays the run to {self._target}; wait for its end") from None
        except OSError:  # a file system without locks
            return

    def peek(self) -> Cursor:
        """Return what it says."""
        try:
            data = self._path.read_bytes() if self._remote is None else self._remote.get(self._name, _MAX_BYTES)
            return _read(data)
        except FileNotFoundError:
            return Cursor()
        except NotADirectoryError:
            return Cursor()
        except (OSError, ValueError, TypeError) as error:
            raise ReplayError(
                f"{self.shown}, which says what {self._target} has got, cannot be read: {error}; remove it to have "
                "everything delivered again"
            ) from error

    def save(self, cursor: Cursor) -> None:
        """Replace the file.

        Raises:
            ReplayError: if that fails.
        """
        data = orjson.dumps({"format": _FORMAT, "target": self._target, **asdict(cursor)}) + b"\n"
        try:
            if self._remote is None:
                replace_file(self._path, data)
            else:
                self._remote.put(self._name, data)
        except OSError as error:
            raise ReplayError(f"{self.shown} cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Let others at it."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            with contextlib.suppress(OSError):
                os.close(lock)


def _remote(url: str) -> Any:
    from trackway.store._remote import Remote

    return Remote(url)


def cursor_file(run: StoredRun, identity: str, target: str) -> CursorFile:
    """Return the file for the target that *identity* tells from others."""
    rows = Path(run._rows).name if isinstance(run._rows, Path) else ""  # noqa: SLF001 - of one directory maybe several
    suffix = "" if rows in {"metrics.jsonl", ""} else f"-{Path(rows).stem}"
    return CursorFile(run.place, f"{identity}{suffix}.json", target)
