"""A run has one run directory, or says that it wants none; a start that fails leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

import trackway
from trackway.backends.local import LocalConfig
from trackway.backends.noop import NoopConfig
from trackway.config import TrackerConfig
from trackway.errors import ConfigError, FatalTrackerError, RunBusyError
from trackway.store import LocalTracker, read_rows
from trackway.testing import RecordingTracker
from trackway.tracker import CompositeTracker, NoopTracker
from trackway.tracker._current import active_tracker


@pytest.fixture(autouse=True)
def runs(monkeypatch, tmp_path):
    """The folder of run directories of the test."""
    monkeypatch.setenv("TRACKWAY_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def trackway_threads():
    """The threads that the library runs."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("trackway")}


def open_files():
    """What this process has open below a temporary directory."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # of the listing itself
            targets.append(str(link.readlink()))
    return {target for target in targets if "pytest" in target}


def test_local_among_the_trackers_configures_it(tmp_path):
    """Folder, label and strict JSON of `type: local` are those of the run directory, which is no tracker beside it."""
    local = LocalConfig(dir=str(tmp_path / "mine"), strict_json=True, label="disk", required=True)
    with trackway.start([NoopConfig(), local], run_id="a") as run:
        trackway.log({"x": float("nan")}, step=0)
        assert trackway.get_tracker("disk") is run.store
    assert run.store.directory == tmp_path / "mine" / "a"
    assert json.loads((run.store.directory / "metrics.jsonl").read_bytes())["_nonfinite"] == {"x": "nan"}
    assert [tracker.name for tracker in run.backends.loggers] == ["noop"]


def test_it_is_added_where_it_is_not_listed(tmp_path):
    """Other trackers do not take its place, and `dir` and `strict_json` of the run are its own."""
    with trackway.start([NoopConfig()], run_id="a", dir=tmp_path / "here", strict_json=True) as run:
        trackway.log({"x": float("inf")}, step=0)
    assert run.store.directory == tmp_path / "here" / "a"
    assert '"x":null' in (tmp_path / "here" / "a" / "metrics.jsonl").read_text()


def test_one_folder_may_be_said_twice(tmp_path, monkeypatch):
    """`dir` of the run and of `type: local` may agree, in whatever form, but not differ."""
    monkeypatch.chdir(tmp_path)
    with trackway.start(LocalConfig(dir="x"), dir=tmp_path / "x", run_id="a") as run:
        assert run.store.directory == tmp_path / "x" / "a"
    with pytest.raises(ConfigError, match=r"dir is .*, and that of local 'x'; leave one of them out"):
        trackway.start(LocalConfig(dir="x"), dir=tmp_path / "y", run_id="a")


def test_without_a_store_nothing_is_written(runs, recording):
    """store=False keeps no directory; rows reach the trackers all the same."""
    config = recording()
    with trackway.start([config], store=False, run_id="a") as run:
        trackway.log({"x": 1})
        assert dict(run.summary) == {"x": 1}
    assert run.store is None
    assert run.run_id == "a"
    assert config.tracker.rows == [(0, {"x": 1})]
    assert not runs.exists()


@pytest.mark.parametrize(
    ("trackers", "options", "message"),
    [
        (
            [LocalConfig(), LocalConfig(label="b")],
            {},
            r"trackers\[0\] \(local\) and trackers\[1\] \(local\) are two run",
        ),
        (
            [LocalConfig(label="b")],
            {"store": False},
            r"opts out of the run directory, which trackers \(local\) asks for",
        ),
        (
            [LocalConfig(every_steps=2)],
            {},
            "every_steps: 2 is not for the run directory, .* set it on the other trackers",
        ),
        ([LocalConfig(include=("a",))], {}, "include: "),
        ([LocalConfig(exclude=("a",))], {}, "exclude: "),
        ([LocalConfig(prefix="a/")], {}, "prefix: 'a/' is not for"),
        ([LocalConfig(rename={"a": "b"})], {}, "rename: "),
        ([LocalConfig(background=True)], {}, "background: true is not for"),
    ],
)
def test_options_that_would_break_it_are_refused(runs, trackers, options, message):
    """Two directories, none although one is configured, and options that keep rows from it are errors with a cure."""
    with pytest.raises(ConfigError, match=message):
        trackway.start(trackers, **options)
    assert not runs.exists()


@pytest.mark.parametrize("wrap", [list, lambda members: [CompositeTracker(members)]])
def test_a_store_that_is_open_already_is_refused(tmp_path, wrap):
    """A LocalTracker would be a second directory beside the run's, also behind a composite; it stays as it is."""
    tracker = LocalTracker(tmp_path / "own")
    with pytest.raises(ConfigError, match=r"trackers\[0\] is a LocalTracker that is open already.*LocalConfig"):
        trackway.start(wrap([tracker]))
    tracker.log({"x": 1}, step=0)
    tracker.finish()
    assert len(read_rows(tmp_path / "own")) == 1


def test_a_run_that_is_open_is_refused_before_anything_is_started(recording):
    """A second start of the same run says who has it, touches no other tracker, and the first run goes on."""
    config = recording()
    with trackway.start(run_id="a") as first:
        before = open_files()
        with pytest.raises(RunBusyError, match=str(os.getpid())):
            trackway.start([config], run_id="a")
        assert open_files() == before
        assert not hasattr(config, "started")
        assert trackway.current_tracker() is first
        trackway.log({"x": 1}, step=0)
    assert [row["x"] for row in read_rows(first.store.directory)] == [1]


def test_a_directory_that_cannot_be_written_stops_the_start(tmp_path):
    """The error names the tracker and the cures; with `on_init_error: skip` the run goes on without a directory."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"local\) could not be started: .*cannot be written.*on_init_error: skip"):
        trackway.start(dir=tmp_path / "file" / "below")
    local = LocalConfig(dir=str(tmp_path / "file"), on_init_error="skip")
    with trackway.start([local], run_id="a") as run:
        trackway.log({"x": 1}, step=0)
        assert type(trackway.get_tracker("local")) is NoopTracker
    assert run.store is None
    with pytest.raises(ConfigError, match=r"nonsense://runs/a.* none that fsspec knows"):
        trackway.start(dir="nonsense://runs", run_id="a")


@pytest.mark.parametrize("before", [False, True])
def test_a_start_that_fails_leaves_nothing_behind(runs, recording, broken, before):
    """What was started is finished, the tracker before is current, no file is left, and it can be tried again."""
    if before:
        (runs / "a").mkdir(parents=True)
        (runs / "a" / "notes.txt").write_text("mine")
    config, built = recording(), RecordingTracker("built")
    threads, files = trackway_threads(), open_files()
    with trackway.current_tracker(RecordingTracker("outer")) as outer:
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"trackers\[2\] \(broken\) could not be started: .*no route to host"):
                trackway.start([built, config, broken()], run_id="a", resume="never")
            assert trackway.current_tracker() is outer
    assert config.tracker.finished
    assert isinstance(config.tracker.error, ConfigError)
    assert not built.finished, "it was not started here, and may be given again"
    assert [path.name for path in runs.rglob("*") if path.is_file()] == ["notes.txt"] * before
    assert (runs / "a").exists() is before
    assert trackway_threads() <= threads
    assert open_files() <= files
    with trackway.start([built, config], run_id="a", resume="never"):
        trackway.log({"x": 1}, step=0)
    assert built.rows == [(0, {"x": 1})]


def test_a_start_that_fails_keeps_the_run_that_was_there(runs, broken):
    """A run that was to be continued has its rows, and notes the attempt as failed."""
    with trackway.start(run_id="a"):
        trackway.log({"x": 1}, step=0)
    with pytest.raises(ConfigError):
        trackway.start([broken()], run_id="a")
    assert [row["x"] for row in read_rows(runs / "a")] == [1]
    record = json.loads((runs / "a" / "run.json").read_bytes())
    assert [attempt["state"] for attempt in record["attempts"]] == ["finished", "failed"]


@pytest.mark.parametrize("config", [3, ["lr"], "lr"])
def test_a_wrong_configuration_is_refused_first(runs, recording, config):
    """What `log_configuration` cannot take is told before anything is started."""
    tracker = recording()
    with pytest.raises(TypeError, match="takes a dataclass instance or a mapping"):
        trackway.start([tracker], config=config)
    assert not hasattr(tracker, "started")
    assert not runs.exists()


def test_a_required_tracker_that_fails_at_once_stops_the_start(runs, registry):
    """A failure of a required tracker at the configuration is the caller's to see, and nothing is current."""

    class Refusing(RecordingTracker.__mro__[1]):
        name = "refusing"

        def log(self, metrics, *, step, commit=None): ...
        def log_hyperparameters(self, hparams):
            raise OSError("quota exceeded")

        def log_summary(self, metrics): ...
        def log_artifact(self, artifact_path, *, name=None, type=None): ...
        def finish(self): ...

    @TrackerConfig.register_subclass("refusing")
    @dataclass
    class RefusingConfig(TrackerConfig):
        def init(self, run_id):
            return Refusing()

    threads = trackway_threads()
    with pytest.raises(FatalTrackerError, match="quota exceeded"):
        trackway.start([RefusingConfig(required=True)], run_id="a", config={"lr": 0.1})
    assert active_tracker() is None
    assert not (runs / "a").exists()
    assert trackway_threads() <= threads


def test_ctrl_c_during_the_start_leaves_nothing_behind(runs, recording, broken):
    """An interrupt in the midst of a backend's start is passed on, and what was started before is finished."""
    config = recording()
    with pytest.raises(KeyboardInterrupt):
        trackway.start([config, broken(error=KeyboardInterrupt)], run_id="a")
    assert config.tracker.finished
    assert not (runs / "a").exists()
    assert active_tracker() is None


def test_a_run_may_opt_out_of_the_default_directory(runs):
    """`store=False` alone is enough: the run directory is there by default, and nobody asked for it."""
    for start in (trackway.start, trackway.TrackingConfig(store=False).start):
        with start(store=False) as run:
            run.log({"loss": 0.5})
        assert (run.store, run.members(), run.report().rows) == (None, (), 1)
    assert not runs.exists() or not list(runs.iterdir())
