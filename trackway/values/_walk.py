"""The walk over a payload that makes plain values of its leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, final

import numpy as np

from trackway.errors import TracerError
from trackway.values._arrays import (
    NUMBERS,
    array_to_plain,
    is_jax_array,
    is_numeric_array,
    is_tracer_class,
    looks_like_array,
    reject_tracer,
)
from trackway.values._fields import pairs_of
from trackway.values._histogram import Histogram
from trackway.values._leaves import (
    NUMBER_PROTOCOLS,
    PLAIN,
    huge_text,
    is_huge,
    leaf_table,
    number_of,
    qualified_name,
)
from trackway.values._media_base import Media
from trackway.values._pending import Pending, Unreachable, hold, is_device_class
from trackway.values._redact import current_policy
from trackway.values._row import Downgrade
from trackway.values._scalars import how_of, is_jax_class, scalar
from trackway.values._sequences import SEQUENCES
from trackway.values._text import bounded_repr, describe_error, type_name

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Walk"]

MAX_DEPTH = 64
"""Levels of nesting that are kept; what lies deeper becomes a text."""
MAX_VALUES = 1_000_000
"""Values of one payload after which further lists and mappings become texts: one that holds others many times over
is longer than any memory."""
_TOP_MARKS = frozenset({"_nonfinite", "_bigint"})
"""Names that mean something at the top of a JSON line; see `trackway.values.encode`."""
_INNER_MARKS = frozenset({"_type"})  # what the reference to a file of media begins with

Converter = Callable[["Walk", Any, str], Any]


@final
class Walk:
    """One walk over one payload; holds what was met on the way.

    Args:
        arrays: Called with each JAX array, traced or not, each NumPy array of numbers or booleans that has an axis, and
            each `Histogram` that holds a JAX value; what it returns stands in its place. None refuses traced values.
        metrics: Whether the payload is a row of metrics, of which only texts can be secret: neither numbers nor names.
    """

    __slots__ = (
        "_active",
        "_left",
        "_metrics",
        "_policy",
        "_refused",
        "_seen",
        "arrays",
        "downgrades",
        "has_media",
        "pending",
    )

    def __init__(self, arrays: Callable[[Any], Any] | None = None, *, metrics: bool = True) -> None:
        self.arrays = arrays
        self._metrics = metrics
        self._policy = current_policy()
        self._active: dict[int, str] = {}
        self._left = MAX_VALUES
        self._seen: set[int] = set()
        self._refused: set[str] = set()
        self.downgrades: list[Downgrade] = []
        self.has_media = False
        self.pending = False

    def note(self, path: str, reason: str, *, lost: bool = False) -> None:
        """Record that the leaf at *path* is not kept as given, or not at all."""
        self.downgrades.append(Downgrade(path, reason, lost))

    def plain(self, value: Any, path: str) -> Any:
        """Return the plain form of *value*; only a traced JAX value raises."""
        cls = type(value)
        if cls in PLAIN:
            if cls is str:
                return self._policy.value(path, value)
            return value if cls is not int or not is_huge(value) else self._huge(value, path)
        number = NUMBERS.get(cls)
        if number is not None:
            return number(value)
        try:
            plain = _converter(cls)(self, value, path)
            if type(plain) is str:
                return self._policy.value(path, plain)
            return plain if type(plain) is not int or not is_huge(plain) else self._huge(plain, path)
        except TracerError:
            raise
        except Unreachable as error:
            self.note(path, str(error))
            return f"<not logged: {error}>"
        except Exception as error:
            self.note(path, f"({type_name(value)}) could not be converted, logged as text: {describe_error(error)}")
            return bounded_repr(value)

    def _huge(self, value: int, path: str) -> str:
        text = huge_text(value)
        self.note(path, f"is too long an integer to be kept, logged as text: {text}")
        return text

    def mapping(self, pairs: Iterator[tuple[Any, Callable[[], Any]]], prefix: str, *, top: bool = False) -> Any:
        """Return a dict of the plain values of *pairs*; what fails is marked and the rest kept."""
        result: dict[str, Any] = {}
        try:
            for raw, read in pairs:
                key = self._key(raw, prefix)
                path = f"{prefix}{key}"
                if top and key.startswith("_"):
                    self.note(path, "is ignored: names that begin with an underscore are reserved", lost=True)
                    continue
                if key[:1] == "_":
                    key, path = self._unmarked(key, prefix)
                if key in result:
                    self.note(path, "is given twice, by keys that are the same text; the last one is kept", lost=True)
                plain = self.read(read, path)
                result[key] = plain if self._metrics else self._policy.number(path, plain)
                self._left -= 1
        except TracerError:
            raise
        except Exception as error:
            self.note(prefix.rstrip("/"), f"stopped listing its keys: {describe_error(error)}; those before are kept")
        return result

    def _unmarked(self, key: str, prefix: str) -> tuple[str, str]:
        """The name and path under which *key* is kept: one that means something in a file gets an underscore more."""
        if key.rstrip("_") not in (_INNER_MARKS if prefix else _TOP_MARKS):
            return key, f"{prefix}{key}"
        self.note(f"{prefix}{key}", f"is a reserved name; the value is kept under {key + '_'!r}")
        return f"{key}_", f"{prefix}{key}_"

    def spend(self, values: int) -> None:
        """Count *values* towards `MAX_VALUES`."""
        self._left -= values

    def enter(self, value: Any) -> None:
        """Count *value*; one that is met again counts with its size, for its values are copied again."""
        if id(value) in self._seen:
            self._left -= _size(value)
        self._seen.add(id(value))
        self._left -= 1

    def late(self, value: Any, path: str) -> str | None:
        """Return the text that stands for *value* if there were too many values already; noted once for each path."""
        if self._left > 0:
            return None
        if path not in self._refused:
            self._refused.add(path)
            self.note(path, f"comes after {MAX_VALUES:,} values of its row; logged as a text")
        return f"<{type_name(value)}: after {MAX_VALUES:,} values>"

    def nested(self, value: Any, path: str, build: Callable[[Any, str], Any]) -> Any:
        """Return `build(value, path)` unless *value* contains itself, lies too deep or comes too late."""
        if id(value) in self._active:
            self.note(path, "contains itself; the inner one is logged as a text")
            return f"<cycle: {type_name(value)} that contains itself>"
        if len(self._active) >= MAX_DEPTH:
            self.note(path, f"is nested deeper than {MAX_DEPTH} levels; the inner ones are logged as a text")
            return f"<{type_name(value)}: deeper than {MAX_DEPTH} levels>"
        if (text := self.late(value, path)) is not None:
            return text
        self.enter(value)
        self._active[id(value)] = path
        try:
            return build(value, path)
        finally:
            del self._active[id(value)]

    def items(self, values: Iterable[Any], path: str) -> list[Any]:
        """Return a list of the plain values; an iterator that fails keeps what it gave before."""
        result: list[Any] = []
        try:
            for value in values:
                result.append(self.plain(value, path))  # what came before a failure is kept
                self._left -= 1
        except TracerError:
            raise
        except Exception as error:
            self.note(path, f"stopped after {len(result)} items: {describe_error(error)}; those before are kept")
        return result

    def read(self, source: Callable[[], Any], path: str) -> Any:
        """Return the plain form of `source()`; where that raises, a text that says so."""
        try:
            value = source()
        except Exception as error:
            self.note(path, f"could not be read: {describe_error(error)}")
            return f"<unreadable: {describe_error(error)}>"
        return self.plain(value, path)

    def texts(self, values: Iterable[Any], path: str) -> list[Any]:
        """Return a list of *values*, which are plain, with marks in place of the secrets in its texts."""
        return [self._policy.value(path, value) if type(value) is str else value for value in values]

    def redacted(self, text: str) -> str:
        """Return *text* with marks in place of the secrets in it."""
        return self._policy.text(text)

    def _key(self, raw: Any, prefix: str) -> str:
        try:
            key = raw if type(raw) is str else str.__str__(str(raw))
            return key if self._metrics else self._policy.text(key)
        except Exception:
            self.note(f"{prefix}<{type_name(raw)}>", "stands for a key that has no text")
            return f"<{type_name(raw)}>"


def _size(value: Any) -> int:
    size = getattr(value, "size", None)
    try:
        return size if type(size) is int else len(value)
    except Exception:
        return 1


def _array(walk: Walk, value: Any, path: str) -> Any:
    if walk.arrays is not None and is_numeric_array(value):
        return walk.arrays(value)
    return walk.nested(value, path, lambda v, p: array_to_plain(v, lambda item: walk.plain(item, p)))


def _device_array(walk: Walk, value: Any, path: str) -> Any:
    if not isinstance(value.dtype, np.dtype):  # keys of a random generator, for one, have no numbers
        return _unknown(walk, value, path)
    if walk.arrays is not None and is_jax_array(value):
        return walk.arrays(value)
    if is_jax_class(type(value)) and (how := how_of(value)) is not None:
        number = scalar(value, how, path)
        walk.pending = walk.pending or type(number) is Pending
        return number
    held = hold(value)
    if not is_device_class(type(held)):
        return array_to_plain(held, lambda item: walk.plain(item, path))
    walk.pending = True
    return Pending(held, name=path)


def _histogram(walk: Walk, value: Histogram, path: str) -> Any:
    if walk.arrays is not None and any(map(is_jax_array, value.parts())):
        return walk.arrays(value)
    for part in value.parts():
        reject_tracer(part, f"histogram {path!r}")
    if value.on_host():
        return value.to_host()
    held = value.map(lambda part: hold(part) if is_device_class(type(part)) else part)
    arrays = tuple(part for part in held.parts() if is_device_class(type(part)))
    if not arrays:
        return held.to_host()
    walk.pending = True
    return Pending(held, Histogram.to_host, parts=arrays, name=path)


def _media(walk: Walk, value: Media, _path: str) -> Media:
    walk.has_media = True
    return value.redacted(walk.redacted)


def _pending(walk: Walk, value: Pending, _path: str) -> Pending:
    walk.pending = True
    return value


def _own_pending(walk: Walk, value: Any, path: str) -> Any:
    by_fields = _by_fields(type(value)) if walk.arrays is not None else None
    if by_fields is not None:  # while JAX traces, a mapping's values may be part of the trace
        return by_fields(walk, value, path)
    return _pending(walk, value.__trackway_pending__(), path)


def _tracer(walk: Walk, value: Any, path: str) -> Any:
    if walk.arrays is None:
        reject_tracer(value, f"metric {path!r}")
    elif isinstance(value.dtype, np.dtype):
        return walk.arrays(value)
    return _unknown(walk, value, path)


def _enum(walk: Walk, value: Enum, path: str) -> Any:
    return walk.nested(value, path, lambda v, p: walk.plain(v.value, p))


def _unknown(walk: Walk, value: Any, path: str) -> Any:
    """Objects that say nothing through their class: by what the instance has, else by their repr."""
    if looks_like_array(value) and not is_device_class(type(value)):
        return _array(walk, value, path)
    if callable(value) and isinstance(getattr(value, "__qualname__", None), str):
        return qualified_name(value)
    walk.note(path, f"({type_name(value)}) has no plain form; logged as the text of its repr")
    return bounded_repr(value)


_OWN: tuple[tuple[type | tuple[type, ...], Converter], ...] = (
    (Pending, _pending),
    (Histogram, _histogram),
    (Media, _media),
    (Enum, _enum),
)
_known: dict[type, Converter] = {}
_MAX_KNOWN = 1024


def _converter(cls: type) -> Converter:
    """Return what makes a plain value of instances of *cls*; found out once for a class."""
    converter = _known.get(cls)
    if converter is None:
        if len(_known) >= _MAX_KNOWN:  # a program that makes classes as it goes must not fill the memory
            _known.clear()
        converter = _known[cls] = _choose(cls)
    return converter


def _choose(cls: type) -> Converter:
    return (
        (_own_pending if getattr(cls, "__trackway_pending__", None) is not None else None)
        or _by_array_protocol(cls)
        or _match(cls, _OWN)
        or next((_leaf(convert) for kinds, convert in leaf_table() if issubclass(cls, kinds)), None)
        or _by_fields(cls)
        or _match(cls, SEQUENCES)
        or (_array if looks_like_array(cls) else None)
        or _by_number_protocol(cls)
        or _unknown
    )


def _by_array_protocol(cls: type) -> Converter | None:
    if issubclass(cls, type):
        return None
    if is_tracer_class(cls):
        return _tracer
    if is_device_class(cls):
        return _device_array
    return _array if getattr(cls, "__array__", None) is not None else None


def _match(cls: type, table: tuple[tuple[type | tuple[type, ...], Converter], ...]) -> Converter | None:
    return next((converter for kinds, converter in table if issubclass(cls, kinds)), None)


def _leaf(convert: Callable[[Any], Any]) -> Converter:
    return lambda _walk, value, _path: convert(value)


def _by_fields(cls: type) -> Converter | None:
    pairs = pairs_of(cls)
    if pairs is None:
        return None
    return lambda walk, value, path: walk.nested(value, path, lambda v, p: walk.mapping(pairs(v), f"{p}/"))


def _by_number_protocol(cls: type) -> Converter | None:
    protocols = (getattr(cls, name, None) for name in NUMBER_PROTOCOLS)
    return _leaf(number_of) if any(method is not None for method in protocols) else None
