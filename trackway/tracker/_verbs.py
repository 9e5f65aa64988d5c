"""The functions that training code calls; each talks to the current tracker."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trackway import _notices
from trackway.errors import TrackwayError
from trackway.tracker._ambient import NOTHING, Ambient, ambient, placed, raw_items
from trackway.tracker._callbacks import DEFERRED, raise_deferred
from trackway.tracker._current import active_tracker
from trackway.tracker._delivery import deliver_late, send
from trackway.tracker._dispatch import Call
from trackway.tracker._interface import ArtifactPath
from trackway.tracker._steps import PendingStep, held_step
from trackway.values import LoggableValue, normalise
from trackway.values._normalise import source_of

__all__ = [
    "REDUCTIONS",
    "check_reduce",
    "deliver",
    "deliver_late",
    "log",
    "log_artifact",
    "log_configuration",
    "log_event",
    "log_hyperparameters",
    "log_summary",
    "tracing",
]

REDUCTIONS = ("mean", "sum", "max", "min", "last", "std", "stack", "rows")
"""Names of the plain reductions of values logged in compiled code."""

_trace_active: Callable[[], bool] | None = None
_jit_log: Callable[..., None] | None = None


def log(
    metrics: Mapping[str, LoggableValue | Any],
    *,
    step: int | None = None,
    commit: bool | None = None,
    reduce: Any = "mean",
    weight: Any = None,
) -> None:
    """Log metrics to the current tracker; inside compiled JAX code too.

    Where no tracker is set this warns once and does nothing, so that instrumented code runs in a unit test. What a
    tracker raises is counted and reported once; it does not reach the caller.

    Values and a step that a device is still computing are not waited for: the row keeps its place, and is delivered
    once they are there, by a later call of a verb. With more than eight such rows the call waits for the oldest.
    `flush`, `finish` and the end of a block of the tracker deliver what waits; other methods called on the tracker
    itself go ahead of it.

    Args:
        metrics: Names to values: numbers, arrays, text, `Histogram`, `Image`, ..., nested mappings of them. The
            mapping is neither kept nor changed. See "What you can log" in the documentation.
        step: The training step, any integer; None takes the tracker's own counter. In compiled code it may be a
            traced integer.
        commit: For trackers that merge calls into rows: False leaves the row open, True closes it, None takes the
            tracker's default.
        reduce: Compiled code only, checked everywhere: how the samples of one name become one value: `mean`, `sum`,
            `max`, `min`, `last`, `std`, `stack`, `rows`, a `trackway.capture.Hist` or `Ring`, or a mapping from names
            to these. See "Logging inside jit" in the documentation.
        weight: Compiled code only: the weight of this sample, one number.

    Raises:
        StepError: if *step* is not an integer.
        TypeError: if *metrics* is not a mapping.
        ValueError: if *reduce* is unknown; in compiled code, if *commit* is True or *weight* is not one number.
        FatalTrackerError: if a tracker declared `required: true` failed, at this row or at one that waited.
    """
    if "jax" in sys.modules and tracing():
        assert _jit_log is not None
        _jit_log(metrics, step=step, commit=commit, reduce=reduce, weight=weight)
        return
    if reduce != "mean":
        check_reduce(reduce)
    held = step if type(step) is int or step is None else held_step(step)
    late = None if type(metrics) is dict else getattr(type(metrics), "__trackway_late__", None)
    state = ambient()
    if late is not None and state.collector is None:
        late(metrics, held, commit)
        return
    if state is NOTHING:
        tracker = active_tracker()
        if tracker is not None and tracker.self_contained and not DEFERRED:
            tracker.log(metrics, step=held, commit=commit)  # type: ignore[arg-type]  # may be a step on a device
            return
        deliver(Call("log", (metrics,), {"step": held, "commit": commit}))
    else:
        _log_within(state, metrics, held, commit)


def _log_within(state: Ambient, metrics: Any, step: int | PendingStep | None, commit: bool | None) -> None:
    if state.muted:
        source_of(metrics)  # what is no mapping is an error all the same
    elif state.collector is not None:
        state.collector.update(raw_items(metrics, state.prefix))
    else:
        step = held_step(step)  # before the payload is read
        if step is None and state.step is not None:
            step, commit = state.step, False if commit is None else commit
        deliver(Call("log", (placed(metrics, state.prefix),), {"step": step, "commit": commit}))


def check_reduce(reduce: Any) -> None:
    """Raise `ValueError` if *reduce* is not a reduction, or a mapping from names to some."""
    if isinstance(reduce, Mapping):
        for one in reduce.values():
            check_reduce(one)
    elif not (
        type(reduce).__module__.startswith("trackway.capture.") or (isinstance(reduce, str) and reduce in REDUCTIONS)
    ):
        raise ValueError(
            f"reduce must be one of {', '.join(REDUCTIONS)}, a Hist or a Ring, or a mapping from names of metrics to "
            f"these; got {reduce!r}"
        )


def log_summary(metrics: Mapping[str, Any]) -> None:
    """Log values that describe the run as a whole, such as a best loss, to the current tracker.

    They win over the automatic last value of a name. Errors as for `log`.
    """
    if not ambient().muted:
        deliver(Call("log_summary", (metrics,)))


def log_hyperparameters(hparams: Mapping[str, Any]) -> None:
    """Log hyper-parameters to the current tracker; a later call adds to them and replaces equal names.

    Errors as for `log`.
    """
    if not ambient().muted:
        deliver(Call("log_hyperparameters", (hparams,)))


def log_configuration(config: Any, *, name: str = "config.yaml") -> None:
    """Log a whole configuration: its fields as hyper-parameters, and a YAML file of it as an artifact.

    Args:
        config: A dataclass instance (encoded by draccus, so that the file can be read back with it), or a mapping.
        name: The artifact's name.

    Raises:
        TypeError: if *config* is neither.
    """
    plain = _plain_config(config)
    if ambient().muted:
        return
    log_hyperparameters(plain)
    import tempfile

    from trackway.tracker._yaml import dump

    with tempfile.TemporaryDirectory(prefix="trackway-config-") as folder:
        path = Path(folder) / Path(name).name
        path.write_text(dump(plain), encoding="utf-8")
        log_artifact(path, name=name, type="config")


def log_artifact(artifact_path: ArtifactPath, *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002
    """Store a file or folder with the run of the current tracker.

    Args:
        artifact_path: A local file or folder, which may be changed or deleted once the call has returned.
        name: The artifact's name; None takes the last part of the path.
        type: A free-form kind such as "model" or "dataset".
    """
    if not ambient().muted:
        deliver(Call("log_artifact", (artifact_path,), {"name": name, "type": type}))


def log_event(event: str, payload: Mapping[str, Any] | None = None, *, step: int | None = None) -> None:
    """Tell the current tracker that something happened, such as a checkpoint. A run tells everyone, see `Run.hooks`.

    Args:
        event: The event's name, such as "checkpoint".
        payload: Names to values, as for `log`; None for an event that brings nothing.
        step: The training step; None takes that of `at_step`, else a run takes that of its open row.

    Raises:
        StepError: if *step* is not an integer.
        TypeError: if *payload* is not a mapping, or *event* is not a text.
    """
    if not isinstance(event, str):
        raise TypeError(f"log_event takes the name of an event, got {type(event).__name__}")
    state = ambient()
    if state.muted:
        return
    if step is None and state.step is not None:
        step = state.step
    payload = {} if payload is None else payload
    tracker = active_tracker()
    if tracker is not None and tracker.self_contained and not DEFERRED:
        tracker.log_event(event, payload, step=step)
        return
    deliver(Call("log_event", (event, payload), {"step": held_step(step)}))


def deliver(call: Call) -> None:
    """Make *call* on the current tracker, keeping its failure from the caller; warn once where there is none."""
    tracker = active_tracker()
    if tracker is None:
        _notices.warn_once(
            "no tracker",
            f"trackway.{call.method} was called while no tracker is set, and what it was given is not kept; wrap the "
            "code in `with trackway.current_tracker(tracker):`, on the thread that logs, or call "
            "`trackway.set_global_tracker(tracker)` (shown once)",
        )
        return
    if DEFERRED:
        raise_deferred()
    send(call, tracker)


def tracing() -> bool:
    """Whether a JAX trace is active on this thread; looks the capture layer up once JAX is there."""
    global _trace_active, _jit_log  # noqa: PLW0603 - a look-up upwards, made once
    if _trace_active is None:
        capture = importlib.import_module("trackway.capture")
        _jit_log = capture.traced_log
        _trace_active = capture.trace_active
    return _trace_active()


def _plain_config(config: Any) -> Mapping[str, Any]:
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return normalise(_encoded(config), reserved=False)
    if isinstance(config, Mapping):
        return normalise(config, reserved=False)
    raise TypeError(
        f"log_configuration takes a dataclass instance or a mapping, got {type(config).__name__}; for anything else "
        "call log_hyperparameters with a mapping of its values"
    )


def _encoded(config: Any) -> Any:
    """The dataclass as draccus writes it, which keeps the `type` of choices; by its fields where draccus cannot."""
    try:
        import draccus

        return draccus.encode(config)
    except TrackwayError:
        raise
    except Exception as error:
        _notices.log_once(
            ("encode", type(config)),
            f"draccus cannot encode {type(config).__name__}, fields are logged: {error}",
        )
        return config
