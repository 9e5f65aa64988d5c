"""A run delivered to TensorBoard, read back by TensorBoard's own reader."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trackway.replay import replay
from trackway.store import read_history, read_rows

KINDS = ("scalars", "tensors", "images", "histograms", "audio")


def read(folder):
    """Return TensorBoard's reader of what is in *folder*."""
    return EventAccumulator(str(folder), size_guidance=dict.fromkeys(KINDS, 0)).Reload()


def scalars(folder, tag):
    """Steps and values of a tag."""
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


@pytest.fixture
def to(tmp_path):
    """Return the target."""
    return {"type": "tensorboard", "logdir": str(tmp_path / "tb")}


def test_tensorboard_shows_what_the_history_says(digits, to, tmp_path):
    """Scalars are those of the run, and those that the second attempt superseded are hidden."""
    report = replay(digits, to=to)
    history = read_history(digits)
    assert report.rows == len(read_rows(digits)) == 14
    assert scalars(tmp_path / "tb/digits", "loss") == [
        (row["_step"], pytest.approx(row["loss"], rel=1e-7)) for row in history
    ]
    assert [step for step, _ in scalars(tmp_path / "tb/digits", "train/acc")] == [0, 1, 2, 3, 4, 5]
    assert scalars(tmp_path / "tb/digits", "summary/best") == [(9, 0.25)]


def test_media_and_hyper_parameters_arrive(digits, to, tmp_path):
    """Images, sounds, histograms, texts, hyper-parameters and artifacts are there as when they are logged live."""
    lines = (digits / "metrics.jsonl").read_text().splitlines(keepends=True)
    (digits / "metrics.jsonl").write_text("".join(line for line in lines if "_attempt" not in line))
    replay(digits, to=to)
    found = read(tmp_path / "tb/digits").Tags()
    assert (found["images"], found["audio"], found["histograms"]) == (["image"], ["sound"], ["weights"])
    assert {"note/text_summary", "page/text_summary", "table/text_summary"} <= set(found["tensors"])
    (config,) = read(tmp_path / "tb/digits").Tensors("config/text_summary")
    assert "width" in config.tensor_proto.string_val[0].decode()
    assert (tmp_path / "tb/digits/artifacts/folder/inner/file.txt").read_text() == "text"


def test_a_second_time_adds_nothing(digits, to, tmp_path):
    """No file is made or written."""
    replay(digits, to=to)
    before = {path: path.stat().st_size for path in (tmp_path / "tb").rglob("*")}
    report = replay(digits, to=to)
    assert (report.rows, report.skipped) == (0, 14)
    assert {path: path.stat().st_size for path in (tmp_path / "tb").rglob("*")} == before


def test_what_came_later_is_added(long, to, tmp_path):
    """A run that has gone on since gets the new rows to the target, each once."""
    folder = long(5)
    replay(folder, to=to)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"_step": 5, "_time": 1700000005.0, "loss": 0.5}\n')
    assert replay(folder, to=to).rows == 1
    assert [step for step, _ in scalars(tmp_path / "tb/long", "loss")] == [0, 1, 2, 3, 4, 5]


def test_options_of_the_target_are_heeded(long, to, tmp_path):
    """Every tenth row of the metrics that are included, under the name that was chosen, and the rest is skipped."""
    folder = long(100)
    report = replay(folder, to={**to, "every_steps": 10, "include": ["n"], "rename": {"n": "number"}, "prefix": "p/"})
    assert (report.rows, report.skipped) == (10, 90)
    assert scalars(tmp_path / "tb/long", "p/number") == [(step, float(step)) for step in range(0, 100, 10)]
    assert read(tmp_path / "tb/long").Tags()["scalars"] == ["p/number"]
