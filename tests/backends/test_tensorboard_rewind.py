"""TensorBoard is told of a rewind: its own reader shows one point per step."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from trackway.backends.tensorboard import TensorboardConfig
from trackway.errors import StepError
from trackway.store import LocalTracker
from trackway.tracker import CompositeTracker


@pytest.fixture
def tracker(tmp_path):
    """A bare tracker of the run `r` in tmp_path."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    yield tracker
    tracker.finish()


def reader(folder):
    """TensorBoard's reader of everything below a folder."""
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def points(folder, tag="x"):
    """Steps and values of a tag as TensorBoard shows them."""
    return [(event.step, event.value) for event in reader(folder).Scalars(tag)]


def test_points_from_the_step_on_are_hidden(tracker, tmp_path):
    """Points below the step stay, later ones give way to those that follow, and nothing is deleted."""
    for step in range(6):
        tracker.log({"x": step}, step=step)
    tracker.rewind(3)
    for step in range(3, 5):
        tracker.log({"x": 10 * step}, step=step)
    tracker.finish()
    assert points(tmp_path / "r") == [(0, 0), (1, 1), (2, 2), (3, 30), (4, 40)]
    (path,) = (tmp_path / "r").iterdir()
    written = [event.step for event in EventFileLoader(str(path)).Load() if event.HasField("summary")]
    assert written == [0, 1, 2, 3, 4, 5, 3, 4]


def test_rows_without_a_step_go_on_from_there(tracker, tmp_path):
    """The counter and the step of the summary follow the rewind."""
    for _ in range(6):
        tracker.log({"x": 1.0}, step=None)
    tracker.rewind(2)
    tracker.log_summary({"best": 2.0})
    tracker.log({"x": 3.0}, step=None)
    tracker.finish()
    assert points(tmp_path / "r") == [(0, 1), (1, 1), (2, 3)]
    assert points(tmp_path / "r", "summary/best") == [(2, 2)]


@pytest.mark.parametrize(("step", "starts"), [(0, 2), (4, 1)])
def test_hyper_parameters_outlive_it(tracker, tmp_path, step, starts):
    """The text of all of them is renewed, and their columns where the rewind reaches back to step 0, their own."""
    tracker.log_hyperparameters({"lr": 0.1})
    for number in range(6):
        tracker.log({"x": 1.0}, step=number)
    tracker.flush()
    tracker.rewind(step)
    tracker.log({"x": 1.0}, step=step)
    tracker.finish()
    text = reader(tmp_path / "r").Tensors("config/text_summary")[-1]
    assert "lr: 0.1" in text.tensor_proto.string_val[0].decode()
    (path,) = (tmp_path / "r").iterdir()
    tags = [value.tag for event in EventFileLoader(str(path)).Load() for value in event.summary.value]
    assert tags.count("_hparams_/session_start_info") == starts


@pytest.mark.parametrize("step", [None, 1.5, "3", True])
def test_what_is_no_step_is_refused(tracker, tmp_path, step):
    """A rewind takes an integer, and one that is refused hides nothing."""
    tracker.log({"x": 1.0}, step=5)
    with pytest.raises(StepError):
        tracker.rewind(step)
    tracker.finish()
    assert points(tmp_path / "r") == [(5, 1)]


def test_after_the_end_it_is_counted(tracker):
    """A rewind of a finished tracker does nothing but to be counted."""
    tracker.finish()
    tracker.rewind(3)
    assert tracker.report().dropped


@pytest.mark.parametrize("background", [False, True])
def test_it_arrives_in_order_behind_wrappers(tmp_path, background):
    """Through prefix and filters, and on a thread of its own, the rewind comes between the rows around it."""
    config = TensorboardConfig(str(tmp_path), prefix="p/", every_steps=2, background=background)
    tracker = CompositeTracker([config.build("r"), LocalTracker(tmp_path / "local")])
    for step in range(8):
        tracker.log({"x": step}, step=step)
    tracker.rewind(4)
    for step in range(4, 7):
        tracker.log({"x": 10 * step}, step=step)
    tracker.finish()
    assert points(tmp_path / "r", "p/x") == [(0, 0), (2, 2), (4, 40), (6, 60)]


def test_a_writer_that_writes_nothing_takes_it(tmp_path):
    """`write_to_disk: false` takes a rewind like every other call, and leaves no file."""
    tracker = TensorboardConfig(str(tmp_path), write_to_disk=False).init("r")
    tracker.log({"x": 1.0}, step=1)
    tracker.rewind(0)
    tracker.log({"x": 1.0}, step=None)
    tracker.finish()
    assert tracker.report().delivered == 2
    assert not list(tmp_path.rglob("*tfevents*"))
