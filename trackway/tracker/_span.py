"""A stretch of time that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, final

__all__ = ["Span"]


@final
class Span(NamedTuple):
    """One measured stretch of time, as a tracker gets it.

    Attributes:
        name: What was measured, such as "data".
        path: The names of the enclosing spans and its own, joined by `/`.
        start: When it began, in seconds since 1970.
        seconds: How long it took.
        id: A number that no other span of this process has.
        parent: The number of the enclosing span, or None.
        thread: The number that the operating system gives the thread on which it ended.
        thread_name: That thread's name.
        attributes: What was given beside the name, plain values, not to be changed; None where nothing was.
        error: Type and text of the exception that ended it, or None.
        step: The step that `at_step` gave, or None.
    """

    name: str
    path: str
    start: float
    seconds: float
    id: int
    parent: int | None = None
    thread: int = 0
    thread_name: str = ""
    attributes: Mapping[str, Any] | None = None
    error: str | None = None
    step: int | None = None
