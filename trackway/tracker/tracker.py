"""The classes of `trackway.tracker` under the path at which other libraries keep theirs."""

from __future__ import annotations

from trackway._lazy import lazily
from trackway.tracker._composite import CompositeTracker
from trackway.tracker._interface import Tracker
from trackway.tracker._noop import NoopTracker

__all__ = ["CompositeTracker", "NoopTracker", "Tracker"]

__getattr__ = lazily(__name__, {"NoopConfig": "trackway.backends.noop", "TrackerConfig": "trackway.config"})
