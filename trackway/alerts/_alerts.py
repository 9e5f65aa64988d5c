"""Rules, the channels that they tell, and the thread that looks at them when nothing happens."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.alerts._channels import Channel, ChannelSpec, SendAlert, open_channel
from trackway.alerts._config import AlertsConfig, alerts_config
from trackway.alerts._courier import Courier
from trackway.alerts._edges import Edges
from trackway.alerts._engine import RuleEngine
from trackway.alerts._limits import OVER_LIMIT, Limits
from trackway.alerts._message import completed, safe
from trackway.alerts._rule import Alert
from trackway.alerts._watchdog import Watchdog
from trackway.errors import FatalTrackerError, LifecycleError
from trackway.tracker._callbacks import defer
from trackway.tracker._ledger import Ledger, Lifecycle, Report

__all__ = ["Alerts"]

_CURE = "; training goes on"
_RECORD = ""  # is no name of a channel


@final
class Alerts:
    """Watches the rows of a run and tells people what its rules say.

    The run calls `observe` with each row under the lock under which it commits rows, and `deliver` with what comes of
    it outside of all locks. "log" and "backends" are called right there, other channels on a thread of their own.
    What they do never reaches the caller, except the `FatalTrackerError` of a tracker that is required.

    An alert that a channel did not take is given back to its rule before the next row: while the condition goes on to
    hold, the rule fires again, for that channel alone, after pauses that grow to a minute.

    `deliver`, `flush`, `stop` and `report` are thread-safe. In a forked child nothing is delivered, counted.

    Attributes:
        config: What it was made of.
        engine: The rules.
    """

    def __init__(
        self,
        rules: AlertsConfig | Sequence[Any] | None,
        *,
        lock: Any = None,
        send: SendAlert | None = None,
        record: SendAlert | None = None,
        run_id: str = "",
        **options: Any,
    ) -> None:
        """Open the channels; no thread starts yet.

        Args:
            rules: An `AlertsConfig`, or what `alerts_config` makes one of; *options* are then its other fields.
            lock: The lock under which `observe` is called; the watchdog takes it, too. None makes one.
            send: The channel "backends"; None leaves it out.
            record: Called with every alert that is told, also of the watchdog, whatever its channels; as the run's
                events are.
            run_id: Stands in the text of every alert.
            **options: Fields of `AlertsConfig`.

        Raises:
            AlertSyntaxError: if a rule is wrong.
            ConfigError: if a channel cannot be opened, or another field is wrong.
        """
        config = AlertsConfig.from_mapping({"rules": rules, **options}) if options else alerts_config(rules)
        self.config = config
        self._lock = new_lock() if lock is None else lock
        self._record = record
        self._run_id = run_id
        specs = [spec for spec in config.channel_specs() if send is not None or spec.kind != "backends"]
        self._channels: list[tuple[ChannelSpec, Channel]] = [(one, open_channel(one, send or _nobody)) for one in specs]
        self._ledger = Ledger("alerts")
        self._life = Lifecycle(self._ledger)
        self.engine = self._new_engine()
        self._edges = Edges(self.engine)
        self._limits = Limits(config.rule_rate_limit, config.rate_limit, config.dedup_window)
        self._limits_lock = new_lock()
        self._returned: deque[tuple[Alert, bool]] = deque()  # with whether someone got it
        self._delivering: set[int] = set()
        self._courier = Courier(
            limit=config.queue_size,
            retries=config.retries,
            delay=config.retry_delay,
            ledger=self._ledger,
            give_back=self._give_back,
        )
        self._watchdog = Watchdog(self._look, config.interval)

    def _new_engine(self) -> RuleEngine:
        rules = [replace(rule) for rule in self.config.parsed_rules()]  # each is known by its identity
        engine = RuleEngine(rules, clock=time.time)
        engine.on_notice(self._tell_soon)
        return engine

    def _tell_soon(self) -> None:
        """Say what the engine has to say on a thread of its own: this one holds the lock, and may be training."""
        if self._life.foreign or self._life.finished:
            return
        thread = threading.Thread(target=self.engine.tell, name="trackway-alerts-notices", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread can be had: it is said at the end
            thread.start()

    @property
    def inside(self) -> bool:
        """Whether this thread is in the midst of telling someone: it must neither start nor finish a run."""
        if self._life.foreign:
            return False
        return self._courier.inside or threading.get_ident() in self._delivering

    def observe(self, step: int, time: float, values: Mapping[str, Any]) -> Sequence[Alert]:
        """Return what the rules say to a row; the caller holds the lock, and gives it to `deliver` afterwards."""
        if self._returned:
            self._take_back()
        alerts = self.engine.observe(step, time, values)
        for alert in alerts:
            self._edges.note(alert)
        return alerts

    def backfill(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Fill the windows with the rows of a run that is continued, oldest first; nothing fires.

        Returns:
            How many rows were of use.
        """
        with self._lock:
            return self.engine.backfill(rows)

    def restart(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Look at *rows* anew, as `backfill`, and forget all others: a run goes on from an earlier step.

        The caller holds the lock.
        """
        self._returned.clear()
        self.engine = self._new_engine()
        self._edges = Edges(self.engine)
        with self._limits_lock:
            self._limits.restart()
        self.engine.backfill(rows)

    def deliver(self, alerts: Sequence[Alert]) -> None:
        """Tell the channels; the caller holds no lock.

        Raises:
            FatalTrackerError: from a tracker that is required, after everyone else was told.
        """
        if not alerts or not self._life.accepts("deliver"):
            return
        fatal: FatalTrackerError | None = None
        for alert in alerts:
            try:
                self._deliver(alert)
            except FatalTrackerError as error:
                fatal = fatal or error
            except Exception as error:
                self._ledger.fail("deliver", error, _CURE)
        if fatal is not None:
            raise fatal

    def _deliver(self, alert: Alert) -> None:
        with self._limits_lock:
            refusal = self._limits.refuse(alert, time.monotonic())
            held_back = 0 if refusal else self._limits.held_back(alert.name)
        if refusal:
            self._ledger.drop(alert.name, refusal)
            if refusal is OVER_LIMIT and alert.rule.mode == "edge":  # the other mode fires again anyway
                latest = self._edges.failed(alert)
                self._returned.append((latest, self._is_known(latest)))
            return
        self._tell(alert, completed(alert, self._run_id, held_back))

    def _tell(self, alert: Alert, message: Alert) -> None:
        fatal = None
        if self._record is not None and self._edges.is_owed(alert, _RECORD):
            fatal = self._call(_RECORD, self._record, alert, message)
        for spec, channel in self._channels:
            if not _is_for(alert, spec) or not self._edges.is_owed(alert, spec.name):
                continue
            self._ledger.accept()
            if channel.immediate:
                fatal = self._call(spec.name, channel.deliver, alert, message) or fatal
            else:
                self._courier.put(spec.name, channel, alert, message)
        if fatal is not None:
            raise fatal

    def _call(self, name: str, function: SendAlert, alert: Alert, message: Alert) -> FatalTrackerError | None:
        """Call *function* here and now; return what is to reach the training loop."""
        try:
            with self._inside():
                function(message)
        except FatalTrackerError as error:
            return error
        except Exception as error:
            self._ledger.fail(name or "record", error, _CURE)
            if name != _RECORD:
                self._give_back(alert, name)
        else:
            self._ledger.deliver(name != _RECORD)
        return None

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        me = threading.get_ident()
        if me in self._delivering:  # a channel that logs a row which fires, too
            yield
            return
        self._delivering.add(me)
        try:
            yield
        finally:
            self._delivering.discard(me)

    def _give_back(self, alert: Alert, channel: str) -> None:
        """Have the rule tell *channel* once more, if its condition still holds at the next row."""
        latest = self._edges.failed(alert, channel)
        with self._limits_lock:
            self._limits.forget(alert)
            self._limits.forget(latest)
        self._returned.append((latest, self._is_known(latest, channel)))

    def _is_known(self, alert: Alert, failed: str = "") -> bool:
        """Whether another channel than *failed* got *alert*, or is about to."""
        names = (spec.name for spec, _ in self._channels if _is_for(alert, spec) and spec.name != failed)
        return self._edges.is_known(alert, names)

    def _take_back(self) -> None:
        """Tell the engine, whose lock is held, of what was given back."""
        while self._returned:
            alert, told = self._returned.popleft()
            try:
                self.engine.delivery_failed(alert, told=told)
            except Exception as error:
                self._ledger.fail("delivery_failed", error, _CURE)

    # --- the watchdog ---

    def start(self) -> None:
        """Start the watchdog, if a rule depends on time."""
        if self._life.foreign or self._life.finished:
            return
        with self._lock:
            timed = self.engine.next_check() is not None
        if timed:
            self._watchdog.start()

    def _look(self) -> float | None:
        if not self._lock.acquire(timeout=self.config.interval):
            _notices.log_once(
                ("watchdog", id(self)),
                "alerts: rules that depend on time cannot be looked at while a row is being written; the disk may hang",
            )
            return None
        try:
            self._take_back()
            alerts = self.engine.check(time.time())
            for alert in alerts:
                self._edges.note(alert)
            due = self.engine.next_check()
        finally:
            self._lock.release()
        self.engine.tell()
        try:
            self.deliver(alerts)
        except FatalTrackerError as error:
            defer(error)  # for the next call on the host: this thread is nobody's
        return due

    # --- the end ---

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until no delivery waits or is under way, *timeout* seconds at most (None: `stop_timeout`).

        Returns:
            Whether it came to that; False at once from a channel, which would wait for itself.
        """
        return self._courier.flush(self.config.stop_timeout if timeout is None else timeout)

    def stop(self, timeout: float | None = None) -> None:
        """End: no alert is taken any more, and what waits is delivered within *timeout* seconds (None: `stop_timeout`).

        What takes longer is counted, and said. Calling it again does nothing.

        Raises:
            LifecycleError: from a channel, which it would have to wait for.
        """
        if self.inside:
            raise LifecycleError(
                f"run {self._run_id}: a channel of its alerts asked for the end of the run, which would have to wait "
                "for that channel; end the run where it was started"
            )
        if not self._life.end():
            return
        end = time.monotonic() + (self.config.stop_timeout if timeout is None else timeout)
        self._watchdog.stop(max(0.0, end - time.monotonic()))
        self._courier.stop(max(0.0, end - time.monotonic()))
        self.engine.tell()
        if self.engine.unseen:
            _notices.logger.warning(
                "alerts: rules read metrics of which no row had a number: %s", safe(", ".join(self.engine.unseen))
            )

    def report(self) -> Report:
        """Return what became of the deliveries so far: one for each alert and channel."""
        return self._ledger.report(pending=self._courier.pending)


def _is_for(alert: Alert, spec: ChannelSpec) -> bool:
    names = alert.rule.channels
    return (names is None or spec.name in names) and spec.takes(alert.level)


def _nobody(_alert: Alert) -> None:
    """Stands in where there are no backends."""
