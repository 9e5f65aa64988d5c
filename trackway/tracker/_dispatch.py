"""One dispatch for all wrappers: each method of the interface becomes a `Call` that a wrapper handles in one place.

Because the methods are taken from the interface itself, a method added to `Tracker` passes through every wrapper
without anyone having to remember it.
"""

from __future__ import annotations

import functools
import inspect
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, final

from trackway.tracker._backlog import Place
from trackway.tracker._interface import Tracker
from trackway.tracker._queued_first import QUEUED_FIRST, with_queued_first
from trackway.tracker._steps import PendingStep, check_step
from trackway.values import Pending, Row, normalise, redacted_text, resolve
from trackway.values._redact import redacted_name
from trackway.values._row import pendings

__all__ = ["INTERFACE", "Call", "ForwardingTracker", "takes_pending", "walk"]

F = TypeVar("F", bound=Callable[..., Any])

INTERFACE: tuple[str, ...] = tuple(
    name for name, value in vars(Tracker).items() if inspect.isfunction(value) and not name.startswith("_")
)
"""Names of the methods that make up the tracker interface."""

_METRICS = frozenset({"log", "add"})


def _payload_parameter(method: str) -> tuple[int | None, str | None]:
    """Position and name of the parameter of *method* that takes a mapping of names to values."""
    parameters = list(inspect.signature(getattr(Tracker, method)).parameters.values())[1:]
    for position, parameter in enumerate(parameters):
        if str(parameter.annotation).startswith("Mapping"):
            return position, parameter.name
    return None, None


_PAYLOADS = {method: _payload_parameter(method) for method in INTERFACE}


_OPEN: dict[str, Any] = {"step": None, "commit": None}  # of all rows without a step: nobody changes those of a call


@final
class Call:
    """One call of an interface method, ready to be made on any number of trackers, now or later.

    Payloads are normalised and the step is checked when the call is made up, on the caller's thread: what is queued
    afterwards is independent of the caller's objects. Values, and a step made by `held_step`, may still be on a device.

    Attributes:
        method: Name of the method.
        args: Positional arguments.
        kwargs: Keyword arguments.
        payload: The mapping among them, normalised; None for a method without one.
        pending: Whether a value or the step is still on a device, or was when the call was made up.
        shared: Whether several trackers get the call, so that each needs a payload of its own.
        origin: Where a store has the row that the call brings; None where none has it.
    """

    __slots__ = ("_resolved", "args", "kwargs", "method", "origin", "payload", "pending", "shared")

    def __init__(self, method: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> None:
        """Make up a call of *method*; raises what `check_step` and `normalise` raise."""
        kwargs = dict(kwargs) if kwargs else {}
        self.pending = False
        if "step" in kwargs:  # first: a wrong step must not use up a generator in the payload
            self.pending = type(kwargs["step"]) is PendingStep
            if not self.pending:
                kwargs["step"] = check_step(kwargs["step"])
        self.method = method
        self.payload: Row | None = None
        self.shared = False
        self.origin: Place | None = None
        self._resolved: Call | None = None
        position, name = _PAYLOADS.get(method, (None, None))
        if position is None:
            args, kwargs = _told(method, args, kwargs)
        elif position < len(args):
            self.payload = _row(method, args[position])
            args = (*args[:position], self.payload, *args[position + 1 :]) if len(args) > 1 else (self.payload,)
        elif name in kwargs:
            self.payload = kwargs[name] = _row(method, kwargs[name])
        if self.payload is not None and self.payload.pending:
            self.pending = True
        self.args = args
        self.kwargs = kwargs

    @classmethod
    def of_row(cls, row: Row, step: int | PendingStep | None, commit: bool | None) -> Call:
        """Make up a call of `log` in less time: of a row that is normalised and holds nothing of a device.

        Raises:
            StepError: if *step* is not an integer, or does not fit in 64 bits.
        """
        call = cls.__new__(cls)
        call.method = "log"
        call.args = (row,)
        call.payload = row
        call.shared = False
        call.origin = call._resolved = None  # noqa: SLF001 - of the same class
        if step is None and commit is None:
            call.pending = False
            call.kwargs = _OPEN
            return call
        call.pending = type(step) is PendingStep
        call.kwargs = {"step": step if step is None or call.pending else check_step(step), "commit": commit}
        return call

    @property
    def is_row(self) -> bool:
        """Whether the call brings metrics, as opposed to a summary, an artifact, ..."""
        return self.method in _METRICS

    def waits_for(self) -> tuple[Pending | PendingStep, ...]:
        """Return what has to arrive before `resolved` returns without waiting."""
        if not self.pending:
            return ()
        step = self.kwargs.get("step")
        values = () if self.payload is None else pendings(self.payload)
        return (*values, step) if type(step) is PendingStep else tuple(values)

    def on(self, tracker: Tracker) -> Any:
        """Make the call on *tracker*; only wrappers, and who says so, are handed values that are still on a device."""
        if ForwardingTracker in type(tracker).__mro__:  # half the time of isinstance with an abstract class
            return cast("ForwardingTracker", tracker).receive(self)
        call = self.resolved() if self.pending and not tracker.takes_pending else self
        if call.shared and call.payload is not None:
            # a tracker that changes the mapping it was given must not change it for its neighbours
            call = call.with_payload(call.payload.copy())
        return getattr(tracker, call.method)(*call.args, **call.kwargs)

    def resolved(self) -> Call:
        """Return the call with step and values on the host, waiting for those that are not; done once.

        Raises:
            StepError: if the step cannot be read, or does not fit in 64 bits.
        """
        if not self.pending:
            return self
        if self._resolved is None:
            step = self.kwargs.get("step")
            number = step.resolve() if type(step) is PendingStep else None
            call = self if self.payload is None else self.with_payload(resolve(self.payload))
            self._resolved = call if number is None else call.with_step(number)
        return self._resolved

    def with_payload(self, row: Row) -> Call:
        """Return the call with its payload replaced by *row*."""
        call = Call.__new__(Call)
        call.method, call.payload, call.shared, call.origin = self.method, row, self.shared, self.origin
        call.pending = row.pending or type(self.kwargs.get("step")) is PendingStep
        call._resolved = None  # noqa: SLF001 - of the same class
        call.args = tuple([row if value is self.payload else value for value in self.args])
        call.kwargs = {name: row if value is self.payload else value for name, value in self.kwargs.items()}
        return call

    def with_step(self, step: int) -> Call:
        """Return the call with its step filled in."""
        if self.kwargs.get("step") == step:
            return self
        call = (
            self.with_payload(self.payload) if self.payload is not None else Call(self.method, self.args, self.kwargs)
        )
        call.kwargs = {**self.kwargs, "step": step}
        call.pending = call.payload is not None and call.payload.pending
        return call

    def __repr__(self) -> str:
        return f"Call({self.method})"


def _told(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a method without a payload, with marks in place of the secrets in their texts."""
    if method == "alert":
        told = tuple(redacted_text(value) if isinstance(value, str) else value for value in args)
        return told, {name: redacted_text(value) if isinstance(value, str) else value for name, value in kwargs.items()}
    if method == "log_artifact":
        return args, _named_artifact(args, kwargs)
    return args, kwargs


def _named_artifact(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of `log_artifact`, with a name that holds no secret where the one given, or the file's, does."""
    path = args[0] if args else kwargs.get("artifact_path")
    name = kwargs.get("name") or (Path(os.fsdecode(path)).name if isinstance(path, str | bytes | os.PathLike) else "")
    told = redacted_name(str(name))
    return kwargs if told == str(name) else {**kwargs, "name": told}


def _row(method: str, payload: Any) -> Row:
    return normalise(payload, reserved=method in _METRICS)


def _forwarded(method: F) -> F:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def forward(self: ForwardingTracker, *args: Any, **kwargs: Any) -> Any:
        signature.bind(self, *args, **kwargs)  # a wrong call is the caller's fault, not that of a tracker behind
        return self._forward(Call(method.__name__, args, kwargs))

    # wraps() copies the mark of abstractness along with everything else
    forward.__isabstractmethod__ = False  # type: ignore[attr-defined]
    return cast("F", forward)


class ForwardingTracker(Tracker):
    """Base of the wrappers: whatever is called arrives in `_forward` as one `Call`."""

    _overridden: ClassVar[frozenset[str]] = frozenset()

    log_hyperparameters = _forwarded(Tracker.log_hyperparameters)
    log_summary = _forwarded(Tracker.log_summary)
    log_artifact = _forwarded(Tracker.log_artifact)
    finish = _forwarded(Tracker.finish)

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:
        """Pass on one row of metrics, as `Tracker.log` says; *step* may be left out."""
        self._forward(Call("log", (metrics,), {"step": step, "commit": commit}))

    def receive(self, call: Call) -> Any:
        """Take a call that another wrapper passes on, as if its method had been called."""
        if call.method in self._overridden:
            return getattr(self, call.method)(*call.args, **call.kwargs)
        return self._forward(call)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        changed = (n for n in INTERFACE if getattr(cls, n) is not getattr(ForwardingTracker, n))
        cls._overridden = frozenset((*changed, *QUEUED_FIRST))

    @abstractmethod
    def _forward(self, call: Call) -> Any:
        """Handle *call*: pass it on, queue it, change it or drop it."""

    @abstractmethod
    def members(self) -> tuple[Tracker, ...]:
        """Return the trackers that this one stands in front of."""


for _name in INTERFACE:
    if _name not in vars(ForwardingTracker):
        setattr(ForwardingTracker, _name, _forwarded(getattr(Tracker, _name)))
with_queued_first(ForwardingTracker)


def walk(tracker: Tracker) -> Iterator[Tracker]:
    """Yield *tracker* and every tracker behind it, outermost first."""
    yield tracker
    if isinstance(tracker, ForwardingTracker):
        for member in tracker.members():
            yield from walk(member)


def takes_pending(tracker: Tracker) -> bool:
    """Tell whether *tracker*, or everything that it stands in front of, accepts values that are still on a device."""
    if isinstance(tracker, ForwardingTracker) and not tracker.takes_pending:
        return all(map(takes_pending, tracker.members()))
    return tracker.takes_pending
