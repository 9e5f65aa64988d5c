"""What a run directory keeps beside its rows, as methods of a tracker."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from trackway.store._media import MediaFolder
from trackway.store._output import Output
from trackway.store._records import Records
from trackway.tracker import Ledger, Lifecycle, Tracker, check_step
from trackway.tracker._span import Span
from trackway.values import Row, normalise, resolve

__all__ = ["RecordTracker"]

_SHARED = "another tracker keeps this run; this one adds its rows alone"


class RecordTracker(Tracker):
    """The part of `LocalTracker` that takes everything but rows.

    Attributes:
        rank: The rank of the process.
    """

    rank: int
    _ledger: Ledger
    _life: Lifecycle
    _media: MediaFolder
    _output: Output
    _records: Records | None
    _shut: bool
    _put_span: Callable[[Span], None] | None = None

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Set summary values, which no logged row overwrites; they are on disk when the call returns."""
        if not self._life.accepts("log_summary"):
            return
        row = self._settled(metrics)
        if self._records is None:
            self._leave_out("log_summary")
        elif not row.has_media:
            self._records.set_summary(row)
        elif self._records.set_summary(self._media.store(row, None)):
            self._media.keep_only(self._records.explicit_summary)

    def _leave_out(self, method: str) -> None:
        """Count what this tracker is not the one to keep, unless that follows from its rank."""
        if not self.rank:
            self._ledger.drop(method, _SHARED)

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Merge *hparams* into `config.yaml`; a changed value is noted, old and new, in `run.json`."""
        if not self._life.accepts("log_hyperparameters"):
            return
        row = self._settled(hparams)
        if self._records is None:
            self._leave_out("log_hyperparameters")
        else:
            self._records.set_config(row)

    def log_artifact(
        self,
        artifact_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - the interface's word
    ) -> None:
        """Copy a file or folder into `artifacts/`; a name used before gives a new version beside the earlier one.

        What cannot be copied is counted and said, not raised. Takes as long as the copying does. `run.json` lists it
        within about a second, or after `flush`.
        """
        if not self._life.accepts("log_artifact"):
            return
        if self._records is None:
            self._leave_out("log_artifact")
        else:
            self._records.take_artifact(artifact_path, name, type)

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Write a line of `events.jsonl`, or `events.rank<N>.jsonl`; it is in the file when the call returns."""
        if not self._life.accepts("log_event"):
            return
        number = check_step(step)
        row = self._settled(payload)
        if self._output.journals is None:
            self._leave_out("log_event")
            return
        if row.has_media:
            row = self._media.store(row, self._output.next_step if number is None else number)
        self._output.journals.event(event, row, number)

    def log_span(self, span: Span) -> None:
        """Have a span written to `spans.jsonl`, or `spans.rank<N>.jsonl`, within a fifth of a second."""
        if self._put_span is not None and not self._shut:
            self._put_span(span)
        elif self._life.accepts("log_span"):
            self._leave_out("log_span")

    def _settled(self, payload: Mapping[str, Any]) -> Row:
        """The row with all its values on the host; what was downgraded is counted."""
        row = resolve(normalise(payload, reserved=False))
        self._ledger.count_downgrades(row)
        return row
