"""Events as values of W&B's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, final

from trackway.backends._held_events import HeldEvent, HeldEvents
from trackway.backends._wandb_steps import Steps
from trackway.tracker import Ledger

__all__ = ["Events"]

_Rows: TypeAlias = list[tuple[int | None, dict[str, Any]]]
"""Steps, and the values that go there; None is a row of its own, of no step."""


@final
class Events:
    """Finds the row for every event: that of its step, or where it comes too late for that, the next one.

    Not thread-safe.
    """

    def __init__(self, steps: Steps, ledger: Ledger) -> None:
        """Place events among rows whose steps are those of *steps*."""
        self._steps = steps
        self._ledger = ledger
        self._held = HeldEvents()
        self._rows = False
        self._row: tuple[int | None, list[str]] = (None, [])  # the step of the open row and the events in it

    def take(self, event: str, values: Mapping[str, Any], step: int | None) -> _Rows:
        """Take one event; return what is to be written now, in this order."""
        here = self._steps.open
        if here is not None and (step == here or (step is None and not self._held)):
            return self._placed([HeldEvent(here, event, values)])
        last = self._steps.last
        if step is not None and last is not None and step <= last:
            step, values = None, {"step": step, **values}
        return self._placed(self._held.put(HeldEvent(step, event, values)))

    def with_row(self, step: int) -> tuple[_Rows, dict[str, Any]]:
        """Return what is to be written before a row of *step*, and what belongs in it."""
        self._rows = True
        last = self._steps.last
        if last is not None and step <= last and step != self._steps.open:
            return [], {}
        rows = self._placed(self._held.row(step), step)
        own = rows.pop()[1] if rows and rows[-1][0] == step else {}
        return rows, own

    def rest(self) -> _Rows:
        """Return what is to be written at the end, or before steps are gone over again."""
        due = self._held.rest()
        if self._rows:  # one that goes on from the last row must not take an event for that of a further step
            due = [event if event.step is None else _moved(event) for event in due]
        return self._placed(due)

    def _placed(self, due: Iterable[HeldEvent], row: int | None = None) -> _Rows:
        rows: dict[int | None, dict[str, Any]] = {}
        at = self._steps.open
        for event in due:
            at = event.step if event.step is not None else at if row is None else row
            rows.setdefault(at, {})
            self._add(rows[at], at, event)
        return list(rows.items())

    def _add(self, values: dict[str, Any], at: int | None, event: HeldEvent) -> None:
        if at is None or self._row[0] != at:
            self._row = (at, []) if at is not None or not values else self._row
        names = self._row[1]
        name = event.event
        if name in names:
            name = f"{name}.{names.count(event.event) + sum(other.startswith(f'{name}.') for other in names) + 1}"
            self._ledger.convert(event.event, "events of one name and row get numbers", lossless=True)
        names.append(name)
        values["event"] = ", ".join(names)
        values.update({f"{name}/{key}": value for key, value in event.values.items()})


def _moved(event: HeldEvent) -> HeldEvent:
    return HeldEvent(None, event.event, {"step": event.step, **event.values})
