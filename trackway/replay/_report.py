"""What became of a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

from trackway.errors import TrackwayError
from trackway.tracker import Report

__all__ = ["OnProgress", "Progress", "ReplayError", "ReplayReport", "TargetReport"]


class Progress(NamedTuple):
    """How far the delivery to one target is.

    Attributes:
        run_id: The run's id.
        target: The target's name.
        done: Bytes of the file of rows that are dealt with.
        total: Bytes that the file has.
        rows: Rows delivered so far.
    """

    run_id: str
    target: str
    done: int
    total: int
    rows: int


OnProgress: TypeAlias = Callable[[Progress], object]


@final
@dataclass(frozen=True)
class TargetReport:
    """What one target got.

    Attributes:
        target: Its name.
        rows: Rows delivered; of a dry run, that would be.
        events: Events delivered.
        artifacts: Artifacts delivered.
        skipped: Rows that it had before, or is not to see because of its options.
        failed: Rows, events and artifacts that it refused; they are not tried again.
        complete: Whether it has everything that the run has by now.
        error: Why it has not; empty where it has.
        tracker: The counts of the tracker itself, with what it converted or dropped; None where it counts nothing.
    """

    target: str
    rows: int = 0
    events: int = 0
    artifacts: int = 0
    skipped: int = 0
    failed: int = 0
    complete: bool = False
    error: str = ""
    tracker: Report | None = None


@final
@dataclass(frozen=True)
class ReplayReport:
    """What all targets got of one run; the numbers are sums over the targets.

    Attributes:
        run_id: The run's id.
        state: The run's state at the end.
        targets: What each target got, in the order in which they were given.
    """

    run_id: str
    state: str
    targets: tuple[TargetReport, ...]

    @property
    def rows(self) -> int:
        """Rows delivered."""
        return sum(target.rows for target in self.targets)

    @property
    def events(self) -> int:
        """Events delivered."""
        return sum(target.events for target in self.targets)

    @property
    def artifacts(self) -> int:
        """Artifacts delivered."""
        return sum(target.artifacts for target in self.targets)

    @property
    def skipped(self) -> int:
        """Rows that targets had before, or are not to see."""
        return sum(target.skipped for target in self.targets)

    @property
    def failed(self) -> int:
        """Rows, events and artifacts that targets refused."""
        return sum(target.failed for target in self.targets)

    @property
    def complete(self) -> bool:
        """Whether all targets have everything."""
        return all(target.complete for target in self.targets)


@final
class ReplayError(TrackwayError):
    """A run could not be delivered, or not as a whole; replaying it again goes on where it ended.

    Attributes:
        report: What was delivered; None where nothing was begun.
    """

    report: ReplayReport | None = None
