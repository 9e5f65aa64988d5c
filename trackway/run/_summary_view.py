"""The summary of a run as a mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

__all__ = ["SummaryView"]


@final
class SummaryView(Mapping[str, Any]):
    """The last value of every metric, and the values that were set by hand, which win.

    It shows the run as it is at each access. Setting a value is `log_summary` of one: `run.summary["best"] = 0.93`.
    Thread-safe.
    """

    def __init__(self, read: Callable[[], dict[str, Any]], write: Callable[[Mapping[str, Any]], None]) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._write({name: value})

    def update(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set several values by hand."""
        self._write({**(values or {}), **more})

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return f"SummaryView({self._read()!r})"
