"""What is asked of the history of a run."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, final

from trackway.store._assembly import Row
from trackway.store._summary import leaves

__all__ = ["META", "OUTPUTS", "Names", "Query", "drop_incomplete", "fill", "make_query"]

OUTPUTS = ("rows", "numpy", "pandas", "polars", "arrow")
_RANKS = ("primary", "all")
META = ("_step", "_time", "_attempt", "_rank")
"""The reserved keys that a row may have, in the order of columns."""
_GLOB = re.compile(r"[*?[]")


@final
class Names:
    """The names of the metrics that are asked for. Not thread-safe."""

    def __init__(self, metrics: str | Iterable[str]) -> None:
        """Take one name or several, of which some may be globs such as `train/*`.

        Raises:
            TypeError: if they are something else.
        """
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"history: metrics must be a name or several names, got {metrics!r}")
        self.exact: tuple[str, ...] = tuple(dict.fromkeys(name for name in names if not _GLOB.search(name)))
        self._patterns = [re.compile(fnmatch.translate(name)) for name in names if _GLOB.search(name)]
        self._known = {name: name[:1] != "_" for name in names}
        self._chosen: dict[tuple[str, ...], tuple[str, ...]] = {}  # of the keys of a row without groups

    def __contains__(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = name[:1] != "_" and any(pattern.match(name) for pattern in self._patterns)
            self._known[name] = known
        return known

    def of(self, row: Row) -> Row | None:
        """Return *row* with the metrics asked for and the reserved keys, or None where it has none of them."""
        if dict not in set(map(type, row.values())):
            shape = tuple(row)
            chosen = self._chosen.get(shape)
            if chosen is None:
                metrics = [key for key in shape if key in self]
                chosen = self._chosen[shape] = (*(key for key in shape if key in META), *metrics) if metrics else ()
            return {key: row[key] for key in chosen} if chosen else None
        kept = self._part(row, "")
        return {**{key: row[key] for key in row if key in META}, **kept} if kept else None

    def _part(self, tree: Row, prefix: str) -> Row:
        kept: Row = {}
        known = self._known
        for key, value in tree.items():
            name = f"{prefix}{key}" if prefix else key
            if type(value) is dict and value and "_type" not in value:
                part = self._part(value, f"{name}/") if prefix or key[:1] != "_" else None
                if part:
                    kept[key] = part
            elif known.get(name, True) and name in self:
                kept[key] = value
        return kept


@final
class Query(NamedTuple):
    """A question, checked; see `trackway.store.read_history`.

    Attributes:
        limit: How many rows; None for all.
    """

    limit: int | None
    low: int | None
    high: int | None
    names: Names | None
    output: str
    include_meta: bool
    fill_missing: bool
    dropna: bool
    all_ranks: bool

    def view(self, row: Row) -> Row | None:
        """Return what is to be shown of *row*, None where nothing of it is."""
        return row if self.names is None else self.names.of(row)

    def __contains__(self, step: object) -> bool:
        assert isinstance(step, int)
        return (self.low is None or step >= self.low) and (self.high is None or step < self.high)


def make_query(
    n: int | None,
    *,
    step_range: tuple[int | None, int | None] | None,
    metrics: str | Iterable[str] | None,
    output: str,
    include_meta: bool,
    fill_missing: bool,
    dropna: bool,
    ranks: str,
) -> Query:
    """Return the query of these arguments.

    Raises:
        ValueError: if one of them is none of those that are allowed.
        TypeError: if one of them is of another type.
    """
    if output not in OUTPUTS:
        raise ValueError(f"history: output must be one of {', '.join(OUTPUTS)}; got {output!r}")
    if ranks not in _RANKS:
        raise ValueError(f"history: ranks must be 'primary' or 'all', got {ranks!r}")
    low, high = _bounds(step_range)
    names = None if metrics is None else Names(metrics)
    return Query(_count(n), low, high, names, output, include_meta, fill_missing, dropna, ranks == "all")


def _count(n: int | None) -> int | None:
    if n is None:
        return None
    number = _integer(n, "n", "the number of rows, 0 for none, -1 or None for all")
    if number < -1:
        raise ValueError(f"history: n must be the number of rows, 0 for none, -1 or None for all; got {number}")
    return None if number == -1 else number


def _bounds(step_range: Any) -> tuple[int | None, int | None]:
    if step_range is None:
        return None, None
    what = "two steps, the first one and the one after the last; None leaves an end open"
    if not isinstance(step_range, tuple | list) or len(step_range) != 2:  # noqa: PLR2004 - a pair
        raise ValueError(f"history: step_range must be {what}; got {step_range!r}")
    low, high = (None if bound is None else _integer(bound, "step_range", what) for bound in step_range)
    return low, high


def _integer(value: Any, name: str, what: str) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"history: {name} must be {what}; got {value!r}")


@final
class _Names:
    """The flattened names of the metrics of rows; those of rows alike are found once."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {}

    def of(self, row: Row) -> dict[str, tuple[str, ...]]:
        """Return the names in *row*, each with the path that leads to it."""
        if dict in set(map(type, row.values())):
            return {"/".join(path): path for path, _ in leaves(row) if path[0][:1] != "_"}
        shape = tuple(row)
        names = self._shapes.get(shape)
        if names is None:
            names = self._shapes[shape] = {key: (key,) for key in shape if key[:1] != "_"}
        return names


def _asked(rows: Iterable[Row], known: _Names, names: Names | None) -> dict[str, tuple[str, ...]]:
    """All names that a row has or *names* spells out, each with the path that leads to it."""
    paths: dict[str, tuple[str, ...]] = {}
    last = None
    for row in rows:
        new = known.of(row)
        if new is not last:
            paths = {**new, **paths}
            last = new
    return {**{name: paths.get(name, (name,)) for name in (names.exact if names else ())}, **paths}


def fill(rows: list[Row], names: Names | None) -> None:
    """Give every row all metrics that one of them has, or that *names* spells out; None where it had none."""
    known = _Names()
    paths = _asked(rows, known, names)
    for row in rows:
        present = known.of(row)
        if len(present) < len(paths):
            for name, path in paths.items():
                if name not in present:
                    _put_none(row, name, path)


def _put_none(row: Row, name: str, path: tuple[str, ...]) -> None:
    tree = row
    for key in path[:-1]:
        branch = tree.setdefault(key, {})
        if type(branch) is not dict or "_type" in branch:  # one value here, a group in another row
            row.setdefault(name, None)
            return
        tree = branch
    tree.setdefault(path[-1], None)


def drop_incomplete(rows: list[Row], names: Names | None) -> list[Row]:
    """Return the rows that have a value, and not NaN, for all metrics that *names* spells out or one of *rows* has."""
    known = _Names()
    wanted = _asked(rows, known, names)
    return [row for row in rows if len(known.of(row)) == len(wanted) and _is_whole(row)]


def _is_whole(row: Row) -> bool:
    for key, value in row.items():
        if value is None or (type(value) is float and value != value):  # noqa: PLR0124 - NaN alone is not itself
            if key[:1] != "_":
                return False
        elif type(value) is dict and "_type" not in value and not _is_whole(value):
            return False
    return True
