"""The run: the tracker that makes rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, final

from trackway import _notices
from trackway.errors import ConfigError, StepError
from trackway.run import _exits
from trackway.run._alarms import AlertsOption, start_alarms
from trackway.run._core import Core
from trackway.run._drainer import Drainer, weakly
from trackway.run._ending import Ending
from trackway.run._happenings import EventsOption, Happenings
from trackway.run._late import LateCall
from trackway.run._rows import StepPolicy
from trackway.run._sinks import OnCommit, Sinks, check_print
from trackway.run._summary_view import SummaryView
from trackway.run._telling import TellingRun
from trackway.store import LocalTracker
from trackway.tracker import Call, CompositeTracker, Ledger, Lifecycle, Tracker, check_step
from trackway.tracker._callbacks import wait_for_callbacks
from trackway.tracker._current import withdraw
from trackway.tracker._delivery import adopt, put
from trackway.tracker._fifo import Fifo
from trackway.tracker._isolation import Isolation
from trackway.tracker._process import compare
from trackway.tracker._states import state_of
from trackway.tracker._steps import PendingStep, held_step
from trackway.values import Row, normalise

__all__ = ["Run"]

_POLICIES = ("monotonic", "allow", "error")
_LIMIT = 2**63
_OWN = frozenset({"open_step", "flush", "finish", "mark_failed", "rewind"})


@final
class Run(TellingRun):
    """One training run: `log` calls become rows, and each row reaches the store and every tracker once, in order.

    `log` merges into the open row of the current step. It is committed when the step advances, by a call without a
    step, by `commit=True`, by `flush(commit_open=True)` and by `finish`; never because time passes. When the call
    returns, every callback, the printer and each tracker have been called with the row. It is in the file then, too,
    or a fifth of a second later where rows follow one another within 50 ms; `history` and `summary` have it at once.

    What trackers, callbacks and the disk do never reaches the training loop: it is counted, see `report`, and said
    once. Thread-safe, and safe in signal handlers. In a forked child every method does nothing, counted.

    As a context manager it is the current tracker for the block, and is finished at its end.

    Attributes:
        run_id: The run's id.
        store: The run directory; None for a run without one.
        backends: The other trackers, which get each committed row.
        summary: The last value of every metric, and what was set by hand: `run.summary["best"] = 0.93`.
        hooks: Who is called with every event; may be changed at any time.
    """

    name: str = "run"
    self_contained: ClassVar[bool] = True

    def __init__(
        self,
        trackers: Iterable[Tracker] = (),
        store: LocalTracker | None = None,
        *,
        run_id: str | None = None,
        step_policy: StepPolicy = "monotonic",
        print: bool | Callable[[str], Any] = False,  # noqa: A002 - the field's word
        events: EventsOption = None,
        alerts: AlertsOption = None,
    ) -> None:
        """Start a run of trackers that are started.

        Args:
            trackers: Get every committed row, in this order. The run finishes them.
            store: The run directory, which the run closes at its end. None keeps nothing on disk: then there is no
                history, and nothing to go on with later.
            run_id: The run's id; None takes the store's.
            step_policy: What becomes of a row whose step lies behind the open one, or behind the last one:
                "monotonic" drops it, counted, with one warning; "allow" keeps it, as a row of its own; "error" raises
                `StepError`. A row of the last committed step itself is always kept, and merged with it when read.
            print: Print each committed row as one line; a callable, such as `logger.info`, gets the line instead.
            events: How events are told: a `trackway.events.EventsConfig`, or an `EventLogger`, which the run closes.
                None prints each as one line.
            alerts: Rules that are looked at with every committed row, or a `trackway.alerts.AlertsConfig` with them.

        Raises:
            ConfigError: for an unknown *step_policy*, a *print* that is neither bool nor callable, a file of events
                that cannot be opened, or a package for alerts that is missing.
            AlertSyntaxError: if a rule cannot be read.
        """
        if step_policy not in _POLICIES:
            raise ConfigError(f"step_policy must be one of {', '.join(_POLICIES)}, got {step_policy!r}")
        write = check_print(print)
        self.store = store
        self.backends = CompositeTracker(trackers)
        self._happenings = Happenings(events, self.backends)
        self.run_id: str = run_id or (store.run_id if store is not None else "run")
        self.summary = SummaryView(self._read_summary, self.log_summary)
        self._ledger = Ledger(self.name)
        self._life = Lifecycle(self._ledger)
        self._isolation = Isolation()
        self._state = "running"
        self._core = Core(store, step_policy, self._ledger, self.run_id, self.backends.rewind)
        self._alarms = None
        if alerts:
            try:
                self._alarms = start_alarms(alerts, self._core, store, self._tell, self._tell_event)
            except BaseException:
                self._happenings.close()
                raise
        notifier, happenings = self._core.notifier, self._happenings
        notifier.busy = lambda: happenings.inside
        self._fifo = Fifo(weakly(self._perform_late), busy=lambda: notifier.inside or happenings.inside)
        self._drainer = Drainer(self._fifo, "trackway-run")
        adopt(self, self._fifo, self._drainer.wake)
        self._sinks = Sinks(notifier, write, self.backends, self._ledger)
        self._ending = Ending(
            self.run_id,
            (
                self._drain,
                self._close_rows,
                self._stop_alarms,
                self._save,
                self._finish_backends,
                self._happenings.close,
                self._close,
                self._leave,
            ),
            busy=self._busy,
            fail=self.mark_failed,
            rescue=self._rescue,
            abandon=self._abandon,
            postpone=self._core.afterwards,
        )
        _exits.watch(self._ending)

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:
        """Merge *metrics* into the open row of a step.

        Values and a step that a device is still computing are not waited for: the row keeps its place, and so do the
        calls after it, until it is there.

        Args:
            metrics: Names to values; of two of one name in a row the later wins. Nested mappings are merged.
            step: The step of the row. None takes the open row, or begins the one after the last.
            commit: Whether the row ends with this call. None means yes without *step*, and no with one: it ends when
                the step advances.

        Raises:
            StepError: if *step* is not an integer; if it lies behind and the policy is "error".
            TypeError: if *metrics* is not a mapping.
            FatalTrackerError: from a tracker that is required, after everyone has the row.
        """
        held = step if step is None or (type(step) is int and -_LIMIT <= step < _LIMIT) else held_step(step)
        row = normalise(metrics) if type(metrics) is not Row else metrics.copy()  # the caller may change theirs
        if self._fifo or row.pending or type(held) is PendingStep:
            self._submit(Call("log", (row,), {"step": held, "commit": commit}))
        elif not self._core.shut or self._life.accepts("log"):
            self._core.take("log", row, held, commit)

    def receive(self, call: Call) -> Any:
        """Take a call as if its method had been called."""
        return self._forward(call)

    def _forward(self, call: Call) -> Any:
        if call.method in _OWN:
            return getattr(self, call.method)(*call.args, **call.kwargs)
        if call.method in {"log_event", "log_span"}:
            return getattr(self, call.method)(*call.args, **call.kwargs)
        return self._submit(call)

    def _submit(self, call: Call) -> None:
        """Perform *call*, now or after what waits for values on a device."""
        if not self._life.accepts(call.method):
            return
        if self._fifo and call.method == "log_artifact":  # its file may be gone once the caller goes on
            self._fifo.drain(block=True)
        elif self._fifo or call.pending:
            self._line_up(call)
            return
        self._perform(call)

    def _line_up(self, call: Call) -> None:
        if not call.pending or call.method != "log":
            put(call, self)
        elif not self._fifo.join(late := LateCall(call)):
            put(late, self, lazily=True)

    def _perform(self, call: Call) -> Any:
        """Perform *call*, whose values are here; return what a method of the run itself returns."""
        if call.method in {"log", "add"}:
            assert call.payload is not None
            step, commit = call.kwargs.get("step"), call.kwargs.get("commit")
            self._core.take(call.method, call.payload, step, commit)
        elif call.method == "log_span":
            self._spans_in_line -= 1
            self._core.spans.put((call.args[0].name, call.args[0].seconds))
        elif call.method in _OWN:
            return getattr(self, call.method)(*call.args, **call.kwargs)
        else:
            if call.method == "log_summary" and call.payload is not None:
                self._core.set_summary(call.payload)
            elif call.method == "log_event":
                self._tell_event(self._with_place(call))
                return None
            self._tell(call)
        return None

    def _perform_late(self, call: Call) -> Any:
        try:
            return self._perform(call)
        except StepError:  # it reaches whoever delivers, which may not be who logged
            self._ledger.drop("log", "a step that lies behind or is none, which was not known when it was logged")
            raise

    def _tell(self, call: Call) -> None:
        """Make *call* on the store, then on the trackers."""
        call.shared = True
        with self._core.whole():
            if self.store is not None:
                self._isolation.call(call, self.store)
            self._isolation.call(call, self.backends)

    def members(self) -> tuple[Tracker, ...]:
        """Return the store and the other trackers."""
        return (*(() if self.store is None else (self.store,)), *self.backends.members())

    def open_step(self) -> int | None:
        """Return the step of the open row, or None."""
        return self._core.open_step

    def rewind(self, step: int) -> None:
        """Begin a new attempt at *step*: earlier rows from there on are superseded when the run is read.

        They stay in the file. The open row is committed before, to the attempt that ends.

        Raises:
            StepError: if *step* is not an integer.
        """
        number = check_step(step)
        if number is None:
            raise StepError(f"run {self.run_id}: rewind takes the step to go on from, got None")
        if self._life.accepts("rewind"):
            self._drain()
            self._core.rewind(number)

    # --- who is told ---

    def on_commit(self, function: OnCommit) -> Callable[[], None]:
        """Call *function* with every row that is committed from now on.

        It gets a dictionary of its own, with `_step` and `_time` before the metrics; what it raises is counted and
        said once. Calls are serial, in order of commit, on a thread that commits, with the context variables of the
        one that committed the row. It may log; it may not finish the run.

        Returns:
            A function that ends this.

        Raises:
            TypeError: if *function* is no callable.
        """
        if not callable(function):
            raise TypeError(f"run {self.run_id}: on_commit takes a callable, got {function!r}")
        return self._sinks.add(function)

    # --- the end ---

    def flush(self, *, commit_open: bool = False) -> None:
        """Wait until all that was committed is delivered and on the disk.

        Args:
            commit_open: Commit the open row first; otherwise it stays open.

        Raises:
            FatalTrackerError: from a tracker that is required.
        """
        if not self._life.accepts("flush"):
            return
        compare()
        self._drain()
        if commit_open:
            self._core.commit_open()
        else:
            self._core.notifier.deliver()
        self._tell(Call("flush"))

    def mark_failed(self, error: BaseException) -> None:
        """Have `finish` note that the run ended because of *error*; Ctrl+C makes it interrupted, others failed."""
        if self._life.accepts("mark_failed"):
            self._state = state_of(error)
            self._tell(Call("mark_failed", (error,)))

    def finish(self) -> None:
        """End the run: commit the open row, deliver everything, finish the trackers, close the run directory.

        Several threads that call it wait for the same end, and get the same failure. Calling it again does nothing.
        Called in a signal handler that interrupted a row or a delivery, it happens right after that.

        Raises:
            LifecycleError: from a commit, print or alert callback, or in the midst of a `finish` of the same thread.
            TrackerFinishError: if rows could not be kept, or a required tracker failed.
        """
        if not self._life.foreign:
            self._ending.reach()

    def _busy(self) -> bool:
        telling = self._happenings.inside or (self._alarms is not None and self._alarms.inside)
        return telling or self._core.busy or self._fifo._inside()  # noqa: SLF001 - what waits there is this run's

    def _rescue(self, error: BaseException) -> None:
        self._core.close()
        if self.store is not None:
            self.store.mark_failed(error)
            self.store.save()

    def _abandon(self) -> None:
        self._core.abandon()
        self._drainer.forget()

    def _drain(self) -> None:
        if self._life.foreign or self._core.notifier.inside:
            return
        with self._core.whole():
            wait_for_callbacks()
            self._fifo.drain(block=True)
            self._core.settle()

    def _close_rows(self) -> None:
        compare()
        self._core.commit_open(last=True)

    def _stop_alarms(self) -> None:
        if self._alarms is not None:
            self._alarms.stop()

    def _save(self) -> None:
        if self.store is not None:  # before trackers that may take their time
            self._isolation.call(Call("flush"), self.store)

    def _finish_backends(self) -> None:
        self._life.end()
        self.backends.finish()

    def _close(self) -> None:
        if self._state == "running":
            self._state = "finished"
        if self.store is not None:
            self.store.finish()

    def _leave(self) -> None:
        self._drainer.stop()
        _exits.forget(self._ending)
        withdraw(self)
        level = logging.WARNING if self._core.late else logging.INFO  # the first late row said that it would be told
        _notices.logger.log(level, "%s", self.report())
