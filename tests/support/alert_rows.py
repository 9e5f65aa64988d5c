"""Rows for alerts, without a run around them."""

from __future__ import annotations

from trackway.alerts import Alerts

__all__ = ["HIGH", "WAIT", "Rows"]

WAIT = 20.0
HIGH = "loss > 5 => error: loss is high"


class Rows:
    """Gives rows to alerts, as a run does: under a lock, and what comes of it outside."""

    def __init__(self, rules, *, send=None, **options):
        self.sent = []
        self.alerts = Alerts(rules, send=send or self.sent.append, run_id="run-7", **options)
        self.step = 0

    def give(self, *losses):
        """Give one row for each loss."""
        for loss in losses:
            step, self.step = self.step, self.step + 1
            self.alerts.deliver(self.alerts.observe(step, 1000.0 + step, {"loss": loss}))

    @property
    def steps(self):
        """The steps of the alerts that backends got."""
        return [alert.step for alert in self.sent]

    @property
    def report(self):
        """What became of the deliveries."""
        return self.alerts.report()
