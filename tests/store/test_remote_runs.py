"""Runs whose directory is an fsspec URL."""

from __future__ import annotations

import json
import subprocess
import sys

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from remote_stores import spools  # noqa: F401 - a fixture

import trackway
from trackway import Image
from trackway.errors import ConfigError, RunBusyError
from trackway.store import LocalTracker, read_history, read_rows
from trackway.store._remote import Remote
from trackway.store._remote_read import RemoteRun, run_urls


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    """A folder of runs on a store of each kind that needs no server."""
    return "memory://bucket/runs" if request.param == "memory" else f"file://{tmp_path}/store/runs"


def objects(url):
    """The names of all objects of a run."""
    return sorted(Remote(url).listing())


def content(url, name):
    """What a JSON object of a run holds."""
    return json.loads(Remote(url).get(name))


def test_a_run_at_a_url_is_all_there_once_it_is_finished(url, tmp_path, spools):  # noqa: F811 - likewise
    """Rows, summary, hyper-parameters, media and artifacts are objects, and the spool is gone."""
    (tmp_path / "weights.txt").write_text("0.5")
    with trackway.start(dir=url, run_id="demo"):
        trackway.log_hyperparameters({"lr": 0.1})
        trackway.log({"loss": 0.5, "sample": Image(np.zeros((4, 4)))}, step=0)
        trackway.log({"loss": 0.25}, step=1)
        trackway.log_summary({"best": 0.25})
        trackway.log_artifact(tmp_path / "weights.txt")
    names = objects(f"{url}/demo")
    assert [name for name in names if not name.startswith("metrics/")] == [
        "artifacts/weights.txt",
        "claims/00000001.json",
        "config.yaml",
        "media/sample/0-0.png",
        "run.json",
        "summary.json",
    ]
    assert "metrics/00000001.jsonl" in names
    assert content(f"{url}/demo", "run.json")["state"] == "finished"
    assert content(f"{url}/demo", "run.json")["id"] == "demo"
    assert content(f"{url}/demo", "summary.json")["best"] == 0.25
    assert [row["loss"] for row in read_rows(f"{url}/demo")] == [0.5, 0.25]
    assert list(spools.iterdir()) == []
    assert [place.rpartition("/")[2] for place in run_urls(url)] == ["demo"]


def test_history_of_a_url_is_that_of_a_directory(url, tmp_path):
    """Every kind of question has the same answer, with several attempts, patches and ranks."""
    for where in (str(tmp_path / "runs"), url):
        for steps in (range(10), range(5, 12)):
            with trackway.start(dir=where, run_id="a", step_policy="allow"):
                for step in steps:
                    trackway.log({"loss": step / 7, "n": {"x": step}}, step=step)
                trackway.log({"late": 1}, step=6, commit=True)
        with LocalTracker(f"{where}/a", rank=2) as other:
            other.log({"loss": -1.0}, step=3)
    for options in (
        {},
        {"n": 3},
        {"n": 0},
        {"step_range": (4, 8)},
        {"metrics": "n/*", "n": 2},
        {"ranks": "all"},
        {"metrics": "late"},
    ):
        expected, found = (read_history(f"{where}/a", **options) for where in (tmp_path / "runs", url))
        for row in (*expected, *found):
            row.pop("_time")
        assert found == expected, options
    assert list(read_history(f"{url}/a", output="numpy")["loss"]) == [row["loss"] for row in read_history(f"{url}/a")]


def test_a_run_goes_on_in_a_fresh_spool(url, tmp_path):
    """The next attempt follows the last step; no segment, artifact or media of the first is replaced."""
    for number in (1, 2):
        (tmp_path / "weights.txt").write_text(str(number))
        with trackway.start(dir=url, run_id="a") as run:
            assert run.store.attempt == number
            trackway.log({"loss": number, "sample": Image(np.full((2, 2), number - 1.0))}, commit=True)
            if number == 2:
                run.rewind(0)
                trackway.log({"sample": Image(np.ones((2, 2)))}, step=0, commit=True)
            trackway.log_summary({f"s{number}": 1})
            trackway.log_artifact(tmp_path / "weights.txt")
            trackway.log_hyperparameters({f"h{number}": 1})
    remote = Remote(f"{url}/a")
    assert [remote.get(f"artifacts/weights.txt{suffix}") for suffix in ("", ".v2")] == [b"1", b"2"]
    assert [name for name in objects(f"{url}/a") if name.startswith("media/")] == [
        "media/sample/0-0.png",
        "media/sample/0-1.png",
        "media/sample/1-0.png",
    ]
    assert remote.get("media/sample/0-0.png") != remote.get("media/sample/0-1.png")
    assert [(row["_step"], row.get("_attempt")) for row in read_rows(f"{url}/a")] == [(0, None), (1, 2), (0, 3)]
    assert content(f"{url}/a", "summary.json").keys() >= {"s1", "s2"}
    assert remote.get("config.yaml").split() == [b"h1:", b"1", b"h2:", b"1"]
    assert remote.children("claims") == ["00000002.json"]


def test_resume_looks_at_the_store(url):
    """`must` and `never` mean a run that is there, wherever it was written."""
    with pytest.raises(ConfigError, match=r"resume: must, but there is no run in .*://"):
        trackway.start(dir=url, run_id="a", resume="must")
    trackway.start(dir=url, run_id="a").finish()
    with pytest.raises(ConfigError, match="resume: never"):
        trackway.start(dir=url, run_id="a", resume="never")
    with trackway.start(dir=url, run_id="a", resume="must") as run:
        assert run.store.attempt == 2


def test_a_second_run_of_the_same_url_is_refused(url):
    """It is told who writes; the first one goes on."""
    with trackway.start(dir=url, run_id="a") as run:
        with pytest.raises(RunBusyError, match="is being written by"):
            trackway.start(dir=url, run_id="a")
        run.log({"x": 1})
    assert [row["x"] for row in read_rows(f"{url}/a")] == [1]


def test_a_start_that_fails_leaves_nothing_on_the_store(url):
    """Where a later tracker cannot be started, the new run is removed, and what lay beside it stays."""
    Remote(url).put("a/notes.txt", b"mine")
    with pytest.raises(TypeError):
        trackway.start(dir=url, run_id="a", config=3)
    with pytest.raises(ConfigError):
        trackway.start(["nonsense"], dir=url, run_id="a")
    trackers = [trackway.config.TrackerConfig.get_choice_class("tensorboard")(logdir="\0")]
    with pytest.raises(ConfigError):
        trackway.start(trackers, dir=url, run_id="a")
    assert objects(f"{url}/a") == ["notes.txt"]


def test_a_directory_that_was_copied_to_a_store_is_read_and_continued(url, tmp_path):
    """Its file of rows comes before the segments."""
    with trackway.start(dir=tmp_path / "runs", run_id="a"):
        trackway.log({"x": 0})
    for file in (tmp_path / "runs" / "a").iterdir():
        Remote(f"{url}/a").put(file.name, file.read_bytes())
    assert [row["x"] for row in read_rows(f"{url}/a/metrics.jsonl")] == [0]
    with trackway.start(dir=url, run_id="a"):
        trackway.log({"x": 1})
    assert [(row["x"], row.get("_attempt")) for row in read_history(f"{url}/a")] == [(0, None), (1, 2)]


def test_ranks_write_beside_one_another(url):
    """Each process has segments and a claim of its own."""
    with LocalTracker(f"{url}/a") as first, LocalTracker(f"{url}/a", rank=1) as second:
        first.log({"x": 0})
        second.log({"x": 1})
        assert second.run_id == "a"
    assert [row["x"] for row in read_history(f"{url}/a", ranks="all")] == [0, 1]
    assert RemoteRun(f"{url}/a").ranks() == [0, 1]


def test_what_is_not_there_is_said(url):
    """A run that is missing, a protocol nobody knows, and one whose package is missing are errors with a cure."""
    with pytest.raises(FileNotFoundError):
        read_history(f"{url}/none")
    with pytest.raises(FileNotFoundError):
        read_rows(f"{url}/none/metrics.jsonl")
    with pytest.raises(ConfigError, match="nonsense"):
        trackway.start(dir="nonsense://x", run_id="a")


def test_names_that_lead_elsewhere_are_passed_over():
    """An object of a stranger's may be called anything; none is taken for a path out of the spool."""
    store = fsspec.filesystem("memory")
    for name in ("run.json", "media/../../up.txt", "media/a/b.png"):
        MemoryFileSystem.store[f"/bucket/a/{name}"] = store._open("/tmp-object", "wb")
    assert objects("memory://bucket/a") == ["media/a/b.png", "run.json"]


def test_a_local_run_imports_nothing_of_this(tmp_path):
    """Neither `import trackway` nor a run in a directory loads fsspec."""
    program = (
        "import sys, trackway\nwith trackway.start(dir=sys.argv[1]):\n    trackway.log({'x': 1})\n"
        "print('fsspec' in sys.modules or [m for m in sys.modules if 'store._remote' in m or 'store._mirror' in m])"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == "[]"


def test_a_stored_run_may_be_at_a_url(url):
    """Records, rows and the list of runs are what they are of a directory."""
    from trackway.store._runs import read_run, runs

    with trackway.start(dir=url, run_id="a"):
        trackway.log_hyperparameters({"lr": 0.1})
        for step in range(5):
            trackway.log({"loss": 5 - step}, step=step)
    Remote(url).put("other/file.txt", b"x")
    run = read_run(f"{url}/a")
    assert (run.id, run.state, run.last_step, run.config, run.summary) == ("a", "finished", 4, {"lr": 0.1}, {"loss": 1})
    assert [row["loss"] for row in run.history(2)] == [2, 1]
    assert run.at_best("loss")["_step"] == 4
    assert "<" in run._repr_html_()
    assert [found.place for found in runs(url)] == [f"{url}/a"]
    with pytest.raises(FileNotFoundError):
        read_run(f"{url}/none")


def told(url, kind):
    """The records of one kind of lines of a run, in their order."""
    listing = Remote(url).listing()
    names = sorted(name for name in listing if name.startswith(f"{kind}/"))
    return [json.loads(line) for name in names for line in Remote(url).get(name).splitlines()]


def test_events_and_spans_come_in_segments_too(url, spools):  # noqa: F811 - likewise
    """Each line is stored once, however often what is new is brought."""
    with trackway.start(dir=url, run_id="demo", events={"console": False}) as run:
        for number in range(3):
            trackway.log_event("checkpoint", {"number": number}, step=number)
            with trackway.span("save"):
                pass
            run.store.flush()
            run.store._remote.bring_now(10)
    names = objects(f"{url}/demo")
    assert not {"events.jsonl", "spans.jsonl"} & set(names)
    assert [line["number"] for line in told(f"{url}/demo", "events")] == [0, 1, 2]
    assert [line["name"] for line in told(f"{url}/demo", "spans")] == ["save"] * 3
    with RemoteRun(f"{url}/demo").source(kind="events") as source:
        assert source.read(0, source.present_size()).count(b"\n") == 3


def test_a_continued_run_adds_to_its_events(url, spools):  # noqa: F811 - likewise
    """Those of the earlier process stay, each once."""
    for number in range(2):
        with trackway.start(dir=url, run_id="demo", events={"console": False}):
            trackway.log_event("checkpoint", {"number": number}, step=number)
    assert [line["number"] for line in told(f"{url}/demo", "events")] == [0, 1]
