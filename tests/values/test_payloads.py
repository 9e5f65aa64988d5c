"""Payloads: keys, nesting, what fails inside and what it costs."""

from __future__ import annotations

import collections.abc
import dataclasses
import types

import numpy as np
import pydantic
import pytest

from trackway.errors import TrackwayWarning
from trackway.values import Downgrade, Row, decode, encode, normalise
from trackway.values._walk import MAX_DEPTH


class Broken(collections.abc.Mapping):
    """A mapping with one value that cannot be read, as an unresolved configuration has."""

    def __getitem__(self, key):
        if key == "missing":
            raise RuntimeError("mandatory value")
        return np.float32(0.5)

    def __iter__(self):
        return iter(("a", "missing", "b"))

    def __len__(self):
        return 3


def test_row_is_returned_as_it_is():
    """Normalising a row again costs nothing and gives the same object."""
    row = normalise({"loss": np.float32(0.5)})
    assert type(row) is Row
    assert normalise(row) is row


@pytest.mark.parametrize("payload", [{"a": 1.0}, {"a": np.float32(1), "b": {"c": [1, {"d": np.int8(2)}]}}])
def test_payload_is_neither_kept_nor_changed(payload):
    """What the caller does to the payload later does not show in the row."""
    row = normalise(payload)
    before = dict(row)
    payload["late"] = 1
    if "b" in payload:
        payload["b"]["c"].append(3)
    assert dict(row) == before


def test_read_only_mapping_is_a_payload():
    """Any mapping will do, not only a dict."""
    assert normalise(types.MappingProxyType({"a": types.MappingProxyType({"b": 1})})) == {"a": {"b": 1}}


def test_model_and_dataclass_are_payloads():
    """An object of named fields may be logged as such."""

    class Metrics(pydantic.BaseModel):
        loss: float = 0.5

    @dataclasses.dataclass
    class Other:
        loss: float = 0.25

    assert normalise(Metrics()) == {"loss": 0.5}
    assert normalise(Other()) == {"loss": 0.25}


@pytest.mark.parametrize("payload", [None, 0.5, "loss", [("loss", 1)], np.ones(3), dict, object()])
def test_payload_that_is_no_mapping_is_an_error_with_the_cure(payload):
    """A value without a name is refused, and the message shows how to name it."""
    with pytest.raises(TypeError, match=r"mapping of names to values.*log\(\{\"loss\": value\}\)"):
        normalise(payload)


def test_keys_become_text():
    """Keys that are no text become their text; the empty one is kept."""
    row = normalise({1: "int", None: "none", (2, 3): "tuple", "": "empty", b"b": "bytes"})
    assert row == {"1": "int", "None": "none", "(2, 3)": "tuple", "": "empty", "b'b'": "bytes"}


def test_key_that_has_no_text_gets_a_placeholder():
    """A key whose text raises, or that has too many digits, loses its name and not its value."""

    class Key:
        def __str__(self):
            raise ValueError("no")

    row = normalise({Key(): 1, 10**5000: 2, "c": 3}, warn=False)
    assert list(row.values()) == [1, 2, 3]
    assert len(row.downgrades) == 2


def test_keys_that_become_one_keep_the_last_and_warn():
    """Two keys of one text are one name: the later value stays, and the clash is told."""
    with pytest.warns(TrackwayWarning, match="'a/1' is given twice"):
        row = normalise({"a": {1: "first", "1": "second"}})
    assert row == {"a": {"1": "second"}}
    assert row.downgrades[0].path == "a/1"


def test_reserved_keys_are_ignored_with_one_warning_each():
    """Names with a leading underscore belong to trackway, at top level only."""
    with pytest.warns(TrackwayWarning, match="reserved") as caught:
        row = [normalise({"_step": 1, "_time": 2, "loss": 3, "a": {"_b": 4}}) for _ in range(2)][-1]
    assert row == {"loss": 3, "a": {"_b": 4}}
    assert len(caught) == 2
    assert [downgrade.path for downgrade in row.downgrades] == ["_step", "_time"]


@pytest.mark.parametrize("payload", [{"_target_": "a", "n": 1}, {"_target_": "a", "n": np.int8(1)}])
def test_reserved_names_are_kept_on_request(payload):
    """Hyper-parameters may begin with an underscore: nothing is ignored there."""
    row = normalise(payload, reserved=False)
    assert row == {"_target_": "a", "n": 1}
    assert row.downgrades == ()


@pytest.mark.parametrize("reserved", [True, False])
def test_names_that_mean_something_in_files_are_kept_under_another(reserved):
    """A mapping that looks like a reference to a picture, or like a mark of the encoder, is told from a real one."""
    payload = {"a": {"_type": "image", "_type_": 2, "_other": 3, "_nonfinite": 4}, "n": [{"_type": 1}]}
    if not reserved:
        payload |= {"_nonfinite": {"a": "nan"}, "_bigint": 5, "_bigint_": 6, "_type": 7}
    with pytest.warns(TrackwayWarning, match="is a reserved name"):
        row = normalise(payload, reserved=reserved)
    assert row["a"] == {"_type_": "image", "_type__": 2, "_other": 3, "_nonfinite": 4}
    assert row["n"] == [{"_type_": 1}]
    if not reserved:
        assert (row["_nonfinite_"], row["_bigint_"], row["_bigint__"], row["_type"]) == ({"a": "nan"}, 5, 6, 7)
    assert len(row.downgrades) == 3 + 3 * (not reserved)
    for strict in (True, False):
        assert decode(encode(row, strict=strict)) == row


def test_empty_mappings_stay():
    """An empty payload and an empty nested mapping are kept as they are."""
    assert normalise({}) == {}
    assert normalise({"a": {}, "b": []}) == {"a": {}, "b": []}


def test_cycle_is_cut_and_its_siblings_kept():
    """A structure that contains itself ends in a marked text."""
    payload: dict = {"loss": 1.0, "list": [1]}
    payload["self"] = payload
    payload["list"].append(payload["list"])
    row = normalise(payload, warn=False)
    assert row["loss"] == 1.0
    assert row["self"].startswith("<cycle")
    assert row["list"][0] == 1
    assert row["list"][1].startswith("<cycle")
    assert len(row.downgrades) == 2


def test_object_that_appears_twice_is_no_cycle():
    """Sharing a value between two names is ordinary."""
    shared = {"x": 1}
    row = normalise({"a": shared, "b": [shared, shared]})
    assert row == {"a": {"x": 1}, "b": [{"x": 1}, {"x": 1}]}
    assert row["a"] is not row["b"][0]


@pytest.mark.parametrize("wrap", [lambda x: {"d": x}, lambda x: [x], lambda x: (x, 1)])
def test_deep_nesting_is_bounded(wrap):
    """Thousands of levels end in a text at a documented depth, without exhausting the stack."""
    value: object = 1
    for _ in range(5000):
        value = wrap(value)
    row = normalise({"deep": value, "loss": 1}, warn=False)
    assert row["loss"] == 1
    assert f"deeper than {MAX_DEPTH} levels" in row.downgrades[0].reason


def test_value_that_cannot_be_read_is_marked_and_the_rest_kept():
    """A mapping that fails on one key gives all the others, at top level and below."""
    row = normalise({"config": Broken(), "loss": 1}, warn=False)
    assert row == {
        "config": {"a": 0.5, "missing": "<unreadable: RuntimeError: mandatory value>", "b": 0.5},
        "loss": 1,
    }
    assert normalise(Broken(), warn=False)["b"] == 0.5
    assert row.downgrades == (Downgrade("config/missing", "could not be read: RuntimeError: mandatory value"),)


def test_mapping_that_stops_listing_its_keys_keeps_those_before():
    """An iteration that raises midway costs what comes after it only."""

    class Stops(Broken):
        def __iter__(self):
            yield "a"
            raise OSError("gone")

    row = normalise({"config": Stops(), "loss": 1}, warn=False)
    assert row == {"config": {"a": 0.5}, "loss": 1}
    assert "OSError: gone" in row.downgrades[0].reason


def test_bad_leaf_costs_no_sibling_at_any_depth():
    """What cannot be converted leaves its neighbours as they are, in lists too."""

    class Bad:
        def __array__(self, *_args, **_kwargs):
            raise RuntimeError("no data")

    row = normalise({"a": {"b": [{"bad": Bad(), "good": 1}, 2]}, "c": 3}, warn=False)
    assert row["a"]["b"][0]["good"] == 1
    assert row["a"]["b"][1] == 2
    assert row["c"] == 3
    assert [downgrade.path for downgrade in row.downgrades] == ["a/b/bad"]


def test_warning_comes_once_for_a_name_although_its_text_differs():
    """A reason that holds a changing message does not warn again on every row."""

    class Bad:
        def __init__(self, number):
            self.number = number

        def __float__(self):
            raise RuntimeError(f"failed at {self.number}")

    with pytest.warns(TrackwayWarning) as caught:
        rows = [normalise({"x": Bad(number)}) for number in range(3)]
    assert len(caught) == 1
    assert all(row.downgrades for row in rows)


def test_silence_on_request_still_lists_downgrades():
    """`warn=False` says nothing, and the row still knows."""
    row = normalise({"_x": 1, "o": object()}, warn=False)
    assert {downgrade.path for downgrade in row.downgrades} == {"_x", "o"}
