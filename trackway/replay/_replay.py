"""Delivering a stored run to trackers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from operator import methodcaller

from trackway.errors import ConfigError
from trackway.replay._cursor import CursorFile, NoFile, cursor_file
from trackway.replay._delivery import Delivery
from trackway.replay._plan import planned
from trackway.replay._report import OnProgress, Progress, ReplayError, ReplayReport
from trackway.replay._stored import Stored
from trackway.replay._target import Target, To, targets_of
from trackway.store import StoredRun, read_run

__all__ = ["replay"]

_INTERVAL, _INTERVAL_AWAY = 0.5, 5.0


def _nobody(_progress: Progress) -> None:
    pass


def replay(
    run: str | os.PathLike[str] | StoredRun,
    to: To,
    *,
    follow: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    interval: float = _INTERVAL,
) -> ReplayReport:
    """Deliver a stored run, finished, crashed or being written, to one or several trackers.

    Each gets, in this order: hyper-parameters, rows in the order in which they were committed with their media and,
    by their times, the events among them, `rewind` where an attempt begins; then artifacts, the summary values that
    were set by hand, and how the run ended; and is finished. Rows are read as they are delivered, never all at once.

    How far a target has come is kept in the run directory, in the folder `replay`: a further call delivers what is
    new, or what was left when the earlier one failed or was killed. A target that can tell which rows it has is asked.
    A target fails alone: the others get everything.

    Args:
        run: A run directory, a file of rows, an fsspec URL, or what `read_run` returns.
        to: A tracker config, a mapping or type name as in YAML, a tracker that is started, or several in a list. The
            options that choose and rename metrics are heeded; `background`, `required` and `on_init_error` have no
            meaning here. A started tracker is finished at the end, and gets everything unless it tells what it has.
        follow: Go on, as long as the run is being written, until it has ended.
        dry_run: Start and write nothing; the report says what would be delivered.
        on_progress: Called with a `Progress` about once a second, on this thread.
        interval: Seconds between two looks at a run that is followed; at least five for one at a URL.

    Returns:
        What each target got.

    Raises:
        ReplayError: if a target cannot be started, or fails; `report` says what was delivered.
        ConfigError: if *to* is wrong.
        OSError: if the run cannot be read.
    """
    stored = Stored(run if isinstance(run, StoredRun) else read_run(run))
    targets = _checked(targets_of(to), stored)
    if dry_run:
        plans = tuple(planned(stored, target, _file_of(stored, target)) for target in targets)
        return ReplayReport(stored.run_id, stored.run.state, plans)
    with contextlib.ExitStack() as stack:
        deliveries = []
        for target in targets:
            deliveries.append(Delivery(stored, target, _file_of(stored, target), on_progress or _nobody))
            stack.callback(deliveries[-1].close)
        try:
            _deliver(stored, deliveries, interval if follow else None)
        except BaseException as error:
            for delivery in deliveries:
                delivery.abandon(error)
            raise
    report = ReplayReport(stored.run_id, stored.run.state, tuple(delivery.report() for delivery in deliveries))
    failed = [f"{target.target}: {target.error}" for target in report.targets if target.error]
    if failed:
        raise _failure(report, failed)
    return report


def _checked(targets: list[Target], stored: Stored) -> list[Target]:
    identities = [target.identity for target in targets if target.identity is not None]
    for target in targets:
        target.check(stored.run)
        if target.identity is not None and identities.count(target.identity) > 1:
            raise ConfigError(f"to: {target.name} is there twice, with the same place; name each target once")
    return targets


def _file_of(stored: Stored, target: Target) -> CursorFile | NoFile:
    return NoFile() if target.identity is None else cursor_file(stored.run, target.identity, target.name)


def _deliver(stored: Stored, deliveries: Sequence[Delivery], interval: float | None) -> None:
    """Deliver until nothing is left, or, with an *interval*, until the run has ended."""
    first = True
    for delivery in deliveries:
        _try(delivery, Delivery.begin)
    while True:
        stored.look()  # before the rows: those that were written before the end are then among them
        running = stored.run.state == "running"
        over = interval is None or not running
        advance = methodcaller("advance", config=first or over, ended=not running)
        for delivery in deliveries:
            _try(delivery, advance)
        if interval is None or over or all(delivery.error for delivery in deliveries):
            break
        first = False
        time.sleep(interval if stored.run._remote is None else max(interval, _INTERVAL_AWAY))  # noqa: SLF001
    for delivery in deliveries:
        _try(delivery, Delivery.end)


def _try(delivery: Delivery, action: Callable[[Delivery], None]) -> None:
    """Have one target's failure be its own."""
    if delivery.error:
        return
    try:
        action(delivery)
    except Exception as error:
        delivery.abandon(error)


def _failure(report: ReplayReport, failed: list[str]) -> ReplayError:
    error = ReplayError(f"run {report.run_id}: {'; '.join(failed)}")
    error.report = report
    return error
