"""`trackway trace`: spans as a timeline."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time

import pytest
from run_files import stranger

import trackway
from trackway.events import span
from trackway.store._remote import Remote


def line(name="data", start=100.0, seconds=1.0, **rest):
    """Return a line of `spans.jsonl`."""
    record = {"name": name, "path": name, "start": start, "seconds": seconds, "id": 1, "parent": None}
    return json.dumps(record | {"thread": 7, "thread_name": "MainThread", "pid": 7} | rest) + "\n"


@pytest.fixture
def trace(call, tmp_path):
    """Return a function that writes a run of these lines, and returns what the command said and the trace."""

    def write(*lines, arguments=(), **content):
        folder = stranger(tmp_path / "run", **content)
        (folder / "spans.jsonl").write_text("".join(lines), errors="surrogatepass")
        said = call("trace", folder, "-o", tmp_path / "out.json", *arguments)
        assert said.code == 0, said.err
        return said, json.loads((tmp_path / "out.json").read_text())["traceEvents"]

    return write


def complete(events):
    """Return the events of spans."""
    return [event for event in events if event["ph"] == "X"]


def names(events, kind="thread_name"):
    """Return the names of threads by their number."""
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == kind}


def assert_nested(events):
    """On each track, spans lie inside one another or apart."""
    tracks = {}
    for event in complete(events):
        tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        open_until = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 0.002:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.002
            open_until.append(end)


def test_a_run_becomes_a_timeline(call, tmp_path):
    """Every span is a complete event in microseconds, on the track of its thread, nested as it was."""
    with trackway.start(dir=tmp_path, run_id="digits"):
        trackway.log({"loss": 0.5}, step=0)
        with span("epoch"), span("data", batch=32):
            time.sleep(0.002)
        thread = threading.Thread(target=span("load")(time.sleep), args=(0.001,), name="loader")
        thread.start()
        thread.join()
    said = call("trace", "digits", "--dir", tmp_path, "-o", tmp_path / "trace.json")
    assert (said.code, said.err) == (0, "")
    assert "3 spans" in said.out
    content = json.loads((tmp_path / "trace.json").read_text())
    assert content["otherData"]["run"] == "digits"
    events = content["traceEvents"]
    epoch, data, load = sorted(complete(events), key=lambda event: event["ts"])
    assert [event["name"] for event in (epoch, data, load)] == ["epoch", "data", "load"]
    assert epoch["ts"] <= data["ts"]
    assert 2000 <= data["dur"] <= epoch["dur"]
    assert data["args"] == {"path": "epoch/data", "attributes": {"batch": 32}}
    assert {epoch["pid"], load["pid"]} == {os.getpid()}
    assert names(events)[load["tid"]] == "loader"
    assert names(events, "process_name") == {0: "digits"}
    assert_nested(events)


def test_step_and_error_are_shown(trace):
    """What is known beside the time is among the arguments."""
    _, events = trace(line(step=3, error="ValueError: no"), line(attributes={"a": float("nan"), "b": 2**70}))
    assert [event["args"] for event in complete(events)] == [
        {"path": "data", "step": 3, "error": "ValueError: no"},
        {"path": "data", "attributes": {"a": "nan", "b": str(2**70)}},
    ]


def test_times_are_relative_to_the_first(trace):
    """The trace begins at 0, and says in which moment that was."""
    _, events = trace(line(start=1796028271.25, seconds=0.5), line(start=1796028271.0, id=2))
    assert sorted((event["ts"], event["dur"]) for event in complete(events)) == [(0.0, 1e6), (250000.0, 500000.0)]


def test_spans_that_overlap_get_tracks_of_their_own(trace):
    """Those of tasks that take turns lie on further tracks of the thread, each with the spans inside it."""
    _, events = trace(
        line("task 0", 100.0, 4.0, id=1),
        line("inner 0", 101.0, 2.0, id=2, parent=1),
        line("task 1", 100.5, 4.0, id=3),
        line("inner 1", 101.5, 2.0, id=4, parent=3),
        line("later", 200.0, 1.0, id=5),
    )
    tracks = {event["name"]: event["tid"] for event in complete(events)}
    assert tracks["task 0"] == tracks["inner 0"] == tracks["later"] == 7
    assert tracks["task 1"] == tracks["inner 1"] != 7
    assert names(events) == {7: "MainThread", tracks["task 1"]: "MainThread (2)"}
    assert_nested(events)


def test_what_seems_to_end_after_its_parent_is_cut(trace):
    """Rounding of a moment does not take a span off its parent."""
    _, events = trace(line("outer", 100.0, 1.0, id=1), line("inner", 100.5, 0.5000004, id=2, parent=1))
    assert {event["tid"] for event in complete(events)} == {7}
    assert_nested(events)


def test_damaged_lines_are_left_out_and_counted(trace):
    """Whatever is no span of a sane form is; the rest is shown."""
    said, events = trace(
        line("first"),
        "no JSON\n",
        "[]\n",
        "null\n",
        "\n",
        line(name=3),
        line(start="now"),
        line(start=None),
        line(seconds=-1),
        line(seconds=float("nan")),
        line(start=float("inf")),
        line(thread="main"),
        line(pid=1.5),
        line(start=10**400),
        "[" * 100_000 + "\n",
        json.dumps({"name": "x"}) + "\n",
        line("last"),
        line("torn")[:20],
    )
    assert [event["name"] for event in complete(events)] == ["first", "last"]
    assert "15 lines are damaged" in said.err


def test_hostile_lines_make_a_harmless_trace(trace):
    """Names are escaped, numbers of threads and processes are such that a viewer takes them."""
    said, events = trace(
        line("\x1b[31m\ud800</script>", thread=2**60, pid=-5, id="x", parent=[1]),
        line("a", thread=-1, thread_name=None, pid=2**70, id=None, parent={}),
        line("b", attributes=["odd"], path=3, step="x", thread_name=["odd"]),
    )
    assert len(complete(events)) == 3
    for event in events:
        assert 0 <= event["pid"] < 2**31
        assert 0 <= event["tid"] < 2**31
        assert isinstance(event["name"], str)
    assert "\x1b" not in said.out + said.err


def test_processes_of_several_ranks_are_apart(call, tmp_path):
    """Each has its own name, also where two have one number."""
    folder = stranger(tmp_path / "run")
    (folder / "spans.jsonl").write_text(line("zero"))
    (folder / "spans.rank1.jsonl").write_text(line("one") + line("again", pid=8))
    (folder / "spans.rankx.jsonl").write_text(line("no"))
    assert call("trace", folder, "-o", tmp_path / "out.json").code == 0
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {event["name"]: processes[event["pid"]] for event in complete(events)} == {
        "zero": "run rank 0",
        "one": "run rank 1",
        "again": "run rank 1",
    }
    assert len(processes) == 3


def test_metrics_become_curves(trace):
    """Those that are asked for are counters at the time of their row; what is no finite number is left out."""
    rows = [
        {"_step": 0, "_time": 100.5, "train/loss": 0.5, "other": 1},
        {"_step": 1, "_time": 101.5, "train/loss": float("nan"), "train/note": "text"},
        {"_step": 2, "_time": 102.5, "train": {"loss": 0.25}},
    ]
    _, events = trace(line(start=100.0), arguments=("-m", "train/*"), rows=rows)
    counters = [(event["name"], event["ts"], event["args"]["value"]) for event in events if event["ph"] == "C"]
    assert counters == [("train/loss", 500000.0, 0.5), ("train/loss", 2500000.0, 0.25)]


def test_rows_alone_make_a_trace(call, tmp_path):
    """A run without spans has its curves."""
    folder = stranger(tmp_path / "run", rows=[{"_step": 0, "_time": 100.5, "loss": 0.5}])
    assert call("trace", folder, "-o", tmp_path / "out.json", "-m", "loss").code == 0
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert [event["ts"] for event in events] == [0.0]


def test_a_run_without_spans_says_how_to_have_some(call, tmp_path):
    """Nothing is written then."""
    folder = stranger(tmp_path / "run")
    said = call("trace", folder, "-o", tmp_path / "out.json")
    assert said.code == 1
    assert "has no spans" in said.err
    assert not (tmp_path / "out.json").exists()


def test_links_and_other_files_are_not_read(call, tmp_path):
    """A run from a stranger cannot have another file shown, nor hold the command up."""
    folder = stranger(tmp_path / "run")
    (tmp_path / "secret").write_text(line("secret"))
    (folder / "spans.jsonl").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "spans.rank1.jsonl")
    said = call("trace", folder, "-o", tmp_path / "out.json")
    assert said.code == 1
    assert said.err.count("cannot be read") == 2


def test_where_it_is_written(call, tmp_path, monkeypatch):
    """By default where the reader is, under the run's name; packed if the name says so. Files are replaced."""
    folder = stranger(tmp_path / "run")
    (folder / "spans.jsonl").write_text(line())
    monkeypatch.chdir(tmp_path)
    assert call("trace", folder).code == 0
    assert call("trace", folder, "-o", "packed.json.gz").code == 0
    assert call("trace", folder, "-o", "packed.json.gz").code == 0
    plain = json.loads((tmp_path / "run-trace.json").read_text())
    assert json.loads(gzip.decompress((tmp_path / "packed.json.gz").read_bytes())) == plain
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed.json.gz", "run", "run-trace.json"]
    said = call("trace", folder, "-o", "nowhere/out.json")
    assert (said.code, said.err) == (1, "trackway: error: No such file or directory: nowhere/out.json\n")


@pytest.mark.parametrize("place", ["memory://trace-runs", "file://{folder}/store"])
def test_a_run_on_an_object_store_becomes_a_timeline(call, tmp_path, place):
    """Named by its URL or by its id; the spans of all processes are fetched, and nothing is left of that here."""
    url = place.format(folder=tmp_path)
    with trackway.start(dir=url, run_id="digits"):
        with span("epoch"):
            trackway.log({"loss": 0.5}, step=0)
        with span("later"):
            pass
    remote = Remote(f"{url}/digits")
    remote.put("spans.rank1/00000001.jsonl", line("one").encode())
    remote.put("spans.rank1/00000002.jsonl", (line("two", id=2) + "torn").encode())
    remote.put("spans.rank2.jsonl", line("copied").encode())
    for arguments in ([f"{url}/digits"], ["digits", "--dir", url]):
        said = call("trace", *arguments, "-m", "loss", "-o", tmp_path / "out.json")
        assert said.code == 0, said.err
        assert said.err == "trackway: 1 lines are damaged and left out\n"
        events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
        assert {event["name"] for event in complete(events)} == {"epoch", "later", "one", "two", "copied"}
        titles = sorted(event["args"]["name"] for event in events if event["name"] == "process_name")
        assert titles == ["digits rank 0", "digits rank 1", "digits rank 2"]
        assert [event["args"]["value"] for event in events if event["ph"] == "C"] == [0.5]


def test_a_run_on_an_object_store_that_measured_nothing(call, tmp_path):
    """It says how to have spans, as for a run on this machine."""
    with trackway.start(dir=f"file://{tmp_path}/store", run_id="digits"):
        trackway.log({"loss": 0.5}, step=0)
    said = call("trace", f"file://{tmp_path}/store/digits", "-o", tmp_path / "out.json")
    assert said.code == 1
    assert "run 'digits' has no spans" in said.err


def test_what_was_done_as_json(call, tmp_path):
    """The file, and how much is in it."""
    folder = stranger(tmp_path / "run")
    (folder / "spans.jsonl").write_text(line() + "torn")
    said = call("trace", folder, "-o", tmp_path / "out.json", "--json")
    assert json.loads(said.out) == {"file": str(tmp_path / "out.json"), "spans": 1, "events": 3, "damaged": 1}
