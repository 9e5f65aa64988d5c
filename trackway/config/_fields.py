"""Making a dataclass from a mapping, with errors that name the path, the value and what is expected."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from draccus.parsers import decoding
from draccus.utils import DecodingError

from trackway.config._errors import FieldError, show
from trackway.config._types import describe, misfit
from trackway.errors import ConfigError

__all__ = ["decode_fields", "field_names"]

T = TypeVar("T")
Path = Sequence[str]


def field_names(cls: type[Any]) -> list[str]:
    """Names of the fields of the dataclass *cls*, its own before those that all configs have."""
    fields = sorted(dataclasses.fields(cls), key=lambda field: bool(field.kw_only))
    return [field.name for field in fields]


def decode_fields(cls: type[T], raw: Mapping[str, Any], path: Path, unknown: Callable[[str], str]) -> T:
    """Return an instance of the dataclass *cls* with its fields taken from *raw*.

    Args:
        cls: The dataclass.
        raw: Field names to values as they come from YAML.
        path: Where *raw* stands.
        unknown: Returns what to say about a name that is no field.

    Raises:
        FieldError: if a name is no field, a value does not fit, a field without default is missing, or the class
            itself refuses the values.
    """
    fields = {field.name: field for field in dataclasses.fields(typing.cast("Any", cls))}
    strange = [str(name) for name in raw if name not in fields]
    if strange:
        more = f" (unknown, too: {', '.join(strange[1:])})" if strange[1:] else ""
        raise FieldError((*path, strange[0]), unknown(strange[0]) + more)
    hints = _hints(cls, path)
    values = {name: _decoded(hints[name], value, (*path, name)) for name, value in raw.items()}
    missing = [name for name, field in fields.items() if _is_needed(field) and name not in values]
    if missing:
        raise FieldError((*path, missing[0]), f"is missing; {describe(hints[missing[0]])} has to be given")
    return _instance(cls, fields, values, path)


def _hints(cls: type[Any], path: Path) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError as error:
        raise FieldError(
            path,
            f"the types of {cls.__module__}.{cls.__qualname__} cannot be told: {error}; import the name outside of "
            "`if TYPE_CHECKING:`",
        ) from error


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    absent = dataclasses.MISSING
    return field.init and field.default is absent and field.default_factory is absent


def _decoded(hint: Any, raw: Any, path: Path) -> Any:
    wrong = misfit(hint, raw, path)
    if wrong is not None:
        raise FieldError(wrong.path, f"expected {describe(wrong.hint)}, got {show(wrong.value)}")
    try:
        return decoding.get_decoding_fn(hint)(raw, path)
    except FieldError:
        raise
    except DecodingError as error:
        if len(error.key_path) > len(path):
            raise FieldError(error.key_path, error.message) from error
        raise FieldError(path, f"expected {describe(hint)}, got {show(raw)}") from error
    except Exception as error:
        cause = _config_error(error)
        reason = f"; {cause}" if cause else f" ({error})"
        raise FieldError(path, f"expected {describe(hint)}, got {show(raw)}{reason}") from error


def _config_error(error: BaseException | None) -> ConfigError | None:
    """What a nested dataclass said itself, which draccus hides behind "couldn't instantiate"."""
    while error is not None and not isinstance(error, ConfigError):
        error = error.__cause__
    return error


def _instance(cls: type[T], fields: Mapping[str, dataclasses.Field[Any]], values: dict[str, Any], path: Path) -> T:
    later = {name: values.pop(name) for name in list(values) if not fields[name].init}
    try:
        instance = cls(**values)
    except FieldError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise FieldError(path, reason) from error
    for name, value in later.items():
        setattr(instance, name, value)
    return instance
