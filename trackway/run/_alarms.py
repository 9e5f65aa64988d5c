"""Alerts of a run: rules that look at its rows, and where what they find is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from trackway.run._core import Core
from trackway.store import LocalTracker
from trackway.store._query import make_query
from trackway.tracker import Call

if TYPE_CHECKING:
    from trackway.alerts import Alert, AlertRule, Alerts, AlertsConfig

__all__ = ["AlertsOption", "start_alarms"]

AlertsOption: TypeAlias = "AlertsConfig | Sequence[str | Mapping[str, Any] | AlertRule] | None"
"""The rules of a run, or these and how what they find is told."""


_MOST = 10_000
"""Rows of an earlier process that windows are filled with, where no rule depends on all of them."""


def start_alarms(
    option: AlertsOption,
    core: Core,
    store: LocalTracker | None,
    tell: Callable[[Call], None],
    tell_event: Callable[[Call], None],
) -> Alerts:
    """Have *core* show every row to the rules, and tell everyone what they find.

    Args:
        option: The rules, and the channels.
        core: Makes the rows.
        store: Has the rows of earlier processes, if it is there.
        tell: Makes a call on the trackers and the run directory.
        tell_event: Tells of an event, which an alert is too.

    Raises:
        AlertSyntaxError: if a rule cannot be read.
        ConfigError: if a channel is not known, or a package is missing.
    """
    from trackway.alerts import Alerts

    def send(alert: Alert) -> None:
        tell(Call("alert", (alert.title, alert.text), {"level": alert.level}))

    def record(alert: Alert) -> None:
        values = {"rule": alert.name, "level": alert.level, "state": alert.state, "title": alert.title}
        tell_event(Call("log_event", ("alert", {**values, "values": dict(alert.values)}), {"step": alert.step}))

    def latest(before: int | None = None) -> list[dict[str, Any]]:
        try:
            return _latest_rows(store, most, before)
        except Exception as error:
            core.ledger.fail("alerts", error, "; rules begin without the rows before; training goes on")
            return []

    alerts = Alerts(option, lock=core.lock, send=send, record=record, run_id=core.run_id)
    most = None if alerts.engine.reads_all else _MOST
    if core.last_step is not None:
        alerts.backfill(latest())
    core.watch(alerts.observe, alerts.deliver, lambda step: alerts.restart(latest(before=step)))
    alerts.start()
    return alerts


def _latest_rows(store: LocalTracker | None, most: int | None, before: int | None) -> list[dict[str, Any]]:
    """Return *most* of the rows in *store* that were written last, of steps before *before*, in order of steps."""
    if store is None:
        return []
    query = make_query(
        most,
        step_range=(None, before),
        metrics=None,
        output="rows",
        include_meta=True,
        fill_missing=False,
        dropna=False,
        ranks="primary",
    )
    rows: list[dict[str, Any]] = store.history(query)
    return rows
