"""Which files of a run directory an object store lacks: small records, media and artifacts."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, final

from trackway.store._layout import CONFIG, DELIVERY, EVENTS, MANIFEST, MEDIA, METRICS, SPANS, SUMMARY
from trackway.store._remote import Remote
from trackway.values import decode, encode

__all__ = ["Files", "RecordFiles"]

_ROWS = re.compile(rf"({METRICS}|{EVENTS}|{SPANS})(\.rank[0-9]+)?(\.index\.json|\.jsonl)")
_FIRST = (MANIFEST, SUMMARY, CONFIG)
_SETTLED = 2_000_000_000  # nanoseconds: a file so old is not being written any more
_SUMMARY_MEDIA = "summary-"


class _State(NamedTuple):
    size: int
    changed: int


@final
class RecordFiles:
    """The small files, each of which is stored anew as a whole when it has changed. Not thread-safe."""

    def __init__(self, spool: Path, remote: Remote) -> None:
        self._spool = spool
        self._remote = remote
        self._stored: dict[str, bytes] = {}
        self._manifest = b""  # as it is stored

    def take(self) -> dict[str, bytes]:
        """Return what changed, in the order in which it is to be stored.

        run.json says up to which row the summary goes, so that it is read before that and stored after it; the rows
        are read after both and stored before.
        """
        names = (*_FIRST, *self._others())
        contents = {name: data for name in names if (data := self._read(name)) is not None}
        changed = {name: data for name, data in contents.items() if self._stored.get(name) != _digest(data)}
        return dict(reversed(changed.items()))

    def _others(self) -> Iterator[str]:
        with os.scandir(self._spool) as entries:
            for entry in entries:
                other = entry.name[0] != "." and entry.name not in _FIRST and not _ROWS.fullmatch(entry.name)
                if other and entry.is_file(follow_symlinks=False):
                    yield entry.name
        for path in sorted((self._spool / DELIVERY).glob("*.json")):
            if not path.name.startswith("."):
                yield f"{DELIVERY}/{path.name}"

    def _read(self, name: str) -> bytes | None:
        try:
            return (self._spool / name).read_bytes()
        except FileNotFoundError:
            return None

    def store(self, records: Mapping[str, bytes]) -> None:
        """Store what `take` returned.

        Raises:
            OSError: if that fails; what is missing will be returned again.
        """
        for name, data in records.items():
            self._remote.put(name, data)
            self._stored[name] = _digest(data)
            if name == MANIFEST:
                self._manifest = data

    def beat(self) -> None:
        """Store the heartbeat alone: the rest of run.json tells of rows that are not there yet.

        Raises:
            OSError: if that fails.
        """
        newest = self._read(MANIFEST)
        if not self._manifest or newest is None:
            return
        try:
            content, heartbeat = decode(self._manifest), decode(newest)["heartbeat"]
        except (ValueError, RecursionError, LookupError, TypeError):  # of somebody else's making
            return
        if content.get("heartbeat") != heartbeat:
            self._remote.put(MANIFEST, encode({**content, "heartbeat": heartbeat}, strict=True) + b"\n")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@final
class Files:
    """Media, or artifacts, which are stored once. Not thread-safe.

    A file that is young when it is stored may still have been written to: it is looked at again the next time.
    """

    def __init__(
        self,
        spool: Path,
        remote: Remote,
        listing: Mapping[str, int],
        folder: str,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """Bring the files in the *folder* of *spool* that are not in *listing*, which is what the store has.

        *before* is called before each of them.
        """
        self._before = before
        self._folder = folder
        self._spool = spool
        self._remote = remote
        self._there = dict(listing)  # from before; an empty file of the name stands for the object
        self._young: dict[str, _State] = {}
        self._known: dict[str, set[str]] = {}  # names in each folder
        self._looked: dict[str, int] = {}  # when each folder had changed, as it was looked at

    def bring(self) -> None:
        """Store what is new; raises `OSError` where that fails, and goes on there the next time."""
        now = time.time_ns()
        for name, state in tuple(self._young.items()):
            present = self._state(name)
            if present not in {None, state}:
                self._store(name)
            elif now - state.changed >= _SETTLED:
                del self._young[name]
        self._look(self._folder, now)

    def _state(self, name: str) -> _State | None:
        try:
            status = (self._spool / name).stat()
        except FileNotFoundError:
            return None
        return _State(status.st_size, status.st_mtime_ns)

    def _look(self, folder: str, now: int) -> None:
        try:
            changed = (self._spool / folder).stat().st_mtime_ns
        except FileNotFoundError:
            return
        known = self._known.setdefault(folder, set())
        inner = [name for name in known if name.endswith("/")]
        if self._looked.get(folder) != changed:
            with os.scandir(self._spool / folder) as entries:
                found = {f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries}
            found = {name for name in found if not name.startswith(".")}
            for name in sorted(found - known):
                if not name.endswith("/"):
                    self._bring_new(f"{folder}/{name}")
                known.add(name)
            self._drop_summaries(folder, known - found)
            inner = [name for name in found if name.endswith("/")]
            if now - changed >= _SETTLED:
                self._looked[folder] = changed
        for name in inner:
            self._look(f"{folder}/{name[:-1]}", now)

    def _drop_summaries(self, folder: str, gone: set[str]) -> None:
        """Remove what only a summary referred to that was replaced."""
        for name in gone:
            if name.startswith(_SUMMARY_MEDIA) and folder.startswith(f"{MEDIA}/"):
                self._remote.remove(f"{folder}/{name}")
            self._known[folder].discard(name)

    def _bring_new(self, name: str) -> None:
        state = self._state(name)
        if state is None or (name in self._there and state.size in {0, self._there[name]}):
            return
        self._store(name)

    def _store(self, name: str) -> None:
        state = self._state(name)
        if state is None:
            return
        self._before()
        self._remote.put_file(name, self._spool / name)
        if time.time_ns() - state.changed < _SETTLED:
            self._young[name] = state
        else:
            self._young.pop(name, None)
