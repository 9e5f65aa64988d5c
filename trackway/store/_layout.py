"""Names inside a run directory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from trackway.errors import ConfigError

__all__ = [
    "ARTIFACTS",
    "CONFIG",
    "DELIVERY",
    "EVENTS",
    "FORMAT",
    "MANIFEST",
    "MEDIA",
    "METRICS",
    "SPANS",
    "SUMMARY",
    "absolute",
    "is_url",
    "lines_name",
    "metrics_name",
    "safe_name",
    "torn_lines_name",
    "torn_name",
]

FORMAT = 1
"""Version of the run directory that this package writes."""

CONFIG = "config.yaml"
MANIFEST = "run.json"
SUMMARY = "summary.json"
ARTIFACTS = "artifacts"
MEDIA = "media"
DELIVERY = "delivery"
METRICS = "metrics"
EVENTS = "events"
SPANS = "spans"

_MAX_BYTES = 120
_MAX_SUFFIX = 16
_PLAIN = frozenset("._-+@,")


def lines_name(kind: str, rank: int) -> str:
    """The file that holds lines of one kind, such as "events", of process *rank*."""
    return f"{kind}.jsonl" if rank == 0 else f"{kind}.rank{rank}.jsonl"


def torn_lines_name(kind: str, rank: int) -> str:
    """The file that keeps fragments cut off the end of `lines_name(kind, rank)`."""
    return lines_name(kind, rank).removesuffix("jsonl") + "torn"


def metrics_name(rank: int) -> str:
    """The file that holds the rows of process *rank*."""
    return lines_name(METRICS, rank)


def torn_name(rank: int) -> str:
    """The file that keeps fragments cut off the end of `metrics_name(rank)`."""
    return torn_lines_name(METRICS, rank)


def is_url(place: Any) -> bool:
    """Whether *place* is an fsspec URL, as opposed to a path of this machine."""
    return isinstance(place, str) and "://" in place


def absolute(directory: str | os.PathLike[str]) -> Path:
    """Return *directory* as an absolute path, so that a later change of the working directory moves nothing.

    Raises:
        ConfigError: for a URL, and for text that no file system takes.
    """
    text = os.fspath(directory)
    if "://" in text:
        raise ConfigError(
            f"local: the run directory must lie on a mounted file system, got the URL {text!r}; give a path, and copy "
            "the finished run to where it belongs"
        )
    if not text or "\0" in text:
        raise ConfigError(f"local: {text!r} is no path of a directory; give a path such as 'runs'")
    return Path(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH100, PTH111 - resolve() would follow links


def safe_name(name: Any) -> str:
    """Return a file name for *name*: itself where it is harmless, else a readable form of it and a hash.

    Letters and digits of any script and `._-+@,` stay; whatever else becomes `_`. Equal names give equal results and
    different names different ones. The result has at most 120 bytes, no leading dot and no separator.
    """
    text = str(name)
    kept = "".join(c if c.isalnum() or c in _PLAIN else "_" for c in text[:_MAX_BYTES]).lstrip(".")
    if kept == text and kept and len(kept.encode()) <= _MAX_BYTES:
        return kept
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    stem, suffix = os.path.splitext(kept)  # noqa: PTH122 - a name, not a path
    if len(suffix) > _MAX_SUFFIX or not suffix[1:].isalnum() or len(text) > _MAX_BYTES:
        stem, suffix = kept, ""
    room = _MAX_BYTES - len(suffix.encode()) - len(digest) - 1
    stem = stem.encode()[:room].decode("utf-8", "ignore").strip("._") or "unnamed"
    return f"{stem}-{digest}{suffix}"
