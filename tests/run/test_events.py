"""Events of a run: the run directory, standard output, hooks and every tracker get each of them."""

from __future__ import annotations

import json
import threading

import pytest

import trackway
from trackway.errors import ConfigError, LifecycleError, StepError
from trackway.events import EventLogger, EventsConfig
from trackway.run import Run
from trackway.store import LocalTracker
from trackway.testing import FailingTracker, RecordingTracker


def lines(path):
    """The records of a file of lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_reaches_the_directory_the_terminal_hooks_and_trackers(run, recorder, tmp_path, capsys):
    """Each gets the same event, with its step."""
    seen = []
    run.hooks.append(lambda event, payload: seen.append((event, payload)))
    trackway.log_event("checkpoint", {"path": "model.pt"}, step=50)
    assert seen == [("checkpoint", {"step": 50, "path": "model.pt"})]
    assert recorder.events == [("checkpoint", {"path": "model.pt"}, 50)]
    assert capsys.readouterr().out == "checkpoint step=50 path=model.pt\n"
    (line,) = lines(tmp_path / "run" / "events.jsonl")
    assert list(line) == ["event", "_step", "_time", "path"]
    assert (line["event"], line["_step"], line["path"]) == ("checkpoint", 50, "model.pt")


def test_a_payload_is_optional_and_an_event_makes_no_row(run, tmp_path):
    """Rows are made by metrics alone."""
    trackway.log_event("evaluation")
    assert run.history() == []
    assert lines(tmp_path / "run" / "events.jsonl")[0]["event"] == "evaluation"


def test_an_event_without_a_step_has_that_of_the_open_row_or_the_last(run, recorder):
    """Before the first row it has none."""
    run.log_event("early", {})
    run.log({"x": 1}, step=5)
    run.log_event("within", {})
    run.flush(commit_open=True)
    run.log_event("after", {})
    assert [(name, step) for name, _, step in recorder.events] == [("early", None), ("within", 5), ("after", 5)]


def test_at_step_gives_an_event_its_step(run, recorder):
    """As it does to metrics."""
    with trackway.at_step(7):
        trackway.log_event("checkpoint", {})
    assert recorder.events[-1][2] == 7


def test_the_cadence_filters_train_step_alone(tmp_path):
    """Everywhere: directory, hooks and trackers."""
    recorder, seen = RecordingTracker(), []
    events = EventsConfig(every_steps=10, console=False, hooks=(lambda event, _: seen.append(event),))
    with Run([recorder], LocalTracker(tmp_path / "run"), events=events) as run:
        for step in range(1, 21):
            run.log_event("train_step", {"loss": 1.0}, step=step)
        run.log_event("checkpoint", {}, step=3)
    assert [step for _, _, step in recorder.events] == [10, 20, 3]
    assert seen == ["train_step", "train_step", "checkpoint"]
    assert [line["_step"] for line in lines(tmp_path / "run" / "events.jsonl")] == [10, 20, 3]


def test_events_wait_behind_rows_whose_values_are_on_a_device(run, recorder, tmp_path):
    """They keep their place among the rows."""
    jnp = pytest.importorskip("jax.numpy")
    run.log({"loss": jnp.float32(1.0)}, step=0)
    run.log_event("checkpoint", {"loss": jnp.float32(2.0)}, step=0)
    run.flush()
    assert recorder.events == [("checkpoint", {"loss": 2.0}, 0)]


def test_a_wrong_step_is_an_error_before_the_payload_is_read(run):
    """As for metrics."""
    with pytest.raises(StepError):
        run.log_event("checkpoint", iter(()), step=1.5)


def test_a_hook_and_a_tracker_that_fail_keep_nobody_from_the_event(tmp_path, recorder):
    """Failures are counted for each."""

    def broken(event, payload):
        raise ValueError("broken")

    with Run([FailingTracker(), recorder], LocalTracker(tmp_path / "run"), events=EventsConfig(console=False)) as run:
        run.hooks.append(broken)
        run.log_event("checkpoint", {}, step=1)
        report = run.report()
    assert recorder.events == [("checkpoint", {}, 1)]
    assert len(lines(tmp_path / "run" / "events.jsonl")) == 1
    assert sum(report.events.failed.values()) == 1
    assert "failed" in str(report)


def test_the_run_closes_its_logger(tmp_path):
    """And the hooks that can be closed, at its end."""

    class Hook:
        closed = 0

        def on_event(self, event, payload):
            pass

        def close(self):
            self.closed += 1

    hook = Hook()
    with Run(events=EventLogger(console=False, json_file=tmp_path / "events.jsonl", hooks=[hook])) as run:
        run.log_event("checkpoint", {"path": "a"}, step=1)
        assert hook.closed == 0
    assert hook.closed == 1
    assert lines(tmp_path / "events.jsonl")[0]["path"] == "a"


def test_start_takes_events_and_hooks(tmp_path):
    """A mapping of the fields of `EventsConfig` will do, and hooks come beside those in it."""
    first, second = [], []
    events = {"console": False, "hooks": [lambda event, _: first.append(event)]}
    with trackway.start(dir=tmp_path, events=events, hooks=[lambda event, _: second.append(event)]):
        trackway.log_event("checkpoint", {})
    assert first == second == ["checkpoint"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"events": {"every_step": 10}}, "did you mean every_steps"),
        ({"events": 3}, "events must be"),
        ({"events": {"every_steps": 0}}, "every_steps"),
        ({"hooks": {"a": "b"}}, "hooks must be a list"),
        ({"hooks": [3]}, "hook"),
    ],
)
def test_wrong_events_are_refused_and_leave_nothing_behind(tmp_path, options, told):
    """The error names the field."""
    with pytest.raises(ConfigError, match=told):
        trackway.start(dir=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_without_a_tracker_an_event_warns_once():
    """Instrumented code runs in a unit test."""
    with pytest.warns(UserWarning, match="no tracker is set"):
        trackway.log_event("checkpoint", {})


def test_the_name_of_an_event_is_a_text(run):
    """A mapping in its place is a mistake."""
    with pytest.raises(TypeError, match="name of an event"):
        trackway.log_event({"path": "a"})


def test_the_directory_has_an_event_before_hooks_are_called(run, tmp_path):
    """A hook that never comes back, or is interrupted, costs no event."""
    seen = []
    run.hooks.append(lambda *_: seen.append(lines(tmp_path / "run" / "events.jsonl")[-1]["event"]))
    run.log_event("checkpoint", {})
    assert seen == ["checkpoint"]


def test_a_hook_may_not_finish_the_run(run):
    """It would wait for itself."""
    errors = []

    def finish(*_):
        try:
            run.finish()
        except LifecycleError as error:
            errors.append(error)

    run.hooks.append(finish)
    run.log_event("checkpoint", {})
    assert len(errors) == 1


def test_serial_hooks_that_log_wait_for_nobody_who_waits_for_them(tmp_path):
    """Neither for a thread that hands on a row, in the midst of which an event comes up, nor the other way round."""
    in_hook, in_callback = threading.Event(), threading.Event()
    waits = iter((in_callback,))

    def hook(event, _):
        if event == "first":
            in_hook.set()
            next(waits).wait(20)
            run.log({"from": "hook"}, step=2, commit=True)

    def callback(row):
        if row["_step"] == 1:
            in_callback.set()
            run.log_event("second", {})

    events = EventsConfig(console=False, hooks=(hook,), hooks_serial=True)
    with Run([recorder := RecordingTracker()], events=events) as run:
        run.on_commit(callback)
        thread = threading.Thread(target=lambda: run.log_event("first", {}), daemon=True)
        thread.start()
        assert in_hook.wait(20)
        row = threading.Thread(target=lambda: run.log({"x": 1}, step=1, commit=True), daemon=True)
        row.start()
        for one in (thread, row):
            one.join(20)
            assert not one.is_alive()
        assert [step for step, _ in recorder.rows] == [1, 2]


def test_other_processes_of_a_job_print_no_events_and_alert_nobody(tmp_path, monkeypatch, capsys):
    """One does; hooks are called in each."""
    monkeypatch.setenv("RANK", "1")
    seen, told = [], []
    options = {
        "hooks": [lambda event, _: seen.append(event)],
        "alerts": {"rules": ["x > 0"], "channels": [told.append]},
    }
    with trackway.start(dir=tmp_path, run_id="job", **options):
        trackway.log_event("checkpoint", {})
        trackway.log({"x": 1}, step=0, commit=True)
    assert (seen, told, capsys.readouterr().out) == (["checkpoint"], [], "")


def test_disabled_tells_nobody(tmp_path, monkeypatch, capsys):
    """No file is made, nothing printed, nobody alerted."""
    monkeypatch.setenv("TRACKWAY_MODE", "disabled")
    told = []
    events = {"json_file": str(tmp_path / "events.jsonl")}
    with trackway.start(dir=tmp_path, events=events, alerts={"rules": ["x > 0"], "channels": [told.append]}):
        trackway.log_event("checkpoint", {})
        trackway.log({"x": 1}, step=0, commit=True)
    assert (told, capsys.readouterr().out, list(tmp_path.iterdir())) == ([], "", [])


@pytest.mark.parametrize(
    "options",
    [{"hooks": ["no_such_module:hook"]}, {"alerts": {"rules": ["x > 0"], "channels": [{"apprise": "UNSET"}]}}],
)
def test_a_start_that_fails_leaves_an_earlier_run_as_it_was(tmp_path, options):
    """What can be found out before is."""
    with trackway.start(dir=tmp_path, run_id="a", events={"console": False}):
        trackway.log({"x": 1}, step=0)
    before = (tmp_path / "a" / "run.json").read_bytes()
    with pytest.raises(ConfigError):
        trackway.start(dir=tmp_path, run_id="a", **options)
    assert (tmp_path / "a" / "run.json").read_bytes() == before
