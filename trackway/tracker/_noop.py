"""The tracker that keeps nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from trackway.tracker._interface import ArtifactPath, Tracker

__all__ = ["NoopTracker"]


@final
class NoopTracker(Tracker):
    """Accepts everything and keeps nothing.

    It stands in for a backend that is disabled, or that only the primary process uses: it then bears that backend's
    *name*, so that `get_tracker("wandb")` works everywhere. It looks at no value, so it cannot fail. Thread-safe.
    """

    name: str = "noop"
    takes_pending: ClassVar[bool] = True

    def __init__(self, name: str = "noop") -> None:
        self.name = name

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Do nothing."""

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:
        """Do nothing."""

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Do nothing."""

    def log_artifact(self, artifact_path: ArtifactPath, *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""
