"""What a run is told beside metrics: events and spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackway.run._reading import ReadableRun
from trackway.tracker import Call, Lifecycle
from trackway.tracker._span import Span
from trackway.tracker._steps import held_step

__all__ = ["TellingRun"]

_MAX_SPANS_IN_LINE = 64


class TellingRun(ReadableRun):
    """The part of `Run` that takes events and spans."""

    _life: Lifecycle
    _spans_in_line = 0  # as good as counted

    def _submit(self, call: Call) -> None:
        """Perform *call*, now or after what waits for values on a device."""
        raise NotImplementedError

    def _tell(self, call: Call) -> None:
        """Make *call* on the store and the trackers."""
        raise NotImplementedError

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Tell that something happened, such as a checkpoint.

        It goes to `events.jsonl` in the run directory, to where `events` of the run says, and to every tracker. An
        event without a step has that of the open row, or else of the last one.

        Args:
            event: The event's name.
            payload: Names to values, as for `log`.
            step: The training step.

        Raises:
            StepError: if *step* is not an integer.
            TypeError: if *payload* is not a mapping.
        """
        if self._happenings.wants(event, step, payload):
            self._submit(Call("log_event", (event, payload), {"step": step if type(step) is int else held_step(step)}))

    def log_span(self, span: Span) -> None:
        """Add a measured time to the open row, as `time/<its name>`, and note it in `spans.jsonl`.

        Where no row is open it goes to the next one, whatever its step; without one, to a row of its own at the end.
        """
        if self._core.shut and not self._life.accepts("log_span"):
            return
        if self._fifo and self._spans_in_line < _MAX_SPANS_IN_LINE:  # of the step whose row waits there
            self._spans_in_line += 1
            self._submit(Call("log_span", (span,)))
        else:
            spans = self._core.spans
            spans.put((span.name, span.seconds))
            if len(spans.waiting) >= spans.many:
                self._core.fold_spans()
        if self.store is not None:
            self.store.log_span(span)

    @property
    def hooks(self) -> Any:
        """Who is called with every event: a list that may be changed at any time, see `trackway.events`."""
        return self._happenings.logger.hooks

    def _tell_event(self, call: Call) -> None:
        call = self._happenings.completed(call)
        try:
            self._tell(call)
        finally:  # last, because hooks may take long, and may not come back
            self._happenings.tell(call)

    def _with_place(self, call: Call) -> Call:
        """Give an event without a step that of the row in whose time it falls."""
        if call.kwargs.get("step") is not None:
            return call
        step = self._core.open_step
        if step is None:
            step = self._core.last_step
        return call if step is None else call.with_step(step)
