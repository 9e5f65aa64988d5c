"""The summary: the last value of every metric, and values set by hand, which win."""

from __future__ import annotations

import math
import threading

import jax.numpy as jnp
import numpy as np
import orjson
import pytest

import trackway
from trackway.errors import TrackwayWarning
from trackway.run import Run
from trackway.store import LocalTracker
from trackway.testing import RecordingTracker
from trackway.values import decode


@pytest.fixture(params=["directory", "no directory", "rank 1"])
def any_run(request, tmp_path, recorder):
    """A run whose summary the store keeps, and ones that keep it themselves."""
    rank = {"directory": 0, "rank 1": 1}.get(request.param)
    with Run([recorder], None if rank is None else LocalTracker(tmp_path / "run", rank=rank)) as run:
        yield run


def on_disk(run):
    """Return the content of `summary.json`."""
    return decode((run.store.directory / "summary.json").read_bytes())


def test_every_metrics_last_value_is_tracked(any_run):
    """Of each name the value that was committed last, whichever row had it."""
    for step in range(3):
        any_run.log({"loss": 1.0 / (step + 1), f"only/{step}": step}, step=step)
    any_run.log({"loss": 9.0}, step=3)  # not committed
    assert dict(any_run.summary) == {"loss": 1 / 3, "only/0": 0, "only/1": 1, "only/2": 2}


def test_explicit_assignments_win_and_are_never_overwritten(any_run, recorder):
    """By later rows of the name, nor by earlier ones; other names go on as before."""
    any_run.log({"acc": 0.91, "best": 0.5})
    any_run.summary["best_acc"] = 0.93
    any_run.summary["best"] = 0.94
    any_run.log({"acc": 0.92, "best": 0.1, "best_acc": 0.1})
    assert dict(any_run.summary) == {"acc": 0.92, "best": 0.94, "best_acc": 0.93}
    assert recorder.summary == {"best_acc": 0.93, "best": 0.94}


def test_the_four_ways_to_set_a_value(any_run, recorder):
    """An item, `update`, the method and the verb do the same; the last of them wins."""
    any_run.summary["a"] = 1
    any_run.summary.update({"a": 2, "b": 2}, c=2)
    any_run.log_summary({"b": 3, "c": 3})
    trackway.log_summary({"c": 4})
    any_run.summary.update()
    assert dict(any_run.summary) == recorder.summary == {"a": 2, "b": 3, "c": 4}


def test_nested_values_are_merged(any_run):
    """Name by name at every depth, and explicit ones win at theirs only."""
    any_run.log({"eval": {"acc": 0.5, "by": {"a": 1}}})
    any_run.summary["eval"] = {"best": 0.9, "by": {"a": 99}}
    any_run.log({"eval": {"acc": 0.6, "by": {"a": 2, "b": 3}}})
    assert dict(any_run.summary) == {"eval": {"acc": 0.6, "best": 0.9, "by": {"a": 99, "b": 3}}}


def test_it_is_a_mapping_that_shows_the_run_as_it_is(any_run):
    """One object serves for the whole run."""
    summary = any_run.summary
    assert (len(summary), list(summary), summary.get("x"), "x" in summary) == (0, [], None, False)
    with pytest.raises(KeyError):
        summary["x"]
    any_run.log({"x": 1})
    assert (len(summary), list(summary), summary["x"], "x" in summary) == (1, ["x"], 1, True)
    assert repr(summary) == "SummaryView({'x': 1})"


def test_changing_what_it_returned_changes_nothing(any_run):
    """Trees and lists of an answer are the caller's own."""
    values = {"tree": {"a": {"b": 1}}, "list": [1, [2]]}
    any_run.log(values)
    any_run.summary["set"] = values
    for answer in (any_run.summary, any_run.summary["set"]):
        answer["tree"]["a"]["b"] = 99
        answer["list"].append(99)
        answer["list"][1].append(99)
    assert dict(any_run.summary) == {**values, "set": values}


def test_setting_a_value_keeps_nothing_of_the_callers(any_run):
    """Changing the object afterwards changes no summary."""
    value = {"list": [1]}
    any_run.summary["set"] = value
    value["list"].append(2)
    assert any_run.summary["set"] == {"list": [1]}


def test_values_are_normalised(any_run, recorder):
    """Arrays of any library become numbers, NaN stays; names with an underscore are allowed here."""
    any_run.summary.update(
        {"numpy": np.float32(0.5), "jax": jnp.float32(2), "array": np.arange(2), "nan": math.nan, "_own": 1}
    )
    any_run.flush()
    values = dict(any_run.summary)
    assert math.isnan(values.pop("nan"))
    assert values == {"numpy": 0.5, "jax": 2.0, "array": [0, 1], "_own": 1}
    assert recorder.summary["jax"] == 2.0


def test_a_bad_value_costs_no_neighbour(any_run):
    """It becomes text, with a warning."""
    with pytest.warns(TrackwayWarning, match="'bad'"):
        any_run.summary.update({"bad": object(), "good": 1})
    assert any_run.summary["good"] == 1
    assert isinstance(any_run.summary["bad"], str)


@pytest.mark.filterwarnings("ignore:.*came after step")
def test_a_late_row_changes_no_summary(any_run):
    """What is dropped is dropped for everyone."""
    any_run.log({"x": 1}, step=5, commit=True)
    any_run.log({"x": 2}, step=3, commit=True)
    assert dict(any_run.summary) == {"x": 1}


def test_under_allow_the_last_written_value_counts():
    """The summary follows the order of commits, not of steps."""
    with Run(step_policy="allow") as run:
        run.log({"x": 1}, step=5, commit=True)
        run.log({"x": 2}, step=3, commit=True)
        assert dict(run.summary) == {"x": 2}


def test_sums_are_in_the_summary_once_committed(any_run):
    """`add` is a value of its row like others."""
    any_run.add({"seconds": 1.0})
    any_run.add({"seconds": 0.5})
    assert dict(any_run.summary) == {}
    any_run.log({"x": 1})
    assert dict(any_run.summary) == {"seconds": 1.5, "x": 1}


def test_it_is_saved_by_finish(run):
    """`summary.json` holds what `run.summary` showed, the open row included; both can be read afterwards."""
    run.log({"x": 1, "tree": {"a": [1]}}, step=0)
    run.summary["best"] = math.inf
    run.log({"y": 2}, step=1)
    run.finish()
    assert on_disk(run) == dict(run.summary) == {"x": 1, "tree": {"a": [1]}, "y": 2, "best": math.inf}


def test_what_is_set_by_hand_is_on_disk_at_once(run):
    """A killed process loses none of it."""
    run.log({"x": 1})
    run.summary["best"] = 0.9
    assert orjson.loads((run.store.directory / "summary.json").read_bytes()) == {"x": 1, "best": 0.9}


def test_a_resumed_run_goes_on_with_it(tmp_path):
    """Last values and those set by hand are there again, and the latter still win."""
    with Run([], LocalTracker(tmp_path)) as run:
        run.log({"x": 1, "best": 0.5})
        run.summary["best"] = 0.9
    with Run([], LocalTracker(tmp_path)) as run:
        assert dict(run.summary) == {"x": 1, "best": 0.9}
        run.log({"x": 2, "best": 0.1})
        assert dict(run.summary) == {"x": 2, "best": 0.9}


def test_after_finish_it_is_not_changed(any_run):
    """Setting a value is counted like any call after the end."""
    any_run.log({"x": 1})
    any_run.finish()
    any_run.summary["x"] = 2
    assert dict(any_run.summary) == {"x": 1}
    assert any_run.report().run.dropped == {"called after finish": 1}


def test_threads_may_set_and_read_it_while_others_log(any_run):
    """Nothing raises, nothing is lost."""
    start, failures = threading.Barrier(3), []

    def work(number):
        try:
            start.wait(20)
            for i in range(20):
                any_run.log({f"log/{number}/{i}": i})
                any_run.summary[f"set/{number}"] = i
                assert any_run.summary[f"set/{number}"] == i
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert failures == []
    assert len(any_run.summary) == 63


def test_muted_verbs_leave_it_alone(any_run):
    """`mute` is for the verbs; the run's own methods work."""
    with trackway.mute():
        trackway.log_summary({"x": 1})
        any_run.summary["y"] = 2
    assert dict(any_run.summary) == {"y": 2}


def test_each_tracker_may_change_what_it_is_given():
    """A tracker that changes its mapping changes it for nobody else."""

    class Spoiler(trackway.Tracker):
        name = "spoiler"
        log = log_hyperparameters = log_artifact = lambda self, *_, **__: None

        def log_summary(self, metrics):
            metrics["tree"]["a"] = "spoilt"

        def finish(self):
            """Do nothing."""

    recorder = RecordingTracker()
    with Run([Spoiler(), recorder]) as run:
        run.summary["tree"] = {"a": 1}
        assert dict(run.summary) == recorder.summary == {"tree": {"a": 1}}
