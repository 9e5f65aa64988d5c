"""Saying something once.

Advice that the caller can act on goes through `warnings` with the caller's line; what merely happened (a backend
that failed) goes to the `trackway` logger. Both pass here so that a message per key is said once in a process and
the memory for "already said" is bounded.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import defaultdict
from collections.abc import Hashable

from trackway._locks import new_lock
from trackway.errors import TrackwayWarning

__all__ = ["forget_said", "log_once", "logger", "warn_once"]

logger = logging.getLogger("trackway")

_PACKAGE = __name__.partition(".")[0]
_MAX_SAID = 10_000  # of one kind, so that many names of metrics leave room for everything else
_said: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
_lock = new_lock()


def _first_time(key: Hashable) -> bool:
    with _lock:
        said = _said[key[0] if isinstance(key, tuple) else key]
        if key in said or len(said) >= _MAX_SAID:
            return False
        said.add(key)
        return True


def _caller_depth() -> int:
    """Number of frames between `warnings.warn` in this module and the first frame outside the package."""
    depth = 1
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to walk the stack cheaply
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
        depth += 1
    return depth


def warn_once(key: Hashable, message: str, line: str = "") -> bool:
    """Issue a `TrackwayWarning` the first time *key* is seen; return whether it did.

    It blames *line*, a `file:number`, or the caller's line.
    """
    if not _first_time(key):
        return False
    file, _, number = line.rpartition(":")
    if file and number.isdecimal():
        warnings.warn_explicit(message, TrackwayWarning, file, int(number))
    else:
        warnings.warn(message, TrackwayWarning, stacklevel=_caller_depth())
    return True


def log_once(key: Hashable, message: str, error: BaseException | None = None) -> bool:
    """Write *message* to the `trackway` logger at WARNING, the first time *key* is seen; return whether it did."""
    if not _first_time(key):
        return False
    logger.warning("%s", message)
    if error is not None:
        logger.debug("traceback of the above", exc_info=error)
    return True


def forget_said() -> None:
    """Forget what was said, so that a test sees every message afresh."""
    with _lock:
        _said.clear()
