"""Functions that are measured whenever they run."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, final

if TYPE_CHECKING:
    from trackway.events._spans import span

__all__ = ["decorated"]

F = TypeVar("F", bound=Callable[..., Any])


def decorated(function: F, new: Callable[[], span], *, wait: bool) -> F:
    """Return *function*, each call of which is measured by a span that *new* makes.

    Args:
        function: A function of any kind, or another callable, such as one that JAX compiled; also a `staticmethod` or
            `classmethod`.
        new: Makes the span of one call.
        wait: Whether what the function returns is waited for.

    Raises:
        TypeError: for what is no function, and for generators with *wait*.
    """
    if isinstance(function, staticmethod | classmethod):
        return cast("F", type(function)(decorated(function.__func__, new, wait=wait)))
    if inspect.isclass(function) or not callable(function):
        what = f"the class {function.__name__}" if inspect.isclass(function) else type(function).__name__
        raise TypeError(f"span {new().name!r} decorates functions and methods, got {what}")
    wrap = _wrapper_of(function)
    if wait and wrap in {_generator, _async_generator}:
        raise TypeError(f"span {new().name!r}: wait=True is for functions that return arrays, got a generator function")
    return cast("F", functools.wraps(function)(wrap(function, new, wait)))


def _wrapper_of(function: Any) -> Callable[[Any, Callable[[], span], bool], Any]:
    kinds = (
        (inspect.isasyncgenfunction, _async_generator),
        (inspect.iscoroutinefunction, _coroutine),
        (inspect.isgeneratorfunction, _generator),
    )
    bodies = (function, getattr(type(function), "__call__", None))  # noqa: B004 - that of its class
    return next((wrap for body in bodies for is_kind, wrap in kinds if is_kind(body)), _plain)


def _plain(function: Callable[..., Any], new: Callable[[], span], wait: bool) -> Callable[..., Any]:
    def measured(*args: Any, **kwargs: Any) -> Any:
        with new() as current:
            result = function(*args, **kwargs)
            return current.wait(result) if wait else result

    return measured


def _coroutine(function: Callable[..., Any], new: Callable[[], span], wait: bool) -> Callable[..., Any]:
    async def measured(*args: Any, **kwargs: Any) -> Any:
        with new() as current:
            result = await function(*args, **kwargs)
            return current.wait(result) if wait else result

    return measured


@final
class _Running:
    """The span of a generator, left while that is suspended: whoever iterates is not inside it."""

    def __init__(self, current: span) -> None:
        self._span = current
        self._variable = current.variable
        self._outside: span | None = None
        self._inside: span | None = None
        self._seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> _Running:
        self._outside = self._variable.get()
        self._span.__enter__()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._span.set(running=self._seconds + time.perf_counter() - self._began)
        self._span.__exit__(exc_type, exc, traceback)
        self._variable.set(self._outside)  # not always where the span began

    def suspend(self) -> None:
        """Go where the one is who iterates."""
        self._seconds += time.perf_counter() - self._began
        self._inside = self._variable.get()
        self._variable.set(self._outside)

    def resume(self) -> None:
        """Go back to where the generator was."""
        self._outside = self._variable.get()
        self._variable.set(self._inside)
        self._began = time.perf_counter()


def _generator(function: Callable[..., Any], new: Callable[[], span], wait: bool) -> Callable[..., Any]:  # noqa: ARG001
    def measured(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        body = function(*args, **kwargs)
        step, value = body.send, None
        with _Running(new()) as running:
            while True:
                try:
                    item = step(value)
                except StopIteration as end:
                    return end.value
                running.suspend()
                try:
                    value = yield item
                except GeneratorExit:
                    running.resume()
                    body.close()
                    raise
                except BaseException as error:
                    step, value = body.throw, error
                else:
                    step = body.send
                running.resume()

    return measured


def _async_generator(function: Callable[..., Any], new: Callable[[], span], wait: bool) -> Callable[..., Any]:  # noqa: ARG001
    async def measured(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body = function(*args, **kwargs)
        step, value = body.asend, None
        with _Running(new()) as running:
            while True:
                try:
                    item = await step(value)
                except StopAsyncIteration:
                    return
                running.suspend()
                try:
                    value = yield item
                except GeneratorExit:
                    running.resume()
                    await body.aclose()
                    raise
                except BaseException as error:
                    step, value = body.athrow, error
                else:
                    step = body.asend
                running.resume()

    return measured
