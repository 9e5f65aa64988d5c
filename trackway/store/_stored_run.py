"""A run on disk, to be looked at."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

from trackway import _notices
from trackway.store._best import best_row, best_step
from trackway.store._curves import sampled
from trackway.store._history import history_of, remote_history
from trackway.store._last_step import last_step
from trackway.store._layout import CONFIG, MANIFEST, SUMMARY, is_url, metrics_name
from trackway.store._lease import HEARTBEAT
from trackway.store._picture import picture_of
from trackway.store._query import make_query
from trackway.values import decode

if TYPE_CHECKING:
    from trackway.store._remote_read import RemoteRun

__all__ = ["StoredRun"]

_MISSED = 3  # heartbeats after which a run counts as dead
_MAX_BYTES = 1 << 24
_MAX_YAML = 1 << 22
_LATEST = 1e12  # seconds since 1970 that may be a time
_ROWS = re.compile(r"metrics(?:\.rank[1-9][0-9]*)?\.jsonl")
_STATES = frozenset({"running", "finished", "failed", "crashed", "interrupted", "preempted"})


@final
class StoredRun:
    """A run in a directory, finished or being written, of this machine or from a stranger.

    What is missing or damaged there is empty here; damage is said, once for each file, on the `trackway` logger. The
    small files are read when they are first asked for, and kept: make another object to see what came later. Links in
    the directory are not followed, files of more than 16 MiB (YAML: 4) are not read. Thread-safe.

    Attributes:
        place: The directory, absolute, or the URL, as text.
        path: The directory, absolute; of a URL only its name means something.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look at the run in the directory *path*, or at an fsspec URL.

        Raises:
            NotADirectoryError: if *path* is no directory, or there is no run at the URL.
            OSError: if a store cannot be asked.
            ConfigError: if there is no file system for the URL, or its package is not installed.
        """
        self._remote = _remote_run(str(path)) if is_url(path) else None
        self.path: Path = Path(path) if self._remote is not None else Path(path).absolute()
        self.place: str = str(self.path) if self._remote is None else self._remote.url
        if not (self.path.is_dir() if self._remote is None else self._remote.is_run()):
            raise NotADirectoryError(
                errno.ENOTDIR, "a run is a directory, such as runs/<run id>; there is none", self.place
            )
        self._rows: Path | str = self.path / metrics_name(0) if self._remote is None else self.place
        self._alone = False

    @classmethod
    def _of_rows(cls, file: Path) -> Self:
        """Return the run of which *file* holds the rows; it stands alone unless it is named as in a run directory."""
        run = cls(file.absolute().parent)
        run._rows = file.absolute()
        run._alone = not (_ROWS.fullmatch(file.name) and (run.path / MANIFEST).exists())
        return run

    def __repr__(self) -> str:
        return f"StoredRun({self.place!r})"

    @property
    def id(self) -> str:
        """The id of the run; the name of its directory where it has none."""
        return self._text("id") or (Path(self._rows).stem if self._alone else self.path.name)

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
    def last_step(self) -> int | None:
        """The last step that has a row, found at the end of the file; None where none has, or it cannot be read."""
        try:
            return last_step(self._rows)
        except OSError:
            return None

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
        if isinstance(self._rows, str):
            return remote_history(self._rows, query, missing_ok=True)
        return history_of(self._rows, query)

    def at_best(self, metric: str, mode: str = "min") -> dict[str, Any]:
        """Return the row of the step at which *metric* was best: what else was logged for that step.

        Args:
            metric: Its name, as it is when nested names are joined by `/`.
            mode: "min" if less is better, "max" if more is.

        Returns:
            The values by their names, joined by `/`, and `_step` and `_time`. Of several best steps it is the first;
            NaN and infinities are never best.

        Raises:
            ValueError: if *metric* has no finite value in the run, or *mode* is something else.
            OSError: if the rows cannot be read.
        """
        step = best_step(self, metric, mode)
        if step is None:
            raise ValueError(f"at_best: run {self.id!r} has no finite value of {metric!r}; its `summary` lists metrics")
        return best_row(self, step)

    def _repr_html_(self) -> str:
        """Show the run in a notebook: state, summary and a curve of each metric, drawn from a sample of its rows."""
        try:
            rows = sampled(self._rows)
        except OSError:
            rows = []
        error = self.error or {}
        reason = ": ".join(str(error[key]) for key in ("type", "message") if key in error)
        return picture_of(self.id, self.state, self.summary, rows, error=reason)

    def _text(self, name: str) -> str:
        value = self._manifest.get(name)
        return value if isinstance(value, str) else ""

    def _entries(self, name: str) -> list[dict[str, Any]]:
        value = self._manifest.get(name)
        return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []

    def _read(self, name: str, parse: Callable[[bytes], dict[str, Any]], *, expected: bool = False) -> dict[str, Any]:
        if self._alone:
            return {}
        path = self.path / name
        try:
            return parse(_bytes_of(path) if self._remote is None else self._remote.read(name, _MAX_BYTES))
        except FileNotFoundError:
            reason = "is missing" if expected else ""
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
        except (ValueError, RecursionError, MemoryError):
            reason = "is damaged"
        if reason:
            _notices.logger.warning(
                "%s %s; what it would say of the run is left empty", ascii(f"{self.place}/{name}"), reason
            )
        return {}


def _remote_run(url: str) -> RemoteRun:
    from trackway.store._remote_read import RemoteRun

    return RemoteRun(url)


def _bytes_of(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(fd, "rb") as file:  # noqa: PTH123 - of a descriptor
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        data = file.read(min(status.st_size, _MAX_BYTES) + 1)  # not always room for the greatest
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
