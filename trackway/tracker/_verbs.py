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
from trackway.tracker._callbacks import raise_deferred
from trackway.tracker._current import active_tracker
from trackway.tracker._dispatch import Call
from trackway.tracker._interface import ArtifactPath
from trackway.tracker._isolation import Isolation
from trackway.values import LoggableValue, normalise

__all__ = [
    "REDUCTIONS",
    "check_reduce",
    "deliver",
    "log",
    "log_artifact",
    "log_configuration",
    "log_hyperparameters",
    "log_summary",
]

REDUCTIONS = ("mean", "sum", "max", "min", "last", "std", "stack", "rows")
"""Names of the plain reductions of values logged in compiled code."""

_isolation = Isolation()
_trace_active: Callable[[], bool] | None = None
_jit_log: Callable[..., None] | None = None


def log(
    metrics: Mapping[str, LoggableValue | Any],
    *,
    step: int | None = None,
    commit: bool | None = None,
    reduce: str = "mean",
    weight: Any = None,
) -> None:
    """Log metrics to the current tracker; inside compiled JAX code too.

    Where no tracker is set this warns once and does nothing, so that instrumented code runs in a unit test. What a
    tracker raises is counted and reported once; it does not reach the caller.

    Args:
        metrics: Names to values: numbers, arrays, text, `Histogram`, `Image`, ..., nested mappings of them. The
            mapping is neither kept nor changed. See "What you can log" in the documentation.
        step: The training step, any integer; None takes the tracker's own counter. In compiled code it may be a
            traced integer.
        commit: For trackers that merge calls into rows: False leaves the row open, True closes it, None takes the
            tracker's default.
        reduce: Compiled code only: how several values of one name are to be combined: `mean`, `sum`, `max`, `min`,
            `last`, `std`, `stack` or `rows`. Checked, and without effect where each value is delivered by itself, as
            a host callback does.
        weight: Compiled code only: the weight of this value in a mean, likewise.

    Raises:
        StepError: if *step* is not an integer.
        TypeError: if *metrics* is not a mapping.
        ValueError: in compiled code, if *commit* is True or *reduce* is unknown.
        FatalTrackerError: if a tracker declared `required: true` failed.
    """
    if "jax" in sys.modules and _tracing():
        assert _jit_log is not None
        _jit_log(metrics, step=step, commit=commit, reduce=reduce, weight=weight)
        return
    if reduce != "mean":
        check_reduce(reduce)
    deliver(Call("log", (metrics,), {"step": step, "commit": commit}))


def check_reduce(reduce: str) -> None:
    """Raise `ValueError` if *reduce* is not the name of a reduction."""
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")


def log_summary(metrics: Mapping[str, Any]) -> None:
    """Log values that describe the run as a whole, such as a best loss, to the current tracker.

    They win over the automatic last value of a name. Errors as for `log`.
    """
    deliver(Call("log_summary", (metrics,)))


def log_hyperparameters(hparams: Mapping[str, Any]) -> None:
    """Log hyper-parameters to the current tracker; a later call adds to them and replaces equal names.

    Errors as for `log`.
    """
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
    deliver(Call("log_artifact", (artifact_path,), {"name": name, "type": type}))


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
    raise_deferred()
    _isolation.call(call, tracker)


def _tracing() -> bool:
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
