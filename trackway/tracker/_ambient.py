"""What surrounds a call of `log`: a step, a prefix of names, silence, or a dictionary that collects."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, final

from trackway.errors import FatalTrackerError, StepError, TracerError
from trackway.tracker._steps import check_step
from trackway.values import Row, normalise
from trackway.values._normalise import source_of

__all__ = ["NOTHING", "Ambient", "ambient", "at_step", "change", "mute", "placed", "raw_items", "scope"]


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Ambient:
    """What holds for the calls of one thread or task. Blocks replace it; it never changes.

    Attributes:
        step: The step of rows that are logged without one.
        prefix: Put before the names of metrics; empty, or ends with a slash.
        muted: Whether nothing is logged.
        collector: Gets what `log` is given, in the place of a tracker.
    """

    step: int | None = None
    prefix: str = ""
    muted: bool = False
    collector: dict[str, Any] | None = None


NOTHING = Ambient()
"""What holds outside of every block."""

_state: ContextVar[Ambient] = ContextVar("trackway_ambient", default=NOTHING)

ambient = _state.get
"""Return what holds here. Safe from any thread; a new one starts with `NOTHING`."""


@contextlib.contextmanager
def change(**fields: Any) -> Iterator[Ambient]:
    """Hold other *fields* of `Ambient` for a block, and yield it all."""
    before = ambient()
    now = dataclasses.replace(before, **fields)
    _state.set(now)
    try:
        yield now
    finally:
        _state.set(before)  # a token could not be used where a generator is closed in another context


def mute() -> contextlib.AbstractContextManager[Ambient]:
    """Have the verbs do nothing in the block. Trackers can be flushed and finished all the same."""
    return change(muted=True)


def scope(name: str) -> contextlib.AbstractContextManager[Ambient]:
    """Put `name/` before the names of metrics that are logged in the block; scopes in it add theirs behind.

    Raises:
        ValueError: if *name* is no text, or has nothing beside slashes.
    """
    if not isinstance(name, str) or not name.strip("/"):
        raise ValueError(f"scope takes the text to put before names of metrics, such as 'train', got {name!r}")
    return change(prefix=f"{ambient().prefix}{name.strip('/')}/")


@contextlib.contextmanager
def at_step(step: int) -> Iterator[None]:
    """Give everything that is logged in the block without a step this one, as parts of one row.

    A call with a step of its own keeps it. At the end of the block the row is committed, where the tracker keeps open
    rows. Holds for the calls of this thread or asyncio task.

    Args:
        step: Any integer. One that a device is still computing is waited for.

    Raises:
        StepError: if *step* is not an integer.
        TracerError: inside a function that JAX compiles, where a step is given to `log` itself.
    """
    from trackway.tracker._verbs import tracing

    if "jax" in sys.modules and tracing():
        raise TracerError(
            "at_step cannot be entered while JAX traces a function: the block ends with the trace, not with the step. "
            "Give the step to the call, as in `trackway.log(metrics, step=step)`, or enter the block around the "
            "compiled function"
        )
    number = check_step(step)
    if number is None:
        raise StepError("at_step takes an integer, got None; leave the block out for the tracker's own steps")
    with change(step=number):
        try:
            yield
        except BaseException:
            with contextlib.suppress(FatalTrackerError):  # it must not mask the block's own
                _end_step(number)
            raise
        _end_step(number)


def _end_step(step: int) -> None:
    from trackway.tracker._current import active_tracker
    from trackway.tracker._delivery import commit_open

    state, tracker = ambient(), active_tracker()
    if tracker is not None and not state.muted and state.collector is None:
        commit_open(step, tracker)


def placed(payload: Mapping[str, Any], prefix: str) -> Row:
    """Return the row of *payload* with *prefix* before the names at its top; raises what `normalise` raises."""
    row = normalise(payload)
    return row.derive({f"{prefix}{name}": value for name, value in row.items()}) if prefix else row


def raw_items(payload: Any, prefix: str = "") -> dict[str, Any]:
    """Return the values of *payload* as they are, under their names at its top with *prefix* before them.

    Raises:
        TypeError: if *payload* is no mapping and nothing like one.
    """
    return {f"{prefix}{name}": read() for name, read in source_of(payload)}
