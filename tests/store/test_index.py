"""The index of a file of rows: a hint that saves a scan, and never an answer."""

from __future__ import annotations

import json
import logging

import pytest

from trackway.store import read_history
from trackway.store._history import history_of
from trackway.store._index import IndexWriter, index_path, load_index
from trackway.store._query import make_query
from trackway.store._scan import Source
from trackway.values import encode

ROWS = 8000  # several blocks of what is read from the end
LATE = {"_step": 7, "_time": 9999.0, "_patch": True, "late": 1}
EXPECTED = {"_step": 7, "_time": 7.0, "loss": 0.5, "late": 1}


def _plain(step, **marks):
    return {"_step": step, "_time": float(step), **marks, "loss": 0.5}


@pytest.fixture
def rows():
    """Many rows, then one that adds to an early one."""
    return [*(_plain(step) for step in range(ROWS)), LATE]


def _write(folder, rows, *, covered=None):
    """Write the rows, and the index of the first *covered* of them, as a run does."""
    path = folder / "metrics.jsonl"
    writer, offset, data, content = IndexWriter(), 0, b"", b""
    for number, row in enumerate(rows, 1):
        line = encode(row) + b"\n"
        writer.add(offset, row["_step"], "_patch" in row, row.get("_attempt", 1))
        offset += len(line)
        data += line
        if number == (len(rows) if covered is None else covered):
            content = writer.render(offset)
    path.write_bytes(data)
    index_path(path).write_bytes(content)
    return path


@pytest.fixture
def parsed(monkeypatch):
    """Numbers of bytes that were parsed, block by block."""
    sizes = []
    parse = Source.parse
    monkeypatch.setattr(Source, "parse", lambda self, block: sizes.append(len(block)) or parse(self, block))
    return sizes


def test_a_late_line_of_an_early_step_is_completed_without_a_scan(tmp_path, rows, parsed):
    """The early line is read where the index says it is, and little else is."""
    path = _write(tmp_path, rows)
    assert read_history(path, 2) == [EXPECTED, rows[-2]]
    assert sum(parsed) < path.stat().st_size / 2
    parsed.clear()
    index_path(path).unlink()
    assert read_history(path, 2) == [EXPECTED, rows[-2]]
    assert sum(parsed) >= path.stat().st_size


def test_lines_beyond_the_index_are_scanned(tmp_path, rows):
    """An index that was written a while ago is as good as a new one."""
    more = [*rows, *(_plain(step) for step in range(ROWS, 2 * ROWS)), {**LATE, "later": 2}]
    path = _write(tmp_path, more, covered=ROWS + 1)
    assert read_history(path, 1) == [{**EXPECTED, "later": 2}]


def test_an_index_that_is_ahead_of_the_reading_serves_too(tmp_path, rows, caplog):
    """A run that goes on may replace the index after a reader has looked how long the file is."""
    path = _write(tmp_path, [*rows, *(_plain(step) for step in range(ROWS, 2 * ROWS)), {**LATE, "late": 2}])
    query = make_query(
        1,
        step_range=None,
        metrics=None,
        output="rows",
        include_meta=True,
        fill_missing=False,
        dropna=False,
        ranks="primary",
    )
    lines = path.read_bytes().splitlines(keepends=True)
    with caplog.at_level(logging.WARNING, "trackway"):
        assert history_of(path, query, size=sum(map(len, lines[: ROWS + 1]))) == [EXPECTED]
    assert caplog.records == []


def test_the_line_of_a_step_is_looked_for_in_its_attempt(tmp_path):
    """A late line adds to the row of the attempt that counts, with all earlier late lines of it."""
    two, three = {"_attempt": 2}, {"_attempt": 3}
    rows = [_plain(step) for step in range(ROWS)]
    rows += [{**LATE, "late": 0}, *(_plain(step, **two) for step in range(5, ROWS))]
    rows += [{**LATE, **two}, *(_plain(step, **three) for step in range(100, ROWS)), {**LATE, **three, "third": 3}]
    path = _write(tmp_path, rows)
    expected = {"_step": 7, "_time": 7.0, "_attempt": 2, "loss": 0.5, "late": 1, "third": 3}
    assert read_history(path, 1) == [expected]
    assert read_history(path)[7] == expected
    rows[-1] = {**LATE, **three, "_step": 2}
    assert read_history(_write(tmp_path, rows), 1) == [{**EXPECTED, "_step": 2, "_time": 2.0}]
    rows[-1] = {**LATE, **three, "_step": -2}
    assert read_history(_write(tmp_path, rows), 1) == [{"_step": -2, "_time": 9999.0, "_attempt": 3, "late": 1}]


def test_a_late_line_of_a_step_that_had_none_is_a_row(tmp_path, rows):
    """Between two steps and below all of them nothing is found, and nothing invented."""
    rows = [{**row, "_step": 2 * row["_step"]} for row in rows[:-1]]
    for step in (7, -3):
        path = _write(tmp_path, [*rows, {**LATE, "_step": step}])
        assert read_history(path, 1) == [{"_step": step, "_time": 9999.0, "late": 1}]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"format":1}']
    + [
        json.dumps({"format": 1, "bytes": 9, "rows": 1, "patches": [], "attempts": [], "offsets": [], **wrong}).encode()
        for wrong in (
            {"format": 2}, {"bytes": 10**9}, {"bytes": -1}, {"bytes": True}, {"rows": "x"},
            {"patches": {}}, {"patches": [1.5]}, {"patches": [5, 5]}, {"patches": [-1]},
            {"attempts": [[1, 2]]}, {"attempts": [1]}, {"attempts": [[1, "a", 2]]},
            {"offsets": None}, {"offsets": [[9, 0], [3, 1]]},
        )
    ],
)  # fmt: skip
def test_a_damaged_index_is_one_warning_and_a_scan(tmp_path, rows, caplog, content):
    """Whatever it holds, the answer is right, and the trouble is said once."""
    path = _write(tmp_path, rows)
    index_path(path).write_bytes(content)
    with caplog.at_level(logging.WARNING, "trackway"):
        assert [read_history(path, 2) for _ in range(3)] == [[EXPECTED, rows[-2]]] * 3
    assert len(caplog.records) == 1
    assert "metrics.index.json" in caplog.text


def test_an_index_that_cannot_be_read_is_one_warning_and_a_scan(tmp_path, rows, caplog):
    """A folder in its place is as bad as damage."""
    path = _write(tmp_path, rows)
    index_path(path).unlink()
    index_path(path).mkdir()
    with caplog.at_level(logging.WARNING, "trackway"):
        assert read_history(path, 1) == [EXPECTED]
    assert "cannot be read" in caplog.text


def _shifted(entries, by):
    return [[entry[0] + by, *entry[1:]] if type(entry) is list else entry + by for entry in entries]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("patches", lambda entries: _shifted(entries, -3)),
        ("patches", lambda entries: [0]),
        ("offsets", lambda entries: [[offset, step - 10**6] for offset, step in entries]),
        ("offsets", lambda entries: [[offset + 1, step] for offset, step in entries]),
        ("offsets", lambda entries: [[offset, 0] for offset, _ in entries]),
        ("attempts", lambda entries: [[1, 0, 3]]),
        ("attempts", lambda entries: [[1, 5, 0]]),
        ("attempts", lambda entries: [[2, 0, 0]]),
    ],
)
def test_a_wrong_index_is_found_out(tmp_path, rows, caplog, name, change):
    """A line that is not where, or not what, the index says makes the reader scan, with one warning."""
    rows = [*rows, *(_plain(step) for step in range(ROWS, 2 * ROWS)), {**LATE, "later": 2}]
    path = _write(tmp_path, rows)
    content = json.loads(index_path(path).read_bytes())
    content[name] = change(content[name])
    index_path(path).write_text(json.dumps(content))
    with caplog.at_level(logging.WARNING, "trackway"):
        assert read_history(path, 1) == [{**EXPECTED, "later": 2}]
    assert len(caplog.records) == 1
    assert "does not belong to the rows" in caplog.text


def test_many_late_lines_are_not_listed(tmp_path):
    """Beyond a thousand the index names none, and the reader scans."""
    rows = [_plain(0), _plain(1), *({**LATE, "_step": 0, "late": number} for number in range(1500)), _plain(2)]
    path = _write(
        tmp_path, [*rows, *(_plain(step) for step in range(3, ROWS)), {**LATE, "_step": 0, "late": -1, "later": 1}]
    )
    assert load_index(index_path(path), lambda: path.stat().st_size).patches is None
    assert read_history(path, 1) == [{"_step": 0, "_time": 0.0, "loss": 0.5, "late": -1, "later": 1}]


def test_the_index_stays_small(tmp_path):
    """However many rows and attempts there are, it is of a few hundred kilobytes at most."""
    writer = IndexWriter()
    for number in range(200_000):
        writer.add(number << 12, number, number % 3 == 1, 1 + number // 100)
    content = writer.render(200_000 << 12)
    (tmp_path / "index").write_bytes(content)
    index = load_index(tmp_path / "index", lambda: 200_000 << 12)
    assert len(content) < 100_000
    assert (index.rows, index.patches, index.attempts) == (200_000, None, None)
    assert 100 < len(index.offsets) <= 1000


def test_an_index_is_continued_by_the_next_process(tmp_path, rows):
    """What the earlier one covers is taken from it, only the lines behind are read; without one, all are."""
    rows = [*rows, *(_plain(step, _attempt=2) for step in range(50, 90))]
    path = _write(tmp_path, rows, covered=1000)
    size = path.stat().st_size
    assert IndexWriter.following(path, at_most=100) is None
    continued = json.loads(IndexWriter.following(path).render(size))
    index_path(path).unlink()
    anew = json.loads(IndexWriter.following(path).render(size))
    for name in ("rows", "patches", "attempts", "bytes"):
        assert continued[name] == anew[name]
    assert anew["rows"] == len(rows)
    assert [attempt[::2] for attempt in anew["attempts"]] == [[1, 0], [2, 50]]
    assert json.loads(IndexWriter.following(tmp_path / "none.jsonl").render(0))["rows"] == 0


def test_each_file_of_rows_has_an_index_of_its_own(tmp_path):
    """Those of other ranks stand beside that of the first one."""
    assert index_path(tmp_path / "metrics.jsonl").name == "metrics.index.json"
    assert index_path(tmp_path / "metrics.rank3.jsonl").name == "metrics.rank3.index.json"
