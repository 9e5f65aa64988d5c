"""Lines that the operating system refuses, in part or altogether."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackway.errors import TrackerFinishError
from trackway.store import LocalTracker, read_rows
from trackway.store._writer import LineWriter


def _writer(folder, **limits):
    """An open writer."""
    writer = LineWriter(folder / "metrics.jsonl", folder / "metrics.torn", **limits)
    writer.open()
    return writer


class Disk:
    """Stands between a writer and the file: takes `room` bytes, then says that the disk is full."""

    def __init__(self, monkeypatch, room):
        """Put it in front of `os.write`."""
        self.room = room
        self._write = os.write
        monkeypatch.setattr("trackway.store._writer.os.write", self.write)

    def write(self, fd, data):
        """Write what there is room for."""
        taken = bytes(data[: self.room])
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(taken)
        return self._write(fd, taken)


@given(rooms=st.lists(st.integers(0, 40), max_size=30), groups=st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_no_line_is_torn_doubled_or_out_of_order(tmp_path_factory, rooms, groups):
    """However little room there is each time, the file holds the beginning of the sequence, and in the end all."""
    folder = tmp_path_factory.mktemp("writer")
    lines = [b'{"n":%d}\n' % n for n in range(sum(groups))]
    expected = b"".join(lines)
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch, 0)
        writer = _writer(folder)
        for number, room in enumerate([*rooms, *[0] * len(groups)]):
            disk.room = room
            writer._retry_at = 0.0
            if number < len(groups):
                begin = sum(groups[:number])
                assert writer.append_all(lines[begin : begin + groups[number]])
            assert expected.startswith((folder / "metrics.jsonl").read_bytes())
        disk.room = 1 << 20
        assert writer.drain()
        assert (writer.delivered, writer.waiting, writer.offset) == (len(lines), 0, len(expected))
        writer.close()
    assert (folder / "metrics.jsonl").read_bytes() == expected


def test_oldest_lines_go_when_too_many_wait(tmp_path, monkeypatch):
    """Beyond the limit the oldest whole lines are given up and counted; a line half written is completed."""
    disk = Disk(monkeypatch, 4)
    writer = _writer(tmp_path, max_rows=3)
    for number in range(10):
        writer.append(b"line %d\n" % number)
    disk.room = 1000
    assert writer.drain()
    writer.close()
    assert writer.lost == 6
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"line 0\nline 7\nline 8\nline 9\n"


def test_bytes_that_wait_are_bounded(tmp_path, monkeypatch):
    """Large lines are given up by their size; the newest is kept even where it alone is too large."""
    Disk(monkeypatch, 0)
    writer = _writer(tmp_path, max_bytes=1000)
    for _ in range(5):
        writer.append(b"x" * 400)
    assert (writer.waiting, writer.lost) == (2, 3)
    writer.append(b"x" * 5000)
    assert (writer.waiting, writer.lost) == (1, 5)
    writer.close()


def test_attempts_on_a_full_disk_get_rarer(tmp_path, monkeypatch):
    """A disk that stays full is not asked at every row."""
    disk = Disk(monkeypatch, 0)
    asked = []
    monkeypatch.setattr("trackway.store._writer.os.write", lambda fd, data: asked.append(1) or disk.write(fd, data))
    writer = _writer(tmp_path)
    for _ in range(1000):
        writer.append(b"x\n")
    writer.close()
    assert len(asked) < 10


def test_line_logged_while_one_is_written_comes_after_it(tmp_path, monkeypatch):
    """A signal handler that logs in the midst of a write tears nothing."""
    writer = _writer(tmp_path)
    write = os.write

    def interrupted(fd, data):
        half = write(fd, data[:3])
        if data.startswith(b"outer"):
            writer.append(b"inner\n")
        return half

    monkeypatch.setattr("trackway.store._writer.os.write", interrupted)
    writer.append(b"outer line\n")
    monkeypatch.setattr("trackway.store._writer.os.write", write)
    assert writer.drain()
    writer.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"outer line\ninner\n"
    assert writer.delivered == 2


def test_device_without_room_loses_rows_only_at_the_end(tmp_path, caplog):
    """On a full device training goes on, the trouble is said once, and `finish` raises for rows not kept."""
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    tracker = LocalTracker(tmp_path)
    for step in range(500):
        tracker.log({"loss": 0.5}, step=step)
    assert tracker.report().pending == 500
    (said,) = [record.message for record in caplog.records if "cannot be written" in record.message]
    assert "No space left" in said
    with pytest.raises(TrackerFinishError) as raised:
        tracker.finish()
    assert "500 rows of 500" in str(raised.value.exceptions[0])
    assert json.loads((tmp_path / "run.json").read_bytes())["state"] == "finished"
    assert json.loads((tmp_path / "summary.json").read_bytes()) == {"loss": 0.5}


def test_file_that_may_grow_again_gets_everything_in_order(tmp_path):
    """At the operating system's limit of file size rows wait; once it is lifted, all are there, in order."""
    program = textwrap.dedent("""
        import resource, sys
        from trackway.store import LocalTracker
        tracker = LocalTracker(sys.argv[1])
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
        for step in range(400):
            tracker.log({"loss": step / 7}, step=step)
        waiting = tracker.report().pending
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        tracker.finish()
        print(waiting, tracker.report().delivered)
    """)
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    waiting, delivered = map(int, done.stdout.split())
    assert waiting > 200
    assert delivered == 400
    assert [(row["_step"], row["loss"]) for row in read_rows(tmp_path)] == [(n, n / 7) for n in range(400)]
    assert b"\n\n" not in (tmp_path / "metrics.jsonl").read_bytes()


def test_file_deleted_under_the_writer_is_made_anew(tmp_path, caplog):
    """Rows logged after someone deleted the run directory are in a new one, and it is said."""
    folder = tmp_path / "run"
    tracker = LocalTracker(folder, sync_interval=60)
    tracker.log_hyperparameters({"lr": 0.1})
    tracker.log({"loss": 1.0}, step=0)
    shutil.rmtree(folder)
    tracker._output.tick()
    tracker.log({"loss": 2.0}, step=1)
    tracker.finish()
    assert [row["loss"] for row in read_rows(folder)] == [2.0]
    assert {path.name for path in folder.iterdir()} == {"metrics.jsonl", "summary.json", "run.json", "config.yaml"}
    assert "was deleted while it was being written" in caplog.text


def test_second_writer_of_a_file_does_not_mend_it(tmp_path, caplog):
    """While one writer is open a second one leaves the end of the file alone, and says that there are two."""
    first = LocalTracker(tmp_path)
    first.log({"loss": 1.0}, step=0)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"_step":1,"in')
    second = LocalTracker(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes().endswith(b'"in')
    assert "written by someone else too" in caplog.text
    second.finish()
    first.finish()


@pytest.mark.parametrize("written", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "at once"])
def test_ctrl_c_beside_the_write_doubles_and_loses_no_line(tmp_path, monkeypatch, written, waiting):
    """Whether the file has lines that were to be written when Ctrl+C came is read from the file."""
    writer = _writer(tmp_path)
    assert writer.append(b"0\n")
    disk = Disk(monkeypatch, 0 if waiting else 100)
    if waiting:
        assert writer.append_all([b"1\n", b"2\n"])
        disk.room, writer._retry_at = 100, 0.0

    def write(fd, data):
        if written:
            disk.write(fd, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trackway.store._writer.os.write", write)
        with pytest.raises(KeyboardInterrupt):
            writer.drain() if waiting else writer.append_all([b"1\n", b"2\n"])
    assert writer.append(b"3\n")
    assert writer.drain()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"0\n1\n2\n3\n"
    assert (writer.delivered, writer.waiting, writer.lost) == (4, 0, 0)
