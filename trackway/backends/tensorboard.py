"""`type: tensorboard`: event files for TensorBoard, written by way of tensorboardX."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from trackway._locks import new_lock
from trackway.backends._tensorboard_artifacts import Artifacts
from trackway.backends._tensorboard_hparams import HyperParameters
from trackway.backends._tensorboard_summaries import Summaries
from trackway.backends._tensorboard_writer import flush_secs_of, open_writer, restart, take_over
from trackway.config import TrackerConfig, missing_extra, run_context
from trackway.errors import ConfigError, StepError
from trackway.tracker import BackgroundPolicy, Ledger, Lifecycle, Report, StepCounter, Tracker, check_step
from trackway.tracker._interface import ArtifactPath
from trackway.tracker._row_time import begun_at
from trackway.values import normalise, resolve

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

    from trackway.backends._tensorboard_events import EventWriter

__all__ = ["TensorboardConfig", "TensorboardTracker"]


@final
class TensorboardTracker(Tracker):
    """Writes one event file, in which TensorBoard finds everything that was logged under the names it was logged by.

    * Numbers are scalars, float32 on disk: integers beyond 2**24 are rounded, what is out of range becomes ±inf; NaN
      and ±inf are kept; bools become 1 and 0. None is left out.
    * `Histogram`, `Image` and `Audio` are what they are. Non-finite counts of a histogram are scalars `<name>/nan`,
      `<name>/posinf`, `<name>/neginf`; captions are texts `<name>/caption`.
    * Texts, tables (Markdown), HTML (its source), lists and larger arrays (JSON) are texts, at `<name>/text_summary`.
    * Nested mappings are joined with `/`.
    * Hyper-parameters are the columns of the HParams view, with the last value of every scalar beside them, and as a
      whole the text `config`. TensorBoard reads the columns of a run once: they are written with the first row, flush
      or finish, and what is logged later is in the text only, which is renewed every `flush_secs`.
    * `log_summary` makes scalars (or texts) `summary/<name>` at the latest step.
    * What an event brings is `<event>/<key>`, at its step.
    * Artifacts are copied to the folder `artifacts` beside the event file.

    What was converted or left out is counted in `report()`. A call returns when the event is in memory; it is with the
    operating system after `max_queue` events or a second, and counted as delivered then, on the disk after `flush_secs`
    or `flush()`. To an object store it is uploaded after `flush_secs`, at `flush()`, or after 8 MiB. Failed writes are
    tried again, and meanwhile up to 64 MiB wait in memory. A file that is deleted is followed by a new one.
    Thread-safe.

    Attributes:
        writer: The `tensorboardX.SummaryWriter`, for everything that only TensorBoard has.
    """

    name: str = "tensorboard"

    def __init__(self, writer: SummaryWriter, *, first_step: int = 0) -> None:
        """Write through *writer*.

        Args:
            writer: A tensorboardX writer; its queue and thread are replaced by a writer that cannot hang.
            first_step: The step of the first row that comes without one.
        """
        self.writer = writer
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._steps = StepCounter(first_step)
        self._event_steps: defaultdict[str, StepCounter] = defaultdict(StepCounter)
        self._last_step = first_step
        self._summaries = Summaries(self._ledger)
        run_name = os.path.basename(str(writer.logdir).rstrip("/"))  # noqa: PTH119 - may be a URL
        self._hparams = HyperParameters(run_name, self._ledger, flush_secs_of(writer))
        self._artifacts = Artifacts(str(writer.logdir), self._skipped)
        self._failed = False
        self._lock = new_lock()
        self._events: EventWriter | None = None
        self._open()

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Show *hparams* in the HParams view and, merged with earlier ones, as the text `config`.

        Those logged after the first row, flush or finish are in the text only, and counted as converted.
        """
        if self._life.accepts("log_hyperparameters"):
            self._hparams.update(resolve(normalise(hparams, reserved=False)))
            self._open()  # its thread, flush and end write them

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:  # noqa: ARG002
        """Write one event with all of *metrics*; *commit* has no meaning here.

        Raises:
            StepError: if *step* is not an integer.
        """
        if not self._life.accepts("log"):
            return
        number = self._steps.take(step)
        row = resolve(normalise(metrics))
        self._ledger.accept()
        self._last_step = max(number, self._last_step)
        self._begin()
        data = self._summaries.event(row, number, begun_at())
        if data is None:
            self._add(self._summaries.values(row), number, rows=1)
        else:
            self._put(data, rows=1)

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Write *metrics* as `summary/<name>` at the latest step; the last value of a name is the one that counts."""
        if self._life.accepts("log_summary"):
            row = resolve(normalise(metrics, reserved=False))
            self._add(self._summaries.values(row, "summary/"), self._last_step)

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Write the values of *payload* as `<event>/<key>`; without any, the text `<event>`.

        Without a step, the event has a count of its own: the first of its name is at 0.

        Raises:
            StepError: if *step* is not an integer.
        """
        number = check_step(step)
        if self._life.accepts("log_event"):
            row = resolve(normalise(payload, reserved=False))
            at = self._event_steps[str(event)].take(None) if number is None else number
            self._add(self._summaries.values(row, f"{event}/") or list(self._summaries.text(str(event), "")), at)

    def log_artifact(self, artifact_path: ArtifactPath, *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002, ARG002
        """Copy a file, folder or object to `artifacts/<name>` beside the event file; takes as long as the copying does.

        Links are followed; what is missing or cannot be copied is counted and said, not raised.
        """
        if not self._life.accepts("log_artifact") or self._events is None:
            return
        try:
            self._artifacts.keep(os.fsdecode(artifact_path), None if name is None else str(name))
        except FileNotFoundError:
            self._ledger.drop(f"artifact {artifact_path!r}", "no such file or folder")
        except Exception as error:  # object stores raise anything
            self._ledger.fail("log_artifact", error, "; the artifact is not kept")

    def rewind(self, step: int) -> None:
        """Have TensorBoard hide the points from *step* on, which later ones take the place of; nothing is deleted.

        Raises:
            StepError: if *step* is not an integer.
        """
        number = check_step(step)
        if number is None:
            raise StepError("tensorboard: rewind takes the step from which on points are to be hidden, got None")
        if self._life.accepts("rewind"):
            self._append({"session_log": restart()}, number)
            self._steps, self._last_step = StepCounter(number), number
            self._hparams.renew(start=number <= 0)  # they may be among what is hidden; the session start is at step 0

    def mark_failed(self, error: BaseException) -> None:  # noqa: ARG002
        """Have the HParams view say that the run failed."""
        self._failed = True

    def flush(self) -> None:
        """Bring everything logged so far to the disk or object store.

        Raises:
            OSError: or what else the file system raised, if that failed; writing is tried again later.
        """
        if self._life.accepts("flush"):
            self._hold_back_no_more()
            self.writer.flush()
            self._raise_trouble()

    def finish(self) -> None:
        """Say how the run ended, write everything out and close the writer; its thread ends.

        Raises:
            OSError: or what else the file system raised, if events could not be written.
        """
        if not self._life.end():
            return
        self._hold_back_no_more()
        if self._hparams.started:
            self._add([self._hparams.end(failed=self._failed)], None)
        self.writer.close()
        self._raise_trouble()

    def report(self) -> Report:
        """Return what became of everything logged so far."""
        return self._ledger.report(pending=self._events.waiting_rows if self._events is not None else 0)

    def _add(self, values: list[Any], step: int | None, *, rows: int = 0, lasting: bool = False) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        if values:
            self._append({"summary": Summary(value=values)}, step, rows=rows, lasting=lasting)
        else:
            self._ledger.deliver(rows)

    def _append(self, content: dict[str, Any], step: int | None, *, rows: int = 0, lasting: bool = False) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._put(Event(wall_time=begun_at(), step=step, **content).SerializeToString(), rows=rows, lasting=lasting)

    def _put(self, data: bytes, *, rows: int = 0, lasting: bool = False) -> None:
        try:
            events = self._open()
        except OSError as error:
            self._ledger.fail("write", error, "; make the folder writable")
            self._ledger.drop("events", "the event file cannot be opened again")
            return
        if events is None:  # nowhere to write
            self._ledger.deliver(rows)
            return
        events.append(data, rows=rows, lasting=lasting)

    def _open(self) -> EventWriter | None:
        """Return what takes the events, also where the user closed the writer or closed it and went on with it."""
        file_writer = self.writer.file_writer
        if self._events is None or file_writer is None or file_writer.event_writer is not self._events:
            with self._lock:
                self._events = take_over(self.writer)
                if self._events is not None:
                    self._events.ledger = self._ledger
                    self._events.upkeep = self._upkeep
        return self._events

    def _begin(self) -> None:
        start = self._hparams.take_start()
        if start is not None:
            self._add([start], None, lasting=True)

    def _upkeep(self, everything: bool) -> None:
        if everything:
            self._begin()
        text = self._hparams.take_text(now=everything)
        if text is not None:
            self._add(list(self._summaries.text("config", text)), self._last_step)

    def _hold_back_no_more(self) -> None:
        self._upkeep(everything=True)
        if self.writer.file_writer is not None:
            self._open()

    def _skipped(self, path: str, reason: str) -> None:
        self._ledger.drop(path, f"artifact: {reason.partition(': ')[0]}")

    def _raise_trouble(self) -> None:
        if self._events is not None and self._events.trouble is not None:
            raise self._events.trouble


@final
@TrackerConfig.register_subclass("tensorboard")
@dataclass
class TensorboardConfig(TrackerConfig):
    """Writes event files to `<logdir>/<run id><comment>`.

    Attributes:
        logdir: A local folder or any fsspec URL (`s3://...`, `gs://...`, `memory://...`).
        comment: Put behind the run id in the name of the run's folder.
        purge_step: TensorBoard hides earlier points of the run from this step on. None: nothing, unless the run is
            resumed, and then those from the step on at which it goes on.
        max_queue: Events after which they are handed to the operating system. None is 10.
        flush_secs: Seconds after which events are brought to the disk, or uploaded. None is 120.
        filename_suffix: Put behind the event file's name; something unique follows in any case.
        write_to_disk: False writes nothing.
        background: Called on a thread of its own, so that it cannot hold training up.
    """

    logdir: str = "tblogs"
    comment: str | None = ""
    purge_step: int | None = None
    max_queue: int | None = 10
    flush_secs: int | None = 120
    filename_suffix: str | None = ""
    write_to_disk: bool | None = True
    background: bool | BackgroundPolicy = field(default=True, kw_only=True)

    def init(self, run_id: str | None) -> TensorboardTracker:
        """Return a tracker writing to `<logdir>/<run_id><comment>`; without either, to `logdir` itself.

        Raises:
            ConfigError: if tensorboardX or what the URL needs is not installed, or the URL means nothing to fsspec.
            OSError: if the folder cannot be written to.
        """
        try:
            import tensorboardX  # noqa: F401 - only to see whether it is there
        except ImportError as error:
            raise missing_extra("tensorboardX", "tensorboard", error) from error
        context = run_context()
        purge_step = self.purge_step
        if purge_step is None and context is not None and context.resumed:
            purge_step = context.next_step
        folder = f"{run_id or ''}{self.comment or ''}"
        try:
            writer = open_writer(
                f"{self.logdir.rstrip('/')}/{folder}" if folder else self.logdir,
                purge_step=purge_step,
                max_queue=self.max_queue,
                flush_secs=self.flush_secs,
                filename_suffix=self.filename_suffix or "",
                write_to_disk=self.write_to_disk is not False,
            )
        except (ImportError, ValueError) as error:  # what fsspec has to say of a URL
            raise ConfigError(
                f"tensorboard.logdir: {self.logdir!r} cannot be used: {error}; "
                "a local folder, or the URL of a file system that fsspec knows, is expected"
            ) from error
        return TensorboardTracker(writer, first_step=purge_step or 0)
