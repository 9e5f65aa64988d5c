"""The classes of `trackway.backends.trackio` under the path at which other libraries keep theirs."""

from __future__ import annotations

from trackway._lazy import lazily

_HOME = "trackway.backends.trackio"

__getattr__ = lazily(__name__, {"TrackioTracker": _HOME, "TrackioConfig": _HOME})
