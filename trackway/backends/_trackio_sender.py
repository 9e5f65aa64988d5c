"""The thread that brings rows to where a Trackio run keeps them."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, final

from trackway import _notices
from trackway.backends._trackio_places import CARRIER_STEP, Alert, Entry, Place, Rewind
from trackway.tracker import Ledger

__all__ = ["Sender"]

_INTERVAL = 0.5
_CONFIG_ALONE = 10.0  # seconds after which hyper-parameters are not held back any longer for a row to go with
_BATCH = 1000
_MAX_WAITING = 10_000
_MAX_UNSENT = 1000
_LONGEST_DELAY = 30.0
_PATIENCE = 10.0
_LAST_TRIES = 3


@final
class Sender:
    """Takes rows, and writes them in batches, in order; after a failure again, with growing delays. Thread-safe.

    Attributes:
        error: What the last try raised; None if it went well.
    """

    def __init__(self, place: Place, ledger: Ledger) -> None:
        self.error: Exception | None = None
        self._place = place
        self._ledger = ledger
        self._changed = threading.Condition()
        self._work: deque[Entry | Alert | Rewind] = deque()
        self._put = self._done = self._tries = 0
        self._rows = 0
        # what is to be merged into the configuration that is there; something, so that it is written once in any case
        self._config: dict[str, Any] = {"_Group": place.run.config.get("_Group")}
        self._config_since = 0.0
        self._last: Entry | None = None
        self._hurry = False
        self._delay = 0.0
        self._closing_tries: int | None = None
        self._thread: threading.Thread | None = None

    @property
    def waiting_rows(self) -> int:
        """How many rows are still to be written."""
        return self._rows

    def put(self, item: Entry | Alert | Rewind) -> None:
        """Take *item*; wait for room if need be.

        Raises:
            ConnectionError: if too much waits because writing fails, or goes too slowly.
        """
        is_row = isinstance(item, Entry)
        with self._changed:
            if is_row:
                self._make_room()
            self._work.append(item)
            self._put += 1
            self._rows += is_row
            self._start()

    def _make_room(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while self._rows >= (_MAX_UNSENT if self.error else _MAX_WAITING):
            left = deadline - time.monotonic()
            if self.error is not None or left <= 0 or self._thread is None:
                raise ConnectionError(
                    f"{self._rows} rows wait to be written to Trackio, and this one is not taken: "
                    f"{self.error or 'writing is too slow'}"
                )
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait(left)

    def configure(self, values: Mapping[str, Any]) -> None:
        """Merge *values* into the run's configuration; they go with the next rows, or alone after a while."""
        with self._changed:
            if not self._config_since:
                self._config_since = time.monotonic()
            self._config |= values
            self._put += 1
            self._start()

    def flush(self, seconds: float) -> None:
        """Wait until all that was taken is written.

        Raises:
            TimeoutError: if it takes longer than *seconds*.
            Exception: what a try since the call has raised.
        """
        with self._changed:
            wanted, tries, deadline = self._put, self._tries, time.monotonic() + seconds
            while self._done < wanted:
                if self.error is not None and self._tries > tries:
                    raise self.error
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"trackio: {self._rows} rows could not be written within {seconds:g} s")
                self._hurry = True
                self._changed.notify_all()
                self._changed.wait(left)

    def close(self, seconds: float) -> None:
        """Write what is left, within *seconds*, and end the thread; what cannot be is left for a later process."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._closing_tries, self._hurry = 0, True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
        elif thread is None and not self._idle:
            self._deliver()
        with self._changed:
            self._closing_tries = _LAST_TRIES  # a thread that hangs ends after this try
            left = [item for item in self._work if isinstance(item, Entry)]
            others = sum(isinstance(item, Alert) for item in self._work)
            self._work.clear()
        if others:
            self._ledger.drop("alert", "not sent when the run ended", others)
        if left:
            self._leave(left, late=time.monotonic() >= deadline)

    def _leave(self, left: list[Entry], *, late: bool) -> None:
        reason = "time was up" if self.error is None and late else f"{type(self.error).__name__}: {self.error}"
        try:
            kept = self._place.keep(left)
        except Exception as error:
            self._ledger.fail("finish", error)
            kept = False
        if kept:
            _notices.logger.warning(
                "trackio: %d rows could not be sent (%s); they are kept in Trackio's folder on this machine, and sent "
                "when the run is continued from here",
                len(left),
                reason,
            )
        else:
            self._rows = 0
            self._ledger.drop("rows", f"not written when the run ended: {reason}", len(left))

    def _start(self) -> None:
        """Start the thread; the interpreter starts none any more when it ends, and then the items wait for `close`."""
        if self._thread is None and self._closing_tries is None:
            thread = threading.Thread(target=self._run, name="trackway-trackio-sender", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return
            self._thread = thread
        self._changed.notify_all()

    @property
    def _idle(self) -> bool:
        return not self._work and not self._config

    def _run(self) -> None:
        while self._await_work():
            self._deliver()

    def _await_work(self) -> bool:
        """Wait for the next try; return False at the end."""
        with self._changed:
            while self._idle and self._closing_tries is None:
                self._hurry = False
                self._changed.wait()
            if self._given_up:
                return False
            self._pause(self._delay or _INTERVAL)
            while not self._work and self._config and not self._hurry and self._closing_tries is None:
                left = (self._config_since or time.monotonic()) + _CONFIG_ALONE - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if self._closing_tries is not None:
                self._closing_tries += 1
                return not self._idle
            return True

    @property
    def _given_up(self) -> bool:
        return self.error is not None and (self._closing_tries or 0) >= _LAST_TRIES

    def _pause(self, seconds: float) -> None:
        """Let rows gather, or a server come back; not while someone waits, and shortly at the end."""
        began = time.monotonic()
        while True:
            if self._closing_tries is not None:
                seconds = 0.0 if self.error is None else _INTERVAL * self._closing_tries
            elif self._hurry:
                return
            left = began + seconds - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _deliver(self) -> None:
        """Write what waits; on failure what is left stays."""
        with self._changed:
            self._hurry = False
            wanted = self._put
        try:
            while batch := self._batch():
                self._write(batch)
                self._written(batch)
            self._write_config_alone()
        except Exception as error:
            with self._changed:
                self.error, self._tries = error, self._tries + 1
                self._delay = min(2 * self._delay or _INTERVAL, _LONGEST_DELAY)
                self._changed.notify_all()
            self._ledger.fail("write", error, "; it is tried again")
            return
        with self._changed:
            self.error, self._delay, self._tries = None, 0.0, self._tries + 1
            self._done = self._put if self._idle else wanted  # what was put meanwhile may have been written too
            self._changed.notify_all()

    def _batch(self) -> list[Any]:
        """Return the items of one kind with which the queue begins; they stay there."""
        with self._changed:
            items = list(itertools.islice(self._work, _BATCH))
        return list(itertools.takewhile(lambda item: type(item) is type(items[0]), items))

    def _write(self, batch: list[Any]) -> None:
        if isinstance(batch[0], Alert):
            self._place.alerts(batch)
        elif isinstance(batch[0], Rewind):
            self._rewind(batch)
        else:
            config = self._taken_config()
            self._place.rows(batch, self._place.merged_config() if config is not None else None)
            self._config_written(config)
            self._last = batch[-1]

    def _rewind(self, batch: list[Rewind]) -> None:
        try:
            for item in batch:
                self._place.rewind(item.step)
        except Exception as error:  # the rows that follow matter more
            self._ledger.fail("rewind", error, "; superseded rows stay in the run's curves")
        self._last = None

    def _written(self, batch: list[Any]) -> None:
        rows = sum(isinstance(item, Entry) for item in batch)
        with self._changed:
            for _ in range(min(len(batch), len(self._work))):
                self._work.popleft()
            self._rows = max(0, self._rows - rows)
            self._changed.notify_all()
        self._ledger.deliver(rows)

    def _write_config_alone(self) -> None:
        """Write the configuration where no row is to go with it: Trackio takes it with a row only.

        That is the last row again, which Trackio knows by its `log_id`, or where there is none an empty one.
        """
        config = self._taken_config()
        if config is None:
            return
        run = self._place.run
        entry = self._last or Entry(CARRIER_STEP, {}, run.config.get("_Created", ""), f"{run.id}-config")
        self._place.rows([entry], self._place.merged_config())
        self._config_written(config)

    def _taken_config(self) -> dict[str, Any] | None:
        with self._changed:
            config = dict(self._config)
            self._place.run.config.update(config)
        return config or None

    def _config_written(self, config: Mapping[str, Any] | None) -> None:
        with self._changed:
            for name, value in (config or {}).items():
                if name in self._config and self._config[name] is value:
                    del self._config[name]
            if not self._config:
                self._config_since = 0.0
