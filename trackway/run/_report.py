"""What became of a run's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from trackway.tracker import Report

__all__ = ["RunReport"]


@final
@dataclass(frozen=True)
class RunReport:
    """Counts of a run and of everything that its rows were handed to, at one moment.

    Attributes:
        run_id: The run's id.
        state: `running`, `finished`, `failed`, `interrupted` or `preempted`.
        rows: Rows committed by this process.
        late: Rows dropped because their step lay behind.
        pending: Rows that wait for values on a device.
        run: What the run itself converted, dropped or failed at.
        store: What became of the rows in the run directory; None for a run without one.
        trackers: The same for each backend.
        events: What became of the events that hooks and files were told; None where there were none.
        alerts: What became of alerts; None for a run without rules.
    """

    run_id: str
    state: str
    rows: int
    late: int
    pending: int
    run: Report
    store: Report | None
    trackers: tuple[Report, ...]
    events: Report | None = None
    alerts: Report | None = None

    def __str__(self) -> str:
        late = f", {self.late} late ones dropped" if self.late else ""
        pending = f", {self.pending} pending" if self.pending else ""
        parts = [report for report in (self.run, self.store, *self.trackers) if report is not None]
        parts += [report for report in (self.events, self.alerts) if report is not None]
        quiet = (self.run, self.events)
        lines = [str(report) for report in parts if report not in quiet or report.dropped or report.failed]
        return "\n  ".join([f"run {self.run_id}, {self.state}: {self.rows} rows{late}{pending}", *lines])
