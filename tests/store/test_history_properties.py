"""Properties of reading that hold for whatever a file of rows has in it."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trackway.store import LocalTracker, _chunks, _index, _scan, read_history
from trackway.store._columns import columns_of
from trackway.store._frames import to_frame
from trackway.store._index import IndexWriter
from trackway.store._scan import parse_block, parse_each
from trackway.store._summary import merge
from trackway.values import decode, encode, normalise

relaxed = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)

names = st.sampled_from(["loss", "acc", "train/loss", "näme", "a:b", 'q"', "_x", "lr0", "lr1"])
numbers = st.integers(-5, 5) | st.floats() | st.sampled_from([2**63, 2**64, -(2**63), 2**70, -0.0, 5e-324, 1e300])
values = numbers | st.none() | st.booleans() | st.text(max_size=3) | st.lists(numbers, max_size=2)
trees = st.dictionaries(names, values | st.dictionaries(names, values, max_size=2), max_size=3)
alike = st.fixed_dictionaries({"loss": st.floats(allow_nan=False, allow_infinity=False), "n": st.integers(0, 9)})
payloads = st.lists(st.one_of(trees, alike), max_size=12) | st.lists(alike, min_size=3, max_size=12)
moves = st.lists(st.sampled_from(["next", "next", "next", "skip", "same", "late", "early", "rewind"]), max_size=30)


@pytest.fixture(params=["small blocks", "large blocks"])
def blocks(request, monkeypatch):
    """Files are read in blocks of a few lines, or in one."""
    if request.param == "small blocks":
        for module, name, size in [
            (_scan, "_TAIL_BLOCK", 50),
            (_chunks, "BLOCK", 200),
            (_chunks, "_LARGE_BLOCK", 400),
            (_chunks, "_FOR_POLARS", 0),
        ]:
            monkeypatch.setattr(module, name, size)
        monkeypatch.setattr(_scan.Source.blocks, "__defaults__", (200, 0))
        monkeypatch.setattr(_index, "_SPACING", 100)


def _written(moves, payloads):
    """Rows as a run writes them: marked where they are late, numbered from the second attempt on."""
    rows, step, high, attempt = [], 0, None, 1
    for number, move in enumerate(moves):
        base = step if high is None else high
        step = base + {"next": 1, "skip": 7, "same": 0, "late": -2, "early": -40, "rewind": -5}[move]
        if move == "rewind" and rows:
            attempt, high = attempt + 1, None
        row = {"_step": step, "_time": float(number)}
        if attempt > 1:
            row["_attempt"] = attempt
        if high is not None and step <= high:
            row["_patch"] = True
        high = step if high is None else max(high, step)
        payload = payloads[number % len(payloads)] if payloads else {}
        rows.append({**row, **{key: value for key, value in payload.items() if key[:1] != "_"}})
    return rows


def _merged(rows):
    """The rows by step, the one that was written to last at the end: what reading means, told as simply as can be."""
    merged, first_steps = {}, {}
    for row in rows:
        first_steps.setdefault(row.get("_attempt", 1), row["_step"])
    for row in rows:
        attempt, step = row.get("_attempt", 1), row["_step"]
        if any(later > attempt and step >= first for later, first in first_steps.items()):
            continue
        whole = merged.pop(step, None) or {key: row[key] for key in ("_step", "_time", "_attempt") if key in row}
        merge(whole, decode(encode({key: value for key, value in row.items() if key[:1] != "_"})))
        merged[step] = whole
    return merged


def _in_order(rows):
    return sorted(rows, key=lambda row: row["_step"])


def _same(one, other):
    return repr(one) == repr(other)  # NaN is NaN, -0.0 is not 0.0, 1 is not True


def _table(arrays):
    return {name: (array.dtype.str, repr(array.tolist())) for name, array in arrays.items()}


def _file(folder, data):
    path = Path(folder) / "metrics.jsonl"
    path.write_bytes(data)
    return path


@relaxed
@given(moves=moves, payloads=payloads, strict=st.booleans(), question=st.tuples(st.integers(0, 8), st.integers(-9, 20)))
def test_every_query_gives_what_the_model_gives(blocks, moves, payloads, strict, question):
    """All rows, the last ones, ranges and columns are those of a reader that does nothing cleverly."""
    n, low = question
    rows = _written(moves, payloads)
    merged = list(_merged(rows).values())
    with tempfile.TemporaryDirectory() as folder:
        path = _file(folder, b"".join(encode(row, strict=strict) + b"\n" for row in rows))
        assert _same(read_history(path), _in_order(merged))
        assert _same(read_history(path, n), _in_order(merged[-n:] if n else []))
        chosen = [row for row in _in_order(merged) if low <= row["_step"] < low + 9]
        assert _same(read_history(path, step_range=(low, low + 9)), chosen)
        assert _same(read_history(path, n, step_range=(low, low + 9)), chosen[-n:] if n else [])
        columns = to_frame(columns_of(_in_order(merged)), "numpy", include_meta=True)
        assert _table(read_history(path, output="numpy")) == _table(columns)


@relaxed
@given(moves=moves, payloads=payloads, n=st.integers(1, 8), covered=st.integers(0, 30))
def test_an_index_changes_no_answer(blocks, moves, payloads, n, covered):
    """However much of the file it covers, the last rows are the same."""
    rows = _written(moves, payloads)
    lines = [encode(row) + b"\n" for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = _file(folder, b"".join(lines[:covered]))
        index = IndexWriter.following(path)
        Path(folder, "metrics.index.json").write_bytes(index.render(path.stat().st_size))
        _file(folder, b"".join(lines))
        assert _same(read_history(path, n), _in_order(list(_merged(rows).values())[-n:]))


@relaxed
@given(moves=moves, payloads=payloads, data=st.data())
def test_a_file_cut_at_any_byte_is_a_prefix_of_its_rows(blocks, moves, payloads, data):
    """Whatever a crash leaves of the last line, the lines before it are read as if it had never been begun."""
    rows = _written(moves, payloads)
    lines = [encode(row) + b"\n" for row in rows]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    kept, end = 0, 0
    while kept < len(lines) and end + len(lines[kept]) - 1 <= cut:  # the newline may be missing
        end += len(lines[kept])
        kept += 1
    merged = list(_merged(rows[:kept]).values())
    with tempfile.TemporaryDirectory() as folder:
        path = _file(folder, whole[:cut])
        assert _same(read_history(path), _in_order(merged))
        assert _same(read_history(path, 3), _in_order(merged[-3:]))


@settings(relaxed, max_examples=30)
@given(payloads=st.lists(trees, min_size=1, max_size=5))
def test_what_a_tracker_writes_is_read_back(payloads):
    """Writing and reading change nothing of normalised values."""
    with tempfile.TemporaryDirectory() as folder:
        with LocalTracker(folder) as tracker:
            rows = [normalise(payload, warn=False) for payload in payloads]
            for row in rows:
                tracker.log(row)
        read = read_history(folder, include_meta=False)
    assert _same(read, [dict(row) for row in rows])


def _damage(lines, data):
    """Lines as they are, joined, split, doubled or with bytes changed."""
    text = bytearray(b"".join(lines))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, max(0, len(text) - 1)))
        piece = data.draw(
            st.sampled_from([b"", b"\n", b"}{", b"},{", b'"_step":3,', b"\\", b"\\u005f", b'"', b",", b" 7", b"\0"])
        )
        text[at : at + data.draw(st.integers(0, 2))] = piece
    return bytes(text) + b"\n"


@relaxed
@given(moves=moves, payloads=payloads, data=st.data())
def test_the_short_cut_gives_what_parsing_line_by_line_gives(moves, payloads, data):
    """A block is taken in one go only if each of its lines is a plain row by itself."""
    block = _damage([encode(row) + b"\n" for row in _written(moves, payloads)], data)
    quick, slow = parse_block(block), parse_each(block)
    assert _same(quick.rows, slow.rows)
    assert (quick.steps, quick.damaged) == (slow.steps, slow.damaged)
    if quick.plain:
        assert quick.steps == sorted(set(quick.steps))
        assert all(row.get("_attempt", 1) == quick.attempt and "_patch" not in row for row in quick.rows)


@relaxed
@given(payloads=st.lists(alike, min_size=1, max_size=8), data=st.data())
def test_columns_of_a_block_are_those_of_its_rows(payloads, data):
    """Neither way around the rows makes a column of lines that are no plain rows, or another column."""
    pytest.importorskip("polars")
    lines = [orjson.dumps({"_step": step, "_time": 0.5, **row}) + b"\n" for step, row in enumerate(payloads)]
    block = _damage(lines, data)
    rows = parse_each(block)
    for chunk in (_chunks._flat_chunk(block), _chunks.polars_parser()(block)):
        if chunk is not None:
            assert rows.damaged == 0
            assert len(rows.rows) == chunk.length
            expected = to_frame(columns_of(rows.rows), "numpy", include_meta=True)
            assert _table(to_frame(chunk.columns, "numpy", include_meta=True)) == _table(expected)


@pytest.mark.parametrize("way", ["_flat_chunk", "polars"])
def test_plain_lines_of_numbers_take_the_short_cuts(way):
    """The quick ways are taken where they are meant to be."""
    if way == "polars":
        pytest.importorskip("polars")
    chunk = _chunks._flat_chunk if way == "_flat_chunk" else _chunks.polars_parser()
    block = b"".join(b'{"_step":%d,"_time":0.5,"_attempt":2,"a":%d.5,"n":7}\n' % (n, n) for n in range(9))
    assert chunk(block).columns["a"].values.tolist() == [n + 0.5 for n in range(9)]
    assert (chunk(block).attempt, chunk(block).columns["n"].kind) == (2, "int")
    assert parse_block(block).plain
    for old, new in [(b'7}\n{"_step":5', b'null}\n{"_step":5'), (b'"a":3.5', b'"b":3.5'), (b"4.5", b"true")]:
        assert old in block
        assert chunk(block.replace(old, new)) is None
    for old, new in [(b'"_step":5', b'"_step":4'), (b'5,"_time":0.5,"_attempt":2', b'5,"_time":0.5,"_attempt":3')]:
        assert chunk(block.replace(old, new)) is None
        assert not parse_block(block.replace(old, new)).plain
    assert math.isnan(parse_block(block.replace(b"4.5", b"NaN")).rows[4]["a"])
