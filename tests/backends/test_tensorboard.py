"""What is logged to TensorBoard is what its own reader finds in the event file."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import io
import json
import pathlib
import re
import types
import wave

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pydantic
import pytest
from PIL import Image as PilImage
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util

from trackway.backends.tensorboard import TensorboardConfig
from trackway.errors import StepError, TrackwayWarning
from trackway.values import Audio, Histogram, Html, Image, Table, Text


@pytest.fixture
def tracker(tmp_path):
    """A bare tracker of the run `r` in tmp_path."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    yield tracker
    tracker.finish()


def read(tracker):
    """Flush and return TensorBoard's reader of all that the tracker wrote."""
    tracker.flush()
    kinds = ("scalars", "tensors", "images", "histograms", "audio")
    reader = EventAccumulator(tracker.writer.logdir, size_guidance=dict.fromkeys(kinds, 0))
    return reader.Reload()


def scalars(reader, tag):
    """Steps and values of a tag."""
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def text(reader, name):
    """The texts logged under a name."""
    return [event.tensor_proto.string_val[0].decode() for event in reader.Tensors(f"{name}/text_summary")]


def test_scalars_keep_step_and_value(tracker):
    """Numbers come back in order, as float32, NaN and infinities included."""
    values = [0.5, 1 / 3, float("nan"), float("inf"), float("-inf"), 3, 2**24]
    for step, value in enumerate(values):
        tracker.log({"loss": value}, step=10 * step)
    steps, got = zip(*scalars(read(tracker), "loss"), strict=True)
    assert list(steps) == [0, 10, 20, 30, 40, 50, 60]
    np.testing.assert_array_equal(np.float32(values), np.float32(got))


def test_scalars_print_nothing(tracker, capfd):
    """NaN and infinities are not announced on the screen."""
    tracker.log({"a": float("nan"), "b": float("inf")}, step=0)
    read(tracker)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("value", "stored", "reason"),
    [
        (True, 1.0, "true and false"),
        (False, 0.0, "true and false"),
        (2**24 + 1, 2.0**24, "rounded"),
        (2**70, 2.0**70, ""),
        (10**5000, np.inf, "infinity"),
        (-(10**5000), -np.inf, "infinity"),
        (1e39, np.inf, "infinity"),
        (-1e300, -np.inf, "infinity"),
        (1e-60, 0.0, "becomes 0"),
        (3.4028234e38, float(np.float32(3.4028234e38)), ""),
    ],
    ids=["true", "false", "2**24+1", "2**70", "huge", "-huge", "1e39", "-1e300", "1e-60", "largest"],
)
def test_numbers_that_float32_cannot_hold_are_counted(tracker, value, stored, reason):
    """What becomes another number is counted as converted, and what does not, is not."""
    tracker.log({"x": value}, step=0)
    assert scalars(read(tracker), "x") == [(0, stored)]
    assert [r for r in tracker.report().converted if reason in r] == list(tracker.report().converted)
    assert bool(tracker.report().converted) == bool(reason)


def test_none_is_left_out_and_counted(tracker):
    """None costs no neighbour and shows up in the report."""
    tracker.log({"a": None, "b": 1.0}, step=0)
    assert read(tracker).Tags()["scalars"] == ["b"]
    assert sum(tracker.report().dropped.values()) == 1


def test_texts_lists_tables_and_html_are_texts(tracker):
    """Everything that is no number is readable in the text view, with its step."""
    payload = {"s": "héllo", "t": Text("# x"), "l": [1, 2.5, float("nan")], "m": [[1, 2], [3, 4]], "e": []}
    tracker.log({**payload, "h": Html("<b>x</b>"), "tab": Table(["a"], [[1], ["z"]])}, step=7)
    reader = read(tracker)
    assert text(reader, "s") == ["héllo"]
    assert reader.Tensors("s/text_summary")[0].step == 7
    assert text(reader, "t") == ["# x"]
    assert json.loads(text(reader, "m")[0]) == [[1, 2], [3, 4]]
    assert str(json.loads(text(reader, "l")[0])) == "[1, 2.5, nan]"
    assert text(reader, "e") == ["[]"]
    assert text(reader, "h") == ["<b>x</b>"]
    assert text(reader, "tab") == ["| a |\n| --- |\n| 1 |\n| z |"]


def test_large_and_broken_texts(tracker):
    """A text of 10 MB is kept whole and a lone surrogate becomes an escape."""
    tracker.log({"big": "x" * 10_000_000, "bad": "a\udc80b"}, step=0)
    reader = read(tracker)
    assert len(text(reader, "big")[0]) == 10_000_000
    assert text(reader, "bad") == ["a\\udc80b"]


def test_histogram_keeps_counts_and_statistics(tracker):
    """The bins, counts and sums are those of the histogram."""
    values = np.random.default_rng(0).normal(size=1000)
    histogram = Histogram.from_array(values, num_bins=7)
    tracker.log({"w": histogram}, step=3)
    event = read(tracker).Histograms("w")[0]
    assert event.step == 3
    got = event.histogram_value
    assert got.bucket == histogram.counts.tolist()
    assert got.bucket_limit == histogram.edges[1:].tolist()
    assert (got.min, got.max, got.num) == (values.min(), values.max(), 1000)
    assert got.sum == pytest.approx(values.sum())
    assert got.sum_squares == pytest.approx((values**2).sum())


def drawn(tracker, tag):
    """Buckets (left, right, count) as TensorBoard draws them."""
    (path,) = pathlib.Path(tracker.writer.logdir).glob("*tfevents*")
    values = [value for event in EventFileLoader(str(path)).Load() for value in event.summary.value]
    return [tensor_util.make_ndarray(value.tensor).tolist() for value in values if value.tag == tag]


@pytest.mark.parametrize(
    ("values", "buckets"),
    [
        ([0.5, 1.5, 2.5], [[0.5, 1, 1], [1, 2, 1], [2, 2.5, 1]]),
        ([0.5, 1.5, 100.0], [[0.5, 1, 1], [1, 2, 1]]),
        ([-100.0, 1.5, 100.0], [[1, 2, 1]]),
        ([-100.0, 2.5, 2.75], [[2, 2.75, 2]]),
        ([50.0, 100.0], []),
        ([-50.0], []),
    ],
)
def test_histograms_with_given_edges(tracker, values, buckets):
    """Values outside of the edges stretch no bucket; they are in number and sums, and counted as converted."""
    tracker.log({"w": Histogram.from_array(np.array(values), edges=[0, 1, 2, 3])}, step=0)
    got = read(tracker).Histograms("w")[0].histogram_value
    assert drawn(tracker, "w") == [buckets]
    assert (got.num, got.sum) == (len(values), sum(values))
    inside = all(0 <= value <= 3 for value in values)
    assert sum(tracker.report().converted.values()) == (0 if inside else 1)


class UnwritableError(Exception):
    """An error whose text is always another."""


def test_reasons_in_the_report_are_few(tracker, monkeypatch):
    """What differs from value to value is no part of a reason, or the report would grow for ever."""

    def fail(image):
        raise UnwritableError(f"{image.width} {id(image)}")

    monkeypatch.setattr(Image, "to_png", fail)
    for width in range(1, 50):
        tracker.log({f"im{width}": Image(np.zeros((2, width))), "ok": 1.0}, step=width)
    report = tracker.report()
    assert report.dropped == {"Image cannot be written": 49}
    assert len(scalars(read(tracker), "ok")) == 49


def test_histograms_of_nothing_and_of_non_finite_values(tracker):
    """Empty and all-NaN histograms raise nothing, and their counts are kept."""
    tracker.log({"e": Histogram.from_array(np.array([])), "ok": 1.0}, step=0)
    tracker.log({"n": Histogram.from_array(np.array([np.nan, np.nan, np.inf]))}, step=1)
    tracker.log({"m": Histogram.from_array(np.array([1.0, -np.inf]))}, step=2)
    reader = read(tracker)
    assert scalars(reader, "e/num") == [(0, 0.0)]
    assert scalars(reader, "n/nan") == [(1, 2.0)]
    assert scalars(reader, "n/posinf") == [(1, 1.0)]
    assert scalars(reader, "m/neginf") == [(2, 1.0)]
    assert reader.Tags()["histograms"] == ["m"]
    assert scalars(reader, "ok") == [(0, 1.0)]


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (5, 7, 4)])
def test_images_are_exact(tracker, shape):
    """Every pixel of a picture comes back, and the caption is a text."""
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    tracker.log({"im": Image(pixels, caption="seven")}, step=2)
    reader = read(tracker)
    event = reader.Images("im")[0]
    assert (event.step, event.height, event.width) == (2, 5, 7)
    np.testing.assert_array_equal(np.asarray(PilImage.open(io.BytesIO(event.encoded_image_string))), pixels)
    assert text(reader, "im/caption") == ["seven"]


def test_a_list_of_images_is_one_tag_each(tracker):
    """Pictures in a list are numbered."""
    tracker.log({"im": [Image(np.zeros((2, 2))), Image(np.ones((2, 2)))]}, step=0)
    assert sorted(read(tracker).Tags()["images"]) == ["im/0", "im/1"]


def test_audio_is_exact(tracker):
    """Every sample of a sound comes back, without the soundfile package."""
    samples = np.random.default_rng(0).integers(-(2**15), 2**15, (100, 2)).astype(np.int16)
    tracker.log({"snd": Audio(samples, 8000)}, step=4)
    event = read(tracker).Audio("snd")[0]
    assert (event.step, event.sample_rate, event.length_frames, event.content_type) == (4, 8000, 100, "audio/wav")
    with wave.open(io.BytesIO(event.encoded_audio_string)) as file:
        assert file.readframes(100) == samples.tobytes()


NAMES = ["with space", "a@b:c(d)%", "ünï/日本", "quote'\"", "new\nline", "/leading", "trail/", "a//b", "dot.dot", "#x"]


def test_names_stay_as_they_are(tracker):
    """Names that tensorboardX would replace characters of are kept, all of them apart."""
    tracker.log({name: float(i) for i, name in enumerate(NAMES)}, step=0)
    reader = read(tracker)
    assert {name: scalars(reader, name)[0][1] for name in NAMES} == {name: i for i, name in enumerate(NAMES)}


def test_names_that_cannot_be_kept_stay_apart(tracker):
    """Names without a UTF-8 form, and none at all, get tags of their own, and are counted."""
    names = ["\udc80", "\\udc80", "\udc81", "", "unnamed", "\0"]
    tracker.log({name: float(i) for i, name in enumerate(names)}, step=0)
    reader = read(tracker)
    tags = reader.Tags()["scalars"]
    assert len(tags) == len(names)
    assert sorted(scalars(reader, tag)[0][1] for tag in tags) == list(range(len(names)))
    assert {"\\udc80", "unnamed"} <= set(tags)
    assert sum(tracker.report().converted.values()) == 4


def test_one_name_with_several_kinds_of_values(tracker):
    """A second kind of value gets a tag of its own, since TensorBoard holds one kind under a tag."""
    tracker.log({"x": 1.0}, step=0)
    tracker.log({"x": Histogram.from_array(np.arange(5.0))}, step=1)
    tracker.log({"x": Image(np.zeros((2, 2)))}, step=2)
    tracker.log({"x": "text", "x/text_summary": 3.0}, step=3)
    reader = read(tracker)
    assert scalars(reader, "x") == [(0, 1.0)]
    assert len(reader.Histograms("x/histogram")) == 1
    assert len(reader.Images("x/image")) == 1
    assert text(reader, "x") == ["text"]
    assert scalars(reader, "x/text_summary/scalar") == [(3, 3.0)]


def test_nested_mappings_are_joined(tracker):
    """Nested names are joined with a slash, keys may come and go, and an empty mapping is no error."""
    tracker.log({"a": {"b": {"c": 1.0}}, "e": {}}, step=0)
    tracker.log({"val": {"acc": 0.5}}, step=1)
    reader = read(tracker)
    assert scalars(reader, "a/b/c") == [(0, 1.0)]
    assert scalars(reader, "val/acc") == [(1, 0.5)]


def test_steps_left_out_are_counted_on(tracker):
    """Without a step a row follows the last one."""
    for step in (None, None, 7, None):
        tracker.log({"x": 1.0}, step=step)
    assert [step for step, _ in scalars(read(tracker), "x")] == [0, 1, 7, 8]


def test_a_step_that_is_no_integer_is_refused(tracker):
    """A float step is an error that names the cure."""
    with pytest.raises(StepError, match="int"):
        tracker.log({"x": 1.0}, step=0.5)


def test_summary_is_told_apart_from_the_curve(tracker):
    """Summary values stand under `summary/` at the last step, and the curve keeps its points."""
    tracker.log({"loss": 1.0}, step=5)
    tracker.log_summary({"loss": 0.25, "note": "best", "at": {"step": 3}})
    tracker.log_summary({"loss": 0.125})
    reader = read(tracker)
    assert scalars(reader, "loss") == [(5, 1.0)]
    assert scalars(reader, "summary/loss") == [(5, 0.25), (5, 0.125)]
    assert scalars(reader, "summary/at/step") == [(5, 3.0)]
    assert text(reader, "summary/note") == ["best"]


class Colour(enum.Enum):
    """An enum to log."""

    RED = "red"


@dataclasses.dataclass
class Point:
    """A dataclass to log."""

    x: int = 1


class Model(pydantic.BaseModel):
    """A pydantic model to log."""

    y: int = 2


class Unprintable:
    """An object without a repr."""

    def __repr__(self):
        raise RuntimeError("no")


CYCLE: dict[str, object] = {"n": 1}
CYCLE["self"] = CYCLE
AWKWARD = {
    **{f"np_{t}": np.dtype(t).type(1) for t in ("int8", "uint64", "float16", "float64", "bool")},
    **{f"jax_{t}": jnp.asarray(1, t) for t in ("int8", "bfloat16", "float8_e4m3fn", "float32", "int4")},
    "ml_bfloat16": ml_dtypes.bfloat16(1),
    "int": 2**70,
    "huge": 10**5000,
    "nan": float("nan"),
    "shape1": np.ones((1,)),
    "shape11": jnp.ones((1, 1)),
    "two_d": np.ones((2, 2)),
    "surrogate": "\udc80",
    "none": None,
    "path": pathlib.Path("x"),
    "time": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "enum": Colour.RED,
    "model": Model(),
    "point": Point(),
    "nested": {"a": {"b": 1}},
    "empty": {},
    "cycle": CYCLE,
    "object": object(),
    "unprintable": Unprintable(),
    "media_in_list": [1, Image(np.zeros((2, 2)))],
}


@pytest.mark.filterwarnings("ignore::trackway.errors.TrackwayWarning")  # objects become their repr, said once
def test_every_kind_of_value_goes_in_without_loss_of_a_neighbour(tracker):
    """No value raises, each is found again or counted, and the numbers are right."""
    tracker.log(types.MappingProxyType({**AWKWARD, "last": 1.0}), step=0)
    reader = read(tracker)
    found = {re.sub("/text_summary$", "", tag) for tag in reader.Tags()["scalars"] + reader.Tags()["tensors"]}
    names = {name.split("/")[0] for name in found}
    assert set(AWKWARD) - names == {"none"}
    numbers = [n for n in AWKWARD if n.startswith(("np_", "jax_", "ml_", "shape"))]
    assert [scalars(reader, n) for n in [*numbers, "last"]] == [[(0, 1.0)]] * (len(numbers) + 1)
    assert text(reader, "enum") == ["red"]


def test_the_writer_is_a_summary_writer(tracker):
    """What only TensorBoard has is logged through `.writer`, into the same file."""
    tracker.log({"x": 1.0}, step=0)
    tracker.writer.add_scalar("own", 2.0, 5)
    tracker.writer.add_text("note", "hi", 6)
    reader = read(tracker)
    assert scalars(reader, "own") == [(5, 2.0)]
    assert text(reader, "note") == ["hi"]
    assert len(list(pathlib.Path(tracker.writer.logdir).iterdir())) == 1


def test_a_value_whose_name_another_takes_is_counted(tmp_path):
    """Of `a/b` beside `{"a": {"b": ...}}` the later is kept, and the other counted as dropped."""
    tracker = TensorboardConfig(str(tmp_path)).init("run")
    with pytest.warns(TrackwayWarning, match="given twice"):
        tracker.log({"a/b": 1.0, "a": {"b": 2.0}}, step=0)
    tracker.finish()
    assert sum(tracker.report().dropped.values()) == 1
