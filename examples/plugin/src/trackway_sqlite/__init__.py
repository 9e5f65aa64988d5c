"""A trackway backend that keeps runs in an SQLite database."""

from __future__ import annotations

from trackway_sqlite.tracker import SqliteTracker

__all__ = ["SqliteTracker"]
