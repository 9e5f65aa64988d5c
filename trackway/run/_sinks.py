"""Who is handed committed rows, beside the store."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeAlias, final

from trackway.errors import ConfigError
from trackway.run._notifier import Notifier
from trackway.run._printer import Printer
from trackway.run._rows import Committed
from trackway.tracker import Call, CompositeTracker, Ledger

__all__ = ["OnCommit", "Sinks", "check_print"]

OnCommit: TypeAlias = Callable[[dict[str, Any]], Any]
"""Takes a committed row: `_step`, `_time`, and the metrics as they were logged, nested where they were."""


def check_print(value: Any) -> Callable[[str], Any] | None:
    """Return what prints a line, as *value* says: True, a callable, or False for nothing.

    Raises:
        ConfigError: for anything else.
    """
    if not isinstance(value, bool) and not callable(value):
        raise ConfigError(f"print must be true, false or a callable that takes a line of text, got {value!r}")
    return builtins.print if value is True else value or None


@final
class Sinks:
    """Keeps *notifier* told of them: callbacks in the order in which they came, then *write*, then *backends*."""

    def __init__(
        self, notifier: Notifier, write: Callable[[str], Any] | None, backends: CompositeTracker, ledger: Ledger
    ) -> None:
        self._notifier = notifier
        self._ledger = ledger
        self._callbacks: tuple[_Callback, ...] = ()
        printer = () if write is None else (Printer(write, ledger),)
        self._others = (*printer, *((_Backends(backends),) if backends.loggers else ()))
        self._set()

    def add(self, function: OnCommit) -> Callable[[], None]:
        """Have *function* called with rows; return a function that ends this."""
        callback = _Callback(function, self._ledger)
        self._callbacks = (*self._callbacks, callback)
        self._set()

        def remove() -> None:
            self._callbacks = tuple(one for one in self._callbacks if one is not callback)
            self._set()

        return remove

    def _set(self) -> None:
        self._notifier.sinks = (*self._callbacks, *self._others)


@final
class _Callback:
    """Calls *function* with a row of its own; what it raises is counted, said once, and keeps nothing from anyone."""

    def __init__(self, function: OnCommit, ledger: Ledger) -> None:
        self._function = function
        self._ledger = ledger

    def __call__(self, row: Committed) -> None:
        try:
            self._function({"_step": row.step, "_time": row.time, **row.values.copy()})
        except Exception as error:
            self._ledger.fail("on_commit", error, "; training goes on")


@final
class _Backends:
    """Hands rows to *trackers*, each of which gets one of its own."""

    def __init__(self, trackers: CompositeTracker) -> None:
        self._trackers = trackers

    def __call__(self, row: Committed) -> None:
        call = Call.of_row(row.values, row.step, commit=True)
        call.shared = True
        call.origin = row.place
        self._trackers.receive(call)
