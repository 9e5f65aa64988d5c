"""The interface that every backend implements."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeAlias

from trackway.tracker._queued_first import queued_first, with_queued_first
from trackway.tracker._span import Span
from trackway.values import LoggableValue

__all__ = ["AlertLevel", "ArtifactPath", "Tracker", "check_tracker", "name_of"]

AlertLevel = Literal["info", "warning", "error"]
ArtifactPath: TypeAlias = str | os.PathLike[str]


class Tracker(ABC):
    """Receives the metrics, hyper-parameters, summary and artifacts of one run.

    A backend implements the five abstract methods and sets `name`; everything else has a default. The name and the
    five methods come from Hugging Face Accelerate by way of Levanter, so trackers written for those look familiar.

    An implementation may raise: whoever calls it through the verbs (`trackway.log`, ...) or a `CompositeTracker` is
    kept from the failure, which is counted and reported once. It need not be thread-safe unless it is used from
    several threads; every tracker of this library is.

    As a context manager a tracker becomes the current one for the block and is finished at its end:

    >>> from trackway.tracker import NoopTracker, current_tracker, log
    >>> with NoopTracker() as tracker:
    ...     log({"loss": 0.5}, step=0)
    ...     current_tracker() is tracker
    True
    """

    name: str
    """What `get_tracker(name)` finds it by; a backend's `type` in YAML, or the `label` given there."""

    takes_pending: ClassVar[bool] = False
    """Whether its methods accept rows with values that are still on a device (`trackway.values.Pending`). The verbs
    have them ready for the others, in the order in which they were logged, without stopping the training loop."""

    self_contained: ClassVar[bool] = False
    """Whether its methods keep failures from the caller and rows in order by themselves, as those of a `Run` do."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        with_queued_first(cls)

    @abstractmethod
    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Record the run's hyper-parameters. May be called again: later values replace earlier ones of a key."""

    @abstractmethod
    def log(self, metrics: Mapping[str, LoggableValue | Any], *, step: int | None, commit: bool | None = None) -> None:
        """Record one row of metrics.

        Args:
            metrics: Names to values. Nested mappings are allowed; the mapping is neither kept nor changed.
            step: The training step, any integer. None takes the tracker's own counter: the last step + 1.
            commit: For trackers that merge several calls into one row: False leaves the row open, True closes it.
                Trackers without rows ignore it.
        """

    @abstractmethod
    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Record values that describe the run as a whole; they win over the automatic last value of a name."""

    @abstractmethod
    def log_artifact(self, artifact_path: ArtifactPath, *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002
        """Store a file or a folder with the run.

        Args:
            artifact_path: A local file or folder. Once the call has returned, the caller may change or delete it.
            name: The artifact's name; None takes the last part of the path.
            type: A free-form kind such as "model" or "dataset".
        """

    @abstractmethod
    def finish(self) -> None:
        """Write out what is pending and release resources. Calling it again does nothing."""

    def log_event(self, event: str, payload: Mapping[str, Any], *, step: int | None = None) -> None:
        """Record that something happened (a checkpoint, an evaluation). The default ignores it."""

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add numbers to the open row, for trackers that keep one; the default logs them as a row of their own."""
        self.log(metrics, step=None)

    def log_span(self, span: Span) -> None:
        """Record a measured stretch of time. The default adds its seconds to the open row, as `time/<its name>`."""
        self.add({f"time/{span.name}": span.seconds})

    def alert(self, title: str, text: str = "", *, level: AlertLevel = "warning") -> None:
        """Tell a person. The default ignores it."""

    def open_step(self) -> int | None:
        """Return the step of the row now open, or None where the tracker keeps no open row."""
        return None

    def first_missing_step(self) -> int | None:
        """Return the first step of this run that is not yet where this tracker keeps rows; the default is None.

        A run that is continued asks before anything else, and has the rows from that step on, which its store kept,
        delivered first. A service that answers gets what an earlier process could not send, each row once. None means
        that it is not known: what was handed to the tracker before is then taken to have arrived.
        """
        return None

    def rewind(self, step: int) -> None:
        """Note that the rows from *step* on are superseded by those that follow. The default ignores it.

        A run that goes on from an earlier checkpoint calls it before the first of these.
        """

    @queued_first
    def flush(self) -> None:
        """Block until everything logged so far is where this tracker puts it. The default does nothing."""

    def mark_failed(self, error: BaseException) -> None:
        """Note, before `finish`, that the run ends because of *error*. The default ignores it."""

    def __enter__(self) -> Self:
        from trackway.tracker._current import push

        push(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from trackway.tracker._current import leave

        leave(self, exc)


def name_of(tracker: Tracker) -> str:
    """Return the tracker's name, or its class where a third-party tracker forgot to set one."""
    return str(getattr(tracker, "name", None) or type(tracker).__name__)


def check_tracker(value: Any, who: str) -> Tracker:
    """Return *value* if it is a tracker.

    Raises:
        TypeError: if not; the usual mistake is to give a configuration.
    """
    if isinstance(value, Tracker):
        return value
    is_config = callable(getattr(value, "build", None))
    cure = " call `.build()` on a configuration" if is_config else " derive it from Tracker"
    raise TypeError(f"{who} takes a tracker, got {type(value).__name__};{cure}")
