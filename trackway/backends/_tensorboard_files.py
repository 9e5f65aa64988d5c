"""Where the bytes of an event file go: a local file, or an object behind an fsspec URL."""

from __future__ import annotations

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, final

from trackway import _notices

__all__ = ["EventFile", "LocalEventFile", "RemoteEventFile", "open_event_file", "place_of"]

_SEGMENT = 8 * 1024 * 1024


class EventFile(ABC):
    """Takes the bytes of an event file in order; may raise `OSError` at any time, and be tried again."""

    remote: bool
    """Whether each write is an upload, so that it should come seldom and never in the training's way."""
    empty: bool
    """Whether there was nothing in it when it was opened."""

    @abstractmethod
    def write(self, data: bytes) -> int:
        """Take bytes off the front of *data*, which holds whole records, and return how many."""

    @abstractmethod
    def sync(self) -> None:
        """Bring what was written to stable storage."""

    @abstractmethod
    def renew(self) -> bool:
        """Begin another file if the present one was deleted; return whether that was so."""

    @abstractmethod
    def close(self) -> None:
        """Release what is open."""


@final
class LocalEventFile(EventFile):
    """A file of this machine, unbuffered; created, or continued where it exists.

    Where it is deleted meanwhile, the next one has `.000001` and so on at its name's end.
    """

    remote = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0
        self._file: int | None = _opened(path)
        self.empty = os.lseek(self._file, 0, os.SEEK_END) == 0

    def write(self, data: bytes) -> int:
        """Write as much of *data* as there is room for."""
        written = os.write(self._descriptor(), data)
        if data and not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    def sync(self) -> None:
        """Call `fsync`."""
        os.fsync(self._descriptor())

    def renew(self) -> bool:
        """Open the next file if the present one has no name any more."""
        old = self._descriptor()
        if not _is_deleted(old):
            return False
        path = _numbered(self._path, self._number + 1)
        new = _opened(path)
        _notices.logger.warning(
            "tensorboard: %s was deleted while it was being written; later events go to %s",
            _numbered(self._path, self._number),
            path,
        )
        self._file, self._number = new, self._number + 1
        with contextlib.suppress(OSError):
            os.close(old)
        return True

    def close(self) -> None:
        """Close the descriptor."""
        if self._file is not None:
            descriptor, self._file = self._file, None
            os.close(descriptor)

    def _descriptor(self) -> int:
        if self._file is None:
            raise OSError("the event file is closed")
        return self._file


def _opened(path: str) -> int:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _is_deleted(descriptor: int) -> bool:
    try:
        return os.fstat(descriptor).st_nlink == 0
    except OSError as error:  # of others, writing will tell
        return error.errno == errno.ESTALE


def _numbered(path: str, number: int) -> str:
    """Return *path* for 0, else a name that sorts behind it and those of lesser numbers, as TensorBoard reads them."""
    return f"{path}.{number:06d}" if number else path


@final
class RemoteEventFile(EventFile):
    """An object behind an fsspec URL.

    Objects cannot be appended to, so each write uploads the object anew; once it holds 8 MiB it is left as it is and
    a next one, with `.000001` and so on at its name's end, is begun with *header*. TensorBoard reads them in order.
    """

    remote = True
    empty = True

    def __init__(self, fs: Any, path: str, header: bytes) -> None:
        self._fs = fs
        self._path = path
        self._header = header
        self._kept = b""
        self._number = 0
        with contextlib.suppress(Exception):  # object stores have no folders
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)

    def write(self, data: bytes) -> int:
        """Upload the object with *data* added."""
        content = self._kept + data
        self._fs.pipe_file(_numbered(self._path, self._number), content)
        self._kept = content
        if len(content) >= _SEGMENT:
            self._number, self._kept = self._number + 1, self._header
        return len(data)

    def sync(self) -> None:
        """Do nothing: an uploaded object is stored."""

    def renew(self) -> bool:
        """Return False: an object that was deleted is whole again after the next upload."""
        return False

    def close(self) -> None:
        """Release the copy in memory."""
        self._kept = b""


def place_of(logdir: str) -> tuple[Any, str]:
    """Return the fsspec file system (None for this machine's files) and the path in it that *logdir* names.

    Raises:
        ImportError: if the URL needs a package that is not installed; the message names it.
        ValueError: if no file system is known for the URL.
    """
    if "://" not in logdir and "::" not in logdir:
        return None, os.path.abspath(os.path.expanduser(logdir))  # noqa: PTH100, PTH111 - keeps "//" and the like
    import fsspec

    fs, path = fsspec.core.url_to_fs(logdir)
    if "file" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
        return None, os.path.abspath(path)  # noqa: PTH100 - as above
    return fs, path


def open_event_file(logdir: str, name: str, header: bytes) -> EventFile:
    """Open the event file *name* in *logdir*, a local folder or URL."""
    fs, path = place_of(logdir)
    if fs is None:
        return LocalEventFile(os.path.join(path, name))  # noqa: PTH118 - as above
    return RemoteEventFile(fs, f"{path.rstrip('/')}/{name}", header)
