"""Guessing what was meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["did_you_mean", "misspelt", "names_in"]

_LIKE = 0.8  # more than names such as val/loss and train/loss are
_DEPTH = 10


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" where one of *known* is close to *name*, else an empty text."""
    import difflib  # only for errors

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def names_in(values: Mapping[str, Any], depth: int = _DEPTH) -> Iterator[str]:
    """Yield the names of the metrics in a row, those of nested ones joined by `/`."""
    for name, value in values.items():
        if isinstance(value, Mapping) and depth:
            yield from (f"{name}/{inner}" for inner in names_in(value, depth - 1))
        elif isinstance(name, str) and name[:1] != "_":
            yield name


def misspelt(unseen: Iterable[str], known: Iterable[str]) -> str:
    """Say which of the names *unseen* look like one that is *known*; an empty text if none does.

    Others may well come later: a metric of an evaluation, say.
    """
    import difflib

    names = sorted(known)
    near = {name: difflib.get_close_matches(name.replace(".", "/"), names, 1, _LIKE) for name in unseen}
    found = ", ".join(f"{name!r} (did you mean {close[0]!r}?)" for name, close in near.items() if close)
    return f"alerts: rules read metrics of which no row has had a number so far: {found}" if found else ""
