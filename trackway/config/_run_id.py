"""Run ids: names that are safe as a folder, a URL part and a key of a tracking service."""

from __future__ import annotations

import os
import time
from typing import Any

from trackway.errors import ConfigError

__all__ = ["check_run_id", "new_run_id"]

_MAX_BYTES = 128
_SEPARATORS = frozenset('/\\:*?"<>|')
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³")]
)
_CURE = "a run id is a name such as `digits-lr3e-4`"


def check_run_id(run_id: Any) -> str:
    """Return *run_id* if it is a name, as opposed to a path.

    Raises:
        ConfigError: if it is no text, empty, longer than 128 bytes in UTF-8, `.` or `..`, begins or ends with a space,
            ends with a dot, holds a path separator, a character that file systems refuse (`:*?"<>|`), a control or
            formatting character or a lone surrogate, or is a device name that Windows reserves (`nul`, `com1.txt`).
    """
    if not isinstance(run_id, str):
        raise ConfigError(f"run_id must be text, got {run_id!r} ({type(run_id).__name__}); {_CURE}")
    fault = _fault(run_id)
    if fault:
        shown = repr(run_id) if len(run_id) <= _MAX_BYTES else f"{run_id[:40]!r}... ({len(run_id)} characters)"
        raise ConfigError(f"run_id {shown} {fault}; {_CURE}")
    return run_id


def _fault(run_id: str) -> str | None:
    import unicodedata

    if not run_id.strip():
        return "is empty"
    if run_id in {".", ".."}:
        return "is a path, not a name"
    bad = next(
        (c for c in run_id if c in _SEPARATORS or unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}), None
    )
    if bad is not None:
        return f"holds {bad!r}, which is not allowed in a name"
    if run_id != run_id.strip() or run_id.endswith("."):
        return "begins or ends with a space, or ends with a dot"
    if len(run_id.encode("utf-8")) > _MAX_BYTES:
        return f"is longer than {_MAX_BYTES} bytes"
    if run_id.partition(".")[0].strip().lower() in _DEVICES:
        return "is a device name that some file systems reserve"
    return None


def new_run_id() -> str:
    """Return an id not used before: the time in UTC, which sorts and reads well, and six random digits."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(3).hex()}"
