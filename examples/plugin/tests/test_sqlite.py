"""The backend passes everything that a tracker of trackway has to pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trackway_sqlite.tracker import SqliteTracker, read_metrics

from trackway.testing import TrackerConformance
from trackway.tracker import Tracker


class TestSqliteTracker(TrackerConformance):
    """Run by pytest with all the tests that the class brings."""

    def make(self, folder: Path) -> SqliteTracker:
        """Return a tracker with a database in *folder*."""
        folder.mkdir(parents=True, exist_ok=True)
        return SqliteTracker(folder / "runs.sqlite", "run")

    def read(self, tracker: Tracker, folder: Path) -> Sequence[tuple[int, dict[str, Any]]]:  # noqa: ARG002
        """Return what the database holds."""
        return read_metrics(folder / "runs.sqlite", "run")


def test_text_comes_back(tmp_path: Path) -> None:
    """Values that are not numbers come back as they were logged."""
    with SqliteTracker(tmp_path / "runs.sqlite", "run") as tracker:
        tracker.log({"note": "warm-up", "shape": [2, 3]}, step=0)
    assert read_metrics(tmp_path / "runs.sqlite", "run") == [(0, {"note": "warm-up", "shape": [2, 3]})]
