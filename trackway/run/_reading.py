"""What a run says about itself: its rows so far, their summary, what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trackway.errors import LifecycleError
from trackway.run._core import Core
from trackway.run._happenings import Happenings
from trackway.run._notebook import picture_of_run
from trackway.run._report import RunReport
from trackway.store import LocalTracker
from trackway.store._query import make_query
from trackway.tracker import CompositeTracker, ForwardingTracker, Ledger
from trackway.tracker._fifo import Fifo

if TYPE_CHECKING:
    from trackway.alerts import Alerts

__all__ = ["ReadableRun"]


class ReadableRun(ForwardingTracker):
    """The part of `Run` that reads."""

    run_id: str
    store: LocalTracker | None
    backends: CompositeTracker
    _state: str
    _core: Core
    _fifo: Fifo
    _ledger: Ledger
    _happenings: Happenings
    _alarms: Alerts | None

    def _drain(self) -> None:
        """Wait for the values that are on a device."""
        raise NotImplementedError

    _repr_html_ = picture_of_run

    def _read_summary(self) -> dict[str, Any]:
        self._drain()
        return self._core.summary()

    def history(
        self,
        n: int | None = 50,
        *,
        step_range: tuple[int | None, int | None] | None = None,
        metrics: str | Iterable[str] | None = None,
        output: str = "rows",
        include_open: bool = True,
        include_meta: bool = True,
        fill_missing: bool = False,
        dropna: bool = False,
        ranks: str = "primary",
    ) -> Any:
        """Return the rows so far: one for each step, in the order of the steps.

        As `trackway.store.read_history`, which has the same arguments, does for a run that has ended. Values still on
        a device are waited for; trackers that are behind are not.

        Args:
            n: How many rows: those of the steps that were written to last. None and -1 mean all, 0 none.
            step_range: The first step, and the one after the last; None leaves an end open.
            metrics: Names of metrics, or globs such as `train/*`.
            output: "rows", "numpy", "pandas", "polars" or "arrow".
            include_open: Whether the row that is not committed yet is among them.
            include_meta: Whether rows have `_step`, `_time` and `_attempt`.
            fill_missing: Give every row all names, None where it had none.
            dropna: Leave out rows that lack one of the names, or in which it is None or NaN.
            ranks: "primary" for the rows of this process; "all" for those of all.

        Raises:
            LifecycleError: if the run keeps no run directory.
            ValueError: if an argument is none of those allowed.
            ConfigError: if the library for *output* is not installed.
            OSError: if the file cannot be read.
        """
        query = make_query(
            n,
            step_range=step_range,
            metrics=metrics,
            output=output,
            include_meta=include_meta,
            fill_missing=fill_missing,
            dropna=dropna,
            ranks=ranks,
        )
        if self.store is None:
            raise LifecycleError(
                f"run {self.run_id} keeps no rows that could be read: it was started without a run directory; leave "
                "`store=False` out to have one"
            )
        self._drain()
        row = self._core.open_row() if include_open else None
        return self.store.history(query, None if row is None else {"_step": row.step, "_time": row.time, **row.values})

    def report(self) -> RunReport:
        """Return what became of the rows so far."""
        self._core.settle()
        return RunReport(
            self.run_id,
            self._state,
            self._core.committed,
            self._core.late,
            len(self._fifo),
            self._ledger.report(),
            None if self.store is None else self.store.report(),
            self.backends.reports(),
            self._happenings.report(),
            None if self._alarms is None else self._alarms.report(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint has to keep so that `start(resume_state=...)` goes on from here.

        A mapping of text and integers: the run's id, and the step that comes next. The open row counts as done: call
        `flush(commit_open=True)` before, so that it is on the disk when the checkpoint is.
        """
        self._drain()
        return {"run_id": self.run_id, "next_step": self._core.next_step}
