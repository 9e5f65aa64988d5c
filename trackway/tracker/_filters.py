"""Choosing what a tracker gets to see."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

from trackway import _notices
from trackway.errors import ConfigError
from trackway.tracker._dispatch import Call, ForwardingTracker
from trackway.tracker._interface import Tracker, name_of
from trackway.tracker._steps import StepCounter
from trackway.values import Downgrade, Row, flatten

__all__ = ["FilterPolicy", "FilteredTracker"]

_NAMED = frozenset({"log", "add", "log_summary"})


@final
@dataclass(frozen=True)
class FilterPolicy:
    """Which rows and metrics pass, and under which names.

    Names are those of the flattened row: `{"train": {"loss": 1}}` is `train/loss`.

    Attributes:
        every_steps: Rows pass whose step is a multiple of it; rows holding images, tables, text, HTML or audio
            always pass, as do summary, hyper-parameters, artifacts and events.
        include: Globs on metric names; where given, only names matching one of them pass.
        exclude: Globs on metric names that do not pass, whatever *include* says.
        prefix: Put before every metric name.
        rename: Metric name to the name under which this tracker gets it (before *prefix*).

    Raises:
        ConfigError: if *every_steps* is less than 1.
    """

    every_steps: int = 1
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    prefix: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.every_steps) is not int or self.every_steps < 1:
            raise ConfigError(f"every_steps must be an integer of at least 1, got {self.every_steps!r}")
        for name in ("include", "exclude"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} must be a list of globs, got the text {getattr(self, name)!r}")

    @property
    def passes_all(self) -> bool:
        """Whether the policy changes nothing."""
        return self.every_steps == 1 and not self.names

    @property
    def names(self) -> bool:
        """Whether the policy looks at metric names."""
        return bool(self.include or self.exclude or self.prefix or self.rename)

    @cached_property
    def _included(self) -> re.Pattern[str] | None:
        return _any_of(self.include)

    @cached_property
    def _excluded(self) -> re.Pattern[str] | None:
        return _any_of(self.exclude)

    def row(self, row: Row) -> Row:
        """Return *row* with only the metrics that pass, under their names for this tracker."""
        if not self.names:
            return row
        kept: dict[str, Any] = {}
        lost: list[Downgrade] = []
        for key, value in flatten(row, lost).items():
            if not self._passes(key):
                continue
            name = self._name(key)
            if name in kept:
                lost.append(Downgrade(name, "is given twice after renaming; the last one is kept", lost=True))
                _notices.warn_once(
                    ("renamed", name), f"metric {name!r} {lost[-1].reason}. Rename one of them otherwise."
                )
            kept[name] = value
        passed = row.derive(kept)
        passed.downgrades = (*passed.downgrades, *lost)
        return passed

    def call(self, call: Call, step: int) -> Call | None:
        """Return *call*, which brings a row of *step*, as the tracker is to see it; None where it is not to."""
        row = call.payload
        if row is None or (step % self.every_steps and not row.has_media):
            return None
        passed = self.row(row)
        if not passed and row:
            return None
        return call if passed is row else call.with_payload(passed)

    def _passes(self, key: str) -> bool:
        if self._included is not None and not self._included.match(key):
            return False
        return self._excluded is None or not self._excluded.match(key)

    def _name(self, key: str) -> str:
        return self.prefix + self.rename.get(key, key)


def _any_of(globs: Sequence[str]) -> re.Pattern[str] | None:
    if not globs:
        return None
    import fnmatch

    return re.compile("|".join(map(fnmatch.translate, globs)))


@final
class FilteredTracker(ForwardingTracker):
    """Shows *tracker* only what *policy* lets pass. Thread-safe if *tracker* is."""

    def __init__(self, tracker: Tracker, policy: FilterPolicy, *, first_step: int = 0) -> None:
        """Stand in front of *tracker*; *first_step* is that of the first row which comes without one."""
        self.tracker = tracker
        self.name = name_of(tracker)
        self.policy = policy
        self._steps = StepCounter(first_step)

    def members(self) -> tuple[Tracker, ...]:
        """Return the one tracker behind."""
        return (self.tracker,)

    def _forward(self, call: Call) -> Any:
        if call.method not in _NAMED or call.payload is None:
            return call.on(self.tracker)
        step = 0  # of a summary, which always passes
        if call.method == "log":
            # rows that do not pass count too, so the tracker behind cannot number the rows by itself
            step = self._steps.take(call.kwargs.get("step"))
            call = call.with_step(step)
        passed = self.policy.call(call, step)
        return None if passed is None else passed.on(self.tracker)
