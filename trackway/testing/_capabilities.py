"""The capability table: what becomes of each kind of value, found out by logging it."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from trackway.testing._values import VALUES
from trackway.tracker import Tracker, walk
from trackway.tracker._reports import Reporting

__all__ = ["Capability", "capabilities", "capability_table"]

Capability = Literal["native", "converted", "dropped"]

KINDS: dict[str, str] = {
    "numbers of Python, NumPy, JAX": "float",
    "bool": "bool",
    "NaN, ±inf": "nan",
    "integers beyond 64 bits": "int beyond 64 bits",
    "arrays of one element": "array of shape (1, 1)",
    "larger arrays, lists": "2-D array",
    "text": "text",
    "None": "None",
    "dates, paths, enums": "datetime",
    "dataclasses, pydantic models": "dataclass",
    "nested mappings": "nested dict",
    "any other object": "object",
    "`Histogram`": "Histogram",
    "`Image`": "Image",
    "`Table`": "Table",
    "`Text`": "Text",
    "`Html`": "Html",
    "`Audio`": "Audio",
}
"""Row of the table to the kind of `VALUES` that stands for it."""


def capabilities(make: Callable[[Path], Tracker]) -> dict[str, Capability]:
    """Return what a tracker does with each kind of value in the table.

    "native": kept as it is, to the backend's own precision; "converted": kept in another form and counted;
    "dropped": not kept, and counted.

    Args:
        make: Makes a fresh tracker that keeps its files under the folder given. The tracker, or one behind it, has a
            `report()`.
    """
    return {row: _probe(make, VALUES[kind]) for row, kind in KINDS.items()}


def _probe(make: Callable[[Path], Tracker], value: Callable[[], Any]) -> Capability:
    logger = logging.getLogger("trackway")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the counts are the answer here, the messages would be noise
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tracker = make(Path(folder))
            tracker.log({"value": value()}, step=0)
            tracker.flush()
            reports = [member.report() for member in walk(tracker) if isinstance(member, Reporting)]
            tracker.finish()
    finally:
        logger.setLevel(level)
    if any(report.dropped or report.failed for report in reports):
        return "dropped"
    return "converted" if any(report.converted for report in reports) else "native"


def capability_table(makers: Mapping[str, Callable[[Path], Tracker]]) -> str:
    """Return the table as Markdown, one column per backend of *makers*."""
    columns = {name: capabilities(make) for name, make in makers.items()}
    lines = ["| value | " + " | ".join(f"`{name}`" for name in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {row} | " + " | ".join(column[row] for column in columns.values()) + " |" for row in KINDS]
    return "\n".join(lines) + "\n"
