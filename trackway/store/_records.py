"""What the primary process keeps beside the rows: summary, hyper-parameters, run.json, artifacts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, final

from trackway import _notices
from trackway.store._artifacts import ArtifactFolder
from trackway.store._atomic import RecordFile, clear, set_aside
from trackway.store._layout import CONFIG, MANIFEST, SUMMARY
from trackway.store._lease import HEARTBEAT
from trackway.store._manifest import Manifest
from trackway.store._reopen import rows_after
from trackway.store._summary import Summary, combined, leaves, merge
from trackway.tracker import Ledger
from trackway.tracker._yaml import dump
from trackway.values import Row, decode, encode
from trackway.values._redact import redacted_name

__all__ = ["Records"]

_CURE = "; training goes on, and it is tried again"


@final
class Records:
    """The small files of a run directory; each is replaced as a whole. Thread-safe.

    What cannot be written is counted in the ledger and tried again later.
    """

    def __init__(
        self,
        directory: Path,
        run_id: str | None,
        ledger: Ledger,
        lock: AbstractContextManager[Any],
        end: Callable[[], int],
        *,
        attempt: int,
        interval: float,
        strict: bool,
    ) -> None:
        """Take over what *directory* holds.

        Args:
            directory: The run directory, which exists.
            run_id: The id of a run that is new.
            ledger: Where failures are counted.
            lock: Re-entrant; held around every change of the summary.
            end: Tells where the file of rows ends.
            attempt: The least number that this attempt may have.
            interval: Seconds between two automatic writes of a file.
            strict: Whether the summary is to be strict JSON.
        """
        self._ledger = ledger
        self._lock = lock
        self._end = end
        self._strict = strict
        clear(directory)
        self._manifest = Manifest(directory / MANIFEST, run_id, attempt)
        self._summary = Summary()
        self._summary.restore(_earlier(directory / SUMMARY, decode), self._manifest.summary_keys)
        self._config = _earlier(directory / CONFIG, _from_yaml)
        self._artifacts = ArtifactFolder(directory, ledger.drop)
        self._artifacts.clear()
        self._covered = 0
        self._summary_file = RecordFile(directory / SUMMARY, self._render_summary, interval, self._summary_saved)
        self._config_file = RecordFile(directory / CONFIG, self._render_config, interval)
        self._manifest_file = RecordFile(directory / MANIFEST, self._manifest.render, interval)
        self._saved_at = 0.0
        self.update: Callable[[Mapping[str, Any]], None] = self._summary.update
        """Takes the values of one row; the caller holds the lock."""
        self.update_all: Callable[[Sequence[Row]], None] = self._summary.update_all
        """Takes the values of several rows; the caller holds the lock."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._manifest.run_id

    @property
    def had_finished(self) -> bool:
        """Whether the run was there before, and had come to its end."""
        return self._manifest.had_finished

    @property
    def attempt(self) -> int:
        """Number of the attempt; 1 for a run that is new."""
        return int(self._manifest.attempt["number"])

    def restore(self, path: Path) -> None:
        """Take the rows of the file *path* that the summary of an earlier process has missed."""
        rows, left_out = rows_after(path, self._manifest.summary_offset)
        if left_out:
            _notices.logger.warning(
                "local: the summary of %s misses rows; the last ones are taken from it, %d bytes before them are not",
                path,
                left_out,
            )
        for row in rows:
            self.update({key: value for key, value in row.items() if not key.startswith("_")})

    @property
    def explicit_summary(self) -> dict[str, Any]:
        """The summary values set by hand; not to be changed."""
        with self._lock:
            return self._summary.explicit

    def begin(self, step: int) -> None:
        """Note the step of the attempt's first row."""
        self._manifest.begin(step)
        self._manifest_file.dirty = True

    def next_attempt(self, number: int) -> int:
        """Note that another attempt begins within the process, whose number is *number* at least; return it."""
        found = self._manifest.next_attempt(number)
        self._manifest_file.dirty = True
        return found

    def summary(self) -> dict[str, Any]:
        """Return the summary as it stands; changing it changes nothing here."""
        with self._lock:
            return self._summary.snapshot()

    def set_summary(self, values: Row) -> bool:
        """Take values set by hand; return whether they are on disk."""
        with self._lock:
            self._summary.set(values)
            others = self._manifest.set_summary_keys(self._summary.explicit_paths())
        if others:
            self._save(self._manifest_file, "log_summary")
        return self._save(self._summary_file, "log_summary")

    def set_config(self, values: Row) -> None:
        """Take hyper-parameters; where one had another value, that is noted in run.json."""
        with self._lock:
            before = dict(leaves(self._config))
            changed = [(path, before[path], new) for path, new in leaves(values) if _differs(before, path, new)]
            merge(self._config, values)
        for path, old, new in changed:
            if not self._manifest.change("/".join(path), old, new):
                self._ledger.drop("/".join(path), "the note of a changed hyper-parameter: too many of them")
        self._save(self._config_file, "log_hyperparameters")
        if changed:
            self._save(self._manifest_file, "log_hyperparameters")

    def take_artifact(self, artifact_path: Any, name: str | None, kind: str | None) -> None:
        """Copy a file or folder into the run, to be listed in run.json soon.

        A file that equals the last one of its name is there already, as the configuration of a continued run is.
        """
        try:
            path = os.fsdecode(artifact_path)
            if not os.path.exists(path):  # noqa: PTH110 - Path("") would be the working directory
                self._ledger.drop(f"artifact {path!r}", "there is no such file or folder")
                return
            name = redacted_name(str(name or Path(path).resolve().name))
            entry = self._artifacts.add(Path(path), name, kind, self._manifest.last_artifact(name))
        except (OSError, ValueError, TypeError) as error:
            self._ledger.fail("log_artifact", error, "; training goes on")
            return
        if entry is not None:
            self._manifest.add_artifact(entry)
            self._manifest_file.dirty = True

    def save_due(self, *, anew: bool = False) -> None:
        """Write what is behind and has not been written a moment ago; renew the heartbeat every ten seconds.

        Args:
            anew: Whether someone deleted the directory, so that all files are to be written.
        """
        if anew:
            self._summary_file.dirty = self._manifest_file.dirty = True
            self._config_file.dirty = bool(self._config)
        if time.monotonic() - self._saved_at >= HEARTBEAT:
            self._manifest_file.dirty = True
        for file in self._files():
            if file.due:
                self._save(file, "save")

    def save(self) -> None:
        """Write what is behind, and wait for the disk."""
        for file in self._files():
            if file.dirty:
                self._save(file, "flush")

    def mark(self, error: BaseException) -> None:
        """Note that the run is about to end because of *error*, for the case that the process does so before."""
        self._manifest.mark(error)
        self._manifest_file.dirty = True

    def end(self, error: BaseException | None) -> None:
        """Write everything; the run is finished, or failed because of *error*."""
        self._manifest.end(error)
        self._summary_file.dirty = self._manifest_file.dirty = True
        self.save()

    def start(self) -> None:
        """Write run.json, so that the run is seen from now on."""
        self._save(self._manifest_file, "start")

    def _files(self) -> tuple[RecordFile, ...]:
        if self._summary.changed:
            self._summary.changed = False
            self._summary_file.dirty = True
        return self._summary_file, self._config_file, self._manifest_file

    def _save(self, file: RecordFile, method: str) -> bool:
        if file is self._manifest_file:
            self._saved_at = time.monotonic()
        try:
            file.save()
        except OSError as error:
            self._ledger.fail(method, error, _CURE)
            return False
        return True

    def _render_summary(self) -> bytes:
        with self._lock:  # for a moment only: rows wait for it
            last, explicit = self._summary.freeze()
            self._covered = self._end()
        return encode(combined(last, explicit), strict=self._strict) + b"\n"

    def _summary_saved(self) -> None:
        self._manifest.cover(self._covered)
        self._manifest_file.dirty = True

    def _render_config(self) -> bytes:
        with self._lock:
            values: dict[str, Any] = {}
            merge(values, self._config)
        return dump(values).encode("utf-8")


def _differs(before: Mapping[tuple[str, ...], Any], path: tuple[str, ...], new: Any) -> bool:
    return path in before and encode({"": before[path]}) != encode({"": new})


def _earlier(path: Path, parse: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
    """The content that an earlier process left in *path*; a damaged file is kept under another name."""
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        _notices.logger.warning("local: %s is damaged and was set aside as %s", path, set_aside(path).name)
        return {}


def _from_yaml(data: bytes) -> dict[str, Any]:
    """Read what `dump` wrote, JSON included; raises `ValueError` for anything else."""
    import yaml

    if data.startswith(b"{"):
        return decode(data)
    try:
        content = yaml.safe_load(data.decode("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not isinstance(content, dict | None):
        raise ValueError("not a mapping")  # noqa: TRY004 - bad data
    return content or {}
