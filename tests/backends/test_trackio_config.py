"""Where a Trackio run is kept and which run it is, and what a configuration may say."""

from __future__ import annotations

import dataclasses
import logging
import socket
import subprocess
import sys
import threading
import time

import pytest
from trackio_server import TOKEN, configuration, free_port, new_project, rows, runs

import trackway
from trackway.backends import _trackio_start as starting
from trackway.backends.trackio import TrackioConfig, TrackioTracker
from trackway.config import RunContext
from trackway.config._context import entered
from trackway.errors import ConfigError
from trackway.store import read_rows
from trackway.tracker import NoopTracker

AWAY = f"http://127.0.0.1:9?write_token={TOKEN}"


@pytest.fixture
def project():
    """A project of the test's own."""
    return new_project()


def log_one(config, run_id, step, context=None):
    """Log one row to a run in the calling thread and finish it; return the tracker."""
    with entered(context or RunContext(run_id, "")):
        tracker = config.init(run_id)
    tracker.log({"a": step}, step=step)
    tracker.finish()
    return tracker


def test_fields_and_their_order():
    """The fields that other libraries have come first, in their order; all else is given by name."""
    fields = [field for field in dataclasses.fields(TrackioConfig) if not field.kw_only]
    assert [field.name for field in fields] == [
        "project",
        "name",
        "space_id",
        "dataset_id",
        "config",
        "mode",
        "resume",
    ]
    config = TrackioConfig()
    assert (config.project, config.name, config.mode, config.resume, config.background) == (
        "trackway",
        None,
        None,
        "auto",
        True,
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "of"}, "mode must be one of"),
        ({"resume": "yes"}, "resume must be one of"),
        ({"finish_timeout": 0}, "greater than 0"),
        ({"space_id": "a/b", "server_url": AWAY}, "two places"),
        ({"dataset_id": "a/b"}, "give space_id with it"),
        ({"server_url": "127.0.0.1:7860"}, "must begin with http"),
        ({"server_url": "http://127.0.0.1:9"}, "write token"),
        ({"project": "registry-x"}, "trackio.project"),
        ({"resume": "must"}, "has no run"),
    ],
)
def test_what_a_configuration_must_not_say(project, fields, message):
    """Wrong values are refused at the start, with what is allowed."""
    with pytest.raises(ConfigError, match=message):
        TrackioConfig(**{"project": project, **fields}).init("run")


def test_a_missing_library_is_named(monkeypatch):
    """Without trackio the error tells how to install it."""
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(ConfigError, match=r"pip install .trackway\[trackio\]"):
        TrackioConfig().init("run")


def test_the_library_is_imported_when_a_run_is_started():
    """Reading a configuration costs no import of trackio."""
    program = "import sys\nfrom trackway.backends.trackio import TrackioConfig\nTrackioConfig()\n"
    done = subprocess.run([sys.executable, "-c", f"{program}sys.exit('trackio' in sys.modules)"], timeout=60)
    assert done.returncode == 0


def test_disabled_is_a_stand_in(project):
    """`mode: disabled` logs nothing, under the same name."""
    tracker = TrackioConfig(project, mode="disabled").init("run")
    tracker.log({"a": 1}, step=0)
    tracker.finish()
    assert isinstance(tracker, NoopTracker)
    assert (tracker.name, runs(project)) == ("trackio", {})


@pytest.mark.parametrize("place", [{"space_id": "user/space", "dataset_id": "user/data"}, {"server_url": AWAY}])
@pytest.mark.parametrize("by", ["field", "environment"])
def test_offline_stays_on_this_machine(project, monkeypatch, caplog, place, by):
    """Offline, the network is not touched, which is said, and the rows are in the database here."""
    import trackio

    def unexpected(*args, **kwargs):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(trackio, "init", unexpected)
    monkeypatch.setattr(socket.socket, "connect", unexpected)
    if by == "environment":
        monkeypatch.setenv("TRACKWAY_MODE", "offline")
    config = TrackioConfig(project, mode="offline" if by == "field" else None, **place)
    tracker = log_one(config, "run", 3)
    assert rows(project, "run") == [(3, {"a": 3})]
    assert tracker.report().delivered == 1
    assert any("OFFLINE" in message and TOKEN not in message for message in caplog.messages)


def test_a_space_is_trackios_to_prepare(project, monkeypatch):
    """A Space gets its run by `trackio.init`, with these arguments, which neither sees nor leaves a current run."""
    import trackio

    current = trackio.context_vars.current_run
    seen = {}

    def init(**arguments):
        seen.update(arguments, current=current.get())
        run = trackio.Run(url=None, project=project, client=None, name=arguments["name"], existing_runs=[])
        current.set(run)
        trackio.config = run.config
        return run

    own = trackio.init(project=project, name="own", auto_log_gpu=False, auto_log_cpu=False)
    config = trackio.config
    monkeypatch.setattr(trackio, "init", init)
    tracker = log_one(TrackioConfig(project, "shown", "user/space", "user/data", {"k": 1}), "run", 0)
    assert current.get() is own
    assert trackio.config is config
    trackio.finish()
    expected = {"project": project, "name": "shown", "space_id": "user/space", "dataset_id": "user/data"}
    assert {name: seen[name] for name in expected} == expected
    assert (seen["current"], seen["embed"], seen["resume"], tracker.run.id) == (None, False, "never", "run")
    assert configuration(project, "run") == {"k": 1}


@pytest.mark.parametrize("variable", ["TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"])
def test_trackios_environment_variables_count(monkeypatch, variable):
    """Where the configuration names no place, Trackio's own variables do; a field wins over them."""
    monkeypatch.setenv(variable, AWAY if "URL" in variable else "user/space")
    none = {"space_id": None, "dataset_id": None, "server_url": None, "offline": False}
    target = starting.target_of(**none)
    assert (target.space_id, target.server) == (
        (None, "http://127.0.0.1:9") if "URL" in variable else ("user/space", None)
    )
    assert starting.target_of(**{**none, "server_url": f"http://127.0.0.1:8?write_token={TOKEN}"}) == starting.Target(
        server="http://127.0.0.1:8", token=TOKEN
    )


def test_a_resumed_run_stays_one(project):
    """What a later process logs is in the same run, goes on at its step, and joins its configuration."""
    first = TrackioConfig(project, "shown", config={"lr": 1, "kept": 1})
    log_one(first, "run", 0)
    with entered(RunContext("run", "", resumed=True, next_step=1, attempt=2)):
        tracker = TrackioConfig(project, "shown", config={"lr": 2}).init("run")
    assert tracker.first_missing_step() == 1
    tracker.log({"a": 1})
    tracker.finish()
    assert runs(project) == {"run": "shown"}
    assert rows(project, "run") == [(0, {"a": 0}), (1, {"a": 1})]
    assert configuration(project, "run") == {"lr": 2, "kept": 1}


def test_auto_goes_on_with_a_run_that_trackio_started(project):
    """A run of that name which Trackio itself had started is continued, and does not get a twin."""
    import trackio

    own = trackio.init(project=project, name="run", auto_log_gpu=False, auto_log_cpu=False)
    trackio.log({"a": 0}, step=0)
    trackio.finish()
    log_one(TrackioConfig(project), "run", 1)
    assert runs(project) == {own.id: "run"}


def test_auto_keeps_runs_of_one_given_name_apart(project):
    """Runs that were given the same name by their configuration stay as many as there are run ids."""
    for run_id in ("one", "two"):
        log_one(TrackioConfig(project, "baseline"), run_id, 0)
    assert runs(project) == {"one": "baseline", "two": "baseline"}


@pytest.mark.parametrize(("resume", "expected"), [("allow", 1), ("must", 1), ("never", 2)])
def test_resuming_by_name(project, resume, expected):
    """As in Trackio, `allow` and `must` find a run by its name, and `never` starts another, of the same id too."""
    log_one(TrackioConfig(project, "shown"), "run", 0)
    log_one(TrackioConfig(project, "shown", resume=resume), "run" if resume == "never" else "other", 1)
    assert len(runs(project)) == expected


def test_other_ranks_have_runs_of_their_own(project):
    """With a tracker on every rank, each has a run named by the rank, so that their steps do not mix."""
    for rank in (0, 1):
        log_one(TrackioConfig(project), "run", 0, RunContext("run", "", rank=rank, primary=rank == 0))
    assert runs(project) == {"run": "run", "run-rank1": "run-rank1"}


def test_without_a_run_id_trackio_finds_a_name(project):
    """A tracker that is made by hand without an id has one of Trackio's readable names."""
    tracker = TrackioConfig(project).init(None)
    assert isinstance(tracker, TrackioTracker)
    tracker.log({"a": 1})
    tracker.finish()
    assert runs(project) == {tracker.run.id: tracker.run.name}


def test_where_to_look_is_told_without_the_token(project, caplog):
    """One line of the log says where the run can be seen; a write token is in none."""
    caplog.set_level(logging.INFO, "trackway")
    log_one(TrackioConfig(project), "run", 0)
    assert [message for message in caplog.messages if "trackio show" in message] == [
        f'trackio: run run of project {project}: `trackio show --project "{project}"`'
    ]
    log_one(TrackioConfig(project, server_url=AWAY, finish_timeout=5), "run", 0)
    assert not any(TOKEN in message for message in caplog.messages)


def test_a_server_that_never_answers_holds_nothing_up(project, monkeypatch):
    """The end is in time although a request hangs, the row is kept for later, and the threads end by themselves."""
    monkeypatch.setattr(starting, "_TIMEOUT", 8.0)
    with socket.create_server(("127.0.0.1", free_port())) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}?write_token={TOKEN}"
        tracker = TrackioConfig(project, server_url=url, finish_timeout=1).init("run")
        tracker.log({"a": 1}, step=0)
        with pytest.raises(TimeoutError):
            tracker.flush()
        before = time.monotonic()
        tracker.finish()
        assert time.monotonic() - before < 6
        assert (tracker.report().pending, tracker.report().delivered) == (1, 0)
        thread = tracker._sender._thread
        thread.join(20)
        assert not thread.is_alive()
    assert tracker.run._client_thread not in threading.enumerate()


def test_a_full_buffer_refuses_rows(project, monkeypatch):
    """While a server is away a bounded number of rows waits; the next are refused, for the caller to keep."""
    monkeypatch.setattr("trackway.backends._trackio_sender._MAX_UNSENT", 10)
    tracker = TrackioConfig(project, server_url=AWAY, finish_timeout=5).init("run")
    tracker.log({"a": 0}, step=0)
    with pytest.raises(ConnectionError):
        tracker.flush()
    for step in range(1, 10):
        tracker.log({"a": step}, step=step)
    with pytest.raises(ConnectionError, match="not taken"):
        tracker.log({"a": 10}, step=10)
    tracker.finish()
    assert (tracker.report().accepted, tracker.report().pending) == (10, 10)


def test_a_killed_process_is_made_good_from_the_run_directory(project, tmp_path):
    """What a kill kept from the database is delivered when the run is continued, each row once and in order."""
    program = (
        "import os, signal, sys, trackway\n"
        "from trackway.backends.trackio import TrackioConfig\n"
        "run = trackway.start([TrackioConfig(sys.argv[1])], dir=sys.argv[2], run_id='run')\n"
        "for step in range(5): trackway.log({'a': step}, step=step)\n"
        "run.flush()\n"
        "for step in range(5, 40): trackway.log({'a': step}, step=step)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, project, str(tmp_path)], timeout=60)
    assert len(rows(project, "run")) < 39
    run = trackway.start([TrackioConfig(project)], dir=tmp_path, run_id="run", resume="must")
    trackway.log({"a": -1}, step=40)
    run.finish()
    (kept,) = (line for line in run.report().trackers if line.name == "trackio")
    steps = [step for step, _ in rows(project, "run")]
    assert steps == sorted(set(steps))
    assert (steps[-1], len(steps) >= 5, kept.pending) == (40, True, 0)
    assert steps == [row["_step"] for row in read_rows(tmp_path / "run")]
