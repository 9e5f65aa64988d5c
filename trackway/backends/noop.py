"""`type: noop`: nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from trackway.config import TrackerConfig
from trackway.tracker import NoopTracker

__all__ = ["NoopConfig", "NoopTracker"]


@final
@TrackerConfig.register_subclass("noop")
@dataclass
class NoopConfig(TrackerConfig):
    """A tracker that accepts everything and keeps nothing."""

    def init(self, run_id: str | None) -> NoopTracker:  # noqa: ARG002 - the interface of all configs
        """Return the tracker; *run_id* is of no use to it."""
        return NoopTracker()
