"""What a stored run has to deliver."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self, final

from trackway import _notices
from trackway.config import RunContext, check_run_id
from trackway.errors import ConfigError
from trackway.replay._report import ReplayError
from trackway.store import StoredRun
from trackway.store._history import open_rows
from trackway.store._layout import ARTIFACTS, EVENTS, lines_name
from trackway.store._revive import ReadFile, files_in, revive
from trackway.store._scan import Source
from trackway.store._stored_rows import lines_of
from trackway.store._summary import leaves, merge
from trackway.tracker._states import Preempted
from trackway.values import Row, decode, encode

__all__ = ["Event", "Events", "Stored", "digest", "error_of"]

_OWN = frozenset({"event", "_step", "_time"})
_MAX_FILE = 1 << 30


class Event(NamedTuple):
    """One event, and the byte of the file at which it ends."""

    name: str
    step: int | None
    time: float
    payload: dict[str, Any]
    end: int


@final
class Stored:
    """The files of one run, as they are when they are asked for.

    Attributes:
        run: What is known of the run; `look` renews it.
        run_id: Its id, checked to be a name: it may come from a stranger.
        read: Reads a file of the run.
    """

    def __init__(self, run: StoredRun) -> None:
        """Look at *run*.

        Raises:
            ReplayError: if its id is not one that a run can have.
        """
        self.run = run
        try:
            self.run_id = str(check_run_id(run.id))
        except ConfigError as error:
            raise ReplayError(f"{run.place}: the run cannot be delivered under its id: {error}") from error
        self.read: ReadFile = files_in(run.path) if run._remote is None else self._fetch  # noqa: SLF001

    def _fetch(self, name: str) -> bytes:
        assert self.run._remote is not None  # noqa: SLF001
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\0" in name:
            raise ValueError(f"{name} lies outside of the run")
        return self.run._remote.read(name, _MAX_FILE)  # noqa: SLF001

    def look(self) -> None:
        """Look at what the small files say by now."""
        rows, alone = self.run._rows, self.run._alone  # noqa: SLF001
        self.run = StoredRun(self.run.place)
        self.run._rows, self.run._alone = rows, alone  # noqa: SLF001

    def context(self, *, resumed: bool, next_step: int | None, attempt: int) -> RunContext:
        """Return what a backend may know of the run."""
        return RunContext(self.run_id, self.run.place, resumed=resumed, next_step=next_step, attempt=attempt)

    def rows(self) -> Source:
        """Open the file of rows; one that is missing is empty."""
        return open_rows(self.run._rows)  # noqa: SLF001

    def events(self, offset: int) -> Events:
        """Open the file of events at the byte *offset*; one that is missing, or not to be had, is empty."""
        return Events(self._journal(), offset)

    def _journal(self) -> Source | None:
        if self.run._alone:  # noqa: SLF001
            return None
        try:
            if self.run._remote is not None:  # noqa: SLF001
                return self.run._remote.source(kind=EVENTS, missing_ok=True)  # noqa: SLF001
            return Source(self.run.path / lines_name(EVENTS, 0), follow=False, missing_ok=True)
        except OSError as error:  # a link, say, in the run of a stranger
            _notices.log_once(("events", self.run.place), f"{self.run.place!a}: events cannot be read: {error}")
            return None

    def summary(self) -> dict[str, Any]:
        """Return the values of the summary that were set by hand, as they are stored.

        Trackers make the others themselves.
        """
        paths = self.run._manifest.get("summary_keys")  # noqa: SLF001
        known = {tuple(path) for path in paths if isinstance(path, list)} if isinstance(paths, list) else set()
        chosen: dict[str, Any] = {}
        for path, value in leaves(self.run.summary):
            if path in known:
                for name in reversed(path):
                    value = {name: value}  # noqa: PLW2901
                merge(chosen, value)
        return chosen

    def revived(self, values: dict[str, Any]) -> Row:
        """Return stored values as they were when they were logged."""
        return revive(values, self.read)

    @contextlib.contextmanager
    def artifact(self, entry: dict[str, Any]) -> Iterator[Path]:
        """Yield the file or folder of an artifact, for the block.

        Raises:
            OSError: if it is not there.
            ValueError: if *entry* names something else than an artifact of this run.
        """
        place = entry.get("path")
        parts = PurePosixPath(place).parts if isinstance(place, str) else ()
        if len(parts) != 2 or parts[0] != ARTIFACTS or ".." in parts or "\0" in str(place):  # noqa: PLR2004
            raise ValueError(f"{place!r} is no path of an artifact")
        if self.run._remote is None:  # noqa: SLF001
            path = self.run.path / str(place)
            if not path.resolve().is_relative_to(self.run.path.resolve()):
                raise ValueError(f"{place!r} lies outside of the run directory")
            path.stat()
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="trackway-replay-") as folder:
            yield self._downloaded(str(place), Path(folder) / parts[1])

    def _downloaded(self, place: str, target: Path) -> Path:
        from trackway.store._remote import Remote

        remote = Remote(self.run.place)
        inside = [name for name in remote.listing(place) if name.startswith(f"{place}/")]
        for name in inside:
            path = target / name.removeprefix(f"{place}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(remote.get(name))
        if not inside:
            target.write_bytes(remote.get(place))
        return target


@final
class Events:
    """The events of a run, taken in their order. To be used as a context manager.

    Attributes:
        next: The one to come; None at the end.
    """

    def __init__(self, source: Source | None, offset: int) -> None:
        """Take those in *source*, if there is one, from *offset* on."""
        self._source = source
        self._coming = iter(()) if source is None else _events_of(source, offset)
        self.next = next(self._coming, None)

    def with_row(self, step: int, begun: float, following: float) -> Iterator[Event]:
        """Yield those that come before the row of *step* is complete.

        These are the ones from before it was begun, and those of its own step up to the time of the *following* row.
        """
        while (event := self.next) is not None:
            if event.time >= begun and (event.step != step or event.time >= following):
                return
            self.next = next(self._coming, None)
            yield event

    def rest(self) -> Iterator[Event]:
        """Yield all that are left."""
        while (event := self.next) is not None:
            self.next = next(self._coming, None)
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._source is not None:
            self._source.close()


def _events_of(source: Source, offset: int) -> Iterator[Event]:
    """Yield the events from *offset* on; lines that hold none are passed over."""
    for end, line in lines_of(source, offset):
        try:
            record = decode(line)
        except (ValueError, RecursionError):
            continue
        name, step, time = record.get("event"), record.get("_step"), record.get("_time")
        if isinstance(name, str):
            payload = {key: value for key, value in record.items() if key not in _OWN}
            yield Event(name, step if type(step) is int else None, time if type(time) is float else 0.0, payload, end)


def digest(values: Any) -> str:
    """Return what tells *values*, a mapping of plain ones, from others; empty for an empty mapping."""
    return hashlib.sha256(encode(values)).hexdigest()[:16] if values else ""


def error_of(run: StoredRun, state: str) -> BaseException | None:
    """Return an error as *run*, in *state*, ended by; None where it ended well, or has not ended."""
    told = run.error or {}
    kind, message = str(told.get("type") or "Exception"), str(told.get("message") or "")
    if state == "interrupted":
        return KeyboardInterrupt(message) if message else KeyboardInterrupt()
    if state == "preempted":
        return Preempted(message) if message else Preempted()
    if state == "crashed":
        beat = run.heartbeat
        when = "" if beat is None else f" since {datetime.fromtimestamp(beat, UTC).isoformat(timespec='seconds')}"
        return _error("Crashed", f"the run has shown no sign of life{when}")
    if state != "failed":
        return None
    if kind == "SystemExit":
        return SystemExit(int(message) if message.lstrip("-").isdecimal() else message)
    return _error(kind, message)


def _error(kind: str, message: str) -> BaseException:
    """Return an exception whose class has the name *kind*; what it was in its own program is not to be had."""
    name = kind[:100].encode("ascii", "replace").decode()
    kind_of_error: type[Exception] = type(name.replace("\0", "?"), (Exception,), {"__module__": "trackway.replay"})
    return kind_of_error(message)
