"""What rules would have said to a run that is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trackway.alerts._engine import RuleEngine, usable
from trackway.alerts._rule import Alert, AlertRule

__all__ = ["replay_rules"]

_MAX_LOOKS = 10_000  # between two rows


def replay_rules(
    rules: Sequence[str | Mapping[str, Any] | AlertRule], rows: Iterable[Mapping[str, Any]]
) -> Iterator[Alert]:
    """Yield the alerts of *rules* over *rows*, in order, as they would have come while the run was going on.

    Each row counts as accepted at its `_time`. Between rows the rules are looked at when they ask for it, as live.

    Args:
        rules: As `parse_rule` takes them.
        rows: Stored rows with `_step` and `_time`, oldest first; those without a finite time are left out.

    Raises:
        AlertSyntaxError: if a rule cannot be read.
        ConfigError: if the package `lark` is not installed.
    """
    moment, engine = [0.0], None
    for row in rows:
        place = usable(row)
        if place is None:
            continue
        step, time = place
        if engine is None:
            moment[0] = time
            engine = RuleEngine(rules, clock=lambda: moment[0])
        coarse = (time - moment[0]) / _MAX_LOOKS
        while (wait := engine.next_check()) is not None and moment[0] + max(wait, coarse) < time:
            moment[0] += max(wait, coarse)
            yield from engine.check(moment[0])
        moment[0] = max(moment[0], time)
        yield from engine.observe(step, time, row)
