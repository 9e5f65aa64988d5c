"""Starting a run: what it is made of, that it is current, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading

import pytest

import trackway
from trackway.backends.noop import NoopConfig
from trackway.config import TrackingConfig
from trackway.errors import ConfigError, LifecycleError, TrackerFinishError
from trackway.run import Run
from trackway.store import read_rows
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import BackgroundTracker, FilteredTracker, NoopTracker
from trackway.tracker._current import active_tracker


@pytest.fixture(autouse=True)
def runs(monkeypatch, tmp_path):
    """The folder of run directories of the test."""
    monkeypatch.setenv("TRACKWAY_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_a_run_without_a_word_is_kept_in_a_directory(runs):
    """The default is one run directory, under an id made up of the time, and nothing else."""
    with trackway.start() as run:
        trackway.log({"loss": 0.5}, step=3)
    assert isinstance(run, Run)
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", run.run_id)
    assert run.store.directory == runs / run.run_id
    assert [row["_step"] for row in read_rows(runs / run.run_id)] == [3]
    assert run.backends.loggers == []


def test_the_verbs_talk_to_it_until_it_is_finished():
    """From `start` on it is the current tracker, also without a block; `finish` restores the one before."""
    outer = RecordingTracker("outer")
    with trackway.current_tracker(outer):
        run = trackway.start(run_id="a")
        assert trackway.current_tracker() is run
        trackway.finish()
        assert trackway.current_tracker() is outer
        trackway.finish()  # nothing is a run any more
    assert not outer.finished
    assert run.report().state == "finished"
    assert active_tracker() is None


@pytest.mark.parametrize("early", [False, True])
def test_a_block_takes_off_every_entry_of_the_run(early):
    """`start` and the `with` statement both make it current, and leaving the block, or `finish` in it, undoes both."""
    with trackway.start() as run:
        assert trackway.current_tracker() is run
        if early:
            trackway.finish()
            assert active_tracker() is None
    assert active_tracker() is None
    assert run.report().state == "finished"


def test_an_exception_in_the_block_ends_the_run_as_failed(runs):
    """The block's own exception comes out, the run notes it, and nothing is current."""
    run = trackway.start(run_id="a")

    def train():
        with run:
            trackway.log({"x": 1}, step=0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert run.report().state == "failed"
    assert [row["x"] for row in read_rows(runs / "a")] == [1]
    assert active_tracker() is None


def test_a_finish_that_fails_still_takes_the_run_off(recording):
    """Where a required tracker fails to finish, the caller is told, and the run is not current any more."""
    trackway.start([FailingTracker(RecordingTracker("bad"), methods={"finish"})])
    trackway.finish()
    config = recording(required=True)
    run = trackway.start([config])
    config.tracker.finish = lambda: 1 / 0
    with pytest.raises(TrackerFinishError):
        trackway.finish()
    assert run.report().state == "finished"
    assert active_tracker() is None


def test_runs_can_follow_one_another_and_be_nested(runs):
    """A second run in the same process is of its own, and while it lasts the first one waits."""
    outer = trackway.start(run_id="a")
    with trackway.start(run_id="b") as inner:
        trackway.log({"x": 2}, step=0)
        assert trackway.current_tracker() is inner
    assert trackway.current_tracker() is outer
    trackway.log({"x": 1}, step=0)
    trackway.finish()
    with trackway.start(run_id="c"):
        trackway.log({"x": 3}, step=0)
    assert [read_rows(runs / name)[0]["x"] for name in "abc"] == [1, 2, 3]


def test_finish_on_another_thread_ends_the_run_of_the_main_thread():
    """Threads without a tracker of their own see the run, and may end it for all."""
    run = trackway.start()
    thread = threading.Thread(target=trackway.finish)
    thread.start()
    thread.join()
    assert run.report().state == "finished"
    assert active_tracker() is None


def test_tasks_have_runs_of_their_own(runs):
    """Each task of an event loop logs to the run that it started."""

    async def train(name):
        """Log three rows, giving way after each."""
        with trackway.start(run_id=name):
            for step in range(3):
                trackway.log({"task": name}, step=step)
                await asyncio.sleep(0)

    async def both():
        """Train in two tasks at once."""
        await asyncio.gather(train("a"), train("b"))

    asyncio.run(both())
    for name in "ab":
        assert [row["task"] for row in read_rows(runs / name)] == [name] * 3


def test_trackers_may_be_configs_built_or_one(recording):
    """Configs are started with their options around them, trackers are taken as they are, in the order given."""
    built, config = RecordingTracker("built"), recording(prefix="p/", background=True)
    with trackway.start([built, config, NoopConfig()]) as run:
        trackway.log({"x": 1}, step=0)
    assert run.backends.loggers[0] is built
    assert type(run.backends.loggers[1]) is FilteredTracker
    assert type(run.backends.loggers[1].tracker) is BackgroundTracker
    assert type(run.backends.loggers[2]) is NoopTracker
    assert [built.rows, config.tracker.rows] == [[(0, {"x": 1})], [(0, {"p/x": 1})]]
    assert built.finished
    for one in (RecordingTracker("one"), recording()):
        with trackway.start(one) as run:
            assert len(run.backends.loggers) == 1


def test_everyone_gets_the_rows_of_the_run(recording, runs):
    """The calls of one step are one row, in the directory and at every tracker."""
    config = recording()
    with trackway.start([config], run_id="a"):
        trackway.log({"loss": 1.0}, step=5)
        trackway.log({"accuracy": 0.9}, step=5)
        trackway.log({"loss": 0.9}, step=6)
    assert config.tracker.rows == [(5, {"loss": 1.0, "accuracy": 0.9}), (6, {"loss": 0.9})]
    assert [row["_step"] for row in read_rows(runs / "a")] == [5, 6]


def test_options_of_the_run_reach_it(caplog):
    """`step_policy` and `print` are those of `Run`."""
    lines = []
    with trackway.start(step_policy="allow", print=lines.append, store=False, trackers=[]) as run:
        trackway.log({"x": 1}, step=5)
        trackway.log({"x": 2}, step=3)
    assert lines == ["step 3: x=2", "step 5: x=1"]
    assert run.store is None


def test_the_configuration_is_logged(recording, runs):
    """`config` is kept with the run, as by `log_configuration`."""
    config = recording()
    with trackway.start([config], run_id="a", config={"lr": 0.1}):
        pass
    assert config.tracker.hparams == {"lr": 0.1}
    assert (runs / "a" / "artifacts" / "config.yaml").read_text() == "lr: 0.1\n"


def test_one_line_says_what_is_active(recording, monkeypatch, caplog):
    """At INFO, the run, the mode and the trackers, the run directory where it was listed, else first."""
    caplog.set_level(logging.INFO, logger="trackway")
    monkeypatch.setenv("RANK", "1")
    for trackers in ([recording(ranks="all"), "local", NoopConfig()], [recording(ranks="all"), NoopConfig()]):
        local = trackway.backends.local.LocalConfig(label="disk")
        with trackway.start([local if one == "local" else one for one in trackers], run_id="a"):
            pass
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("run a, online")]
    off = "off: noop (only rank 0 uses it, this is rank 1)"
    assert said == [
        f"run a, online: trackers recording, disk; {off}",
        f"run a, online: trackers local, recording; {off}",
    ]


def test_a_tracking_config_starts_a_run_with_changes(recording, runs):
    """Its fields are the arguments, keywords of the call win over them, and those that no file has are taken too."""
    tracking = TrackingConfig([recording(), NoopConfig()], run_id="a", step_policy="error")
    with tracking.start(run_id="b", config={"lr": 0.1}) as run:
        trackway.log({"x": 1}, step=1)
        with pytest.raises(trackway.errors.StepError):
            run.log({"x": 1}, step=0)
    assert (run.run_id, len(run.backends.loggers)) == ("b", 2)
    assert (runs / "b" / "config.yaml").exists()
    with tracking.start(trackers=None) as run:
        assert (run.run_id, run.backends.loggers) == ("a", [])
    with pytest.raises(TypeError, match="runid"):
        tracking.start(runid="c")


def test_a_field_changed_later_is_checked_at_the_start():
    """A config is checked when it is made, and again when it is used."""
    tracking = TrackingConfig()
    tracking.run_id = "../elsewhere"
    with pytest.raises(ConfigError, match="run_id"):
        tracking.start()


@pytest.mark.parametrize("how", ["on_commit", "print"])
def test_no_run_is_started_in_a_callback(runs, how):
    """A callback of one run that starts another is refused; the run goes on, and keeps its rows."""
    refused = []

    def begin(_):
        try:
            trackway.start(run_id="b")
        except LifecycleError as error:
            refused.append(str(error))

    with trackway.start(run_id="a", print=begin if how == "print" else False) as run:
        if how == "on_commit":
            run.on_commit(begin)
        trackway.log({"x": 1}, step=0, commit=True)
        assert trackway.current_tracker() is run
    assert len(refused) == 1
    assert [path.name for path in runs.iterdir()] == ["a"]


def test_disabled_leaves_nothing_on_disk(recording, broken, monkeypatch, tmp_path):
    """Under TRACKWAY_MODE=disabled a run takes everything and keeps nothing, and every name answers."""
    monkeypatch.setenv("TRACKWAY_MODE", "disabled")
    built = RecordingTracker("built")
    state = {"run_id": "a", "next_step": 7}
    with trackway.start(
        [recording(), broken(required=True), built], resume_state=state, resume="must", config={"lr": 0.1}
    ) as run:
        trackway.log({"x": 1})
        assert run.state_dict() == {"run_id": "a", "next_step": 8}
        for name in ("local", "recording", "broken", "built"):
            assert type(trackway.get_tracker(name)) is NoopTracker
    assert run.store is None
    assert (built.rows, built.finished) == ([], False)
    assert list(tmp_path.iterdir()) == []


def test_a_relative_folder_is_made_absolute_once(monkeypatch, tmp_path):
    """A program that changes its working directory keeps its run where it was begun."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with trackway.start(dir="here", run_id="a"):
        trackway.log({"x": 1}, step=0, commit=True)
        monkeypatch.chdir(tmp_path / "elsewhere")
        trackway.log({"x": 2}, step=1)
    assert [row["x"] for row in read_rows(tmp_path / "here" / "a")] == [1, 2]
    assert os.listdir(tmp_path / "elsewhere") == []  # noqa: PTH208


def test_the_home_directory_may_be_abbreviated(monkeypatch, tmp_path):
    """A tilde, which no shell expands in YAML, is the home directory, in `dir` and in TRACKWAY_DIR."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with TrackingConfig(dir="~/x", run_id="a").start() as run:
        assert run.store.directory == tmp_path / "x" / "a"
    monkeypatch.setenv("TRACKWAY_DIR", "~/y")
    with trackway.start(run_id="a") as run:
        assert run.store.directory == tmp_path / "y" / "a"


def test_every_rank_keeps_its_rows(recording, monkeypatch, runs):
    """A process of another rank writes its own shard, and trackers for the primary one are stood in for."""
    monkeypatch.setenv("RANK", "2")
    with trackway.start([recording(), recording(label="everywhere", ranks="all")], run_id="a") as run:
        trackway.log({"x": 1}, step=0)
        assert type(trackway.get_tracker("recording")) is NoopTracker
        assert trackway.get_tracker("everywhere").name == "everywhere"
    assert [path.name for path in (runs / "a").iterdir()] == ["metrics.rank2.jsonl"]
    local = trackway.backends.local.LocalConfig(ranks="primary")
    with trackway.start([local], run_id="b") as run:
        trackway.log({"x": 1}, step=0)
    assert run.store is None
    assert not (runs / "b").exists()
