"""The last value of every metric, and the values that were set by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, final

from trackway import _notices
from trackway.values import Row

__all__ = ["MAX_NAMES", "Summary", "combined", "leaves", "merge"]

MAX_NAMES = 10_000
"""Names that a summary holds at its top."""


def _is_tree(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether *value* groups metrics, as opposed to an image reference and the like, which is one value."""
    return type(value) is dict and bool(value) and "_type" not in value


def merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put *values* over those of *into*, name by name at every depth; nested dicts of *values* are not kept."""
    _merge(into, values, None)


def _merge(into: dict[str, Any], values: Mapping[str, Any], own: set[int] | None) -> None:
    """Merge; dicts below *into* that are not in *own*, if that is given, are copied before they are changed."""
    for key, value in values.items():
        old = into.get(key)
        if not _is_tree(value):
            if type(value) is not dict or value or not _is_tree(old):  # an empty group takes nothing away
                into[key] = value
            continue
        branch = old if _is_tree(old) else {}
        if own is not None and id(branch) not in own:
            branch = branch.copy()
            own.add(id(branch))
        into[key] = branch
        _merge(branch, value, own)


def leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the value of every metric in *tree*."""
    for key, value in tree.items():
        if _is_tree(value):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def combined(last: Mapping[str, Any], explicit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of what `Summary.freeze` gave."""
    result: dict[str, Any] = {}
    merge(result, last)
    merge(result, explicit)
    return result


@final
class Summary:
    """Collects the summary of a run. Not thread-safe: its owner holds a lock.

    Nested mappings are merged name by name: after `{"train": {"loss": 1}}` and `{"train": {"accuracy": 0.5}}` both
    are there.

    Attributes:
        changed: Whether rows were taken since someone set it to False.
    """

    def __init__(self) -> None:
        self.changed = False
        self._last: dict[str, Any] = {}
        self._explicit: dict[str, Any] = {}
        self._frozen = False
        self._own: set[int] = set()  # dicts below `_last` that no one else has been given

    def update(self, row: Mapping[str, Any]) -> None:
        """Take the values of one logged row."""
        self.changed = True
        if self._frozen:
            self._last, self._own, self._frozen = self._last.copy(), set(), False
        last = self._last
        if type(row) is Row and row.flat:  # every row passes here
            last.update(row)
            if len(last) > MAX_NAMES:
                self._cap()
            return
        for key, value in row.items():
            if type(value) is dict:
                _merge(last, {key: value}, self._own)
            else:
                last[key] = value
        if len(last) > MAX_NAMES:
            self._cap()

    def update_all(self, rows: Sequence[Row]) -> None:
        """Take the values of several rows, at least one."""
        self.update(rows[0])
        last = self._last
        for row in rows[1:]:
            if row.flat:
                last.update(row)
            else:
                self.update(row)
        if len(last) > MAX_NAMES:
            self._cap()

    def _cap(self) -> None:
        """Leave out the names that came last."""
        while len(self._last) > MAX_NAMES:
            self._last.popitem()
        _notices.log_once(
            "summary is full",
            f"more than {MAX_NAMES:,} names of metrics were logged: the rows have all of them, the summary has the "
            "first ones; put what tells the metrics apart, such as an index, into the value",
        )

    def set(self, values: Mapping[str, Any]) -> None:
        """Take values set by hand, which no row overwrites."""
        explicit: dict[str, Any] = {}
        merge(explicit, self._explicit)
        merge(explicit, values)
        self._explicit = explicit

    def restore(self, values: Mapping[str, Any], explicit: Iterable[Iterable[str]]) -> None:
        """Take over an earlier summary, of which the values at the paths *explicit* were set by hand."""
        paths = {tuple(path) for path in explicit}
        for path, value in leaves(values):
            if path in paths:
                merge(self._explicit, _nested(path, value))
            else:
                _merge(self._last, _nested(path, value), self._own)

    def explicit_paths(self) -> list[list[str]]:
        """Return the path of every value set by hand."""
        return [list(path) for path, _ in leaves(self._explicit)]

    @property
    def explicit(self) -> dict[str, Any]:
        """The values set by hand; a later `set` leaves this dict as it is."""
        return self._explicit

    def freeze(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the last values and those set by hand as they stand, at once however many: to be read only.

        Later rows go to a copy, which costs the first of them one `dict.copy` of each mapping that it changes.
        """
        self._frozen = True
        return self._last, self._explicit

    def snapshot(self) -> dict[str, Any]:
        """Return the summary as it stands; changing it changes nothing here."""
        return Row(combined(self._last, self._explicit)).copy()


def _nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value
