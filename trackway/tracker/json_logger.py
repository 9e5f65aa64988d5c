"""The classes of `trackway.backends.json_logger` under the path at which other libraries keep theirs."""

from __future__ import annotations

from trackway._lazy import lazily

_HOME = "trackway.backends.json_logger"

__getattr__ = lazily(__name__, {"JsonLoggerTracker": _HOME, "JsonLoggerConfig": _HOME})
