"""A run on disk, to be looked at."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, final

from trackway import _notices
from trackway.store._history import history_of
from trackway.store._layout import CONFIG, MANIFEST, SUMMARY, metrics_name
from trackway.store._lease import HEARTBEAT
from trackway.store._query import make_query
from trackway.values import decode

__all__ = ["StoredRun"]

_MISSED = 3  # heartbeats after which a run counts as dead
_MAX_BYTES = 1 << 24
_MAX_YAML = 1 << 22
_LATEST = 1e12  # seconds since 1970 that may be a time
_STATES = frozenset({"running", "finished", "failed", "crashed", "interrupted", "preempted"})


@final
class StoredRun:
    """A run in a directory, finished or being written, of this machine or from a stranger.

    What is missing or damaged there is empty here; damage is said, once for each file, on the `trackway` logger. The
    small files are read when they are first asked for, and kept: make another object to see what came later. Links in
    the directory are not followed, files of more than 16 MiB (YAML: 4) are not read. Thread-safe.

    Attributes:
        path: The directory, absolute.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look at the run in the directory *path*.

        Raises:
            NotADirectoryError: if *path* is no directory.
        """
        self.path: Path = Path(path).absolute()
        if not self.path.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "a run is a directory, such as runs/<run id>; there is none", str(self.path)
            )

    def __repr__(self) -> str:
        return f"StoredRun({str(self.path)!r})"

    @property
    def id(self) -> str:
        """The id of the run; the name of its directory where it has none."""
        return self._text("id") or self.path.name

    @property
    def state(self) -> str:
        """One of "running", "finished", "failed", "interrupted", "preempted", "crashed" and "unknown".

        A run that has shown no sign of life for thirty seconds is not running but "crashed".
        """
        state = self._text("state")
        if state == "running" and time.time() - (self.heartbeat or 0.0) > _MISSED * HEARTBEAT:
            return "crashed"
        return state if state in _STATES else "unknown"

    @property
    def heartbeat(self) -> float | None:
        """When the run last showed a sign of life, in seconds since 1970; None where that is not known."""
        value = self._manifest.get("heartbeat")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LATEST:
            return None
        return float(value)

    @property
    def error(self) -> dict[str, Any] | None:
        """The `type` and the `message` of what a failed run ended with."""
        value = self._manifest.get("error")
        return value if isinstance(value, dict) else None

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """What is known of each attempt: `number`, `start`, `end`, `first_step`, `host`, `command` and so on."""
        return self._entries("attempts")

    @property
    def artifacts(self) -> list[dict[str, Any]]:
        """The artifacts: `name`, `type`, `path` in the directory, `size`, `sha256`, `version`.

        They are what the file says: check a `path` from a stranger before you open it.
        """
        return self._entries("artifacts")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The hyper-parameters, nested."""
        return self._read(CONFIG, _from_yaml)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The last value of every metric, nested, and the values that were set by hand."""
        return self._read(SUMMARY, decode)

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        return self._read(MANIFEST, decode, expected=True)

    def history(
        self,
        n: int | None = 50,
        *,
        step_range: tuple[int | None, int | None] | None = None,
        metrics: str | Iterable[str] | None = None,
        output: str = "rows",
        include_open: bool = True,  # noqa: ARG002 - what `Run.history` takes
        include_meta: bool = True,
        fill_missing: bool = False,
        dropna: bool = False,
        ranks: str = "primary",
    ) -> Any:
        """Return rows of the run, by default the last 50; see `read_history`. A run without rows has an empty history.

        *include_open* is there so that it can be asked as the live run can: on disk there is no open row.

        Raises:
            OSError: if the rows cannot be read.
            ValueError: if an argument is none of those allowed.
            ConfigError: if the library for *output* is not installed.
        """
        query = make_query(
            n,
            step_range=step_range,
            metrics=metrics,
            output=output,
            include_meta=include_meta,
            fill_missing=fill_missing,
            dropna=dropna,
            ranks=ranks,
        )
        return history_of(self.path / metrics_name(0), query)

    def _text(self, name: str) -> str:
        value = self._manifest.get(name)
        return value if isinstance(value, str) else ""

    def _entries(self, name: str) -> list[dict[str, Any]]:
        value = self._manifest.get(name)
        return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []

    def _read(self, name: str, parse: Callable[[bytes], dict[str, Any]], *, expected: bool = False) -> dict[str, Any]:
        path = self.path / name
        try:
            return parse(_bytes_of(path))
        except FileNotFoundError:
            reason = "is missing" if expected else ""
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
        except (ValueError, RecursionError, MemoryError):
            reason = "is damaged"
        if reason:
            _notices.logger.warning("%s %s; what it would say of the run is left empty", ascii(str(path)), reason)
        return {}


def _bytes_of(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(fd, "rb") as file:  # noqa: PTH123 - of a descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {_MAX_BYTES >> 20} MiB")
    return data


def _from_yaml(data: bytes) -> dict[str, Any]:
    """Return the mapping in *data*; raises `ValueError` where there is none."""
    import yaml

    if data.startswith(b"{"):
        return decode(data)
    if len(data) > _MAX_YAML:
        raise ValueError("too long for a parser that is slow")
    try:
        content = yaml.safe_load(data.decode("utf-8"))
    except (yaml.YAMLError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(content, dict | None):
        raise ValueError("not a mapping")  # noqa: TRY004 - bad data
    return content or {}
