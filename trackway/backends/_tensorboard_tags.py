"""From metric names to TensorBoard's tags, one to one."""

from __future__ import annotations

import hashlib
from typing import final

from trackway._locks import new_lock
from trackway.tracker import Ledger

__all__ = ["Tags", "valid_text"]

_SUFFIXES = {"text": "/text_summary"}


def valid_text(text: str) -> str:
    """Return *text* with what UTF-8 cannot hold, lone surrogates, escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@final
class Tags:
    """Gives every pair of metric name and kind (scalar, text, histogram, image, audio) a tag of its own. Thread-safe.

    TensorBoard holds one kind of data under a tag, and any text as a tag: names stay as they are, unlike in
    tensorboardX, which replaces most characters. Texts get `/text_summary` added, as tensorboardX does. Where that tag
    belongs to another name or kind already, the kind is added (`loss/histogram`), or a hash where that is taken too.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tags: dict[tuple[str, str], str] = {}
        self._owners: set[str] = set()
        self._lock = new_lock()

    def tag(self, name: str, kind: str) -> str:
        """Return the tag under which values of *kind* of the metric *name* are kept."""
        known = self._tags.get((name, kind))
        if known is not None:
            return known
        with self._lock:
            return self._tags.get((name, kind)) or self._new(name, kind)

    def _new(self, name: str, kind: str) -> str:
        digest = hashlib.sha256(f"{kind}:{name}".encode("utf-8", "backslashreplace")).hexdigest()[:8]
        readable = valid_text(name).replace("\0", "\\x00") or "unnamed"
        stem = readable if readable == name else f"{readable}~{digest}"
        suffix = _SUFFIXES.get(kind, "")
        candidates = (stem + suffix, f"{stem}/{kind}{suffix}", f"{stem}~{digest}{suffix}")
        tag = next((candidate for candidate in candidates if candidate not in self._owners), candidates[-1])
        self._owners.add(tag)
        self._tags[name, kind] = tag
        if tag != name + suffix:
            self._ledger.convert(stem, f"kept under another tag ({kind})")
        return tag
