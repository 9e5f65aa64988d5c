"""What else training code holds has one plain form each."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import functools
import math
import pathlib
import uuid
from typing import NamedTuple

import numpy as np
import pydantic
import pytest

from trackway.errors import TrackwayWarning
from trackway.values import normalise, to_plain
from trackway.values._text import MAX_REPR


class Stage(enum.Enum):
    """An enumeration of unlike values."""

    TRAIN = "train"
    SIZES = np.float32(0.5)


class Loud(enum.StrEnum):
    """An enumeration of texts."""

    YES = "yes"


class Model(pydantic.BaseModel):
    """A model with a computed and an extra field."""

    model_config = pydantic.ConfigDict(extra="allow", arbitrary_types_allowed=True)
    rate: float = 0.1
    stage: Stage = Stage.TRAIN
    inner: object = None

    @pydantic.computed_field
    @property
    def double(self) -> float:
        """Return twice the rate."""
        return self.rate * 2


@dataclasses.dataclass
class Layer:
    """A dataclass whose fields look like those of an array."""

    dtype: str = "bfloat16"
    shape: tuple[int, int] = (2, 3)


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


KINDS = {
    "none": (None, None),
    "text": ("a\nb", "a\nb"),
    "utf-8 bytes": ("é".encode(), "é"),
    "other bytes": (b"\xff", "base64:/w=="),
    "bytearray": (bytearray(b"ab"), "ab"),
    "path": (pathlib.Path("a/b.pt"), "a/b.pt"),
    "datetime": (dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), "2026-01-02T03:04:00+00:00"),
    "date": (dt.date(2026, 1, 2), "2026-01-02"),
    "time": (dt.time(3, 4), "03:04:00"),
    "timedelta": (dt.timedelta(minutes=1), 60.0),
    "uuid": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "enum": (Stage.TRAIN, "train"),
    "enum of a numpy value": (Stage.SIZES, 0.5),
    "text enum": (Loud.YES, "yes"),
    "dataclass": (Layer(), {"dtype": "bfloat16", "shape": [2, 3]}),
    "pydantic": (Model(extra=1), {"rate": 0.1, "stage": "train", "inner": None, "double": 0.2, "extra": 1}),
    "named tuple": (Point(1, np.int8(2)), {"x": 1, "y": 2}),
    "tuple": ((1, (2, 3)), [1, [2, 3]]),
    "set": ({3, 1, 2}, [1, 2, 3]),
    "mixed set": (frozenset({"b", 1, "a"}), [1, "a", "b"]),
    "deque": (collections.deque([1, np.float32(2)]), [1, 2.0]),
    "range": (range(3), [0, 1, 2]),
    "dict views": ({"a": 1}.keys(), ["a"]),
    "class": (Layer, f"{__name__}.Layer"),
    "numpy type": (np.float32, "numpy.float32"),
    "dtype": (np.dtype("float32"), "float32"),
    "function": (math.sin, "math.sin"),
    "module": (math, "math"),
    "string scalar": (np.str_("s"), "s"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kind_has_its_plain_form(kind):
    """Each documented kind becomes its plain form, without a downgrade."""
    value, expected = KINDS[kind]
    row = normalise({"value": value, "neighbour": 1})
    assert row == {"value": expected, "neighbour": 1}
    assert row.downgrades == ()


def test_iterator_is_consumed_once():
    """A generator becomes a list of what it gave."""
    source = (number * 2 for number in range(3))
    assert to_plain(source) == [0, 2, 4]
    assert list(source) == []


def test_endless_iterator_is_cut():
    """An iterator without an end costs a bounded number of items and one warning."""
    with pytest.warns(TrackwayWarning, match="'forever' is an iterator of more than 10,000"):
        row = normalise({"forever": iter(int, 1)})
    assert row["forever"] == [0] * 10_000


def test_huge_range_is_kept_as_text():
    """A range that would fill the memory is logged by its text."""
    row = normalise({"r": range(10**12)}, warn=False)
    assert row["r"] == "range(0, 1000000000000)"
    assert len(row.downgrades) == 1


def test_iterator_that_fails_keeps_what_it_gave():
    """A generator that raises midway keeps the items before, and says so."""

    def items():
        yield 1
        raise OSError("gone")

    row = normalise({"items": items()}, warn=False)
    assert row["items"] == [1]
    assert "OSError: gone" in row.downgrades[0].reason


def test_object_without_a_form_becomes_its_repr_with_one_warning_for_a_field():
    """An arbitrary object is a text; the warning names the field and comes once."""
    with pytest.warns(TrackwayWarning, match=r"'a/odd' \(object\) has no plain form") as caught:
        row = [normalise({"a": {"odd": [object(), object()]}, "loss": 1.0}) for _ in range(3)][-1]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert row["loss"] == 1.0
    assert all(text.startswith("<object object at") for text in row["a"]["odd"])


def test_long_repr_is_bounded():
    """A repr of any length takes a bounded text."""

    class Long:
        def __repr__(self):
            return "x" * 10_000_000

    assert len(to_plain(Long())) == MAX_REPR


def test_repr_that_raises_is_a_text_that_names_the_type():
    """An object whose repr fails costs nothing but itself."""

    class Broken:
        def __repr__(self):
            raise ValueError("no")

    row = normalise({"broken": Broken(), "loss": 1}, warn=False)
    assert row["loss"] == 1
    assert "Broken" in row["broken"]
    assert "ValueError" in row["broken"]


def test_callable_object_is_named_by_its_own_name():
    """A wrapped function is logged by name, a partial by its repr."""
    assert to_plain(functools.cache(math.sin)) == "math.sin"
    assert to_plain(functools.partial(int, base=2)).startswith("functools.partial")


def test_ten_megabyte_text_is_kept_whole():
    """A long text is not cut."""
    text = "é" * 5_000_000
    assert normalise({"text": text, "n": np.int8(1)})["text"] == text


def test_lone_surrogate_is_kept():
    """Text that came from an undecodable file name passes unchanged."""
    assert normalise({"name": "a\udc80", "n": np.int8(1)})["name"] == "a\udc80"
