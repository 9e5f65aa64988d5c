"""Making and taking over `tensorboardX.SummaryWriter`s.

The writer stays the user's to call; only what it hands its events to is exchanged. All that this library knows of
tensorboardX's inner structure stands in this module.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import socket
import time
import uuid
from pathlib import Path
from typing import Any, final

from trackway._locks import new_lock
from trackway.backends._tensorboard_events import EventWriter
from trackway.backends._tensorboard_files import EventFile, open_event_file, place_of
from trackway.backends._tensorboard_records import frame

__all__ = ["flush_secs_of", "open_writer", "restart", "take_over", "unique_suffix"]

_MAX_QUEUE, _FLUSH_SECS = 10, 120
_UNIQUE = re.compile(r"\.\d+\.\d{6}\.[0-9a-f]{8}$")
_numbers = itertools.count()
_opening = new_lock()


def unique_suffix(suffix: str = "") -> str:
    """Return *suffix* and what makes a file name unique: tensorboardX overwrites a file of the same second.

    What an earlier call added is replaced. Within a process the later name sorts behind the earlier, which is the
    order that TensorBoard reads files in.
    """
    return f"{_UNIQUE.sub('', suffix)}.{os.getpid()}.{next(_numbers):06d}.{uuid.uuid4().hex[:8]}"


def flush_secs_of(writer: Any) -> float:
    """Return the seconds after which the `SummaryWriter` *writer* brings events to the disk."""
    return float(writer._flush_secs or _FLUSH_SECS)  # noqa: SLF001


def open_writer(
    logdir: str,
    *,
    purge_step: int | None = None,
    max_queue: int | None = None,
    flush_secs: int | None = None,
    filename_suffix: str = "",
    write_to_disk: bool = True,
) -> Any:
    """Return a `SummaryWriter` for *logdir*, a folder or any fsspec URL, that writes through an `EventWriter`.

    Raises:
        ImportError: if tensorboardX, or what the URL needs, is not installed.
        OSError: if the folder cannot be made or written to.
    """
    from tensorboardX import SummaryWriter
    from tensorboardX.proto.event_pb2 import Event

    fs, path = place_of(logdir)
    logdir = path if fs is None else logdir
    settings = {"max_queue": max_queue or _MAX_QUEUE, "flush_secs": flush_secs or _FLUSH_SECS}
    # with "False" the constructor opens no file and starts no thread and queue of its own
    writer = SummaryWriter(logdir, filename_suffix=filename_suffix, write_to_disk=False, **settings)
    if not write_to_disk:
        return writer
    if fs is not None:
        _register(logdir)
    writer._write_to_disk, writer.file_writer = True, None  # noqa: SLF001
    take_over(writer)
    if purge_step is not None:
        writer.file_writer.add_event(Event(step=purge_step, session_log=restart()))
    return writer


def restart() -> Any:
    """Return what makes TensorBoard hide all earlier points of a run from the step of its event on."""
    from tensorboardX.proto.event_pb2 import SessionLog

    return SessionLog(status=SessionLog.START)


def take_over(writer: Any) -> EventWriter | None:
    """Have *writer* hand its events to an `EventWriter`, which is returned; None if it writes nothing to disk.

    A writer of the user's own making is drained first and its event file continued. One that was closed is reopened,
    and will be by any call of its methods: left to itself, tensorboardX empties the file that it has just closed.
    """
    if not writer._write_to_disk:  # noqa: SLF001
        return None
    if writer.file_writer is not None and not isinstance(writer.file_writer.event_writer, EventWriter):
        _continue(writer)
    if not isinstance(writer._get_file_writer, functools.partial):  # noqa: SLF001 - the one door to it
        writer._get_file_writer = functools.partial(_file_writer, writer)  # noqa: SLF001
    events = writer._get_file_writer().event_writer  # noqa: SLF001
    assert isinstance(events, EventWriter)
    return events


def _continue(writer: Any) -> None:
    """Let tensorboardX's own writer of events end, and go on in its file."""
    events = writer.file_writer.event_writer
    events.close()
    path = Path(getattr(getattr(events, "_ev_writer", None), "_file_name", ""))  # private: without it, a second file
    if path.is_file():
        file = open_event_file(str(path.parent), path.name, b"")
        writer.file_writer.event_writer = EventWriter(events.get_logdir(), file, _header(), **_settings(writer))
    else:
        writer.file_writer = None


def _file_writer(writer: Any) -> Any:
    """Take the place of `SummaryWriter._get_file_writer`."""
    from tensorboardX.writer import FileWriter

    with _opening:
        if writer.file_writer is None:
            writer._filename_suffix = unique_suffix(writer._filename_suffix or "")  # noqa: SLF001
            # not FileWriter's own __init__: it opens a file and starts the thread and queue that are to be avoided
            file_writer = FileWriter.__new__(FileWriter)
            file_writer.event_writer = _new_events(writer)
            file_writer._default_metadata = {}  # noqa: SLF001 - as its __init__ does
            writer.file_writer = file_writer
            writer.all_writers = {**(writer.all_writers or {}), file_writer.get_logdir(): file_writer}
        return writer.file_writer


def _settings(writer: Any) -> dict[str, Any]:
    return {"max_queue": writer._max_queue or _MAX_QUEUE, "flush_secs": flush_secs_of(writer)}  # noqa: SLF001


def _header() -> bytes:
    from tensorboardX.proto.event_pb2 import Event

    return frame(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())


def _new_events(writer: Any) -> EventWriter:
    header, logdir = _header(), str(writer.logdir)
    name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}{writer._filename_suffix}"  # noqa: SLF001
    return EventWriter(logdir, open_event_file(logdir, name, header), header, **_settings(writer))


def _register(logdir: str) -> None:
    """Let writers that tensorboardX makes on its own, as `add_scalars` does, write to such URLs too.

    Schemes that it knows itself (s3, gs) stay with it.
    """
    from tensorboardX import record_writer

    scheme = logdir.partition(":")[0]
    if scheme not in record_writer.REGISTERED_FACTORIES:
        record_writer.register_writer_factory(scheme, _Factory())


@final
class _Factory:
    """What `tensorboardX.record_writer.register_writer_factory` takes."""

    def open(self, path: str) -> _Buffered:
        """Open the object at the URL *path*."""
        folder, _, name = path.rpartition("/")
        return _Buffered(open_event_file(folder, name, b""))

    def directory_check(self, path: str) -> None:
        """Do nothing: the folder is made with the file."""


@final
class _Buffered:
    """The file object of `_Factory`: uploads at `flush`."""

    def __init__(self, file: EventFile) -> None:
        self._file = file
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Keep *data* until the next flush."""
        self._waiting += data

    def flush(self) -> None:
        """Upload what was written."""
        if self._waiting:
            del self._waiting[: self._file.write(bytes(self._waiting))]

    def close(self) -> None:
        """Upload what was written and release it."""
        self.flush()
        self._file.close()
