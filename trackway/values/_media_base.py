"""What media values have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

__all__ = ["Media"]


class Media(ABC):
    """A value that a store keeps as a file of its own; it owns its data and does not change."""

    __slots__ = ()

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the value's type and size as a plain mapping, without the data itself."""

    def redacted(self, change: Callable[[str], str]) -> Self:  # noqa: ARG002 - for those that hold a text
        """Return the value with *change* made to the texts in it; itself where that changes nothing."""
        return self
