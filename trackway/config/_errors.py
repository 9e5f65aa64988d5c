"""Errors that hold the whole path to a field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

from draccus.utils import DecodingError

from trackway.errors import ConfigError

__all__ = ["FieldError", "did_you_mean", "show"]

_MAX_SHOWN = 80


@final
class FieldError(ConfigError, DecodingError):
    """A wrong value in a configuration file.

    It is a draccus error too, because draccus lets only its own pass as they are; others it wraps in a message of
    several lines.
    """

    def __init__(self, key_path: Sequence[str], message: str) -> None:
        DecodingError.__init__(self, tuple(key_path), message)

    def __str__(self) -> str:
        return f"{_rendered(self.key_path)}: {self.message}"

    def strip_prefix(self, prefix: Sequence[str]) -> FieldError:  # noqa: ARG002 - draccus's signature
        """Keep the whole path also where draccus lists the branches of a union."""
        return self


def _rendered(path: Sequence[str]) -> str:
    text = "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in path)
    return text.removeprefix(".")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" where one of *known* is close to *name*, else an empty text."""
    import difflib  # only for errors

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def show(value: Any) -> str:
    """Return *value* as a short text for an error message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
