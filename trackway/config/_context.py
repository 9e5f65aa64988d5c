"""What a backend may know about the run that it is started for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import final

from trackway.config._environment import base_dir
from trackway.tracker import process_rank

__all__ = ["RunContext", "entered", "fresh_context", "run_context"]


@final
@dataclass(frozen=True)
class RunContext:
    """The run that trackers are being built for; `run_context` returns it inside `TrackerConfig.init`.

    Attributes:
        run_id: The run's id, checked to be a name; the same for all trackers of the run.
        directory: The run's own directory by default, absolute, or an fsspec URL: `<base_dir()>/<run_id>`.
        resumed: Whether the run goes on with an earlier one of the same id.
        next_step: The first step that is to come, where a resumed run knows it.
        attempt: The number of this attempt at the run, as in `run.json`; 1 for a run that is new, or kept nowhere.
        rank: This process's rank among those of the job.
        primary: Whether the rank is 0.
    """

    run_id: str
    directory: str
    resumed: bool = False
    next_step: int | None = None
    attempt: int = 1
    rank: int = 0
    primary: bool = True


_current: ContextVar[RunContext | None] = ContextVar("trackway_run_context", default=None)


def run_context() -> RunContext | None:
    """Return the run that trackers are being built for on this thread; None outside `build`."""
    return _current.get()


def fresh_context(run_id: str, base: str | None = None) -> RunContext:
    """Return the context of a run that starts anew in this process, in a folder of *base* (None: `base_dir()`)."""
    rank = process_rank()
    base = base_dir() if base is None else base
    if "://" in base:
        directory = f"{base.rstrip('/')}/{run_id}"
    else:
        directory = os.path.abspath(os.path.join(os.path.expanduser(base), run_id))  # noqa: PTH100, PTH111, PTH118 - a name, maybe not of a file
    return RunContext(run_id=run_id, directory=directory, rank=rank, primary=rank == 0)


@contextlib.contextmanager
def entered(context: RunContext) -> Iterator[RunContext]:
    """Make *context* the one that `run_context` returns, for a block."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
