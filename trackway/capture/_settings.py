"""What the capture layer does with what it cannot, or may not, capture."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, NamedTuple, TypeVar, final

from trackway import _notices
from trackway._locks import new_lock
from trackway.errors import CaptureError

__all__ = [
    "Loss",
    "current",
    "differ",
    "failed",
    "losses",
    "problem",
    "recorded",
    "recording",
    "report",
    "settings",
]

T = TypeVar("T")
Uncaptured = Literal["callback", "drop", "warn", "error"]
OnError = Literal["warn", "raise"]
_ALLOWED = {"uncaptured": ("callback", "drop", "warn", "error"), "on_error": ("warn", "raise")}


@dataclass(frozen=True)
class _Settings:
    uncaptured: str = "callback"
    on_error: str = "warn"


class Loss(NamedTuple):
    """A metric that a compiled program had to leave out."""

    name: str
    """The name of the metric."""
    reason: str
    """Why, and what to do about it."""
    line: str
    """Where it was logged, `file:line`, as far as that is known."""

    @property
    def message(self) -> str:
        """All of it in one sentence."""
        where = f" ({self.line})" if self.line else ""
        return f"metric {self.name!r}{where} {self.reason}"


_now = _Settings()
_lock = new_lock()
_lost: Counter[str] = Counter()
_recording = threading.local()


def current() -> _Settings:
    """Return the settings in force."""
    return _now


@final
class _Restore:
    """Puts the earlier settings back at the end of a `with` block."""

    def __init__(self, earlier: _Settings) -> None:
        self._earlier = earlier

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        global _now  # noqa: PLW0603
        _now = self._earlier


def settings(*, uncaptured: Uncaptured | None = None, on_error: OnError | None = None) -> _Restore:
    """Choose what happens where logging in compiled code meets its limits; for the whole process.

    Called alone it holds from now on, in a `with` statement until the end of the block. A compiled function keeps the
    settings that held when it was compiled.

    Args:
        uncaptured: What becomes of a `log` in a function that nothing captures, such as one under plain `jax.jit`:
            `"callback"` (the default) delivers it by host callback, `"drop"` leaves it out, `"warn"` leaves it out
            with one warning for each name, `"error"` raises `CaptureError` when the function is compiled.
        on_error: What becomes of a metric that cannot be captured: `"warn"` (the default) leaves it out, counts it
            in `losses()` and issues one `TrackwayWarning`; `"raise"` raises `CaptureError`, which is meant for tests.

    Raises:
        ValueError: if a value is none of these.
    """
    global _now  # noqa: PLW0603 - one process, one set of rules
    earlier = _now
    for name, value in (("uncaptured", uncaptured), ("on_error", on_error)):
        if value is None:
            continue
        if value not in _ALLOWED[name]:
            allowed = ", ".join(map(repr, _ALLOWED[name]))
            _now = earlier
            raise ValueError(f"capture.settings: {name} must be one of {allowed}, got {value!r}")
        _now = replace(_now, **{name: value})
    return _Restore(earlier)


def losses() -> dict[str, int]:
    """Return the names of the metrics that compiled programs had to leave out, and how many programs did so."""
    with _lock:
        return dict(_lost)


def problem(name: str, reason: str, line: str = "") -> None:
    """Deal with a metric that is left out for *reason*.

    Raises:
        CaptureError: if the settings say so.
    """
    report(Loss(name, reason, line))


def differ(first: str, second: str, line: str) -> None:
    """Deal with two metrics whose steps are known to differ in one call of a compiled function.

    Raises:
        CaptureError: if the settings say so.
    """
    where = f" ({line})" if line else ""
    same = f"metric {first!r} is logged at two different steps" if first == second else ""
    what = same or f"metrics {first!r} and {second!r} are logged at different steps"
    message = (
        f"{what} in one call of a compiled function{where}. Give both the same `step`, or make the steps the "
        "iterations of a `jax.lax.scan`, each of which is a row"
    )
    if _now.on_error == "raise":
        raise CaptureError(message)
    kept = "the samples are reduced to one, at the last step" if same else "each is kept at its own step"
    _notices.warn_once(("steps differ", first, second), f"{message}. For now {kept}.", line)


def report(loss: Loss) -> None:
    """Count, tell and record *loss*."""
    if _now.on_error == "raise":
        raise CaptureError(loss.message)
    records = getattr(_recording, "stack", ())
    if not (records and loss in records[0]):  # an inner function is met at each of its calls
        with _lock:
            _lost[loss.name] += 1
    for record in records:
        record.append(loss)
    said = f"{loss.message}. It is left out; training goes on."
    _notices.warn_once(("capture", loss.name, loss.reason), said, loss.line)


def failed(what: str, error: Exception) -> None:
    """Tell that capturing failed for a reason of ours; call it where an exception is handled.

    Raises:
        Exception: *error* itself, if the settings say so.
    """
    if _now.on_error == "raise":
        raise error
    with _lock:
        _lost[what] += 1
    _notices.warn_once(
        ("capture failed", what, type(error)),
        f"capturing what is logged in {what} failed, and it is not kept; training goes on. Please report this: "
        f"{type(error).__name__}: {error}",
    )


@contextlib.contextmanager
def recording() -> Iterator[list[Loss]]:
    """Collect what is reported on this thread in the block."""
    stack = _recording.__dict__.setdefault("stack", [])
    record: list[Loss] = []
    stack.append(record)
    try:
        yield record
    finally:
        stack.pop()


def recorded(function: Callable[[], T]) -> tuple[T, tuple[Loss, ...]]:
    """Call *function*; return its result and what was reported meanwhile."""
    with recording() as record:
        result = function()
    return result, tuple(record)
