"""Bounded text for what has no plain form."""

from __future__ import annotations

from typing import Any

from trackway.values._redact import redacted_text

__all__ = ["MAX_REPR", "bounded", "bounded_repr", "describe_error", "type_name"]

MAX_REPR = 500
"""Longest text, in characters, that stands for a value which cannot be kept as given."""


def bounded(text: str, limit: int = MAX_REPR) -> str:
    """Return *text*, cut in the middle where it is longer than *limit*."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    return f"{text[:head]}…{text[len(text) - (limit - head - 1) :]}"


def type_name(value: object) -> str:
    """Return the qualified name of the value's class, without the module for builtins."""
    cls = type(value)
    module = cls.__module__
    return cls.__qualname__ if module in {"builtins", "__main__"} else f"{module}.{cls.__qualname__}"


def bounded_repr(value: Any) -> str:
    """Return `repr(value)` in at most `MAX_REPR` characters; a repr that raises gives the type and the error."""
    try:
        return bounded(redacted_text(str(repr(value))))  # whole: half of a secret could not be recognised
    except Exception as error:
        return f"<{type_name(value)}: its repr raised {type(error).__name__}>"


def describe_error(error: BaseException) -> str:
    """Return the error's type and first line, bounded, also where `str(error)` raises."""
    try:
        message = redacted_text(str(error)).partition("\n")[0]
    except Exception:
        message = ""
    return bounded(f"{type(error).__name__}: {message}" if message else type(error).__name__, 200)
