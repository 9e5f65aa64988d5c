"""What the process takes of the machine, as metrics."""

from __future__ import annotations

import importlib
import math
import os
import sys
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, final

from trackway import _notices
from trackway.errors import FatalTrackerError
from trackway.events._memory import memory_bytes
from trackway.tracker import Tracker
from trackway.tracker._callbacks import defer
from trackway.tracker._current import active_tracker
from trackway.tracker._dispatch import Call
from trackway.tracker._interface import check_tracker
from trackway.tracker._isolation import Isolation

__all__ = ["SystemMetrics", "rss_bytes"]

_SHORTEST = 0.01
_STATM = "/proc/self/statm"


def rss_bytes() -> int | None:
    """Return the bytes of memory that this process takes (resident set size), or None where that is not known.

    psutil is asked if it is installed, else Linux.
    """
    try:
        psutil: Any = importlib.import_module("psutil")
    except ImportError:
        return _rss_of_linux()
    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return None


def _rss_of_linux() -> int | None:
    try:
        return int(Path(_STATM).read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


@final
class _Processor:
    """The processor time that this process takes."""

    def __init__(self) -> None:
        self._time, self._used = time.monotonic(), time.process_time()

    def percent(self) -> float | None:
        """Return it in percent of one processor, since the last call or the beginning."""
        now, used = time.monotonic(), time.process_time()
        passed = now - self._time
        percent = 100 * (used - self._used) / passed if passed > 0 else None
        self._time, self._used = now, used
        return percent


@final
class SystemMetrics:
    """Adds what the process takes of the machine to the run's open row, every few seconds, from a thread of its own.

    `<prefix>/rss_bytes` is the process's memory, `<prefix>/cpu_percent` the processor time since the sample before, in
    percent of one processor, `<prefix>/memory_bytes` the memory of the device that its arrays take, see
    `memory_bytes`. What is not known is left out. A sample never makes a row: taken while no row is open, as between
    calls of `log` without a step, it is left out. Of several in one row the last stays. Off until it is started:

    ```python
    with trackway.start() as run, SystemMetrics(interval=5):
        train()
    ```

    It ends with the block, by `stop`, and with the run. A forked child has no such thread until it starts one.
    Thread-safe.

    Args:
        interval: Seconds from one sample to the next, 0.01 at least. The first is taken after one interval.
        tracker: Gets the samples; None takes the one that is current at the start.
        prefix: What the names begin with.
        device: Whose memory is looked at, as for `memory_bytes`.

    Raises:
        TypeError: if *tracker* is none, *interval* no number, *prefix* no text, *device* no device.
        ValueError: if *interval* is too short or not finite, or *device* cannot be read.
    """

    def __init__(
        self, interval: float = 10.0, tracker: Tracker | None = None, prefix: str = "system", *, device: Any = None
    ) -> None:
        if not isinstance(interval, int | float) or not isinstance(prefix, str):
            raise TypeError(f"SystemMetrics takes seconds and a text as prefix, got {interval!r} and {prefix!r}")
        if not math.isfinite(interval) or interval < _SHORTEST:
            raise ValueError(f"SystemMetrics: interval must be {_SHORTEST} seconds or more, got {interval!r}")
        memory_bytes(device)  # a wrong one is told here, not on the thread
        self._interval = float(interval)
        self._tracker = None if tracker is None else check_tracker(tracker, "SystemMetrics")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._device = device
        self._isolation = Isolation()
        self._sampler: _Sampler | None = None

    @property
    def running(self) -> bool:
        """Whether samples are being taken."""
        return self._sampler is not None and self._sampler.alive

    def start(self) -> None:
        """Begin to take samples; does nothing while they are taken. Without a tracker it warns once instead."""
        if self.running:
            return
        tracker = self._tracker or active_tracker()
        if tracker is None:
            _notices.warn_once(
                "system metrics without a tracker",
                "SystemMetrics was started while no tracker is set, and takes no samples; start it inside of `with "
                "trackway.start(...)`, or give it the tracker (shown once)",
            )
            return
        self._sampler = _Sampler(self, tracker, self._interval)

    def stop(self) -> None:
        """Take no more samples, and return when one that is being taken is done."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()

    def sample(self) -> dict[str, float]:
        """Return the metrics as they are now, without the processor time."""
        values = {"rss_bytes": rss_bytes(), "memory_bytes": memory_bytes(self._device)}
        return {f"{self._prefix}{name}": value for name, value in values.items() if value is not None}

    def add_to(self, tracker: Tracker, cpu_percent: float | None) -> bool:
        """Add a sample to the open row of *tracker*; return whether there was one."""
        values = self.sample()
        if cpu_percent is not None:
            values[f"{self._prefix}cpu_percent"] = cpu_percent
        if self._isolation.call(Call("open_step"), tracker) is None:
            return False
        # without the step: should the row be committed just now, the sample must not come late
        self._isolation.call(Call("log", (values,), {"step": None, "commit": False}), tracker)
        return True

    def __enter__(self) -> SystemMetrics:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@final
class _Sampler:
    """The thread. It keeps neither the run nor the process alive."""

    def __init__(self, metrics: SystemMetrics, tracker: Tracker, interval: float) -> None:
        self._pid = os.getpid()
        self._metrics = metrics
        self._tracker = weakref.ref(tracker)
        self._interval = interval
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trackway-system", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._pid == os.getpid() and self._thread.is_alive()

    def stop(self) -> None:
        if self._pid != os.getpid():
            return
        self._end.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)  # a device that does not answer must not hold up the end

    def _run(self) -> None:
        processor, taken, left_out = _Processor(), 0, 0
        while not self._end.wait(self._interval):
            tracker = self._tracker()
            if tracker is None or _is_over(tracker) or sys.is_finalizing():
                break
            try:
                added = self._metrics.add_to(tracker, processor.percent())
            except FatalTrackerError as error:
                defer(error)  # for the next verb: there is nobody here to see it
                break
            except Exception as error:
                _notices.log_once(("system", type(error)), f"a sample of system metrics failed: {error}", error)
                continue
            finally:
                tracker = None
            taken += added
            left_out += not added
        if left_out and not taken:
            _notices.log_once(
                "no open row for system metrics",
                f"none of {left_out} samples of system metrics was kept, as no row was open at any of them; log with "
                "steps, so that a row is open until the next one begins",
            )


def _is_over(tracker: Tracker) -> bool:
    """Whether a tracker of this library was finished; others end the thread when nobody has them any more."""
    life = getattr(tracker, "_life", None)
    return bool(getattr(life, "finished", False))
