"""The files of an event logger: text and JSON lines."""

from __future__ import annotations

import datetime as dt
import errno
import gc
import json
import logging
import math
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from trackway.errors import TrackwayWarning
from trackway.events import EventLogger
from trackway.tracker._event_record import event_record
from trackway.values import decode


@pytest.fixture
def quiet(caplog):
    """What is said on the library's logger, which is expected here."""
    caplog.set_level(logging.WARNING, "trackway")
    return caplog


def lines(path):
    """The lines of a file."""
    return path.read_text().splitlines()


def open_files():
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_text_file_gets_the_text_as_well_as_stdout(capsys, tmp_path):
    """A file has the very lines that standard output has, and is appended to by the next logger."""
    for number in range(2):
        with EventLogger(file=tmp_path / "runs" / "demo" / "train.log") as events:
            events.emit("a", {"text": "grün\n", "number": number})
    shown = capsys.readouterr().out
    assert (tmp_path / "runs" / "demo" / "train.log").read_text(encoding="utf-8") == shown
    assert shown.count("\n") == 2


def test_each_line_of_the_jsonl_file_is_a_self_contained_json_event(tmp_path):
    """A line has the name, step, time and the whole payload, nested as it was, NaN and long integers included."""
    payload = {"loss": math.nan, "big": 2**80, "nested": {"a": [1, 2.5]}, "at": dt.date(2024, 1, 2), "n": np.int8(3)}
    before = time.time()
    with EventLogger(json_file=tmp_path / "runs" / "metrics.jsonl", console=False) as events:
        events.emit("train_step", payload, step=np.int64(7))
        events.emit("tick")
    first, second = [decode(line) for line in (tmp_path / "runs" / "metrics.jsonl").read_bytes().splitlines()]
    assert list(first)[:3] == ["event", "_step", "_time"]
    assert before <= first.pop("_time") <= second.pop("_time") <= time.time()
    assert math.isnan(first.pop("loss"))
    assert first == {
        "event": "train_step",
        "_step": 7,
        "big": 2**80,
        "nested": {"a": [1, 2.5]},
        "at": "2024-01-02",
        "n": 3,
    }
    assert second == {"event": "tick"}


def test_the_payload_never_takes_the_place_of_the_lines_own_keys():
    """`event`, `_step` and `_time` of a payload are kept under other names, with one warning for each."""
    with pytest.warns(TrackwayWarning, match="'event__'"):
        record = event_record("a", {"event": "b", "event_": "c", "x": 1}, 3, 1.5)
    assert record == {"event": "a", "_step": 3, "_time": 1.5, "event__": "b", "event_": "c", "x": 1}
    with pytest.warns(TrackwayWarning, match="'_step_'|'_time_'"):
        record = event_record("a", {"_step": 1, "_time": 2}, None, 1.5)
    assert record == {"event": "a", "_time": 1.5, "_step_": 1, "_time_": 2}


def test_a_payload_with_a_key_event_is_kept_whole(tmp_path):
    """A payload's own `event` costs the line nothing."""
    with EventLogger(json_file=tmp_path / "j", console=False) as events:
        with pytest.warns(TrackwayWarning, match="'event'"):
            events.emit("a", {"event": "b"})
        events.emit("a", {"event": "b"})
    assert [(one["event"], one["event_"]) for one in map(decode, lines(tmp_path / "j"))] == [("a", "b")] * 2


def test_relative_paths_are_resolved_once_from_the_working_directory(tmp_path, monkeypatch):
    """A relative file is one of the folder in which the logger was made, wherever the process goes afterwards."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    events = EventLogger(file="logs/t.log", json_file="j.jsonl", console=False)
    monkeypatch.chdir(tmp_path / "two")
    events.emit("a")
    events.close()
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == [
        "one/j.jsonl",
        "one/logs/t.log",
    ]


def test_the_cadence_filters_train_step_before_text_jsonl_and_hooks(capsys, tmp_path):
    """`every_steps` thins `train_step` out everywhere, by the step given or the one in the payload."""
    seen = []
    hooks = [lambda event, payload: seen.append((event, payload["step"]))]
    with EventLogger(every_steps=3, file=tmp_path / "t", json_file=tmp_path / "j", hooks=hooks) as events:
        for step in range(7):
            events.emit("train_step", {"x": 1}, step=step)
            events.emit("train_step", {"step": step})
    steps = [0, 0, 3, 3, 6, 6]
    assert seen == [("train_step", step) for step in steps]
    assert len(capsys.readouterr().out.splitlines()) == len(lines(tmp_path / "t")) == 6
    assert [one.get("_step", one.get("step")) for one in map(json.loads, lines(tmp_path / "j"))] == steps


def test_a_folder_that_cannot_be_made_is_counted_and_said_once(tmp_path, quiet, capsys):
    """Where the disk refuses, training and the other places go on."""
    (tmp_path / "file").write_text("")
    with EventLogger(file=tmp_path / "file" / "t.log", json_file=tmp_path / "j") as events:
        for step in range(3):
            events.emit("a", step=step)
    assert len(lines(tmp_path / "j")) == len(capsys.readouterr().out.splitlines()) == 3
    assert events.report().failed == {"file": 3}
    assert events.report().dropped == {"events that file did not take": 3}
    assert sum("file failed" in message for message in quiet.messages) == 1
    assert any(str(tmp_path / "file" / "t.log") in message for message in quiet.messages)


def test_a_full_disk_is_counted_and_recovers_when_there_is_room(tmp_path, quiet, monkeypatch):
    """A line that was cut short does not spoil those that are written once there is room again."""
    write, full = os.write, [False]

    def limited(fd, data):
        if not full[0] or fd <= 2:
            return write(fd, data)
        if len(data) < 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[: len(data) - 6])

    monkeypatch.setattr(os, "write", limited)
    with EventLogger(json_file=tmp_path / "j", console=False) as events:
        events.emit("first")
        full[0] = True
        events.emit("second")
        full[0] = False
        events.emit("third")
    whole = [line for line in lines(tmp_path / "j") if line.endswith("}")]
    assert [json.loads(line)["event"] for line in whole] == ["first", "third"]
    assert events.report().failed == {"json_file": 1}


def test_a_line_that_a_crash_has_torn_stays_the_only_one(tmp_path):
    """A new line begins after the torn end of a file, not in it."""
    (tmp_path / "j").write_text('{"event":"whole"}\n{"event":"to')
    with EventLogger(json_file=tmp_path / "j", console=False) as events:
        events.emit("next")
    assert [line[:16] for line in lines(tmp_path / "j")] == ['{"event":"whole"', '{"event":"to', '{"event":"next",']


def test_lines_of_several_threads_and_loggers_stay_whole(tmp_path):
    """Loggers of one file, used by several threads, write whole lines and lose none."""
    loggers = [EventLogger(json_file=tmp_path / "j", file=tmp_path / "t", console=False) for _ in range(2)]

    def work(number):
        for step in range(50):
            loggers[number % 2].emit("a", {"text": "x" * 300, "thread": number}, step=step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [json.loads(line) for line in lines(tmp_path / "j")]
    assert sorted((one["thread"], one["_step"]) for one in found) == [(n, s) for n in range(4) for s in range(50)]
    assert len(lines(tmp_path / "t")) == 200
    for logger in loggers:
        logger.close()


def test_a_forked_child_writes_nothing(tmp_path, capfd):
    """In a forked child events are refused, and what the parent has written is not written again."""
    events = EventLogger(file=tmp_path / "t", json_file=tmp_path / "j")
    events.emit("parent")
    events.hooks.append(lambda *_: (tmp_path / "hook").touch())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            events.emit("child")
            events.close()
            sys.stdout.flush()
            code = 0 if events.report().dropped else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    events.hooks.clear()
    events.emit("parent again")
    events.close()
    assert lines(tmp_path / "t") == ["parent", '"parent again"']
    assert len(lines(tmp_path / "j")) == 2
    assert not (tmp_path / "hook").exists()
    assert capfd.readouterr().out == 'parent\n"parent again"\n'


def test_closing_twice_does_nothing_and_later_events_are_counted(tmp_path):
    """After the end events are refused, counted, and nobody is called."""
    events = EventLogger(json_file=tmp_path / "j", console=False)
    events.emit("a")
    events.close()
    events.close()
    events.emit("b")
    assert len(lines(tmp_path / "j")) == 1
    assert sum(events.report().dropped.values()) == 1


def test_no_file_stays_open_after_the_end(tmp_path):
    """Closing, or forgetting the logger, gives the files back."""
    before = open_files()
    for number in range(4):
        events = EventLogger(json_file=tmp_path / f"{number}", file=tmp_path / f"{number}.txt", console=False)
        events.emit("a")
        if number % 2:
            events.close()
        del events
    gc.collect()
    assert open_files() == before


def test_what_looks_like_a_secret_reaches_nothing(capsys, tmp_path):
    """A token or password in a payload stands neither in text, nor in JSON, nor in what a hook gets."""
    seen = []
    payload = {"api_key": "abcdef0123456789", "nested": {"url": "https://me:hunter22@host/x"}}
    with EventLogger(file=tmp_path / "t", json_file=tmp_path / "j", hooks=[lambda *args: seen.append(args)]) as events:
        events.emit("login", payload)
    told = [capsys.readouterr().out, (tmp_path / "t").read_text(), (tmp_path / "j").read_text(), repr(seen)]
    assert all("login" in text for text in told)
    assert not any(secret in text for text in told for secret in ("abcdef0123456789", "hunter22"))
