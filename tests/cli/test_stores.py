"""The commands on runs that lie on an object store."""

from __future__ import annotations

import json
import threading

import pytest
from programs import wait_for
from remote_stores import spools  # noqa: F401 - a fixture
from run_files import stranger
from s3_server import s3_server

import trackway
from trackway.cli import _arrivals
from trackway.store import LocalTracker
from trackway.store._remote import Remote

ROWS = 12


def write(url, number):
    """Write a run whose loss is the less, the nearer its number is to 1."""
    with trackway.start(dir=url, run_id=f"digits-{number}", config={"lr": 10.0**-number}):
        for step in range(ROWS):
            trackway.log({"val/loss": 1 / (1 + step) + abs(number - 1.2), "test/acc": step / 100}, step=step)


@pytest.fixture
def url(tmp_path):
    """Three runs on a store that needs no server, of which `digits-1` is the best."""
    place = f"file://{tmp_path}/store/runs"
    for number in range(3):
        write(place, number)
    return place


@pytest.fixture(params=["argument", "environment"])
def where(request, url, monkeypatch):
    """The folder of the runs as a command is given it, before or behind its own arguments."""
    if request.param == "argument":
        return [url]
    monkeypatch.setenv("TRACKWAY_DIR", url)
    return []


def test_runs_lists_those_of_a_url(call, where, url):
    """With their states, steps and values; nothing on standard error."""
    said = call("runs", *where, "--config", "lr", "--sort", "val/loss", "--json")
    assert (said.code, said.err) == (0, "")
    lines = json.loads(said.out)
    assert [line["id"] for line in lines] == ["digits-1", "digits-2", "digits-0"]
    assert lines[0]["path"] == f"{url}/digits-1"
    assert (lines[0]["state"], lines[0]["step"], lines[0]["config"]["lr"]) == ("finished", ROWS - 1, 0.1)
    assert call("runs", *where, "--where", "lr<0.05").out.count("digits-") == 1


def test_best_ranks_those_of_a_url(call, where, url):
    """By their rows, which lie in segments."""
    best, *_ = json.loads(call("best", *where, "--metric", "val/loss", "--show", "test/acc", "--json").out)
    assert (best["id"], best["step"], best["path"]) == ("digits-1", ROWS - 1, f"{url}/digits-1")
    assert best["show"] == {"test/acc": (ROWS - 1) / 100}


@pytest.mark.parametrize("by", ["url", "dir"])
def test_a_run_of_a_url_is_shown_printed_plotted_compared_and_exported(call, url, tmp_path, by):
    """Named by its URL, or by its id in the folder that --dir names; the URL is what is shown, and no path."""
    first, second = (f"{url}/digits-{number}" if by == "url" else f"digits-{number}" for number in (1, 2))
    more = () if by == "url" else ("--dir", url)
    shown = call("show", first, *more)
    assert f"path       {url}/digits-1\n" in shown.out
    assert (shown.code, shown.err) == (0, "")
    rows = json.loads(call("history", first, *more, "-n", 2, "--json").out)
    assert [row["_step"] for row in rows] == [ROWS - 2, ROWS - 1]
    (panel,) = json.loads(call("plot", first, second, *more, "-m", "val/loss", "--json").out)
    assert [(curve["run"], len(curve["x"])) for curve in panel["curves"]] == [("digits-1", ROWS), ("digits-2", ROWS)]
    compared = json.loads(call("compare", first, second, *more, "--json").out)
    assert compared["runs"] == ["digits-1", "digits-2"]
    said = call("export", first, *more, "-o", tmp_path / "out")
    assert said.out.startswith(f"{ROWS} rows")
    assert (tmp_path / "out" / "rows.csv").read_text().count("\n") == ROWS + 1


def test_a_run_that_is_not_there_is_said_with_what_may_be_meant(call, url):
    """In a line that names the URL."""
    for arguments in (["show", f"{url}/digits-11"], ["show", "digits-11", "--dir", url], ["tail", f"{url}/digits-11"]):
        said = call(*arguments)
        assert (said.code, said.out) == (1, "")
        assert said.err.count("\n") == 1
        assert f"{url}" in said.err
        assert "did you mean digits-1" in said.err
    assert f"`trackway runs {url}` lists what there is" in call("show", f"{url}/quite-another").err
    assert call("runs", f"{url}-none") == (0, "", f"trackway: no runs in {url}-none\n")
    assert "s3fs" in call("runs", "nonsense://a").err or "fsspec" in call("runs", "nonsense://a").err


def test_two_runs_of_one_id_are_told_apart_by_their_urls(call, url):
    """As they are by their paths."""
    write(f"{url}-other", 1)
    said = call("compare", f"{url}/digits-1", f"{url}-other/digits-1", "--json")
    assert json.loads(said.out)["runs"] == [f"{url}/digits-1", f"{url}-other/digits-1"]


def test_a_file_of_rows_on_a_store_is_a_run(call, tmp_path):
    """As in the copy of a run directory."""
    stranger(tmp_path / "a", rows=[{"_step": step, "_time": 1.0, "loss": 0.5} for step in range(3)])
    said = call("history", f"file://{tmp_path}/a/metrics.jsonl", "--json", "-n", 1)
    assert [row["_step"] for row in json.loads(said.out)] == [2]
    assert call("tail", f"file://{tmp_path}/a/metrics.jsonl", "-n", 1).out == "step 2: loss=0.5\n"


def put(remote, number, rows, name="metrics/{:08d}.jsonl"):
    """Store a segment."""
    remote.put(name.format(number), b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def test_arrivals_are_the_whole_lines_behind_those_known(tmp_path, capsys, monkeypatch):
    """Each once, also a line that is longer than a block; a run that is begun anew is read from its beginning."""
    monkeypatch.setattr(_arrivals, "_BLOCK", 64)
    remote = Remote(f"file://{tmp_path}/a")
    put(remote, 1, [{"_step": 0}, {"_step": 1}])
    arrivals = _arrivals.Arrivals(remote.url)
    from trackway.cli._tail import _query

    assert [row["_step"] for row in arrivals.begin(_query(1, ()))] == [1]
    assert list(arrivals.new()) == []
    put(remote, 2, [{"_step": 2, "text": "x" * 500}, {"_step": 3}])
    put(remote, 3, [{"_step": 4}])
    assert [row["_step"] for row in arrivals.new()] == [2, 3, 4]
    assert list(arrivals.new()) == []
    remote.remove("metrics")
    put(remote, 1, [{"_step": 7}])
    assert list(arrivals.new()) == [{"_step": 7}]
    assert "were replaced" in capsys.readouterr().err


def test_a_copied_file_with_a_torn_end_is_followed_from_its_last_whole_line(tmp_path):
    """What is torn is no row until it is whole."""
    remote = Remote(f"file://{tmp_path}/a")
    remote.put("metrics.jsonl", b'{"_step":0}\n{"_st')
    arrivals = _arrivals.Arrivals(remote.url)
    from trackway.cli._tail import _query

    assert [row["_step"] for row in arrivals.begin(_query(5, ()))] == [0]
    assert list(arrivals.new()) == []
    remote.put("metrics.jsonl", b'{"_step":0}\n{"_step":1}\n')
    assert list(arrivals.new()) == [{"_step": 1}]


def test_tail_follows_a_run_on_a_store_to_its_end(call, tmp_path, monkeypatch):
    """Rows of new segments are printed as they come, and the state of the run ends it."""
    monkeypatch.setattr(_arrivals.Arrivals, "pause", 0.05)
    url = f"file://{tmp_path}/store/a"
    tracker = LocalTracker(url, upload_interval=0.05)

    def train():
        for step in range(1, 4):
            tracker.log({"loss": step / 2}, step=step)
            wait_for(lambda n=step: len(Remote(url).children("metrics")) > n)
        tracker.finish()

    tracker.log({"loss": 0.0}, step=0)
    tracker._remote.bring_now(10)
    thread = threading.Thread(target=train)
    thread.start()
    try:
        said = call("tail", url)
    finally:
        thread.join()
    assert said.out == "step 0: loss=0\nstep 1: loss=0.5\nstep 2: loss=1\nstep 3: loss=1.5\n"
    assert said.err == "trackway: run a is finished\n"


@pytest.mark.server
def test_the_commands_read_s3_and_tail_bears_an_outage(call, monkeypatch):
    """It says once that the store is away, and goes on when it is there again."""
    monkeypatch.setattr(_arrivals.Arrivals, "pause", 0.1)
    with s3_server() as server:
        url = "s3://bucket/runs"
        write(url, 1)
        assert [line["id"] for line in json.loads(call("runs", url, "--json").out)] == ["digits-1"]
        assert json.loads(call("best", url, "--metric", "val/loss", "--json").out)[0]["step"] == ROWS - 1
        tracker = LocalTracker(f"{url}/b", upload_interval=0.1)
        tracker.log({"loss": 0.5}, step=0)
        tracker._remote.bring_now(10)
        asked = []

        def outage():
            wait_for(lambda: server.requests["HEAD"] >= 3)  # one in each look at the rows
            server.clear()
            server.away = True
            asked.append(wait_for(lambda: server.requests["HEAD"] >= 3 or server.requests["GET"] >= 9))
            server.away = False
            tracker.log({"loss": 0.25}, step=1)
            tracker.finish()

        server.clear()
        thread = threading.Thread(target=outage)
        thread.start()
        try:
            said = call("tail", f"{url}/b", "--metrics", "loss")
        finally:
            thread.join()
    assert asked == [True]
    assert said.out == "step 0: loss=0.5\nstep 1: loss=0.25\n"
    assert said.err.count("is tried again") == 1
    assert said.err.endswith("trackway: run b is finished\n")
