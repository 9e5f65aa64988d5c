"""What a tracker gets to see."""

from __future__ import annotations

import numpy as np
import pytest

from trackway.errors import ConfigError, TrackwayWarning
from trackway.testing import RecordingTracker
from trackway.tracker import CompositeTracker, FilteredTracker, FilterPolicy
from trackway.values import Image


def filtered(**policy):
    """A recording tracker behind a filter, and the recording itself."""
    inner = RecordingTracker()
    return FilteredTracker(inner, FilterPolicy(**policy)), inner


def test_every_steps_passes_multiples():
    """Rows pass whose step is a multiple; rows without a step are counted on."""
    tracker, inner = filtered(every_steps=10)
    for step in range(25):
        tracker.log({"a": step}, step=step)
    for _ in range(10):
        tracker.log({"b": 1})
    assert [row for _, row in inner.rows] == [{"a": 0}, {"a": 10}, {"a": 20}, {"b": 1}]


def test_every_steps_lets_everything_else_pass():
    """Summary, hyper-parameters, events and rows with media are not thinned out."""
    tracker, inner = filtered(every_steps=10)
    tracker.log({"image": Image(np.zeros((2, 2), np.uint8))}, step=3)
    tracker.log_summary({"best": 1})
    tracker.log_hyperparameters({"lr": 1})
    tracker.log_event("checkpoint", {"path": "a"}, step=7)
    assert len(inner.rows) == 1
    assert (inner.summary, inner.hparams, len(inner.events)) == ({"best": 1}, {"lr": 1}, 1)


def test_include_and_exclude_are_globs_on_flat_names():
    """Names are those joined by a slash; exclude wins; a row of which nothing is left is not delivered."""
    tracker, inner = filtered(include=["train/*", "lr"], exclude=["*/debug"])
    tracker.log({"train": {"loss": 1, "debug": 2}, "lr": 3, "other": 4}, step=0)
    tracker.log({"other": 4}, step=1)
    assert inner.rows == [(0, {"train/loss": 1, "lr": 3})]


def test_prefix_and_rename():
    """A metric is renamed first and prefixed then."""
    tracker, inner = filtered(prefix="run1/", rename={"train/loss": "loss"})
    tracker.log({"train": {"loss": 1}, "lr": 2}, step=0)
    tracker.log_summary({"lr": 3})
    assert inner.rows == [(0, {"run1/loss": 1, "run1/lr": 2})]
    assert inner.summary == {"run1/lr": 3}


def test_an_empty_row_passes():
    """A row that was empty to begin with is not held back by a filter on names."""
    tracker, inner = filtered(exclude=["x"])
    tracker.log({}, step=0)
    assert inner.rows == [(0, {})]


@pytest.mark.parametrize("every_steps", [0, -1, True, 2.5])
def test_a_cadence_below_one_is_refused(every_steps):
    """`every_steps` is at least 1."""
    with pytest.raises(ConfigError, match="every_steps"):
        FilterPolicy(every_steps=every_steps)


def test_a_policy_knows_when_it_changes_nothing():
    """The default policy passes all."""
    assert FilterPolicy().passes_all
    assert not FilterPolicy(prefix="x").passes_all


def test_rows_without_a_step_keep_the_numbers_of_their_neighbours():
    """A filtered tracker gets rows at the steps at which an unfiltered one has them."""
    filtered_one, inner = filtered(every_steps=5)
    neighbour = RecordingTracker()
    composite = CompositeTracker([filtered_one, neighbour])
    for i in range(12):
        composite.log({"i": i})
    assert inner.rows == [row for row in neighbour.rows if row[0] % 5 == 0]


def test_names_that_become_one_are_said_and_counted():
    """Two metrics renamed to one name: the last is kept, with a warning, and the tracker counts it."""
    tracker, inner = filtered(rename={"a": "b"})
    with pytest.warns(TrackwayWarning, match="'b' is given twice"):
        tracker.log({"a": 1, "b": 2}, step=0)
    assert inner.rows == [(0, {"b": 2})]
    assert inner.report().dropped == {"is given twice after renaming; the last one is kept": 1}


def test_a_text_is_no_list_of_globs():
    """`include: loss` is a mistake that is told."""
    with pytest.raises(ConfigError, match="include must be a list of globs"):
        FilterPolicy(include="loss")
