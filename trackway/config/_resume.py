"""Which run it is, what is there of it, and where an earlier process left off."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from trackway import _notices
from trackway.config._build import run_id_or_new
from trackway.config._context import RunContext
from trackway.config._errors import show
from trackway.config._run_id import check_run_id
from trackway.errors import ConfigError, StepError
from trackway.store._layout import MANIFEST, is_url, metrics_name
from trackway.tracker import check_step

__all__ = ["ResumeState", "check_resume", "choose_run_id", "is_there", "read_state"]


class ResumeState(NamedTuple):
    """Where a run goes on, as `Run.state_dict` told it to a checkpoint."""

    run_id: str
    next_step: int


def read_state(state: Any) -> ResumeState | None:
    """Return what *state*, a mapping that came from `Run.state_dict`, says; None for None.

    Raises:
        ConfigError: if it is anything else.
    """
    if state is None:
        return None
    wanted = "expected what `run.state_dict()` returned, a mapping of run_id and next_step"
    if not isinstance(state, Mapping):
        raise ConfigError(f"resume_state: {wanted}, got {show(state)} ({type(state).__name__})")
    missing = [name for name in ResumeState._fields if name not in state]
    if missing:
        raise ConfigError(f"resume_state: {wanted}; {' and '.join(missing)} missing in {show(dict(state))}")
    try:
        run_id, step = check_run_id(state["run_id"]), check_step(state["next_step"])
    except (ConfigError, StepError) as error:
        raise ConfigError(f"resume_state: {error}") from error
    if step is None:
        raise ConfigError(f"resume_state: {wanted}; next_step is null")
    return ResumeState(str(run_id), step)


def choose_run_id(run_id: str | None, state: ResumeState | None) -> str:
    """Return the id of the run: *run_id*, else `TRACKWAY_RUN_ID`, else that of *state*, else a new one.

    Raises:
        ConfigError: if *run_id* is another than that of *state*.
    """
    if state is None:
        return run_id_or_new(run_id)
    if run_id is not None and run_id != state.run_id:
        raise ConfigError(
            f"run_id is {run_id!r}, and that of resume_state {state.run_id!r}; leave run_id out to go on with the run "
            "of the checkpoint, or leave resume_state out to begin another"
        )
    chosen = run_id_or_new(run_id, state.run_id)
    if chosen != state.run_id:
        _notices.logger.warning(
            "run %s, as TRACKWAY_RUN_ID says, goes on from step %d of run %s, whose earlier rows stay where they are",
            chosen,
            state.next_step,
            state.run_id,
        )
    return chosen


def is_there(context: RunContext) -> bool:
    """Whether the directory holds something of the run that is for this process to continue.

    Raises:
        ConfigError: if it is an object store that cannot be asked.
    """
    if is_url(context.directory):
        from trackway.store._remote_store import exists

        return exists(context.directory, context.rank)
    names = (MANIFEST, metrics_name(0)) if context.primary else (metrics_name(context.rank),)
    return any(os.path.exists(f"{context.directory}/{name}") for name in names)  # noqa: PTH110 - never raises


def check_resume(resume: str, context: RunContext, *, exists: bool) -> None:
    """Refuse a run that is there, or is not, against what *resume* says.

    The primary process looks for all; the others could meet what it has made just now.

    Raises:
        ConfigError: saying how to get the other.
    """
    if resume == "must" and not exists and context.primary:
        raise ConfigError(
            f"resume: must, but there is no run in {context.directory}; check run_id and dir, or say resume: allow to "
            "begin it"
        )
    if resume == "never" and exists:
        raise ConfigError(
            f"resume: never, but {context.directory} holds a run; give another run_id, leave it out to get a new one, "
            "or say resume: allow to continue that run"
        )
