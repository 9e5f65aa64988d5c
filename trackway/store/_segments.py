"""Lines on an object store, such as rows: numbered objects of whole ones, which are never changed.

`metrics/00000001.jsonl`, `metrics/00000002.jsonl` and so on, one after the other, are the file `metrics.jsonl`. Where a
run directory was copied to the store, an object of that name comes before them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple, final

from trackway import _notices
from trackway.store._layout import METRICS, lines_name
from trackway.store._remote import Remote

__all__ = ["Segment", "Segments", "folder_of", "number_of", "ranks_in", "segment_name", "segments_in"]

_NAME = re.compile(r"([0-9]{8,12})\.jsonl")
_RANK = re.compile(r"metrics(?:\.rank([1-9][0-9]{0,8}))?(?:\.jsonl|/[0-9]{8,12}\.jsonl)")
_WINDOW = 1 << 23  # bytes that are fetched together
_MOST = 64  # objects likewise


class Segment(NamedTuple):
    """One object of lines: its name, and its size in bytes."""

    name: str
    size: int


def folder_of(rank: int, kind: str = METRICS) -> str:
    """Return the folder of the segments of one kind of lines of process *rank*."""
    return lines_name(kind, rank).removesuffix(".jsonl")


def segment_name(rank: int, number: int, kind: str = METRICS) -> str:
    """Return the name of a segment; numbers begin with 1."""
    return f"{folder_of(rank, kind)}/{number:08d}.jsonl"


def number_of(segment: Segment) -> int:
    """Return the number of a segment; 0 for a file that was copied."""
    match = _NAME.fullmatch(segment.name.rpartition("/")[2])
    return int(match[1]) if match else 0


def segments_in(listing: Mapping[str, int], rank: int, kind: str = METRICS) -> list[Segment]:
    """Return the segments of one kind of lines of process *rank* among the objects of *listing*, in their order."""
    whole = lines_name(kind, rank)
    prefix = f"{folder_of(rank, kind)}/"
    found = [Segment(whole, listing[whole])] if whole in listing else []
    names = [name for name in listing if name.startswith(prefix) and _NAME.fullmatch(name[len(prefix) :])]
    numbered = [Segment(name, listing[name]) for name in names]
    return found + sorted(numbered, key=number_of)


def ranks_in(names: Iterable[str]) -> set[int]:
    """Return the ranks of the processes whose rows are among the objects *names*."""
    return {int(match[1] or 0) for match in map(_RANK.fullmatch, names) if match}


@final
class Segments:
    """The segments of one process, read as if they were one file. Not thread-safe.

    Those that follow one another in the direction of reading are fetched together; a few are kept.

    Attributes:
        size: Number of bytes of all together.
        url: Where they lie.
    """

    def __init__(self, remote: Remote, segments: list[Segment]) -> None:
        self.url = remote.url
        self._remote = remote
        self._segments = segments
        self._ends = list(accumulate(segment.size for segment in segments))
        self._kept: dict[int, bytes] = {}
        self._lowest = len(segments)  # the first one of those that were read last
        self._ahead = 0  # how many are fetched before they are needed
        self.size = self._ends[-1] if segments else 0
        numbers = [number_of(segment) for segment in segments if number_of(segment)]
        if numbers and numbers[-1] - numbers[0] >= len(numbers):
            _notices.log_once(
                ("segments", remote.url), f"{remote.url!a}: segments are missing; their lines are left out"
            )

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes from *begin* up to *end*, which lies within the size.

        Raises:
            OSError: if an object cannot be read.
        """
        if begin >= end:
            return b""
        first, last = bisect_right(self._ends, begin), bisect_left(self._ends, end)
        needed = range(first, last + 1)
        missing = [at for at in needed if at not in self._kept]
        if missing:
            self._fetch(missing, needed)
        self._lowest = first
        start = self._ends[first] - self._segments[first].size
        return b"".join(self._kept[at] for at in needed)[begin - start : end - start]

    def _fetch(self, missing: list[int], needed: range) -> None:
        """Have the segments *missing*, and more of those that come next: more each time, as far as they are small."""
        back = missing[-1] < self._lowest
        following = range(missing[0] - 1, -1, -1) if back else range(missing[-1] + 1, len(self._segments))
        wanted, size = list(missing), sum(self._segments[at].size for at in missing)
        for at in following[: self._ahead]:
            size += self._segments[at].size
            if size > _WINDOW:
                break
            wanted.append(at)
        self._ahead = min(2 * self._ahead + 1, _MOST)
        contents = self._remote.get_all([self._segments[at] for at in wanted])
        kept = {at: self._kept[at] for at in needed if at in self._kept}
        self._kept = kept | dict(zip(wanted, contents, strict=True))
