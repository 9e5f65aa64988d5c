"""`type: sqlite` in YAML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from trackway.config import TrackerConfig
from trackway.tracker import BackgroundPolicy
from trackway_sqlite.tracker import SqliteTracker


@final
@TrackerConfig.register_subclass("sqlite")
@dataclass
class SqliteConfig(TrackerConfig):
    """Keeps the run in the database *path*, beside other runs.

    Attributes:
        path: The database file; created if there is none.
        background: A busy disk should not hold up training, so this backend is called on a thread of its own.
    """

    path: str = "runs.sqlite"
    background: bool | BackgroundPolicy = field(default=True, kw_only=True)

    def init(self, run_id: str | None) -> SqliteTracker:
        """Open the database."""
        return SqliteTracker(self.path, run_id or "run")
