"""The hooks of an event logger: who is called with each event."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from typing import Any, NamedTuple, Protocol, TypeAlias, final, overload, runtime_checkable

from trackway._locks import new_lock
from trackway.errors import ConfigError
from trackway.events._config import close_to, shown

__all__ = ["EventHook", "Hook", "Hooks", "Named", "check_hooks", "load_hook"]

_ALLOWED = "a callable that takes (event, payload), an object with on_event(event, payload), or the import path of one"
_MAX_NAME = 100


@runtime_checkable
class EventHook(Protocol):
    """An object that is told of events."""

    def on_event(self, event: str, payload: dict[str, Any]) -> Any:
        """Take one event; what it returns is ignored, and *payload* is the hook's own."""


Hook: TypeAlias = Callable[[str, dict[str, Any]], Any] | EventHook
"""What is called with each event; several threads may call it at once."""


class Named(NamedTuple):
    """A hook and what it is called in messages and counts."""

    hook: Any
    name: str

    def __call__(self, event: str, payload: dict[str, Any]) -> None:
        """Call it, by `on_event` where it has one."""
        call = getattr(self.hook, "on_event", None)
        (self.hook if call is None else call)(event, payload)


@final
class Hooks(MutableSequence[Any]):
    """A list of hooks that may be changed at any time, by any thread, by a hook that is being called too.

    Whoever goes through it sees it as it was at the beginning. An import path becomes the hook that it names.
    """

    def __init__(self, hooks: Iterable[Any] = ()) -> None:
        self.named: tuple[Named, ...] = ()
        self._lock = new_lock()
        self.extend(hooks)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return [entry.hook for entry in self.named][index]

    def __setitem__(self, index: Any, value: Any) -> None:
        several = isinstance(index, slice)
        hooks = [checked_hook(one) for one in value] if several else checked_hook(value)
        self._change(lambda items: items.__setitem__(index, hooks))

    def __delitem__(self, index: int | slice) -> None:
        self._change(lambda items: items.__delitem__(index))

    def __len__(self) -> int:
        return len(self.named)

    def __iter__(self) -> Iterator[Any]:
        return iter([entry.hook for entry in self.named])

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Hooks | list | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"Hooks({', '.join(entry.name for entry in self.named)})"

    def insert(self, index: int, value: Any) -> None:
        """Put a hook before *index*.

        Raises:
            ConfigError: if *value* is no hook, or an import path at which there is none.
        """
        hook = checked_hook(value)
        self._change(lambda items: items.insert(index, hook))

    def append(self, value: Any) -> None:
        """Put a hook at the end; errors as for `insert`."""
        hook = checked_hook(value)
        self._change(lambda items: items.append(hook))

    def remove(self, value: Any) -> None:
        """Take the first hook that is *value* out.

        Raises:
            ValueError: if it is not there.
        """
        hook = checked_hook(value)
        self._change(lambda items: items.remove(hook))

    def _change(self, how: Callable[[list[Any]], Any]) -> None:
        with self._lock:
            items = list(self)
            how(items)
            self.named = tuple(_named(items))


def _named(hooks: Iterable[Any]) -> Iterator[Named]:
    """Give each a name of its own, the second of two like ones with a number."""
    seen: dict[str, int] = {}
    for hook in hooks:
        name = _name(hook)
        seen[name] = count = seen.get(name, 0) + 1
        yield Named(hook, name if count == 1 else f"{name}#{count}")


def _name(hook: Any) -> str:
    name = getattr(hook, "__qualname__", None) or type(hook).__qualname__
    return str(name).replace("<locals>.", "")[:_MAX_NAME]


def check_hooks(hooks: Any, where: str = "events.hooks") -> tuple[Any, ...]:
    """Return *hooks*, the value of the option *where*, as a tuple; import paths are checked for their form only.

    Raises:
        ConfigError: if it is no list, or an item is no hook.
    """
    if isinstance(hooks, str):
        hooks = (hooks,)
    if isinstance(hooks, bytes) or not isinstance(hooks, Iterable):
        raise ConfigError(f"{where} must be a list, each item {_ALLOWED}; got {shown(hooks)}")
    found = tuple(hooks)
    for index, hook in enumerate(found):
        if isinstance(hook, str):
            split_path(hook, f"{where}[{index}]")
        else:
            checked_hook(hook, f"{where}[{index}]")
    return found


def checked_hook(hook: Any, where: str = "hooks") -> Any:
    """Return *hook*, or what it is the import path of.

    Raises:
        ConfigError: if it is no hook.
    """
    if isinstance(hook, str):
        return load_hook(hook, where)
    call = getattr(hook, "on_event", None)
    if isinstance(hook, type) and call is not None:
        raise ConfigError(f"{where} must be {_ALLOWED}; got the class {hook.__qualname__}: give {hook.__qualname__}()")
    call = hook if call is None else call
    if not callable(call):
        raise ConfigError(f"{where} must be {_ALLOWED}; got {shown(hook)}")
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None)):  # noqa: B004 - the method is wanted
        raise ConfigError(
            f"{where} must be {_ALLOWED}; got the coroutine function {_name(hook)}, which nobody would await: make it "
            "a plain function, that hands over to your event loop by `loop.call_soon_threadsafe`"
        )
    return hook


def split_path(path: str, where: str) -> tuple[str, str]:
    """Return module and attribute of "package.module:attribute".

    Raises:
        ConfigError: if it has another form.
    """
    module, colon, attribute = path.strip().partition(":")
    if colon and all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        return module, attribute
    guess = f"; did you mean {module.rpartition('.')[0]}:{module.rpartition('.')[2]}?" if "." in module else ""
    raise ConfigError(
        f"{where} must be the import path of a hook, 'package.module:name', got {shown(path)}{'' if colon else guess}"
    )


def load_hook(path: str, where: str = "hooks") -> Any:
    """Import the hook at *path*, "package.module:name"; a class with `on_event` is instantiated, without arguments.

    Raises:
        ConfigError: if it cannot be imported, is not there, or is no hook. *where* names the option.
    """
    module_name, attribute = split_path(path, where)
    try:
        value: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(f"{where}: {path!r} cannot be imported: {type(error).__name__}: {error}") from error
    place = module_name
    for name in attribute.split("."):
        if not hasattr(value, name):
            names = [known for known in dir(value) if not known.startswith("__")]
            raise ConfigError(f"{where}: {place} has no {name!r}, which {path!r} names{close_to(name, names)}")
        value, place = getattr(value, name), f"{place}.{name}"
    if isinstance(value, type) and hasattr(value, "on_event"):
        try:
            value = value()
        except Exception as error:
            raise ConfigError(
                f"{where}: {path!r} is a class that cannot be made without arguments: {type(error).__name__}: {error}; "
                "name a hook that is made already"
            ) from error
    return checked_hook(value, where)
