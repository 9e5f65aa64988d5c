"""Secrets of a run that is started: by which policy they are replaced, and those that were replaced before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from trackway import _notices
from trackway.tracker._verbs import _encoded
from trackway.values import set_redaction
from trackway.values._redact import holds_mark

__all__ = ["redacting", "warn_of_marks"]

_SHOWN = 3


@contextlib.contextmanager
def redacting(policy: Any) -> Iterator[None]:
    """Have *policy*, unless it is None, in force from now on; not if the block raises."""
    if policy is None:
        yield
        return
    before = set_redaction(policy)
    try:
        yield
    except BaseException:
        set_redaction(before)
        raise


def warn_of_marks(config: Any) -> None:
    """Warn of values in a program's configuration that stand in the place of secrets: it was read from a stored run."""
    raw = config if config is None or isinstance(config, Mapping) else _encoded(config)
    names = list(_marked(raw, ""))
    if names:
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        _notices.warn_once(
            ("marks", shown),
            f"the configuration has marks in the place of secrets ({shown}), as stored configurations do; give the "
            "real values again, for example on the command line",
        )


def _marked(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _marked(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _marked(item, f"{path}[{number}]")
    elif isinstance(value, str) and holds_mark(value):
        yield path
