"""Methods of a tracker before which the rows that the verbs keep waiting for it are delivered."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from trackway.errors import FatalTrackerError

if TYPE_CHECKING:
    from trackway.tracker._interface import Tracker

__all__ = ["QUEUED_FIRST", "queued_first", "with_queued_first"]

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

QUEUED_FIRST = ("flush", "finish")
"""The methods that promise something about everything logged so far."""


def with_queued_first(cls: type) -> None:
    """Have the methods of *cls* named in `QUEUED_FIRST` deliver what waits first, wherever they come from."""
    for name in QUEUED_FIRST:
        method = getattr(cls, name, None)
        if inspect.isfunction(method) and not getattr(method, "__isabstractmethod__", False):
            ours = queued_first(method)
            if ours is not method:
                setattr(cls, name, ours)


def queued_first(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Return *method*, made to deliver what waits for the tracker first; unchanged if it does already."""
    if getattr(method, "__code__", None) is _CODE:
        return method
    return _wrapped(method)


def _wrapped(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    @functools.wraps(method)
    def deliver_first(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        from trackway.tracker._delivery import deliver_waiting

        try:
            deliver_waiting(cast("Tracker", self))
        except FatalTrackerError:
            method(self, *args, **kwargs)  # a run that is stopped is finished all the same
            raise
        return method(self, *args, **kwargs)

    return deliver_first


def _nothing(*_: Any) -> None: ...


_CODE = _wrapped(_nothing).__code__  # not an attribute, which functools.wraps would copy to what is wrapped around
