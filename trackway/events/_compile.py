"""What JAX compiles, and how long it takes, as metrics."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.errors import ConfigError, FatalTrackerError
from trackway.tracker import Tracker
from trackway.tracker._ambient import ambient
from trackway.tracker._callbacks import defer
from trackway.tracker._current import active_tracker
from trackway.tracker._delivery import send
from trackway.tracker._dispatch import Call
from trackway.tracker._interface import check_tracker

__all__ = ["Compiles", "watch_compiles"]

_PARTS = "/jax/core/compile/"
_BUILT = "/jax/core/compile/backend_compile_duration"
_HIT = "/jax/compilation_cache/cache_hits"
_WRAPPED = re.compile(r"\w+\((.*)\)", re.DOTALL)
_MAX_NAMES = 1000
_MAX_INTERVALS = 1000

_watching: list[Compiles] = []


def watch_compiles(tracker: Tracker | None = None) -> Compiles:
    """Add what JAX compiles from now on to the open row: how many programs, and how long it took.

    `compile/count` is the number of programs that were made ready, each operation outside of `jit` being one of its
    own; `compile/cache_hits` how many of these came from JAX's cache on disk; `compile/seconds` the time that tracing,
    lowering and compiling took on the thread that waited for it. A step that compiles again, as for a batch of
    another shape, shows up as a row that has these metrics. `functions` has the names.

    ```python
    with trackway.start() as run, watch_compiles() as compiles:
        train()
    print(compiles.recompiled())
    ```

    Imports JAX, but does not initialise it. Of several that watch for the same tracker at one time only the first
    adds metrics, so that nothing is counted twice.

    Args:
        tracker: Gets the metrics; None takes the one that is current where JAX compiles. What comes while there is
            none, is added with the next program once there is one.

    Returns:
        What is known so far. Call it, or leave its block, to end this.

    Raises:
        ConfigError: if JAX is not installed.
        TypeError: if *tracker* is none.
    """
    try:
        from jax import monitoring
    except ImportError as error:
        raise ConfigError(
            f'watch_compiles needs JAX, which cannot be imported ({error}); pip install "trackway[jax]"'
        ) from error
    compiles = Compiles(None if tracker is None else check_tracker(tracker, "watch_compiles"))
    _watching.append(compiles)
    monitoring.register_event_listener(compiles._on_event)  # noqa: SLF001 - the other half of this module
    monitoring.register_event_duration_secs_listener(compiles._on_duration)  # noqa: SLF001
    return compiles


@final
class Compiles:
    """What JAX compiled while it was watched. Thread-safe.

    Attributes:
        count: Programs that were made ready.
        seconds: Time that tracing, lowering and compiling took; nothing counts twice.
        cache_hits: Programs that came from JAX's cache on disk.
        functions: Names of functions, and how many programs each became; of a thousand names at most. JAX's own, such
            as `broadcast_in_dim`, are among them.
    """

    def __init__(self, tracker: Tracker | None) -> None:
        self.count = 0
        self.seconds = 0.0
        self.cache_hits = 0
        self.functions: dict[str, int] = {}
        self._tracker = tracker
        self._active = True
        self._lock = new_lock()
        self._intervals = _Intervals()
        self._told = (0, 0.0, 0)

    def recompiled(self) -> dict[str, int]:
        """Return the functions that became more than one program, the most often compiled first."""
        with self._lock:
            found = [(name, count) for name, count in self.functions.items() if count > 1]
        return dict(sorted(found, key=lambda item: -item[1]))

    def __call__(self) -> None:
        """End watching; doing it again does nothing."""
        if not self._active:
            return
        self._active = False  # also where JAX keeps the listeners
        with contextlib.suppress(ValueError):
            _watching.remove(self)
        from jax import monitoring

        for name, listener in (
            ("unregister_event_listener", self._on_event),
            ("unregister_event_duration_listener", self._on_duration),
        ):
            with contextlib.suppress(Exception):  # older versions cannot; someone may have cleared them all
                getattr(monitoring, name)(listener)

    def __enter__(self) -> Compiles:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self()

    # --- called by JAX: what is raised here would end the user's computation ---

    def _on_event(self, event: str, **_: Any) -> None:
        if self._active and event == _HIT:
            with self._lock:
                self.cache_hits += 1

    def _on_duration(self, event: str, seconds: float, **details: Any) -> None:
        if not self._active or not event.startswith(_PARTS):
            return
        try:
            own = self._intervals.own_part(time.perf_counter(), seconds)
            with self._lock:
                self.seconds += own
                if event != _BUILT:
                    return
                self.count += 1
                name = _function_name(details.get("fun_name"))
                if name in self.functions or len(self.functions) < _MAX_NAMES:
                    self.functions[name] = self.functions.get(name, 0) + 1
            self._tell()
        except FatalTrackerError as error:
            defer(error)  # for the next verb: here it would look like a failure of the compiler
        except Exception as error:
            _notices.log_once(("compiles", type(error)), f"a compilation could not be counted: {error}", error)

    def _tell(self) -> None:
        tracker = self._tracker or active_tracker()
        if tracker is None or ambient().muted:
            return
        if next((one for one in tuple(_watching) if one._tracker is self._tracker), self) is not self:  # noqa: SLF001
            return
        with self._lock:
            now, before = (self.count, self.seconds, self.cache_hits), self._told
            self._told = now
        names = ("compile/count", "compile/seconds", "compile/cache_hits")
        metrics = {name: new - old for name, new, old in zip(names, now, before, strict=True)}
        if tracker.self_contained:
            tracker.add(metrics)
        else:
            send(Call("add", (metrics,)), tracker)


def _function_name(name: Any) -> str:
    """Return the function's name without what JAX puts around it, as in `jit(step)`."""
    text = str(name or "unknown")[:200]
    match = _WRAPPED.fullmatch(text)
    return match[1] if match else text


@final
class _Intervals(threading.local):
    """Stretches of time that ended on this thread, told when they end: inner ones before the one around them."""

    def __init__(self) -> None:
        self._ended: deque[tuple[float, float]] = deque(maxlen=_MAX_INTERVALS)  # beginning, length

    def own_part(self, now: float, seconds: float) -> float:
        """Note that *seconds* ended at *now*; return what of it was in none that was noted before."""
        begin, inside = now - seconds, 0.0
        while self._ended and self._ended[-1][0] >= begin:
            inside += self._ended.pop()[1]
        self._ended.append((begin, seconds))
        return max(0.0, seconds - inside)
