"""Finding config classes by their type, and keeping broken or shadowing plugins from the others."""

from __future__ import annotations

import dataclasses
import importlib
import operator
from collections.abc import Mapping, MutableMapping
from typing import Any, final

from trackway import _notices
from trackway.config._discovery import GROUP, Source, is_built_in, sources
from trackway.config._errors import did_you_mean, show
from trackway.errors import ConfigError

__all__ = ["Registry", "own_fields_are_lost", "type_name"]


@final
class Registry:
    """Type names to config classes, filled when asked.

    Args:
        classes: The mapping to keep them in.
        base: What every config class is derived from.
    """

    def __init__(self, classes: MutableMapping[str, type[Any]], base: type[Any]) -> None:
        self._classes = classes
        self._base = base
        self._failures: dict[str, BaseException] = {}

    def register(self, name: str, cls: type[Any]) -> None:
        """Keep *cls* under *name*, unless a built-in type or another class has that name, which is logged."""
        if not (isinstance(cls, type) and issubclass(cls, self._base)):
            raise ConfigError(f"tracker type {name!r}: {cls!r} is not derived from {self._base.__name__}")
        if not name or not isinstance(name, str):
            raise ConfigError(f"{_named(cls)} is registered as {name!r}; the name of a tracker type is a text")
        known = self._classes.get(name)
        if is_built_in(name) and not _is_ours(name, cls):
            _refused(name, cls, f"the built-in {GROUP}.{name}")
        elif known is None or _is_ours(name, cls) or _named(known) == _named(cls):  # the last: a reloaded module
            self._classes[name] = cls
            if known is not None and _named(known) != _named(cls):
                _refused(name, known, _named(cls))
        else:
            _refused(name, cls, _named(known))

    def find(self, name: Any) -> type[Any]:
        """Return the class of the type *name*, importing its module first and others only if that has it not.

        Raises:
            ConfigError: if there is none, if its module cannot be imported, or registers nothing of that name.
        """
        if not isinstance(name, str):
            raise ConfigError(f"a tracker's type must be text, got {show(name)}")
        offers = sources().get(name, [])
        if name not in self._classes and offers:
            self._load(name, offers[0])
        for other in offers[1:]:
            _refused(name, other, str(offers[0]))
        if name not in self._classes:
            self.load_all()
        if name not in self._classes:
            raise ConfigError(self._unknown(name))
        return self._classes[name]

    def load_all(self) -> None:
        """Import every module that may register a type; failures are kept, see `failures`."""
        for name, offers in sources().items():
            if name in self._classes or name in self._failures:
                continue
            try:
                self._load(name, offers[0])
            except ConfigError:
                continue

    def all(self) -> dict[str, type[Any]]:
        """Return every type that can be loaded, sorted by name."""
        self.load_all()
        return dict(sorted(self._classes.items()))

    def failures(self) -> Mapping[str, BaseException]:
        """Return the types that could not be loaded when last tried, with what was raised."""
        return dict(self._failures)

    def _load(self, name: str, source: Source) -> None:
        try:
            self._register_from(name, source)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module that calls sys.exit must break nobody either
            self._failures[name] = error
            if isinstance(error, ConfigError):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"tracker type {name!r} cannot be loaded: {source} failed to import: {reason}") from error
        self._failures.pop(name, None)

    def _register_from(self, name: str, source: Source) -> None:
        module = importlib.import_module(source.module)
        if source.attribute:
            self.register(name, operator.attrgetter(source.attribute)(module))
        if name not in self._classes:
            there = sorted(key for key, cls in self._classes.items() if cls.__module__ == source.module)
            instead = f"; it registers {', '.join(there)}" if there else ""
            raise ConfigError(
                f"tracker type {name!r}: {source} was imported but registers nothing of that name{instead}. "
                f'Put `@{self._base.__name__}.register_subclass("{name}")` over its config class'
            )

    def _unknown(self, name: str) -> str:
        known = sorted(self._classes)
        text = f"unknown tracker type {name!r}{did_you_mean(name, known) or ';'} known types: {', '.join(known)}"
        for broken, error in sorted(self._failures.items()):
            text += f"; {broken} failed to load ({type(error).__name__}: {error})"
        return text


def _named(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_ours(name: str, cls: type[Any]) -> bool:
    home = f"{GROUP}.{name}"
    return is_built_in(name) and (cls.__module__ == home or cls.__module__.startswith(home + "."))


def _refused(name: str, loser: type[Any] | Source, winner: str) -> None:
    other = str(loser) if isinstance(loser, Source) else _named(loser)
    _notices.log_once(
        ("shadow", name, other),
        f"two trackers want the type {name!r}: {winner} is used, {other} is not; the plugin has to take another name",
    )


def own_fields_are_lost(cls: type[Any]) -> bool:
    """Whether *cls* declares fields but is no dataclass itself, so that they are not among its fields."""
    own = vars(cls)
    return bool(own.get("__annotations__")) and "__dataclass_fields__" not in own and dataclasses.is_dataclass(cls)


def type_name(cls: type[Any]) -> str:
    """Return the type under which the config class *cls* is registered, or its own name if it is not."""
    try:
        return str(cls.get_choice_name(cls))
    except ValueError:
        return cls.__qualname__
