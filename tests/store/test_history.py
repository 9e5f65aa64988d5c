"""The history of a run: one row for each step, the same whether the run still goes on or not."""

from __future__ import annotations

import logging
import math
import os

import pytest

from trackway.store import LocalTracker, read_history
from trackway.store._history import history_of
from trackway.store._query import make_query
from trackway.values import encode

ALL = {
    "step_range": None, "metrics": None, "output": "rows", "include_meta": True,
    "fill_missing": False, "dropna": False, "ranks": "primary",
}  # fmt: skip


def _lines(*rows):
    """Lines of rows given as (step, values) or (step, values, marks); the time counts them."""
    return [
        encode({"_step": step, "_time": float(time), **(marks[0] if marks else {}), **values}) + b"\n"
        for time, (step, values, *marks) in enumerate(rows)
    ]


def _live(path, n=50, *, size=None, waiting=(), open_row=None, **options):
    return history_of(path, make_query(n, **{**ALL, **options}), size=size, waiting=waiting, open_row=open_row)


def _steps(rows):
    return [row["_step"] for row in rows]


PATCH = {"_patch": True}
LATE = [(0, {"a": 0}), (1, {"a": 1}), (2, {"a": 2}), (3, {"a": 3}), (1, {"b": 10}, PATCH), (4, {"a": 4})]


@pytest.fixture
def path(tmp_path):
    """An empty file of rows."""
    file = tmp_path / "metrics.jsonl"
    file.touch()
    return file


def test_n_gives_the_steps_written_to_last_rather_than_the_highest(path):
    """A late line brings its step among the last n, in the order of the steps."""
    path.write_bytes(b"".join(_lines(*LATE)))
    assert _steps(read_history(path, 2)) == [1, 4]
    assert _steps(read_history(path, 3)) == [1, 3, 4]


def test_all_rows_and_ranges_are_ordered_by_step(path):
    """Neither -1 nor None nor a range cares when a line was written."""
    path.write_bytes(b"".join(_lines(*LATE)))
    for n in (-1, None):
        assert _steps(read_history(path, n)) == [0, 1, 2, 3, 4]
        assert _steps(read_history(path, n, step_range=(1, 4))) == [1, 2, 3]
        assert _steps(read_history(path, n, step_range=(None, 2))) == [0, 1]
        assert _steps(read_history(path, n, step_range=(3, None))) == [3, 4]


def test_n_with_a_range_gives_the_highest_matching_steps(path):
    """Of the range the highest steps count, also where a lower one was written to later."""
    path.write_bytes(b"".join(_lines(*LATE)))
    assert _steps(read_history(path, 2, step_range=(0, 4))) == [2, 3]
    assert read_history(path, 2, step_range=(4, 4)) == []


@pytest.mark.parametrize("kept", range(7))
@pytest.mark.parametrize("n", [None, 0, 1, 2, 3, 50])
def test_live_and_offline_queries_select_alike(path, kept, n):
    """Wherever the file ends and the memory of the writer begins, the answer is that of the whole file."""
    lines = _lines(*LATE)
    path.write_bytes(b"".join(lines))
    offline = [read_history(path, n), read_history(path, n, step_range=(1, 4), output="numpy")]
    path.write_bytes(b"".join(lines[:kept]))
    live = [
        _live(path, n, waiting=lines[kept:]),
        _live(path, n, waiting=lines[kept:], step_range=(1, 4), output="numpy"),
    ]
    assert live[0] == offline[0]
    assert str(live[1]) == str(offline[1])  # NaN and NaN


def test_patch_lines_are_merged_in_full_however_far_apart(path):
    """Lines of one step add up at every depth, with other steps between them; the first time stays."""
    rows = [(0, {"x": {"a": 1, "b": 1}}), *((step, {"y": step}) for step in range(1, 3000))]
    rows += [(0, {"x": {"b": 2, "c": {"d": 3}}}, PATCH), (3000, {"y": 0}), (0, {"x": {"c": {"e": 4}}, "z": 5}, PATCH)]
    path.write_bytes(b"".join(_lines(*rows)))
    expected = {"_step": 0, "_time": 0.0, "x": {"a": 1, "b": 2, "c": {"d": 3, "e": 4}}, "z": 5}
    assert read_history(path)[0] == expected
    assert read_history(path, 1) == [expected]
    assert read_history(path, 2)[0] == expected
    assert read_history(path, step_range=(0, 1)) == [expected]


def test_patch_lines_are_merged_when_split_between_disk_and_memory(path):
    """A step has its values from the file, from lines that wait and from the open row."""
    lines = _lines((0, {"a": 1}), (0, {"b": 2}, PATCH))
    path.write_bytes(lines[0])
    rows = _live(path, waiting=lines[1:], open_row={"_step": 0, "_time": 9.0, "c": math.inf})
    assert rows == [{"_step": 0, "_time": 0.0, "a": 1, "b": 2, "c": math.inf}]


def test_the_rest_of_a_line_is_joined_to_its_beginning(path):
    """Where the disk had room for half a line, the other half comes from memory."""
    line, following = _lines((0, {"a": 1}), (1, {"a": 2}))
    path.write_bytes(line[:20])
    assert _steps(_live(path, waiting=[line[20:], following])) == [0, 1]
    assert _live(path) == []


def test_the_open_row_is_the_last_one(path):
    """A row that is not committed is in the live history, without a mark, and counts for n."""
    path.write_bytes(b"".join(_lines((0, {"a": 0}), (1, {"a": 1}))))
    row = {"_step": 2, "_time": 5.0, "a": 2}
    assert _live(path, 2, open_row=row)[1] == row
    assert _steps(_live(path, 2, open_row=row)) == [1, 2]
    assert _live(path, None, open_row=row, output="numpy")["a"].tolist() == [0, 1, 2]


def test_the_history_of_a_run_that_wrote_nothing_yet_is_empty(tmp_path):
    """Live, a missing file is no error; offline it is."""
    assert _live(tmp_path / "metrics.jsonl") == []
    assert _live(tmp_path / "metrics.jsonl", None, output="numpy")["_step"].tolist() == []
    with pytest.raises(FileNotFoundError, match=r"metrics\.jsonl"):
        read_history(tmp_path)


def test_reading_pins_what_the_file_had(path):
    """Lines beyond the given size belong to a later answer."""
    lines = _lines((0, {"a": 0}), (1, {"a": 1}))
    path.write_bytes(b"".join(lines))
    assert _steps(_live(path, size=len(lines[0]))) == [0]
    assert _steps(_live(path, None, size=len(lines[0]))) == [0]


def test_reading_goes_on_beside_a_writer(tmp_path):
    """A run is read while it is written: neither needs the other's lock, and each answer has all rows so far."""
    with LocalTracker(tmp_path) as tracker:
        for step in range(20):
            tracker.log({"loss": float(step)}, step=step)
            assert _steps(read_history(tmp_path, 3)) == list(range(max(0, step - 2), step + 1))
            assert len(read_history(tmp_path, output="numpy")["loss"]) == step + 1


def test_repeated_steps_of_a_local_tracker_are_one_row(tmp_path):
    """One log is one line; the reader merges the lines of one step."""
    with LocalTracker(tmp_path) as tracker:
        for step, values in [(5, {"a": 1}), (5, {"b": 2}), (2, {"a": 0}), (6, {"a": 3}), (2, {"a": 9})]:
            tracker.log(values, step=step)
    rows = [{key: row[key] for key in row if key != "_time"} for row in read_history(tmp_path)]
    assert rows == [{"_step": 2, "a": 9}, {"_step": 5, "a": 1, "b": 2}, {"_step": 6, "a": 3}]


def test_an_attempt_takes_the_place_of_later_rows_of_earlier_ones(path):
    """From the first step of an attempt on, only its own rows count; below it the earlier ones stay."""
    two, three = {"_attempt": 2}, {"_attempt": 3}
    rows = [(step, {"a": step}) for step in range(6)]
    rows += [(3, {"a": 30}, two), (4, {"a": 40}, two), (1, {"b": 1}, {**two, **PATCH}), (4, {"a": 400}, three)]
    path.write_bytes(b"".join(_lines(*rows)))
    expected = [
        {"_step": 0, "_time": 0.0, "a": 0},
        {"_step": 1, "_time": 1.0, "a": 1, "b": 1},
        {"_step": 2, "_time": 2.0, "a": 2},
        {"_step": 3, "_time": 6.0, "_attempt": 2, "a": 30},
        {"_step": 4, "_time": 9.0, "_attempt": 3, "a": 400},
    ]
    assert read_history(path) == expected
    assert read_history(path, 2) == [expected[1], expected[4]]
    assert read_history(path, 3) == [expected[1], expected[3], expected[4]]
    assert read_history(path, step_range=(2, None)) == expected[2:]


def test_lines_of_a_process_that_was_replaced_do_not_come_back(path):
    """An earlier attempt that writes on beside a later one changes nothing from that one's first step on."""
    two = {"_attempt": 2}
    rows = [(0, {"a": 0}), (5, {"a": 5}), (3, {"a": 30}, two), (6, {"a": 6}), (4, {"a": 40}, two), (7, {"a": 7})]
    path.write_bytes(b"".join(_lines(*rows)))
    assert _steps(read_history(path)) == [0, 3, 4]
    assert _steps(read_history(path, 2)) == [3, 4]


def test_two_writers_of_one_file_are_both_read(path):
    """Lines that should be marked as patches and are not, as two writers may leave them, are merged all the same."""
    rows = [(step, {name: step}) for step in range(5) for name in "ab"]
    path.write_bytes(b"".join(_lines(*rows)))
    assert read_history(path, 2) == read_history(path)[-2:]
    assert read_history(path, 2)[1] == {"_step": 4, "_time": 8.0, "a": 4, "b": 4}


def test_damaged_lines_are_skipped_and_counted_in_one_message(path, caplog):
    """What is no row is left out, and said once for each reading; values around it stay."""
    lines = _lines((0, {"a": 0}), (1, {"a": 1}))
    damage = [b"garbage\n", b"\n", b"[1]\n", b'{"_step":1.5}\n', b'{"a":1}\n', b'{"_step":true}\n', b"\xff\n"]
    path.write_bytes(lines[0] + b"".join(damage) + lines[1])
    for options in ({}, {"n": 50}, {"output": "numpy"}):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "trackway"):
            assert len(read_history(path, **options)) in {2, 3}  # rows, or columns
        assert [record.getMessage().endswith("7 damaged lines were skipped") for record in caplog.records] == [True]


def test_a_torn_last_line_is_left_out_without_a_word(path, caplog):
    """A fragment at the end is a row still being written; a whole one that lacks only its newline is a row."""
    line, last = _lines((0, {"a": 0}), (1, {"a": 1}))
    with caplog.at_level(logging.WARNING, "trackway"):
        path.write_bytes(line + last[:-5])
        assert _steps(read_history(path)) == _steps(read_history(path, 9)) == [0]
        path.write_bytes(line + last[:-1])
        assert _steps(read_history(path)) == _steps(read_history(path, 9)) == [0, 1]
    assert caplog.records == []


def test_rows_with_an_impossible_time_remain(path):
    """Whatever stands as time, the row is there for inspection."""
    path.write_bytes(b'{"_step":0,"_time":"noon","a":1}\n{"_step":1,"a":2}\n{"_step":2,"_time":NaN,"a":3}\n')
    rows = read_history(path)
    assert [row.get("_time") for row in rows[:2]] == ["noon", None]
    assert [row["a"] for row in rows] == [1, 2, 3]


def test_integers_beyond_64_bits_and_nan_are_what_was_logged(path):
    """No digit is lost, and a NaN is a NaN, in lines of either kind."""
    values = {"n": 2**70, "x": math.nan, "y": [1.0, -math.inf]}
    path.write_bytes(b"".join(encode({"_step": s, "_time": 1.0, **values}, strict=bool(s)) + b"\n" for s in range(2)))
    for row in read_history(path):
        assert (row["n"], math.isnan(row["x"]), row["y"]) == (2**70, True, [1.0, -math.inf])
        assert set(row) == {"_step", "_time", "n", "x", "y"}


def test_a_link_in_the_directory_of_a_stranger_is_not_followed(tmp_path):
    """A directory is read without its links; a path given by hand may be one."""
    (tmp_path / "secret").write_bytes(b"".join(_lines((0, {"a": 0}))))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match=r"metrics\.jsonl"):
        read_history(tmp_path / "run")
    assert len(read_history(tmp_path / "run" / "metrics.jsonl")) == 1


def test_what_is_no_regular_file_is_refused(tmp_path):
    """A pipe in the place of the file does not make the reader wait."""
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(OSError, match="regular files only"):
        read_history(tmp_path)
