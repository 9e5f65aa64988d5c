"""The tracker that keeps a run on disk."""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.errors import ConfigError, RunBusyError, TrackerFinishError
from trackway.store._at_exit import let_go, open_trackers
from trackway.store._journals import Journals
from trackway.store._layout import absolute, is_url, metrics_name, torn_name
from trackway.store._lease import Lock, claim
from trackway.store._media import MediaFolder
from trackway.store._output import TICK, Output
from trackway.store._query import Query
from trackway.store._record_tracker import RecordTracker
from trackway.store._records import Records
from trackway.store._ticker import Ticker
from trackway.store._writer import LineWriter
from trackway.tracker import Call, Ledger, Lifecycle, Report, check_step, process_rank
from trackway.tracker._backlog import Place
from trackway.tracker._callbacks import wait_for_callbacks
from trackway.tracker._row_time import begun_at
from trackway.tracker._states import Preempted
from trackway.tracker._steps import MAX_STEP
from trackway.values import Row, encode, normalise, resolve

if TYPE_CHECKING:
    from trackway.store._remote_store import RemoteStore

__all__ = ["LocalTracker"]

_CURE = "; training goes on"


@final
class LocalTracker(RecordTracker):
    """Keeps a run in a directory: rows, summary, hyper-parameters, media, artifacts, events and spans.

    Each `log` is one line of `metrics.jsonl`, in the file when the call returns: a killed process loses no row. Rows
    of a `Run` may wait for a fifth of a second. Within a second a row is on the disk itself, and in `summary.json`.
    Where the disk is full or gone, training goes on: up to 64 MiB or 100,000 rows wait in memory.

    An existing directory is continued: nothing in it is overwritten, the step counter goes on after its last row. A
    process of rank 1 and above writes its rows to `metrics.rank<N>.jsonl` and ignores summary, hyper-parameters and
    artifacts, which are the primary process's to keep. So does a second tracker on a directory that another one has
    open, which says so and counts what it leaves out.

    A line whose step is not above those before it in its attempt has `"_patch": true`, one of a later attempt
    `"_attempt": <number>`. A row logged by a signal handler while another is being written follows it.
    No call but the constructor and `finish` raises for what the disk does; `report` counts it. Thread-safe. In a child
    made by fork every method does nothing and is counted.

    Attributes:
        directory: The run directory, absolute.
        run_id: The run's id.
        rank: This process's rank.
    """

    name: str = "local"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        run_id: str | None = None,
        strict_json: bool = False,
        rank: int | None = None,
        sync_interval: float = 1.0,
        exclusive: bool = False,
        upload_interval: float = 10.0,
    ) -> None:
        """Open *directory*, and make it where it does not exist.

        Args:
            directory: The directory of this one run. Relative paths are taken from the present working directory. An
                fsspec URL is an object store: the run is written to a directory of this machine and brought there.
            run_id: The id noted in `run.json`; None takes the directory's name. A run that exists keeps its own.
            strict_json: Write NaN and infinities as null, and what they were beside it, for parsers that refuse them.
            rank: The process's rank; None finds it out, see `trackway.tracker.process_rank`.
            sync_interval: Seconds between two waits for the disk, on a thread of their own.
            exclusive: Refuse a directory that another tracker, process or host writes to; at a URL always. Where only
                the heartbeat in `run.json` can tell whether a process of another host lives, that takes 35 seconds.
            upload_interval: Seconds after which what is new is brought to an object store.

        Raises:
            RunBusyError: if *exclusive*, or at a URL, and someone else writes to the directory.
            ConfigError: if the directory cannot be made or written to, or was written by a later version.
        """
        self.rank: int = process_rank() if rank is None else rank
        url = os.fspath(directory) if is_url(directory) else None
        self._remote = _remote_store(url, self.rank, upload_interval) if url else None
        self.directory: Path = absolute(directory) if self._remote is None else self._remote.spool
        self._strict = strict_json
        self._encode: Callable[[dict[str, Any]], bytes] = partial(encode, strict=True) if strict_json else encode
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._lock = new_lock()
        self._error: BaseException | None = None
        self._shut = False
        self._media = MediaFolder(self.directory, self.rank, self._ledger)
        self._rows = LineWriter(self.directory / metrics_name(self.rank), self.directory / torn_name(self.rank))
        self._output = Output(
            self._lock, self._rows, self._ledger, media=self._media, encode=self._encode, interval=sync_interval
        )
        name = run_id if run_id or self._remote is None else self._remote.name
        self._records = self._output.records = self._open(name, sync_interval, exclusive=exclusive)
        self.run_id: str = self._records.run_id if self._records else name or self.directory.name
        self._rows.said.tell()
        open_trackers.add(self)
        self._ticker = Ticker(self._output.tick, min(sync_interval, TICK), "trackway-local")
        self._ticker.start()
        if self._remote is not None:
            self._remote.start(self._ledger)
        self._dropped = weakref.finalize(self, let_go, self._output, self._ticker, self._life, self._remote)
        self._dropped.atexit = False  # see keep_all
        _notices.logger.info("local: run %s is kept in %s", self.run_id, self.directory)
        if self._records is not None and self._records.had_finished:
            told = "local: run %s had finished and is continued, attempt %d; a new run needs a new id"
            _notices.logger.warning(told, self.run_id, self._records.attempt)

    def _open(self, run_id: str | None, interval: float, *, exclusive: bool) -> Records | None:
        try:
            return self._opened(run_id, interval, self._claim if exclusive or self._remote is not None else None)
        except OSError as error:
            self._let_go()
            raise ConfigError(
                f"local: the run directory {self.directory} cannot be written: {error.strerror or error}; give "
                "another `dir`, or set TRACKWAY_DIR"
            ) from error
        except (ConfigError, RunBusyError):
            self._let_go()
            raise

    def _let_go(self) -> None:
        self._rows.close()
        if self._remote is not None:
            self._remote.abandon()

    def _claim(self, lock: Lock) -> None:
        if self._remote is not None:
            return self._remote.check(lock)
        return claim(self.directory, lock, primary=not self.rank)

    def _opened(self, run_id: str | None, interval: float, claim: Callable[[Lock], None] | None) -> Records | None:
        tail = self._rows.open(claim)
        following = 1 if tail.last is None else tail.attempt + 1
        self._output.follow(tail)
        self._output.attempt = tail.attempt if self._rows.shared else following
        if not self._rows.shared:
            self._output.rewind()  # steps of an attempt rise from its own first one on
            self._output.keep_index(self.directory / metrics_name(self.rank))
            self._output.journals = Journals(self.directory, self.rank, self._ledger, self._encode)
            self._put_span = self._output.journals.put_span
        if self.rank or self._rows.shared:
            return None
        records = Records(
            self.directory,
            run_id,
            self._ledger,
            self._lock,
            self._rows.end,
            attempt=following,
            interval=interval,
            strict=self._strict,
        )
        self._output.attempt = records.attempt
        self._media.keep_only(records.explicit_summary)
        records.restore(self.directory / metrics_name(0))
        records.start()
        return records

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:  # noqa: ARG002 - one call, one line
        """Write one row; *step* None takes the last step + 1, *commit* is ignored: each call is a line of its own.

        Raises:
            StepError: if *step* is not an integer.
            TypeError: if *metrics* is not a mapping.
        """
        if self._shut and not self._life.accepts("log"):
            return
        number = check_step(step)
        row = normalise(metrics)
        if row.pending:
            row = resolve(row)
        if row.downgrades:
            self._ledger.count_downgrades(row)
        if row.has_media:
            row = self._media.store(row, self._output.next_step if number is None else number)
        body = self._encode(row)
        rest = b"," + body[1:] + b"\n" if row else b"}\n"
        with self._lock:
            self._output.put(number, rest, row)
        if self._output.refused:
            self._count_refused()
        if self._rows.said.waiting:
            self._rows.said.tell()

    def take_rows(self, calls: deque[Call]) -> None:
        """Make calls of `log` that come together, each as `log` does, and have their rows written with one call.

        They are taken off *calls*, from the left on. The first one that brings more than numbers or has no step left,
        and all after it, remain.
        """
        if self._shut:
            return
        output = self._output
        with self._lock:
            while True:
                following = output.next_step
                made, rows = self._plain_rows(calls, following)
                if not rows or output.take_all(rows, following=following):
                    break
            for _ in range(made):
                calls.popleft()
            output.write_batch()
        self.tell()

    def _plain_rows(self, calls: deque[Call], following: int) -> tuple[int, list[tuple[int, float, Row]]]:
        """Return how many of *calls* are rows of numbers, and those still to be taken; steps are *following* and on."""
        latest, begun = self._output.latest, begun_at()
        rows: list[tuple[int, float, Row]] = []
        made, number = 0, following
        for call in calls:
            row, step = call.payload, call.kwargs.get("step")
            if not row or not row.flat or row.downgrades or call.method != "log" or call.pending:
                break
            number = number if step is None else step
            if number > MAX_STEP:
                break
            made += 1
            if row is latest:  # Ctrl+C came before those up to this one were taken off
                rows, number = [], following
                continue
            rows.append((number, begun, row))
            number += 1
        return made, rows

    @property
    def append(self) -> Callable[[int, float, Row], bool]:
        """Takes a committed row of a `Run`: step, time in seconds since 1970, values, which are on the host.

        The caller holds `lock`; where this returns True it calls `tell` afterwards.
        """
        return self._output.append

    @property
    def latest(self) -> Row | None:
        """The row that `append` has taken last, as it was given."""
        return self._output.latest

    def place(self, step: int, time: float) -> Place:
        """Return where the row will stand that is appended next; the caller holds `lock`."""
        return Place(self._rows.offset, step, time, self._output.attempt)

    def write_rows(self) -> bool:
        """Have the rows that were taken in the file; return whether some still wait, because it takes none."""
        return self._output.write_now()

    @property
    def lock(self) -> threading.RLock:
        """The re-entrant lock under which rows are written."""
        return self._lock

    def tell(self) -> None:
        """Tell on the `trackway` logger what happened to the file; not under `lock`."""
        if self._output.refused:
            self._count_refused()
        if self._rows.said.waiting:
            self._rows.said.tell()

    def rewind(self, step: int) -> None:  # noqa: ARG002 - the first row of the attempt says where it begins
        """Begin a new attempt with the next row: rows of earlier ones from its step on are superseded when read."""
        if self._life.accepts("rewind"):
            with self._lock:
                self._output.rewind()

    @property
    def keeps_records(self) -> bool:
        """Whether summary, hyper-parameters and artifacts are its own to keep."""
        return self._records is not None

    @property
    def attempt(self) -> int:
        """Number of the attempt; 1 for a run that is new."""
        return self._output.attempt

    @property
    def last_step(self) -> int | None:
        """The highest step of the latest attempt in the directory as it was opened; None for a new run."""
        return self._output.last_step

    def summary(self) -> dict[str, Any]:
        """Return the summary as it stands, empty where it is not this tracker's to keep."""
        if self._records is None:
            return {}
        with self._lock:
            self._output.write_batch()
            return self._records.summary()

    def _count_refused(self) -> None:
        """Count rows that came while the tracker was being finished."""
        with self._lock:
            refused, self._output.refused = self._output.refused, 0
        for _ in range(refused):
            self._life.accepts("log")

    def history(self, query: Query, open_row: Mapping[str, Any] | None = None) -> Any:
        """Return what `read_history` will say of the rows so far, and of *open_row*, which is still open."""
        from trackway.store._history import history_of

        path = self.directory / metrics_name(self.rank)
        with self._lock:
            self._output.write_batch()
            size, waiting = self._rows.pending()
            known = self._output.known()
            if open_row is not None and self._output.attempt > 1:
                open_row = {**open_row, "_attempt": self._output.attempt}
        others = None if self._remote is None else self._remote.others
        return history_of(path, query, size=size, waiting=waiting, open_row=open_row, index=known, others=others)

    def mark_failed(self, error: BaseException) -> None:
        """Have `finish` note that the run failed, with the error's type and text."""
        if self._life.accepts("mark_failed"):
            self._error = error
            if self._records is not None and isinstance(error, Preempted):  # who is told to end may not come to it
                self._records.mark(error)

    def report(self) -> Report:
        """Return what became of the rows so far."""
        with self._lock:
            self._output.write_batch()
            report = self._ledger.report(pending=self._rows.waiting)
            return dataclasses.replace(report, accepted=self._output.accepted, delivered=self._rows.delivered)

    def flush(self) -> None:
        """Wait until rows, summary, hyper-parameters and run.json are on the disk, as far as it takes them."""
        wait_for_callbacks()
        self.save()

    def save(self) -> None:
        """Do as `flush`, but wait for no compiled function: for the last moment of a process, on any thread."""
        if self._life.accepts("flush"):
            self._output.write_all()
            if self._remote is not None:
                self._remote.ask()

    def finish(self) -> None:
        """Write out everything and close the run: state "finished", or "failed" after `mark_failed`.

        Raises:
            TrackerFinishError: if rows could not be kept, or not be brought to an object store within 30 seconds.
        """
        wait_for_callbacks()
        if not self._life.end():
            return
        self._shut = True
        self._dropped.detach()
        self._ticker.stop()
        self._output.write_rows()
        lost = self._output.close()
        open_trackers.discard(self)
        if self._records is not None:
            self._records.end(self._error)
        self._rows.said.tell()
        reasons = [] if self._remote is None else self._remote.close()
        if lost:
            self._ledger.drop("log", "rows that could not be written", lost)
            told = f"local: {lost} rows of {self._output.accepted} could not be written to {self.directory}"
            reasons.insert(0, OSError(told))
        if reasons:
            raise TrackerFinishError("rows of the run were lost" if lost else "not all of the run was brought", reasons)


def _remote_store(url: str, rank: int, interval: float) -> RemoteStore:
    from trackway.store._remote_store import RemoteStore

    return RemoteStore(url, rank, interval)
