"""How a run can end."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

__all__ = ["Preempted", "RunState", "state_of"]

RunState: TypeAlias = Literal["running", "finished", "failed", "interrupted", "preempted"]
"""State of a run; one that was killed stays "running"."""


@final
class Preempted(BaseException):
    """The process was told to end by a signal. Never raised: it is what `mark_failed` is told."""


def state_of(error: BaseException | None) -> RunState:
    """Return the state of a run that ends because of *error*."""
    if error is None or (isinstance(error, SystemExit) and error.code in {0, None}):
        return "finished"
    if isinstance(error, Preempted):
        return "preempted"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
