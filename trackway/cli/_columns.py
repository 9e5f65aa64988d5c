"""Which values of configurations are shown unasked, and which metrics there are to ask for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from trackway.cli._output import flat, is_number

__all__ = ["TRACKING", "columns_of_config", "metrics_in", "of_tracking"]

TRACKING = frozenset(
    {"agree_timeout", "alerts", "dir", "events", "hooks", "print", "redact", "resume", "run_id", "step_policy", "store"}
    | {"strict_json", "trackers"}
)
"""The fields of a `TrackingConfig`, which takes longer to load than a command has."""

_TELLING = frozenset({"agree_timeout", "step_policy", "strict_json"})
_MOST_READ = 100  # configurations that are read unasked
_MOST_SEARCHED = 8  # runs of which all rows are
_LAST = 100
_SHOWN = 3  # values of them that are shown unasked
_SHORT = 30
_GLOB = re.compile(r"([*?[])")


def columns_of_config(asked: tuple[str, ...], found: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the values of the configuration to show: those *asked* for, else a few that differ."""
    if asked or not 1 < len(found) <= _MOST_READ:
        return asked
    settings = [flat(run.config) for run in found]
    names = dict.fromkeys(name for values in settings for name in values)
    own = of_tracking(names)
    differ = (name for name in names if _tells_apart([values.get(name) for values in settings]))
    return tuple(name for name in differ if name not in own)[:_SHOWN]


def of_tracking(names: Iterable[str]) -> set[str]:
    """Return those of *names* that say how runs are tracked, and nothing of what is trained."""
    inside: dict[str, dict[str, list[str]]] = {}  # by folder, what stands in it, and the whole names
    for name in names:
        parts = name.split("/")
        for depth, part in enumerate(parts):
            inside.setdefault("/".join(parts[:depth]), {}).setdefault(part, []).append(name)
    return {
        name
        for folder, content in inside.items()
        if _is_tracking(folder, content.keys())
        for part in TRACKING.intersection(content)
        for name in content[part]
    }


def _is_tracking(folder: str, parts: AbstractSet[str]) -> bool:
    """Whether *parts*, which stand in *folder*, have among them the fields of a `TrackingConfig`, or some of them."""
    if not _TELLING.isdisjoint(parts):
        return len(TRACKING & parts) > 1
    named = folder.rpartition("/")[2] == "tracking" or (bool(folder) and "trackers" in parts)
    return named and parts <= TRACKING


def _tells_apart(values: list[Any]) -> bool:
    texts = {repr(value) for value in values}
    short = all(value is None or isinstance(value, bool | int | float | str) for value in values)
    return short and len(texts) > 1 and max(map(len, texts)) <= _SHORT


def metrics_in(found: Sequence[Any]) -> list[str]:
    """Return the names of metrics that rows of the runs *found* have numbers of, sorted; for messages about mistakes.

    Values that were set by hand stand in a summary beside them, and in no row. Of many runs the first ones are read.
    """
    names: set[str] = set()
    for run in found[:_MOST_SEARCHED]:
        with contextlib.suppress(OSError):
            names |= _numbers(run.history(_LAST))
            rest = [name for name, value in flat(run.summary).items() if is_number(value) and name not in names]
            if rest:
                names |= _numbers(run.history(None, metrics=[_GLOB.sub(r"[\1]", name) for name in rest]))
    return sorted(names)


def _numbers(rows: list[dict[str, Any]]) -> set[str]:
    return {name for row in rows for name, value in flat(row).items() if is_number(value) and name[:1] != "_"}
