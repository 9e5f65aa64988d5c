"""run.json: what the run is, who writes it, and what lies in its directory."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from trackway import __version__, _notices
from trackway._locks import new_lock
from trackway.errors import ConfigError
from trackway.store import _git
from trackway.store._atomic import set_aside
from trackway.store._layout import FORMAT
from trackway.tracker._states import RunState, state_of
from trackway.values import decode, encode, redacted_text
from trackway.values._redact import redacted_command

__all__ = ["Manifest"]

_MAX_CHANGES = 1000
_MAX_CHANGES_BYTES = 1 << 20
_MAX_NOTED = 400
_MAX_ERROR = 10_000


@final
class Manifest:
    """The content of run.json. Thread-safe."""

    def __init__(self, path: Path, run_id: str | None, attempt: int = 1) -> None:
        """Take over what *path* holds, or begin anew, and open an attempt, whose number is *attempt* at least.

        Raises:
            ConfigError: if the directory was written by a later version of the format.
        """
        self._lock = new_lock()
        earlier = _load(path)
        self.had_finished = earlier.get("state") == "finished"
        self.attempt = _attempt(max(attempt, len(earlier.get("attempts", [])) + 1))
        self._content: dict[str, Any] = {
            "format": FORMAT,
            "id": run_id or path.parent.name,
            "state": "running",
            "attempts": [],
            "summary_keys": [],
            "summary_offset": 0,
            "artifacts": [],
            "config_changes": [],
            **earlier,
        }
        if run_id and self._content["id"] != run_id:
            _notices.logger.warning(
                "local: %s holds run %r; it goes on under that id, not as %r", path.parent, self._content["id"], run_id
            )
        self._changes_bytes = sum(len(encode(change)) for change in self._content["config_changes"])
        self._content["attempts"].append(self.attempt)
        self._set_state("running")

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return str(self._content["id"])

    @property
    def summary_keys(self) -> list[list[str]]:
        """Paths of the summary values that were set by hand."""
        return list(self._content["summary_keys"])

    def render(self) -> bytes:
        """Return the file's content, with the present time as heartbeat."""
        with self._lock:
            self._content["heartbeat"] = time.time()
            return encode(self._content, strict=True) + b"\n"

    def begin(self, step: int) -> None:
        """Note the step of the attempt's first row."""
        with self._lock:
            self.attempt["first_step"] = step

    @property
    def summary_offset(self) -> int:
        """The byte of the file of rows up to which the summary on disk covers it."""
        return int(self._content["summary_offset"])

    def cover(self, offset: int) -> None:
        """Note that the summary on disk covers the rows up to the byte *offset*."""
        with self._lock:
            self._content["summary_offset"] = offset

    def set_summary_keys(self, paths: list[list[str]]) -> bool:
        """Note which summary values were set by hand; return whether they are others than before."""
        with self._lock:
            changed = bool(self._content["summary_keys"] != paths)
            self._content["summary_keys"] = paths
        return changed

    def last_artifact(self, name: str) -> dict[str, Any] | None:
        """Return what is listed about the last artifact called *name*."""
        with self._lock:
            return next((entry for entry in reversed(self._content["artifacts"]) if entry.get("name") == name), None)

    def add_artifact(self, entry: Mapping[str, Any]) -> None:
        """List an artifact."""
        with self._lock:
            self._content["artifacts"].append(dict(entry))

    def change(self, name: str, old: Any, new: Any) -> bool:
        """Note that a hyper-parameter was given another value; return False where too many were noted already."""
        changes = self._content["config_changes"]
        change = {"time": time.time(), "name": _noted(name), "old": _noted(old), "new": _noted(new)}
        size = len(encode(change))
        with self._lock:
            if len(changes) >= _MAX_CHANGES or self._changes_bytes + size > _MAX_CHANGES_BYTES:
                return False
            self._changes_bytes += size
            changes.append(change)
        return True

    def next_attempt(self, number: int) -> int:
        """Close the attempt, which others supersede, and open one; return its number, which is *number* at least."""
        with self._lock:
            self.attempt.update(end=time.time(), state="superseded")
            self.attempt = _attempt(max(number, len(self._content["attempts"]) + 1))
            self.attempt["state"] = "running"
            self._content["attempts"].append(self.attempt)
            return int(self.attempt["number"])

    def mark(self, error: BaseException) -> None:
        """Note why the run is about to end."""
        self._set_state(state_of(error), error)

    def end(self, error: BaseException | None) -> None:
        """Close the attempt and the run, whose state says whether and how *error* ended it."""
        self.attempt["end"] = time.time()
        self._set_state(state_of(error), error)

    def _set_state(self, state: RunState, error: BaseException | None = None) -> None:
        with self._lock:
            for place in (self._content, self.attempt):
                place["state"] = state
                place.pop("error", None)
                if error is not None:
                    place["error"] = {"type": type(error).__qualname__, "message": _text(error)}


def _noted(value: Any) -> Any:
    """*value*, or the beginning of its JSON text and a hash of all of it where that is long."""
    data = encode({"": value})[4:-1]
    if len(data) <= _MAX_NOTED:
        return value
    begin = data[:_MAX_NOTED].decode("utf-8", "ignore")
    return f"{begin}... ({len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()})"


def _text(error: BaseException) -> str:
    try:
        return redacted_text(str(error))[:_MAX_ERROR]
    except Exception:
        return "an error that cannot be printed"


def _attempt(number: int) -> dict[str, Any]:
    return {
        "number": number,
        "start": time.time(),
        "end": None,
        "first_step": None,
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "command": redacted_command(getattr(sys, "argv", [])),
        "python": ".".join(map(str, sys.version_info[:3])),
        "trackway": __version__,
        "git": _commit(),
    }


def _commit() -> str | None:
    try:
        return _git.commit(Path.cwd())
    except OSError:  # the working directory is gone
        return None


def _load(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        content = decode(data)
        version = content["format"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return _damaged(path)
    if not isinstance(version, int) or version > FORMAT:
        raise ConfigError(
            f"local: {path.parent} was written in format {version!r}, this trackway knows {FORMAT}; update trackway, "
            "or choose another run id"
        )
    return content if _is_sound(content) else _damaged(path)


def _is_sound(content: dict[str, Any]) -> bool:
    lists = ("attempts", "summary_keys", "artifacts", "config_changes")
    if not all(isinstance(content.get(name, []), list) for name in lists):
        return False
    offset = content.get("summary_offset", 0)
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        return False
    return all(isinstance(p, list) and all(isinstance(k, str) for k in p) for p in content.get("summary_keys", []))


def _damaged(path: Path) -> dict[str, Any]:
    _notices.logger.warning("local: %s is damaged and was set aside as %s", path, set_aside(path).name)
    return {}
