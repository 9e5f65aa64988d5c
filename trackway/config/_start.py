"""Starting a run, and ending it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from trackway.config._agree import AGREE_TIMEOUT, Agreement
from trackway.config._base import TrackerConfig
from trackway.config._context import fresh_context
from trackway.config._observers import AlertsOption, EventsOption, RedactOption, ready_alerts, ready_events
from trackway.config._redaction import redacting, warn_of_marks
from trackway.config._resume import ResumeState, read_state
from trackway.config._run_options import check_run_options, entries_of, store_config, without_default
from trackway.config._startup import Startup
from trackway.run import Run, StepPolicy, _exits
from trackway.tracker import Tracker, log_configuration
from trackway.tracker._current import active_tracker, push
from trackway.tracker._verbs import _plain_config

__all__ = ["finish", "start"]


def start(
    trackers: Iterable[TrackerConfig | Tracker] | TrackerConfig | Tracker | None = None,
    *,
    run_id: str | None = None,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - the field's word
    resume: Literal["allow", "must", "never"] = "allow",
    resume_state: Mapping[str, Any] | None = None,
    step_policy: StepPolicy = "monotonic",
    print: bool | Callable[[str], Any] = False,  # noqa: A002 - likewise
    strict_json: bool = False,
    store: bool = True,
    events: EventsOption = None,
    hooks: Iterable[Any] = (),
    alerts: AlertsOption = None,
    redact: RedactOption = None,
    agree_timeout: float = AGREE_TIMEOUT,
    config: Any = None,
) -> Run:
    """Start a run and make it current: `trackway.log` and the other verbs talk to it until it is finished.

    ```python
    with trackway.start(config.trackers, run_id="digits", config=config) as run:
        trackway.log({"loss": loss}, step=step)
    ```

    The run is kept in the directory `<dir>/<run_id>`, whatever the other trackers are. It ends with the block, with
    `trackway.finish()`, or with the program. A start that fails leaves nothing behind: what was started is finished,
    a directory that was made is removed, and the tracker that was current before still is.

    Args:
        trackers: Configs, as in YAML, and trackers that are started already, which the run then finishes. One of them
            may be `LocalConfig`, for options of the run directory. None is the run directory alone.
        run_id: The run's id. None takes `TRACKWAY_RUN_ID`, else the id in *resume_state*, else makes one up.
        dir: The folder of run directories, made absolute now, or an fsspec URL such as `s3://bucket/runs`. None takes
            `TRACKWAY_DIR`, or "runs".
        resume: Whether a run of that id is continued if there is one ("allow"), has to be there ("must"), or must not
            ("never").
        resume_state: What `run.state_dict()` returned when a checkpoint was written. The run goes on from there: rows
            logged since then are superseded, see `Run.rewind`.
        step_policy: What becomes of rows whose step lies behind: "monotonic" drops them, "allow" keeps them, "error"
            raises `StepError`, see `Run`.
        print: Print each committed row as one line; a callable, such as `logger.info`, gets the line instead.
        strict_json: Write NaN and infinities as null with what they were beside it, for parsers that refuse them.
        store: False keeps no run directory: then there is no history, and nothing to continue but by *resume_state*.
        events: How events are told: a `trackway.events.EventsConfig`, or a mapping of its fields. None prints each as
            one line. See "Events".
        hooks: Who is called with every event, beside the hooks in *events*: callables that take the event's name and
            its payload, objects with `on_event`, or import paths, "package.module:name".
        alerts: Rules that are looked at with every committed row, such as `"isnan(loss) => error: diverged"`, or a
            `trackway.alerts.AlertsConfig`, or a mapping of its fields. See "Alerts".
        redact: Which values are secrets and replaced by fingerprints, in this process from now on: a
            `trackway.values.RedactionPolicy`, a mapping of its fields, or False for none. None leaves it as it is. See
            "Secrets".
        agree_timeout: In a job of several processes under `jax.distributed`, the seconds for which the others wait
            until rank 0 has started the run, whose id they take. Every process calls `start`, in the same order.
        config: The program's configuration, a dataclass or a mapping, for `log_configuration`.

    Returns:
        The run. With `TRACKWAY_MODE=disabled` it keeps nothing, and a `NoopTracker` stands for each tracker.

    Raises:
        ConfigError: if an argument or environment variable is wrong, a tracker cannot be started, or *resume* forbids;
            in a job of several processes also if rank 0 could not start, or the processes have no common run id.
        RunBusyError: if another process, or another run of this one, writes to the directory.
        LifecycleError: from a commit, print or alert callback of a run.
        TypeError: if *config* is neither a dataclass nor a mapping.
    """
    _exits.refuse_in_callback()
    with Agreement(agree_timeout) as agreement, redacting(redact):
        check_run_options(
            run_id=run_id,
            dir=dir,
            resume=resume,
            step_policy=step_policy,
            print=print,
            strict_json=strict_json,
            store=store,
            agree_timeout=agree_timeout,
        )
        told, watched = ready_events(events, hooks), ready_alerts(alerts)
        entries = entries_of(trackers) if store else without_default(entries_of(trackers))
        local = store_config(entries, dir, strict_json=strict_json, store=store)
        plain = None if config is None else _plain_config(config)
        warn_of_marks(config)
        state = read_state(resume_state)
        base = os.fspath(dir) if dir is not None else local.dir if local is not None else None
        startup = Startup(fresh_context(agreement.run_id(run_id, state), base), resume, state)
        try:
            run = startup.run(
                entries,
                local,
                step_policy=step_policy,
                print=print,
                events=told,
                alerts=watched,
            )
            _begin(run, state)
            startup.announce()
            if plain is not None:
                log_configuration(plain)
        except BaseException as error:
            agreement.failed(error)  # before what has begun is ended, which may take a while
            startup.undo(error)
            raise
    return run


def _begin(run: Run, state: ResumeState | None) -> None:
    if state is not None and run.state_dict()["next_step"] != state.next_step:
        run.rewind(state.next_step)
    push(run)


def finish() -> None:
    """Finish the current run, as `Run.finish` does; nothing happens where the current tracker is no run.

    Raises:
        LifecycleError: from a commit, print or alert callback of the run.
        TrackerFinishError: if rows could not be kept, or a required tracker failed.
    """
    run = active_tracker()
    if isinstance(run, Run):
        run.finish()
