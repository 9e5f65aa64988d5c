"""Finding a tracker by name behind composites and wrappers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, overload

from trackway.tracker._current import current_tracker
from trackway.tracker._dispatch import ForwardingTracker, walk
from trackway.tracker._interface import Tracker, name_of

if TYPE_CHECKING:
    from trackway.backends.console import ConsoleTracker
    from trackway.backends.json_logger import JsonLoggerTracker
    from trackway.backends.tensorboard import TensorboardTracker
    from trackway.store import LocalTracker

__all__ = ["get_tracker", "leaves"]


def leaves(tracker: Tracker) -> Iterator[Tracker]:
    """Yield the trackers that stand in front of no other: the backends themselves."""
    return (t for t in walk(tracker) if not isinstance(t, ForwardingTracker))


@overload
def get_tracker(name: Literal["tensorboard"]) -> TensorboardTracker: ...
@overload
def get_tracker(name: Literal["json_logger"]) -> JsonLoggerTracker: ...
@overload
def get_tracker(name: Literal["console"]) -> ConsoleTracker: ...
@overload
def get_tracker(name: Literal["local"]) -> LocalTracker: ...
@overload
def get_tracker(name: str) -> Tracker: ...
def get_tracker(name: str) -> Tracker:
    """Return the tracker called *name* in the current tracker, looking through composites and wrappers.

    The name is a backend's type ("tensorboard"), or its `label` where one was configured. What comes back is the
    backend itself, so that `get_tracker("tensorboard").writer` is the SummaryWriter. What is called on it goes straight
    there: ahead of rows that wait in a background queue or for a device, past filters, and what it raises reaches the
    caller. A backend that is disabled or not used in this process is a `NoopTracker` of that name.

    >>> from trackway.tracker import CompositeTracker, NoopTracker, current_tracker, get_tracker
    >>> with current_tracker(CompositeTracker([NoopTracker()])):
    ...     get_tracker("noop").log({"loss": 0.5}, step=0)

    Raises:
        NoTrackerError: if no tracker is current.
        KeyError: if none has that name; the message lists the names there are.
    """
    root = current_tracker()
    for tracker in (*leaves(root), *walk(root)):
        if name_of(tracker) == name:
            return tracker
    names = ", ".join(sorted({name_of(tracker) for tracker in walk(root)}))
    raise KeyError(f"no tracker is called {name!r}; there are: {names}")
