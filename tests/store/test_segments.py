"""Objects of rows, read as if they were one file."""

from __future__ import annotations

import random

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from remote_stores import spools  # noqa: F401 - a fixture

from trackway.store import LocalTracker, _mirror, read_rows
from trackway.store._remote import Remote
from trackway.store._segments import Segments, ranks_in, segment_name, segments_in

URL = "memory://bucket/a"


class CountingFileSystem(MemoryFileSystem):
    """A store in memory that notes what is read."""

    protocol = "counting"
    read: list[str] = []  # noqa: RUF012 - of all instances

    def cat_file(self, path, start=None, end=None, **more):
        """Note the path."""
        self.read.append(path)
        return super().cat_file(path, start=start, end=end, **more)


@pytest.fixture
def stored():
    """Twenty segments of different lengths, and what they hold together."""
    import fsspec

    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    remote = Remote("counting://bucket/a")
    chance = random.Random(3)
    parts = [bytes(chance.choices(b"abc\n", k=chance.randrange(200))) for _ in range(20)]
    for number, part in enumerate(parts, 1):
        remote.put(segment_name(0, number), part)
    CountingFileSystem.read.clear()
    return remote, b"".join(parts)


def opened(remote):
    """What reads them."""
    return Segments(remote, segments_in(remote.listing(), 0))


@pytest.mark.parametrize("seed", range(5))
def test_any_slice_is_that_of_the_whole(stored, seed):
    """Whatever is asked for, in whatever order."""
    remote, whole = stored
    chance = random.Random(seed)
    segments = opened(remote)
    assert segments.size == len(whole)
    for _ in range(200):
        begin, end = sorted(chance.choices(range(len(whole) + 1), k=2))
        assert segments.read(begin, end) == whole[begin:end]


@pytest.mark.parametrize("length", [1, 50, 300, 10_000])
@pytest.mark.parametrize("backwards", [False, True])
def test_reading_all_of_it_fetches_each_object_once(stored, length, backwards):
    """In either direction, in pieces of any length."""
    remote, whole = stored
    segments = opened(remote)
    pieces = [(begin, min(begin + length, len(whole))) for begin in range(0, len(whole), length)]
    read = [segments.read(*piece) for piece in (reversed(pieces) if backwards else pieces)]
    assert b"".join(reversed(read) if backwards else read) == whole
    filled = [name for name, size in remote.listing().items() if size]
    assert sorted(path.partition("bucket/a/")[2] for path in CountingFileSystem.read) == sorted(filled)


def test_the_end_is_had_without_the_beginning(stored):
    """The first object that is fetched is the last one."""
    remote, whole = stored
    assert opened(remote).read(len(whole) - 1, len(whole)) == whole[-1:]
    assert len(CountingFileSystem.read) == 1


def test_segments_are_told_by_their_names():
    """Other objects are none, numbers order them, and each rank has a folder."""
    listing = {
        "metrics/00000010.jsonl": 1,
        "metrics/00000009.jsonl": 1,
        "metrics/x.jsonl": 1,
        "metrics/1.jsonl": 1,
        "metrics.rank2/00000001.jsonl": 1,
        "metrics.rank02/00000001.jsonl": 1,
        "run.json": 1,
    }
    assert [name for name, _ in segments_in(listing, 0)] == ["metrics/00000009.jsonl", "metrics/00000010.jsonl"]
    assert ranks_in(listing) == {0, 2}


def test_missing_segments_are_said(caplog):
    """The rows that are there are read."""
    remote = Remote(URL)
    for number in (1, 3):
        remote.put(segment_name(0, number), b'{"_step":%d,"_time":1.0,"x":1}\n' % number)
    assert [row["_step"] for row in read_rows(URL)] == [1, 3]
    assert caplog.text.count("segments are missing") == 1


def test_segments_hold_whole_lines_of_bounded_size(monkeypatch):
    """A line that is longer than a segment has one of its own."""
    monkeypatch.setattr(_mirror, "SEGMENT", 1000)
    with LocalTracker(URL) as tracker:
        for number in range(50):
            tracker.log({"text": "x" * (3000 if number == 20 else 10)})
    remote = Remote(URL)
    contents = [remote.get(name) for name, _ in segments_in(remote.listing(), 0)]
    assert all(content.endswith(b"\n") for content in contents)
    assert sorted(map(len, contents))[-2] <= 1000
    assert len(contents) < 10
    assert len(read_rows(URL)) == 50


def test_a_segment_of_a_stranger_that_is_torn_costs_no_later_row():
    """The next segment begins with the newline that is missing."""
    remote = Remote(URL)
    remote.put(segment_name(0, 1), b'{"_step":0,"_time":1.0,"x":1}\n{"_step":1,"_ti')
    with LocalTracker(URL) as tracker:
        tracker.log({"x": 2})
    assert [row["x"] for row in read_rows(URL)] == [1, 2]
