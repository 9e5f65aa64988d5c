"""What an event logger writes, where, and what it stands."""

from __future__ import annotations

import gc
import io
import json
import logging
import sys
import tracemalloc

import numpy as np
import pytest

from trackway.errors import StepError
from trackway.events import EventLogger
from trackway.values import Image, normalise


@pytest.fixture
def quiet(caplog):
    """What is said on the library's logger, which is expected here."""
    caplog.set_level(logging.WARNING, "trackway")
    return caplog


def lines(path):
    """The lines of a file."""
    return path.read_text().splitlines()


def test_every_event_is_written_to_stdout_by_default(capsys):
    """Without any options each event is one line of standard output: its name, and `key=value` pairs."""
    with EventLogger() as events:
        events.emit("train_start", {"start_step": 0, "target_step": 100})
        events.emit("train_step", {"loss": 2.3123456}, step=1)
        events.emit("checkpoint", {"path": "runs/a.pt"}, step=50)
        events.emit("train_end", {"steps": 100, "elapsed_s": 12.3, "loss": 1.84})
        events.emit("outer_step", {"outer_step": 4, "deltas_found": 3, "deltas_included": 0})
        events.emit("tick")
    assert capsys.readouterr().out.splitlines() == [
        "train_start start_step=0 target_step=100",
        "train_step step=1 loss=2.31235",
        "checkpoint step=50 path=runs/a.pt",
        "train_end steps=100 elapsed_s=12.3 loss=1.84",
        "outer_step outer_step=4 deltas_found=3 deltas_included=0",
        "tick",
    ]


def test_stdout_is_looked_up_at_each_event(monkeypatch):
    """Whatever `sys.stdout` is when the event comes gets the line, and it need not be there."""
    events = EventLogger()
    other = io.StringIO()
    monkeypatch.setattr(sys, "stdout", other)
    events.emit("a")
    assert other.getvalue() == "a\n"
    monkeypatch.setattr(sys, "stdout", None)
    events.emit("b")
    assert events.report().failed == {"stdout": 1}


def test_console_false_prints_nothing(capsys, tmp_path):
    """Without the console the file has the text alone."""
    with EventLogger(file=tmp_path / "t.log", console=False) as events:
        events.emit("a", {"x": 1})
    assert capsys.readouterr().out == ""
    assert lines(tmp_path / "t.log") == ["a x=1"]


def test_one_event_is_one_line_whatever_it_holds(capsys):
    """Line breaks and terminal escapes in names, keys and texts are escapes, and texts with spaces are quoted."""
    with EventLogger() as events:
        events.emit("evil\x1b[2J\nname", {"k\ney": "a\nb\x1b[31m\u2028", "s": "two words", "e": "", "q": 'x"y'}, step=1)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.rstrip("\n").isprintable()
    assert '"evil\\u001b[2J\\nname" step=1' in out
    assert 's="two words" e="" q="x\\"y"' in out


def test_a_step_in_the_payload_is_told_apart(capsys):
    """Where the payload has a step too it stands in quotes if it is another one."""
    with EventLogger() as events:
        events.emit("a", {"step": 3}, step=3)
        events.emit("a", {"step": 4}, step=3)
        events.emit("a", {"step": 4})
    assert capsys.readouterr().out.splitlines() == ["a step=3", 'a step=3 "step"=4', "a step=4"]


def test_level_silences_the_text_of_ordinary_events_only(capsys, tmp_path):
    """Above INFO only `train_failed`, an ERROR, is text; JSON lines and hooks get everything."""
    seen = []
    with EventLogger("warning", tmp_path / "t", tmp_path / "j", hooks=[lambda event, _: seen.append(event)]) as events:
        for event in ("train_step", "checkpoint", "train_failed"):
            events.emit(event, {"x": 1})
    assert capsys.readouterr().out == "train_failed x=1\n"
    assert lines(tmp_path / "t") == ["train_failed x=1"]
    assert len(lines(tmp_path / "j")) == 3
    assert seen == ["train_step", "checkpoint", "train_failed"]


def test_a_level_above_all_silences_failures_too(capsys):
    """`level: CRITICAL`, by name or number, shows nothing."""
    for level in ("CRITICAL", 50):
        EventLogger(level).emit("train_failed")
    assert capsys.readouterr().out == ""


def test_lifecycle_checkpoint_compile_and_outer_events_are_not_filtered_by_the_cadence(capsys):
    """Events other than `train_step` pass at every step, and so does a `train_step` without one."""
    others = ["train_start", "train_end", "checkpoint", "compile", "outer_step", "train_failed"]
    with EventLogger(every_steps=100) as events:
        for event in others:
            events.emit(event, step=7)
        events.emit("train_step", {"loss": 1})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*others, "train_step"]


def test_an_event_held_back_by_the_cadence_reads_no_value(capsys):
    """What costs something to make plain is not touched at the other steps."""

    class Costly:
        def __repr__(self):
            raise AssertionError("read")

    events = EventLogger(every_steps=2)
    assert not events.wants("train_step", 1, {"x": Costly()})
    events.emit("train_step", {"x": Costly()}, step=1)
    assert capsys.readouterr().out == ""
    assert events.report().accepted == 0


def test_wants_judges_by_the_step_given_before_that_of_the_payload():
    """The argument wins; what is no integer is let through, for others to complain of."""
    events = EventLogger(every_steps=10, console=False)
    assert events.wants("train_step", 20, {"step": 3})
    assert not events.wants("train_step", 3, {"step": 20})
    assert events.wants("train_step", np.int64(20), {})
    assert events.wants("train_step", None, {})
    assert events.wants("train_step", None, {"step": "soon"})
    assert events.wants("train_step", True, {})
    assert events.wants("train_step", None, None)
    assert not events.wants("train_step", -3, {})


@pytest.mark.parametrize("step", [1.5, "3", True])
def test_a_step_that_is_no_integer_is_an_error(step):
    """Steps are integers, as for metrics."""
    with pytest.raises(StepError, match="step must be an integer"):
        EventLogger(console=False).emit("a", {}, step=step)


@pytest.mark.parametrize("event", ["", None, 3])
def test_an_event_has_a_name(event):
    """A name that is no text, or empty, is an error that shows one."""
    with pytest.raises(TypeError, match="'checkpoint'"):
        EventLogger(console=False).emit(event, {})


def test_a_payload_is_a_mapping():
    """Anything else is an error, also where the cadence would hold it back."""
    with pytest.raises(TypeError, match="mapping"):
        EventLogger(every_steps=2, console=False).emit("train_step", 3, step=1)


def test_the_payload_is_neither_kept_nor_changed():
    """The caller's mapping is as it was, and a hook that changes its own changes nobody else's."""
    payload = {"nested": {"a": [1]}}
    seen = []

    def spoil(event, payload):
        payload["nested"]["a"].append(2)
        payload["nested"]["b"] = payload.pop("step")

    with EventLogger(console=False, hooks=[spoil, lambda _, payload: seen.append(payload)]) as events:
        events.emit("a", payload, step=1)
    assert payload == {"nested": {"a": [1]}}
    assert seen == [{"step": 1, "nested": {"a": [1]}}]
    assert type(seen[0]) is dict


def test_no_event_is_kept_in_memory():
    """Long runs do not grow: what was emitted is gone, however sparse the output is."""
    events = EventLogger(every_steps=1000, console=False, hooks=[lambda *_: None])
    payload = {"text": "x" * 10_000}

    def emit(steps):
        for step in range(steps):
            events.emit("train_step", {**payload, "text": f"{payload['text']}{step}"}, step=step)
            events.emit("other", {**payload, "text": f"{payload['text']}{step}"}, step=step)

    emit(20)
    gc.collect()
    tracemalloc.start()
    emit(300)
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 200_000


def test_media_are_told_by_what_they_are(capsys, tmp_path):
    """An image in a payload is described, in text and JSON."""
    with EventLogger(json_file=tmp_path / "j") as events:
        events.emit("sample", {"picture": Image(np.zeros((2, 3), np.uint8))})
    assert capsys.readouterr().out == "sample picture=image(3x2)\n"
    assert "picture" in json.loads(lines(tmp_path / "j")[0])


def test_deliver_takes_a_row_as_it_is(tmp_path):
    """A run hands over normalised rows with their time, whatever the cadence says."""
    with EventLogger(json_file=tmp_path / "j", every_steps=10, console=False) as events:
        events.deliver("train_step", normalise({"loss": 1.5}), 3, 12.25)
    assert json.loads(lines(tmp_path / "j")[0]) == {"event": "train_step", "_step": 3, "_time": 12.25, "loss": 1.5}


def test_memory_bytes_are_those_of_the_device_asked_for(monkeypatch):
    """`train_step` tells the memory of the device named, not of whichever is current, unless the payload does."""
    from trackway.events import _memory

    asked = []

    def memory_bytes(device=None):
        asked.append(device)
        return {"cuda:1": 111, None: 222}.get(device)

    monkeypatch.setattr(_memory, "memory_bytes", memory_bytes)
    seen = []
    for memory in ("cuda:1", None, False, "cpu"):
        with EventLogger(console=False, memory=memory, hooks=[lambda *args: seen.append(args)]) as events:
            events.emit("train_step", {"loss": 1}, step=0)
            events.emit("checkpoint", {"path": "a"}, step=0)
    events = EventLogger(console=False, memory="cuda:1", hooks=[lambda *args: seen.append(args)])
    events.emit("train_step", {"memory_bytes": 5}, step=0)
    told = [payload.get("memory_bytes") for event, payload in seen if event == "train_step"]
    assert told == [111, 222, None, None, 5]
    assert all("memory_bytes" not in payload for event, payload in seen if event == "checkpoint")
    assert False not in asked


def test_trouble_with_the_device_costs_the_event_nothing(monkeypatch, quiet, capsys):
    """A device that cannot be asked is counted and said once."""
    from trackway.events import _memory

    events = EventLogger(memory="cuda:1")

    def broken(device=None):
        raise RuntimeError("driver gone")

    monkeypatch.setattr(_memory, "memory_bytes", broken)
    for step in range(2):
        events.emit("train_step", {"loss": 1}, step=step)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert events.report().failed == {"memory_bytes": 2}
    assert len(quiet.messages) == 1


def test_report_counts_events():
    """Accepted and delivered are the events that passed the cadence."""
    events = EventLogger(every_steps=2, console=False)
    for step in range(4):
        events.emit("train_step", {}, step=step)
    report = events.report()
    assert (report.name, report.accepted, report.delivered) == ("events", 2, 2)
