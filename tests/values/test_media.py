"""Pictures, sound, tables and texts."""

from __future__ import annotations

import io
import wave

import jax
import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest

from trackway.errors import TracerError, TrackwayWarning
from trackway.values import Audio, Html, Image, Table, Text, decode

RNG = np.random.default_rng(0)


def png_pixels(image):
    """Decode a picture's PNG file with another library."""
    return np.asarray(PIL.Image.open(io.BytesIO(image.to_png())))


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4), (1, 1)])
def test_png_holds_the_pixels(shape):
    """A picture of each allowed shape comes back from its file pixel by pixel."""
    data = RNG.integers(0, 256, shape).astype(np.uint8)
    image = Image(data, caption="c")
    expected = data[:, :, 0] if shape[2:] == (1,) else data
    np.testing.assert_array_equal(png_pixels(image), expected)
    assert (image.height, image.width, image.caption) == (shape[0], shape[1], "c")


@pytest.mark.parametrize("make", [np.float32, np.float16, np.float64, jnp.bfloat16])
def test_floats_are_scaled(make):
    """Floats from 0 to 1 of any width fill the range of a byte."""
    image = Image(np.array([[0.0, 0.5, 1.0]]).astype(make))
    assert image.pixels.tolist() == [[0, 128, 255]]
    assert image.clipped == 0


def test_array_of_a_device_and_of_truth_values_is_a_picture():
    """A JAX array and a mask are accepted."""
    assert Image(jnp.ones((2, 2))).pixels.tolist() == [[255, 255], [255, 255]]
    assert Image([[True, False]]).pixels.tolist() == [[255, 0]]


def test_floats_out_of_range_are_clipped_counted_and_told():
    """Values outside of the range, and NaN, cost a warning and not the picture."""
    with pytest.warns(TrackwayWarning, match=r"4 of 5 values are outside of \[0, 1\]"):
        image = Image(np.array([[-1.0, 2.0, np.nan, np.inf, 1.0]]))
    assert image.pixels.tolist() == [[0, 255, 0, 255, 255]]
    assert image.clipped == 4


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 5, 7, 3), (5,), (0, 5), (5, 7, 2), ()])
def test_picture_of_another_shape_is_an_error_that_lists_the_shapes(shape):
    """A shape that is none of a picture is refused with those that are."""
    with pytest.raises(ValueError, match=r"\[H, W\], \[H, W, 1\], \[H, W, 3\] or \[H, W, 4\]"):
        Image(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("data", [np.zeros((2, 2), np.int64), np.zeros((2, 2), "U1"), "a.png", None, object()])
def test_picture_of_another_type_is_an_error(data):
    """Integers whose range is unknown, and what is no array, are refused."""
    with pytest.raises(ValueError, match="Image: "):
        Image(data)


def test_traced_picture_is_an_error():
    """A picture needs its pixels: a traced value says so."""
    with pytest.raises(TracerError, match="Image"):
        jax.jit(lambda x: (Image(x), x)[1])(jnp.ones((2, 2)))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("RGBA", 4), ("1", 1), ("P", 4), ("CMYK", 3)])
def test_pil_image_of_each_mode_is_a_picture(mode, channels):
    """A PIL image is converted to the nearest kind that a PNG has."""
    assert Image(PIL.Image.new(mode, (4, 3))).channels == channels


@pytest.mark.parametrize("mode", ["I", "I;16"])
def test_pil_image_of_unknown_range_is_refused(mode):
    """Integers wider than a byte are not cut to one in silence; the message says how to scale them."""
    with pytest.raises(ValueError, match=f"mode '{mode}' is unknown; scale it"):
        Image(PIL.Image.new(mode, (4, 3), 300))


def test_pil_image_of_floats_is_treated_as_floats():
    """Mode F follows the rule for float arrays: 0 to 1, and clipping is counted and told."""
    image = Image(PIL.Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)))
    assert (image.pixels.tolist(), image.clipped) == ([[0, 128, 255]], 0)
    with pytest.warns(TrackwayWarning, match="1 of 2"):
        assert Image(PIL.Image.fromarray(np.array([[0.0, 300.0]], np.float32))).clipped == 1


class Nameless:
    """Has no text."""

    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(("caption", "text"), [(None, None), (5, "5"), ("a", "a"), (np.str_("b"), "b"), (1.5, "1.5")])
def test_caption_is_a_text(caption, text):
    """Whatever is given as a caption is kept as its text, which every backend can write."""
    for media in (Image(np.zeros((2, 2)), caption), Audio(np.zeros(2), 8, caption)):
        assert media.caption == text
        assert type(media.caption) is type(text)
    assert "Nameless" in Image(np.zeros((2, 2)), Nameless()).caption


@pytest.mark.parametrize(("rate", "channels"), [(2**31, 1), (2**30, 2), (10**10, 1), (-1, 1), ("8000", 1), (None, 1)])
def test_rate_that_no_file_can_hold_is_refused(rate, channels):
    """A sample rate beyond the format's header is an error where the sound is made, not where it is written."""
    with pytest.raises(ValueError, match="sample_rate must be a whole number"):
        Audio(np.zeros((4, channels)), rate)
    assert Audio(np.zeros(4), 2**31 - 1).to_wav()


def test_picture_and_sound_own_their_data():
    """A buffer that is used again does not change what was logged, nor can the data be changed."""
    pixels, samples = np.zeros((2, 2), np.uint8), np.zeros(4, np.int16)
    image, audio = Image(pixels), Audio(samples, 8)
    pixels[:], samples[:] = 9, 9
    assert not image.pixels.any()
    assert not audio.samples.any()
    with pytest.raises(ValueError, match="read-only"):
        image.pixels[0, 0] = 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (np.array([0.0, 1.0, -1.0]), [0, 32767, -32767]),
        (np.array([0, 32767, -32768], np.int16), [0, 32767, -32768]),
        (np.array([0, 2**31 - 1, -(2**31)], np.int32), [0, 32767, -32768]),
        (np.array([128, 255, 0], np.uint8), [0, 127 << 8, -32768]),
        (np.array([[0.0, 1.0], [-1.0, 0.0]]), [0, 32767, -32767, 0]),
    ],
)
def test_wav_holds_the_samples(data, expected):
    """A sound of each allowed type comes back from its file sample by sample."""
    audio = Audio(data, sample_rate=np.int64(8000))
    with wave.open(io.BytesIO(audio.to_wav())) as file:
        assert (file.getframerate(), file.getsampwidth()) == (8000, 2)
        assert file.getnchannels() == (data.shape[1] if data.ndim == 2 else 1)
        assert np.frombuffer(file.readframes(100), "<i2").tolist() == expected


def test_loud_sound_is_clipped_and_told():
    """Samples beyond full scale cost a warning."""
    with pytest.warns(TrackwayWarning, match="Audio: 2 of 3"):
        audio = Audio(np.array([2.0, np.nan, 0.0]), 8)
    assert audio.samples[:, 0].tolist() == [32767, 0, 0]


@pytest.mark.parametrize(
    ("data", "rate"),
    [
        (np.zeros((2, 16000)), 8),
        (np.zeros((1, 2, 3)), 8),
        (np.zeros(3, np.int64), 8),
        (np.zeros(3), 0),
        (np.zeros(3), 44.1),
        (np.zeros(3), True),
    ],
)
def test_sound_of_another_shape_type_or_rate_is_an_error(data, rate):
    """What is no sound is refused, and the message says what is."""
    with pytest.raises(ValueError, match=r"Audio: .* must be"):
        Audio(data, rate)


def test_table_keeps_plain_values():
    """Cells are made plain as in a row and come back from the table's file."""
    table = Table(["a", 2], [[np.float32(0.5), jnp.int32(3)], [float("inf"), "x"]])
    assert table.columns == ("a", "2")
    assert decode(table.to_json()) == {"columns": ["a", "2"], "data": [[0.5, 3], [float("inf"), "x"]]}


def test_cell_without_a_form_is_told():
    """A cell that had to become text gives a warning that names the column."""
    with pytest.warns(TrackwayWarning, match="column 'odd'"):
        table = Table(["odd"], [[object()]])
    assert table.data[0][0].startswith("<object")


@pytest.mark.parametrize("data", [[[1]], [[1, 2, 3]], ["ab"]])
def test_row_of_another_length_is_an_error(data):
    """Each row has one value for each column."""
    with pytest.raises(ValueError, match="row 0 must have 2 values"):
        Table(["a", "b"], data)


def test_columns_that_are_one_text_are_an_error():
    """A single text is not taken for a list of letters."""
    with pytest.raises(ValueError, match="sequence of names"):
        Table("ab", [[1, 2]])


def test_markdown_table_keeps_its_shape():
    """Bars and line breaks in cells do not break the table."""
    text = Table(["a|b", "c"], [["x\ny", None], [1.5, [1, 2]]]).to_markdown()
    assert text.splitlines() == ["| a\\|b | c |", "| --- | --- |", "| x<br>y | null |", "| 1.5 | [1,2] |"]


def test_data_frames_are_known_by_their_methods():
    """The frames of three libraries are accepted without importing any."""

    class Pandas:
        columns = ("a", "b")

        def itertuples(self, *, index, name):
            assert (index, name) == (False, None)
            return iter([(1, 2.0)])

    class Polars:
        columns = ("a", "b")

        def rows(self):
            return [(1, 2.0)]

    class Arrow:
        column_names = ("a", "b")

        def to_pylist(self):
            return [{"b": 2.0, "a": 1}]

    for frame in (Pandas(), Polars(), Arrow()):
        assert Table.from_dataframe(frame).data == ((1, 2.0),)
    with pytest.raises(ValueError, match="pandas, polars or Arrow"):
        Table.from_dataframe([1])


@pytest.mark.parametrize("kind", [Text, Html])
def test_texts_take_text_only(kind):
    """A value that is no text is refused with the cure."""
    assert "3 characters" in repr(kind("abc"))
    with pytest.raises(ValueError, match=r"use str\(value\)"):
        kind(3)
