"""Any sequence of calls, against a model of ten lines."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trackway
from trackway.errors import StepError
from trackway.run import Run
from trackway.store import LocalTracker, read_rows
from trackway.testing import RecordingTracker

NAMES = st.sampled_from(["loss", "accuracy", "lr"])
VALUES = st.dictionaries(NAMES, st.integers(0, 9), max_size=2)
STEPS = st.integers(0, 8)
CALLS = st.one_of(
    st.tuples(st.just("log"), VALUES, st.none() | STEPS, st.sampled_from([None, True, False])),
    st.tuples(st.just("at_step"), STEPS, st.lists(VALUES, max_size=3)),
    st.tuples(st.just("flush"), st.booleans()),
)


class Model:
    """What should be committed, in order: pairs of a step and values."""

    def __init__(self, policy):
        self.policy, self.rows, self.open, self.last, self.next = policy, [], None, None, 0

    def log(self, values, step, commit):
        """Take one call."""
        at = self.open[0] if self.open else self.last
        if step is not None and at is not None and step < at and not (self.open and step == at):
            if values and (step == self.last or self.policy == "allow"):
                self.rows.append((step, dict(values)))
            return
        if self.open and step is not None and step != self.open[0]:
            self.commit()
        if values and not self.open:
            self.open = (self.next if step is None else step, {})
        if self.open:
            self.open[1].update(values)
        elif step is not None:
            self.next = step
        if commit or (step is None and commit is None):
            self.commit()

    def commit(self):
        """Commit the open row."""
        if self.open:
            self.rows.append(self.open)
            self.last, self.next, self.open = self.open[0], self.open[0] + 1, None


def _perform(run, model, call):
    """Make one call on both."""
    match call:
        case ("log", values, step, commit):
            trackway.log(values, step=step, commit=commit)
            model.log(values, step, commit)
        case ("at_step", step, parts):
            with trackway.at_step(step):
                for values in parts:
                    trackway.log(values)
                    model.log(values, step, False)
            if model.open and model.open[0] == step:
                model.commit()
        case ("flush", commit_open):
            run.flush(commit_open=commit_open)
            if commit_open:
                model.commit()
    assert run.open_step() == (model.open[0] if model.open else None)


@pytest.mark.parametrize("policy", ["monotonic", "allow"])
@settings(max_examples=60, deadline=None)
@given(calls=st.lists(CALLS, max_size=25))
def test_any_sequence_of_calls_commits_the_rows_of_the_model(policy, calls):
    """Whatever is called in whatever order, the file, each tracker and each callback get the model's rows, once."""
    model, recorder, seen = Model(policy), RecordingTracker(), []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of late rows
        path = Path(folder) / "run"
        with Run([recorder], LocalTracker(path), step_policy=policy) as run:
            run.on_commit(seen.append)
            for call in calls:
                _perform(run, model, call)
        model.commit()
        stored = [(row.pop("_step"), {k: v for k, v in row.items() if k[0] != "_"}) for row in read_rows(path)]
    assert recorder.rows == model.rows
    assert stored == model.rows
    assert [row["_step"] for row in seen] == [step for step, _ in model.rows]
    assert run.report().rows == len(model.rows)
    assert dict(run.summary) == {name: value for _, values in model.rows for name, value in values.items()}


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, min_size=1, max_size=12))
def test_the_policy_error_refuses_what_monotonic_drops(steps):
    """Under "error" the rows that the other policy drops raise, and nothing of them is kept."""
    model, recorder = Model("monotonic"), RecordingTracker()
    with Run([recorder], step_policy="error") as run:
        for step in steps:
            before = len(model.rows), model.open
            model.log({"x": step}, step, None)
            if (len(model.rows), model.open) == before and model.open[0] != step:
                with pytest.raises(StepError, match=f"step {step} lies behind"):
                    run.log({"x": step}, step=step)
            else:
                run.log({"x": step}, step=step)
    model.commit()
    assert recorder.rows == model.rows
