"""What became of everything that a tracker was given, whatever stands in front of it."""

from __future__ import annotations

from collections import Counter
from typing import Protocol, runtime_checkable

from trackway.tracker._dispatch import walk
from trackway.tracker._interface import Tracker, name_of
from trackway.tracker._ledger import Report

__all__ = ["Reporting", "combined"]


@runtime_checkable
class Reporting(Protocol):
    """A tracker that counts; every tracker of this library does."""

    def report(self) -> Report:
        """Return the counts as they are."""


def combined(tracker: Tracker, failures: Report) -> Report:
    """Return one report of *tracker* and all that is behind it.

    Args:
        tracker: A tracker or a wrapper.
        failures: What failed at it as seen from outside.
    """
    answers = [member.report() for member in walk(tracker) if isinstance(member, Reporting)]
    reports = [answer for answer in answers if isinstance(answer, Report)]  # a run's is of another form
    counts = {
        kind: dict(sum((Counter(getattr(report, kind)) for report in (*reports, failures)), Counter()))
        for kind in ("converted", "dropped", "failed")
    }
    accepted = reports[0].accepted if reports else 0
    delivered = reports[-1].delivered if reports else 0
    pending = sum(report.pending for report in reports)
    return Report(name_of(tracker), accepted, delivered, pending, **counts)
