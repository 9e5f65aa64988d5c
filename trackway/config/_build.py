"""Starting trackers: their own `init`, and around it what the common options ask for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, final

from trackway import _notices
from trackway.config._context import RunContext, entered, fresh_context, run_context
from trackway.config._environment import mode, run_id_from_environment
from trackway.config._options import check_options, filter_policy
from trackway.config._registry import type_name
from trackway.config._run_id import check_run_id, new_run_id
from trackway.errors import ConfigError, TrackwayError
from trackway.tracker import (
    BackgroundPolicy,
    BackgroundTracker,
    FilteredTracker,
    FilterPolicy,
    NoopTracker,
    RequiredTracker,
    Tracker,
    process_rank,
)

if TYPE_CHECKING:
    from trackway.config._base import TrackerConfig
    from trackway.store import LocalTracker
    from trackway.tracker._backlog import Backlog

__all__ = ["Backlogs", "Member", "build", "build_bare", "context_for", "run_id_or_new"]


class Member(NamedTuple):
    """A tracker as built, and why nothing reaches its backend; None where it is active."""

    tracker: Tracker
    off: str | None = None


def context_for(run_id: str | None) -> RunContext:
    """Return the run to build for: the one that is being built already, or that of *run_id*.

    Where *run_id* is None it is taken from `TRACKWAY_RUN_ID`, else made up.
    """
    outer = run_context()
    if outer is not None and run_id in {None, outer.run_id}:
        return outer
    return fresh_context(run_id_or_new(run_id))


def run_id_or_new(run_id: str | None, last_resort: str | None = None) -> str:
    """Return *run_id*, checked, else what `TRACKWAY_RUN_ID` holds, else *last_resort*, else a new id."""
    if run_id is not None:
        return check_run_id(run_id)
    given = run_id_from_environment() or last_resort
    if given is None and process_rank() != 0:
        _notices.log_once(
            "rank without run id",
            f"rank {process_rank()} makes up a run id of its own, because none is given; pass run_id or set "
            "TRACKWAY_RUN_ID so that all ranks of the job write to one run",
        )
    return given or new_run_id()


def _why_off(config: TrackerConfig) -> str | None:
    """Return why the backend is not to be started in this process, or None if it is."""
    if mode() == "disabled":
        return "TRACKWAY_MODE=disabled"
    if config.ranks == "primary" and process_rank() != 0:
        return f"only rank 0 uses it, this is rank {process_rank()}"
    return None


def build(config: TrackerConfig, context: RunContext, path: str, backlogs: Backlogs | None = None) -> Member:
    """Return the tracker of *config*, started and wrapped.

    Args:
        config: Its configuration.
        context: The run.
        path: Says in errors which one it is.
        backlogs: What the tracker can catch up from if it falls behind; None where it cannot.
    """
    member = build_bare(config, context, path)
    return member if member.off else Member(_wrapped(config, member.tracker, context, backlogs))


def build_bare(config: TrackerConfig, context: RunContext, path: str, **more: Any) -> Member:
    """The same without the wrappers; *more* is passed on to the config's `init`."""
    check_options(config)
    name = config.label or type_name(type(config))
    off = _why_off(config)
    if off:
        return Member(NoopTracker(name), off)
    try:
        with entered(context):
            return Member(_started(config, context.run_id, name, more))
    except Exception as error:
        if config.on_init_error == "raise":
            _raise_with_path(error, path, config)
        _notices.logger.warning("%s is left out: %s; training goes on without it", path, _reason(error))
        _notices.logger.debug("traceback of the above", exc_info=error)
        return Member(NoopTracker(name), "could not be started")


def _started(config: TrackerConfig, run_id: str, name: str, more: dict[str, Any]) -> Tracker:
    tracker = config.init(run_id, **more)
    if not isinstance(tracker, Tracker):
        raise ConfigError(f"{type(config).__qualname__}.init returned a {type(tracker).__name__}, not a Tracker")
    if config.label or not getattr(tracker, "name", None):
        try:
            tracker.name = name
        except AttributeError as error:
            raise ConfigError(
                f"label={name!r} cannot be given to {type(tracker).__qualname__}, whose `name` is read-only; "
                "leave the label out, or make `name` a plain attribute of the tracker"
            ) from error
    return tracker


def _raise_with_path(error: Exception, path: str, config: TrackerConfig) -> NoReturn:
    if isinstance(error, TrackwayError) and not isinstance(error, ConfigError):
        error.add_note(f"while starting {path}")  # its type says more than ours would
        raise error
    cause = error.__cause__ if isinstance(error, ConfigError) else None
    cure = "" if config.required else ". To train on without it: `on_init_error: skip`"
    raise ConfigError(f"{path} could not be started: {_reason(error)}{cure}") from cause or error


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TrackwayError) else f"{type(error).__name__}: {error}"


def _wrapped(config: TrackerConfig, tracker: Tracker, context: RunContext, backlogs: Backlogs | None) -> Tracker:
    policy_of_rows = filter_policy(config)
    if config.background:
        policy = config.background if isinstance(config.background, BackgroundPolicy) else None
        name = config.label or type_name(type(config))
        backlog = None if backlogs is None else backlogs.make(name, policy_of_rows, context.next_step)
        tracker = BackgroundTracker(tracker, policy, required=config.required, backlog=backlog)
        if context.resumed:
            tracker.make_good()
    elif config.required:
        tracker = RequiredTracker(tracker)
    if policy_of_rows.passes_all:
        return tracker
    return FilteredTracker(tracker, policy_of_rows, first_step=context.next_step or 0)


@final
class Backlogs:
    """Makes what the trackers of a run catch up from: the rows of *store*, and a note for each of how far it came."""

    def __init__(self, store: LocalTracker) -> None:
        self._store = store
        self._names: Counter[str] = Counter()

    def make(self, name: str, policy: FilterPolicy, next_step: int | None) -> Backlog:
        """Return that of the tracker called *name*, which sees what *policy* lets pass of the rows before *next_step*.

        Of several of one name each has a note of its own, by their order.
        """
        from trackway.store._backlog import StoreBacklog

        self._names[name] += 1
        number = self._names[name]
        note = name if number == 1 else f"{name}-{number}"
        return StoreBacklog(self._store, note, lambda call: policy.call(call, call.kwargs["step"]), below=next_step)
