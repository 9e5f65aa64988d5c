"""`trackway.jit`: compile a function and log what is logged in it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast, final, overload

import jax

from trackway import _notices
from trackway.capture import _jaxcompat as compat
from trackway.capture._capturing import capture_logging, named_like
from trackway.capture._delivery import deliver
from trackway.capture._packing import Packed, pack
from trackway.capture._settings import failed
from trackway.errors import FatalTrackerError, TrackwayWarning

__all__ = ["Jitted", "jit"]

P = ParamSpec("P")
T = TypeVar("T")


def _packing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns its result, and what it logged in as few arrays as possible."""
    captured = capture_logging(function)

    def packed(*args: Any, **kwargs: Any) -> tuple[Any, Packed]:
        result, logs = captured(*args, **kwargs)
        try:
            return result, Packed(*pack(logs.group, logs.arrays, logs.lost))
        except Exception as error:
            failed("a compiled function", error)
            return result, Packed(*pack((), [], logs.lost))

    return cast("Callable[..., Any]", named_like(packed, function))


def _silent(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that drops what it logs, so that the compiler drops how it was computed."""
    captured = capture_logging(function)

    def silent(*args: Any, **kwargs: Any) -> Any:
        return captured(*args, **kwargs)[0]

    return cast("Callable[..., Any]", named_like(silent, function))


def _for_pair(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the compiler for a function that returns the packed metrics beside its result."""
    return {**kwargs, "out_shardings": (kwargs["out_shardings"], None)} if "out_shardings" in kwargs else kwargs


def _log(packed: Packed) -> None:
    try:
        deliver(packed)
    except (FatalTrackerError, TrackwayWarning):
        raise
    except Exception as error:
        _notices.log_once(("jit", type(error)), f"a row of a compiled function is lost: {error} (shown once)", error)


@final
class Jitted(Generic[P, T]):
    """A function compiled by `trackway.jit`. Calls may come from several threads.

    Other attributes, such as `clear_cache`, are those of the compiled function, whose result is a pair of the result
    and the packed metrics.
    """

    def __init__(self, function: Callable[P, T], make: Callable[..., Any], every: int, kwargs: dict[str, Any]) -> None:
        """Compile *function* by *make*; *every* is 0 where nothing is to be logged."""
        functools.update_wrapper(self, function)
        self._every = every
        self._calls = itertools.count()
        self._logging = make(_packing(function), **_for_pair(kwargs)) if every else None
        self._silent = make(_silent(function), **kwargs) if every != 1 else None
        self._plain = functools.cache(lambda: make(function if every else _silent(function), **kwargs))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the compiled function and log, without waiting for either.

        In traced code it is the plain compiled function: what it logs, at every call, belongs to the trace around.
        """
        if compat.tracing():
            return cast("T", self._plain()(*args, **kwargs))
        if self._every != 1 and (not self._every or next(self._calls) % self._every):
            return cast("T", self._silent(*args, **kwargs))  # type: ignore[misc]
        result: T
        result, packed = self._logging(*args, **kwargs)  # type: ignore[misc]
        _log(packed)
        return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        """Lower the function for arguments like these, as `jax.jit(...).lower` does."""
        if self._logging is None:
            return cast("Lowered", self._silent.lower(*args, **kwargs))  # type: ignore[union-attr]
        return Lowered(self._logging.lower(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__.get("_logging") or self.__dict__["_silent"], name)

    def __repr__(self) -> str:
        return f"<trackway.jit of {getattr(self, '__qualname__', '?')}>"


@final
class Lowered:
    """A lowered function; attributes are those of JAX's."""

    def __init__(self, lowered: Any) -> None:
        self._lowered = lowered

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """Compile it, as JAX's `compile` does; calling the result logs."""
        return Compiled(self._lowered.compile(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_lowered"], name)


@final
class Compiled:
    """A compiled function that logs when it is called; other attributes are those of JAX's."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, and log."""
        result, packed = self._compiled(*args, **kwargs)
        _log(packed)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_compiled"], name)


@overload
def jit(
    function: Callable[P, T], *, jit: Callable[..., Any] = ..., every: int = 1, enabled: bool = True, **jit_kwargs: Any
) -> Jitted[P, T]: ...
@overload
def jit(
    *, jit: Callable[..., Any] = ..., every: int = 1, enabled: bool = True, **jit_kwargs: Any
) -> Callable[[Callable[P, T]], Jitted[P, T]]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    jit: Callable[..., Any] = jax.jit,
    every: int = 1,
    enabled: bool = True,
    **jit_kwargs: Any,
) -> Any:
    """Compile *function* like `jax.jit`, and log what is logged in it to the tracker that is current at each call.

    The metrics are further outputs of the compiled function, packed so that a row is one transfer. A call neither
    waits for them nor for the function: the tracker gets the row when it is there, in order. Without a current tracker
    the function is the same, and so is the program in the compilation cache.

    A step that is traced in the function (`log(metrics, step=state.step)`) is that of the row. Without one it is that
    of `trackway.at_step` or of the row that the tracker has open; else each call is a row of its own.

    ```python
    @trackway.jit(donate_argnums=0)
    def train_step(params, batch): ...
    ```

    Args:
        function: What to compile; left out, a decorator is returned.
        jit: What compiles: `jax.jit`, `equinox.filter_jit`, or anything that is called like them.
        every: Log every so many calls, the first one included. The others run a second compiled program, in which
            what only the metrics need is not computed.
        enabled: False compiles the program without the metrics, and logs nothing.
        jit_kwargs: Further arguments of *jit*, such as `donate_argnums` and `static_argnames`.

    Raises:
        ValueError: if *every* is not an integer of at least 1.
        FatalTrackerError: from a call, if a tracker declared `required: true` failed.
    """
    if type(every) is not int or every < 1:
        raise ValueError(f"trackway.jit: every must be an integer of at least 1, got {every!r}")
    if function is None:
        return functools.partial(_jitted, make=jit, every=every if enabled else 0, kwargs=jit_kwargs)
    return _jitted(function, make=jit, every=every if enabled else 0, kwargs=jit_kwargs)


def _jitted(function: Callable[P, T], *, make: Callable[..., Any], every: int, kwargs: dict[str, Any]) -> Jitted[P, T]:
    return Jitted(function, make, every, kwargs)
