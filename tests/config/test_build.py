"""From configs to trackers: run ids, ranks, modes, and what a backend may know."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

import pytest

from trackway.backends.noop import NoopConfig
from trackway.config import RunContext, TrackerConfig, Trackers, _context, base_dir, mode, run_context
from trackway.errors import ConfigError
from trackway.testing import RecordingTracker
from trackway.tracker import CompositeTracker, NoopTracker, current_tracker, get_tracker


@pytest.mark.parametrize("count", [0, 1, 3])
def test_trackers_are_always_behind_a_composite(recording, count):
    """As many trackers are active as are configured, and one or none is a CompositeTracker too."""
    tracker = Trackers([recording() for _ in range(count)]).build("run")
    assert isinstance(tracker, CompositeTracker)
    assert [type(t) for t in tracker.loggers] == [RecordingTracker] * count


def test_the_active_members_are_listed_once(recording, monkeypatch, caplog):
    """One INFO record names the run, the mode, what is active, and what is off and why."""
    caplog.set_level(logging.INFO, logger="trackway")
    monkeypatch.setenv("RANK", "1")
    Trackers([recording(ranks="all"), NoopConfig(label="quiet")]).build("my-run")
    (record,) = [r for r in caplog.records if r.levelno == logging.INFO]
    expected = "run my-run, online: trackers recording; off: quiet (only rank 0 uses it, this is rank 1)"
    assert record.getMessage() == expected


def test_two_of_one_name_are_advised_to_take_labels(recording, caplog):
    """Where get_tracker could find only the first of two, a logged warning says so."""
    Trackers([recording(), recording()]).build("run")
    assert "2 trackers are called 'recording'" in caplog.text
    assert "label" in caplog.text


def test_items_that_are_no_configs_are_named(recording):
    """Trackers made in Python of something else are refused when built, and what was started is finished."""
    config = recording()
    with pytest.raises(ConfigError, match=r"tracker\[1\] must be a TrackerConfig, got 'noop' \(str\)"):
        Trackers([config, "noop"]).build("run")
    assert config.tracker.finished


def test_disabled_wins_over_everything(recording, broken, monkeypatch):
    """Nothing is started, whatever the options say, and every name still answers."""
    monkeypatch.setenv("TRACKWAY_MODE", "disabled")
    options = {"required": True, "background": True, "ranks": "all"}
    trackers = Trackers([recording(**options), broken(**options), recording(label="mine")])
    with current_tracker(trackers.build("run")) as tracker:
        assert [(type(t), t.name) for t in tracker.loggers] == [
            (NoopTracker, "recording"),
            (NoopTracker, "broken"),
            (NoopTracker, "mine"),
        ]
        assert isinstance(get_tracker("mine"), NoopTracker)
        tracker.log({"loss": 1}, step=0)
    assert not hasattr(trackers[0], "started")


def test_other_ranks_get_the_whole_interface(recording, monkeypatch):
    """On a rank other than 0 a `primary` tracker is a NoopTracker of its name, an `all` tracker the real one."""
    monkeypatch.setenv("RANK", "3")
    tracker = Trackers([recording(), recording(label="everywhere", ranks="all")]).build("run")
    assert [(type(t), t.name) for t in tracker.loggers] == [
        (NoopTracker, "recording"),
        (RecordingTracker, "everywhere"),
    ]
    tracker.alert("title")
    tracker.log_event("event", {})
    tracker.finish()
    tracker.finish()


@pytest.mark.parametrize(
    ("value", "expected"), [("", "online"), ("Offline ", "offline"), ("online", "online"), ("disabled", "disabled")]
)
def test_mode_reads_the_environment(monkeypatch, value, expected):
    """The three modes, whatever their case; online where nothing is set."""
    monkeypatch.setenv("TRACKWAY_MODE", value)
    assert mode() == expected


@pytest.mark.parametrize("word", ["disable", "off", "none", "0"])
def test_an_unknown_mode_is_refused(recording, monkeypatch, word):
    """A slip in the variable does not switch anything off silently."""
    monkeypatch.setenv("TRACKWAY_MODE", word)
    with pytest.raises(ConfigError, match=r"one of online, offline, disabled, got .*; did you mean disabled\?"):
        recording().build("run")


def test_base_dir_reads_the_environment(monkeypatch):
    """TRACKWAY_DIR, or "runs"."""
    assert base_dir() == "runs"
    monkeypatch.setenv("TRACKWAY_DIR", "/data/runs")
    assert base_dir() == "/data/runs"


def test_the_run_id_comes_from_the_caller_then_the_environment(recording, monkeypatch):
    """An explicit run id wins over TRACKWAY_RUN_ID."""
    monkeypatch.setenv("TRACKWAY_RUN_ID", "from-environment")
    configs = recording(), recording()
    configs[0].build()
    configs[1].build("given")
    assert [config.started[0] for config in configs] == ["from-environment", "given"]


def test_a_wrong_run_id_in_the_environment_names_the_variable(recording, monkeypatch):
    """The error says where the bad name stands."""
    monkeypatch.setenv("TRACKWAY_RUN_ID", "../elsewhere")
    with pytest.raises(ConfigError, match=r"TRACKWAY_RUN_ID: run_id '\.\./elsewhere' holds '/'"):
        recording().build()


def test_without_a_run_id_all_members_share_a_new_one(recording):
    """A made-up id is readable, the same for all trackers of a run, and another for the next."""
    first, second = recording(), recording()
    Trackers([first, second]).build()
    assert first.started[0] == second.started[0]
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", first.started[0])
    third = recording()
    Trackers([third]).build()
    assert third.started[0] != first.started[0]


def test_a_rank_that_makes_up_its_own_id_says_so(recording, monkeypatch, caplog):
    """Ranks that cannot know each other's id are told to share one."""
    monkeypatch.setenv("RANK", "1")
    recording(ranks="all").build()
    assert "TRACKWAY_RUN_ID" in caplog.text


def test_the_context_is_readable_inside_init_only(recording, monkeypatch, tmp_path):
    """A backend sees run id, directory, rank and whether the run is resumed; outside there is no context."""
    monkeypatch.setenv("TRACKWAY_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "2")
    config = recording(ranks="all")
    config.build("my-run")
    assert config.started[1] == RunContext("my-run", str(tmp_path / "my-run"), rank=2, primary=False)
    assert run_context() is None


def test_the_directory_is_made_absolute(recording, monkeypatch, tmp_path):
    """A change of the working directory later on does not move the run; an object store's URL stays one."""
    monkeypatch.chdir(tmp_path)
    assert _context.fresh_context("r").directory == str(tmp_path / "runs" / "r")
    monkeypatch.setenv("TRACKWAY_DIR", "s3://bucket/runs/")
    assert _context.fresh_context("r").directory == "s3://bucket/runs/r"


def test_a_context_set_around_build_is_kept(recording):
    """Whoever knows more about the run, such as that it is resumed, sets the context for all trackers."""
    context = RunContext("resumed-run", "/data/resumed-run", resumed=True, next_step=100, attempt=2)
    config = recording()
    with _context.entered(context):
        Trackers([config]).build()
    assert config.started == ("resumed-run", context)


def test_noop_is_a_tracker_of_its_name():
    """`type: noop` builds a NoopTracker that can be used, finished twice and built again."""
    config = NoopConfig()
    for _ in range(2):
        tracker = config.build("run")
        assert type(tracker) is NoopTracker
        assert tracker.name == "noop"
        with tracker:
            tracker.log({"loss": object()}, step=0)
        tracker.finish()
    assert isinstance(config.init(None), NoopTracker)


def test_a_label_for_a_tracker_whose_name_is_read_only_says_so(registry):
    """A plugin whose tracker computes its name cannot take a label; the error says what to do."""

    class Computed(type(RecordingTracker()).__mro__[1]):
        name = property(lambda self: "computed")

        def log(self, metrics, *, step, commit=None): ...
        def log_hyperparameters(self, hparams): ...
        def log_summary(self, metrics): ...
        def log_artifact(self, artifact_path, *, name=None, type=None): ...
        def finish(self): ...

    @TrackerConfig.register_subclass("computed")
    @dataclass
    class ComputedConfig(TrackerConfig):
        def init(self, run_id):
            return Computed()

    assert ComputedConfig().build("run").name == "computed"
    with pytest.raises(ConfigError, match=r"label='mine' cannot be given to .*Computed"):
        ComputedConfig(label="mine").build("run")
