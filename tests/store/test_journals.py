"""Events and spans in a run directory."""

from __future__ import annotations

import json
import math
import os
import threading

import numpy as np
import pytest

from trackway.store import LocalTracker
from trackway.tracker import Span
from trackway.values import Image


def lines(path):
    """The records of a file of lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def span(name="data", **given):
    """A span."""
    return Span(name, f"epoch/{name}", 1754323200.5, 0.25, 2, **given)


def test_no_events_and_no_spans_make_no_files(tmp_path):
    """A directory has what was logged."""
    LocalTracker(tmp_path / "run").finish()
    assert not [path for kind in ("events", "spans") for path in (tmp_path / "run").glob(f"{kind}*")]


def test_an_event_is_in_the_file_when_the_call_returns(tmp_path):
    """A killed process loses none."""
    tracker = LocalTracker(tmp_path / "run")
    tracker.log_event("checkpoint", {"path": "a", "nested": {"loss": math.nan}}, step=3)
    text = (tmp_path / "run" / "events.jsonl").read_text()
    assert text.startswith('{"event":"checkpoint","_step":3,"_time":')
    assert text.endswith('"path":"a","nested":{"loss":NaN}}\n')
    tracker.finish()


def test_strict_json_is_strict_for_events(tmp_path):
    """NaN is null there, with what it was beside it."""
    tracker = LocalTracker(tmp_path / "run", strict_json=True)
    tracker.log_event("checkpoint", {"loss": math.nan})
    tracker.finish()
    (line,) = lines(tmp_path / "run" / "events.jsonl")
    assert (line["loss"], line["_nonfinite"]) == (None, {"loss": "nan"})


def test_media_in_an_event_are_files(tmp_path):
    """The event refers to them, as a row does."""
    tracker = LocalTracker(tmp_path / "run")
    tracker.log_event("sample", {"image": Image(np.zeros((2, 2), np.uint8))}, step=1)
    tracker.finish()
    (line,) = lines(tmp_path / "run" / "events.jsonl")
    assert (tmp_path / "run" / line["image"]["path"]).is_file()


def test_a_span_is_a_line_with_what_it_has(tmp_path):
    """What it has not is left out."""
    tracker = LocalTracker(tmp_path / "run")
    tracker.log_span(span())
    tracker.log_span(span("load", parent=2, thread=7, thread_name="worker", step=5, error="x", attributes={"n": 1}))
    tracker.finish()
    first, second = lines(tmp_path / "run" / "spans.jsonl")
    assert (first["name"], first["path"], first["start"], first["seconds"]) == (
        "data",
        "epoch/data",
        1754323200.5,
        0.25,
    )
    assert first["pid"] == os.getpid()
    assert not {"step", "error", "attributes"} & set(first)
    assert (second["parent"], second["thread_name"], second["step"], second["error"]) == (2, "worker", 5, "x")
    assert second["attributes"] == {"n": 1}


def test_flush_waits_for_spans(tmp_path):
    """They are in the file then, and not only within a fifth of a second."""
    tracker = LocalTracker(tmp_path / "run")
    tracker.log_span(span())
    tracker.flush()
    assert len(lines(tmp_path / "run" / "spans.jsonl")) == 1
    tracker.finish()


def test_other_ranks_have_files_of_their_own(tmp_path):
    """Beside those of the primary process."""
    for rank in (0, 2):
        tracker = LocalTracker(tmp_path / "run", rank=rank)
        tracker.log_event("checkpoint", {"rank": rank})
        tracker.log_span(span())
        tracker.finish()
    assert lines(tmp_path / "run" / "events.rank2.jsonl")[0]["rank"] == 2
    assert lines(tmp_path / "run" / "events.jsonl")[0]["rank"] == 0
    assert (tmp_path / "run" / "spans.rank2.jsonl").is_file()


def test_a_continued_run_appends_and_cuts_a_torn_end(tmp_path):
    """The fragment is set aside, as that of a row is."""
    tracker = LocalTracker(tmp_path / "run")
    tracker.log_event("first", {})
    tracker.finish()
    with (tmp_path / "run" / "events.jsonl").open("a") as file:
        file.write('{"event": "tor')
    tracker = LocalTracker(tmp_path / "run")
    tracker.log_event("second", {})
    tracker.finish()
    assert [line["event"] for line in lines(tmp_path / "run" / "events.jsonl")] == ["first", "second"]
    assert (tmp_path / "run" / "events.torn").read_text() == '{"event": "tor\n'


def test_events_of_many_threads_are_whole_lines(tmp_path):
    """None is torn or lost."""
    tracker = LocalTracker(tmp_path / "run")

    def work(number):
        for index in range(50):
            tracker.log_event("tick", {"thread": number, "index": index})
            tracker.log_span(span(f"s{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracker.finish()
    events = lines(tmp_path / "run" / "events.jsonl")
    assert {(line["thread"], line["index"]) for line in events} == {(t, i) for t in range(4) for i in range(50)}
    assert len(events) == 200
    assert len(lines(tmp_path / "run" / "spans.jsonl")) == 200


def test_a_file_that_cannot_be_opened_costs_nothing_but_its_lines(tmp_path, caplog):
    """They wait, and what is lost in the end is counted."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").mkdir()
    tracker = LocalTracker(tmp_path / "run")
    tracker.log_event("checkpoint", {})
    tracker.log({"x": 1})
    tracker.finish()
    assert tracker.report().dropped == {"lines that could not be written": 1}
    assert lines(tmp_path / "run" / "metrics.jsonl")[0]["x"] == 1


def test_after_finish_they_are_counted(tmp_path):
    """As rows are."""
    tracker = LocalTracker(tmp_path / "run")
    tracker.finish()
    tracker.log_event("checkpoint", {})
    tracker.log_span(span())
    assert tracker.report().dropped == {"called after finish": 2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_none(tmp_path):
    """Neither what it logs nor what the parent has not written yet."""
    tracker = LocalTracker(tmp_path / "run")
    tracker.log_span(span("parent"))
    pid = os.fork()
    if pid == 0:
        tracker.log_event("child", {})
        tracker.log_span(span("child"))
        tracker.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    tracker.finish()
    assert [line["name"] for line in lines(tmp_path / "run" / "spans.jsonl")] == ["parent"]
    assert not (tmp_path / "run" / "events.jsonl").exists()
