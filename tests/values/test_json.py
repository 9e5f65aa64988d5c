"""JSON lines: nothing lost on the way out and back."""

from __future__ import annotations

import json
import math

import numpy as np
import orjson
import pytest

from trackway.values import Audio, Histogram, Html, Image, Table, Text, decode, encode, normalise

BAD = {"loss": math.nan, "a": {"b": math.inf, "ok": 1.5}, "xs": [1.0, -math.inf, [math.nan]], "none": None}


def same(a, b):
    """Compare with NaN equal to itself and -0.0 unequal to 0.0."""
    return repr(a) == repr(b)


def test_plain_row_is_compact_utf8():
    """A row of ordinary values is one readable line."""
    assert encode({"_step": 1, "loss": 0.5, "näme": "é\n"}) == '{"_step":1,"loss":0.5,"näme":"é\\n"}'.encode()


def test_non_finite_floats_are_literals():
    """NaN and infinities are the tokens that Python and pandas read."""
    line = encode({"_step": 3, "a": math.nan, "b": [math.inf, -math.inf], "c": None})
    assert line == b'{"_step":3,"a":NaN,"b":[Infinity,-Infinity],"c":null}'
    assert same(decode(line), {"_step": 3, "a": math.nan, "b": [math.inf, -math.inf], "c": None})


def test_text_and_none_that_look_like_nan_are_left_alone():
    """A null or a text is no reason to leave the fast way, nor changed by it."""
    row = {"a": None, "b": "null", "c": "NaN", "d": {"e": None}}
    assert encode(row) == orjson.dumps(row)
    assert decode(encode(row, strict=True)) == row


def test_strict_line_is_valid_json_with_a_mirror_of_what_was_not():
    """Strict lines have null in place, and beside it what it was, in the shape of the row."""
    line = encode({"_step": 3, "_time": 1.5, **BAD}, strict=True)
    parsed = orjson.loads(line)
    assert list(parsed)[:4] == ["_step", "_time", "_nonfinite", "loss"]
    assert parsed["_nonfinite"] == {"loss": "nan", "a": {"b": "inf"}, "xs": {"1": "-inf", "2": {"0": "nan"}}}
    assert parsed["xs"] == [1.0, None, [None]]
    assert same(decode(line), {"_step": 3, "_time": 1.5, **BAD})


def test_strict_line_without_such_values_is_the_ordinary_one():
    """The marker appears only where there is something to mark."""
    assert encode({"a": 1.5}, strict=True) == b'{"a":1.5}'


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 2**70, 10**5000, -(10**5000) + 7], ids="abcde")
def test_integers_beyond_64_bits_keep_all_digits(value):
    """Long integers are written and read exactly, and the line says that it holds one."""
    line = encode({"_step": 1, "n": value, "xs": [value, 0.5]})
    assert b'"_bigint":true' in line
    assert decode(line) == {"_step": 1, "n": value, "xs": [value, 0.5]}


def test_integer_beyond_all_bounds_is_a_text_in_bounded_time():
    """More than 10,000 digits are written as a text that says how many, and a line with them counts as damaged."""
    assert decode(encode({"n": 10**10_000 - 1})) == {"n": 10**10_000 - 1}
    assert decode(encode({"n": -(10**300_000)})) == {"n": "-1.000000e+300000 (an integer of 300,001 digits)"}
    with pytest.raises(ValueError, match="more than 10,000 digits"):
        decode(b'{"_bigint":true,"n":' + b"9" * 1_000_000 + b"}")


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), 0, -1])
def test_integers_of_64_bits_need_no_mark(value):
    """What the fast parser reads exactly is left to it."""
    line = encode({"n": value})
    assert b"_bigint" not in line
    assert decode(line) == {"n": value}


def test_lone_surrogates_are_escapes_and_their_neighbours_readable():
    """Text that is no Unicode survives, without making the rest of the line unreadable."""
    row = {"path": "a\udc80", "k\udcff": {"é": "日本"}}
    line = encode(row)
    assert b"\\udc80" in line
    assert "日本".encode() in line
    assert decode(line) == row


@pytest.mark.parametrize("text", ["\n", "\r\n", "\u2028", '"\\', "\x00", "\x1f", "\udc80\n"])
def test_line_holds_no_line_break(text):
    """Whatever is in a text or a key, a record is one line."""
    for row in ({"t": text}, {text: 1}, {"t": text, "n": 2**70}, {"t": text, "n": math.nan}):
        line = encode(row)
        assert b"\n" not in line
        assert b"\r" not in line
        assert same(decode(line), row)


def test_all_difficulties_in_one_row():
    """Non-finite floats, long integers and surrogates do not get into each other's way."""
    row = {"_step": 1, "a": math.nan, "b": 2**70, "c": "\udc80", "d": [{"e": -math.inf}, -0.0]}
    for strict in (False, True):
        assert same(decode(encode(row, strict=strict)), row)


def test_values_that_were_not_normalised_are_made_plain():
    """The encoder takes any mapping, by the same rules as a row."""
    row = {"a": np.float32(0.5), "b": (1, 2), "c": np.arange(2), 3: "key", "d": np.float64("nan")}
    assert same(decode(encode(row)), {"a": 0.5, "b": [1, 2], "c": [0, 1], "3": "key", "d": math.nan})


def test_histogram_is_written_out():
    """A histogram stands in the line with all its fields, the non-finite ones too."""
    full = decode(encode(normalise({"h": Histogram.from_array([1.0, 2.0], num_bins=2)})))["h"]
    assert (full["_type"], full["counts"], full["edges"]) == ("histogram", [1, 1], [1.0, 1.5, 2.0])
    for strict in (False, True):
        empty = decode(encode(normalise({"h": Histogram.from_array([], num_bins=1)}), strict=strict))["h"]
        assert math.isnan(empty["min"])
        assert empty["counts"] == [0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            Image(np.zeros((2, 3, 3), np.uint8), "c"),
            {"_type": "image", "width": 3, "height": 2, "channels": 3, "caption": "c"},
        ),
        (Text("hello"), {"_type": "text", "text": "hello"}),
        (Html("<p>"), {"_type": "html", "characters": 3}),
        (Table(["a"], [[1], [2]]), {"_type": "table", "columns": ["a"], "rows": 2}),
        (
            Audio(np.zeros(8), 4),
            {"_type": "audio", "sample_rate": 4, "channels": 1, "seconds": 2.0, "caption": None},
        ),
    ],
)
def test_media_without_a_store_are_described(value, expected):
    """Where nothing keeps the file, the line tells type and size, also on the slow way."""
    assert decode(encode(normalise({"m": value}))) == {"m": expected}
    assert decode(encode(normalise({"m": [value], "n": 2**70}))) == {"m": [expected], "n": 2**70}


@pytest.mark.parametrize("line", [b"", b"[]", b"1", b'{"a":', b'{"a":1}x', b"\xff", b"[" * 100_000, b"null"])
def test_line_that_is_no_object_is_a_value_error(line):
    """A torn or foreign line is refused, never by another kind of error."""
    with pytest.raises(ValueError):
        decode(line)


@pytest.mark.parametrize(
    "mirror", ['"x"', "[1]", '{"a":{"b":"nan"}}', '{"zz":"nan"}', '{"l":{"9":"nan"}}', '{"a":[1]}']
)
def test_mirror_that_does_not_fit_is_harmless(mirror):
    """A line from elsewhere with a wrong marker gives its other values."""
    assert decode(f'{{"_nonfinite":{mirror},"a":null,"l":[1]}}') == {"a": None, "l": [1]}


def test_line_of_another_encoder_is_read():
    """What the standard encoder writes is read as it stands."""
    row = {"a": [1, 2.5, None, True], "b": {"c": "é"}}
    assert decode(json.dumps(row)) == row
    assert decode(bytearray(json.dumps(row).encode())) == row
