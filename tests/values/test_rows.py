"""Rows: their marks, and the one way to flatten them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from trackway import values
from trackway.errors import TrackwayWarning
from trackway.values import Histogram, Image, Row, Text, flatten, normalise


def test_exports_are_sorted_and_exist():
    """The package's list of names is its content."""
    assert sorted(values.__all__) == values.__all__
    assert all(hasattr(values, name) for name in values.__all__)


def test_flatten_joins_names_with_a_slash():
    """Nested mappings become flat names; lists and empty mappings stay values."""
    row = normalise({"a": {"b": {"c": 1}, "d": [1, {"e": 2}]}, "f": {}, "g/h": 3})
    assert flatten(row) == {"a/b/c": 1, "a/d": [1, {"e": 2}], "f": {}, "g/h": 3}


def test_flatten_returns_a_copy():
    """Changing the flat form leaves the row alone."""
    row = normalise({"a": 1})
    flatten(row)["b"] = 2
    assert row == {"a": 1}


@pytest.mark.parametrize("payload", [{"a/b": 1, "a": {"b": 2}}, {"a": {"b": 1}, "a/b": 2}])
def test_flat_and_nested_name_that_clash_keep_the_later_and_warn_once(payload):
    """One name given in two ways has the later value, and one warning."""
    row = normalise(payload)
    with pytest.warns(TrackwayWarning, match="'a/b' is given twice") as caught:
        flat = [flatten(row) for _ in range(2)]
    assert flat == [{"a/b": 2}] * 2
    assert len(caught) == 1
    lost = []
    assert flatten(row, lost) == {"a/b": 2}
    assert [downgrade.path for downgrade in lost] == ["a/b"]
    assert row.downgrades == ()


def test_row_of_plain_values_has_no_marks():
    """An ordinary row is neither pending nor holds media."""
    row = normalise({"a": 1, "h": Histogram.from_array(np.ones(3))})
    assert (row.pending, row.has_media, row.downgrades) == (False, False, ())


@pytest.mark.parametrize("payload", [{"t": Text("x")}, {"a": [{"i": Image(np.zeros((2, 2)))}]}])
def test_row_knows_that_it_holds_media(payload):
    """Media are found at any depth and kept as they are."""
    assert normalise(payload).has_media


def test_derived_row_keeps_the_marks():
    """A renamed row still tells that it holds media and what was downgraded."""
    row = normalise({"t": Text("x"), "_y": 1}, warn=False)
    derived = row.derive({"p/t": row["t"]})
    assert type(derived) is Row
    assert derived.has_media
    assert derived.downgrades == row.downgrades


def test_copy_shares_nothing_that_can_change():
    """A receiver that changes its copy leaves the row alone, at any depth."""
    row = normalise({"a": {"b": [1, {"c": 2}]}, "_x": 1}, warn=False)
    twin = row.copy()
    twin["a"]["b"][1]["c"] = 3
    assert row == {"a": {"b": [1, {"c": 2}]}}
    assert (type(twin), twin.downgrades) == (Row, row.downgrades)


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
def test_row_can_be_copied(clone):
    """A row keeps its marks through copying and pickling."""
    row = normalise({"_x": 1, "a": {"b": 2}}, warn=False)
    twin = clone(row)
    assert (twin, type(twin), twin.downgrades) == (row, Row, row.downgrades)
