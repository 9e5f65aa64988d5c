"""Values that have no end, or more of one than any file should hold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from trackway.errors import TrackwayWarning
from trackway.values import normalise
from trackway.values._sequences import MAX_ITEMS
from trackway.values._walk import MAX_VALUES


def _leaves(value):
    """How many values a list of lists holds."""
    return sum(map(_leaves, value)) if isinstance(value, list) else 1


def _row(value):
    """The value's plain form and what was said of it."""
    row = normalise({"x": value, "ok": {"n": 1}}, warn=False)
    return row["x"], [downgrade.reason for downgrade in row.downgrades]


class Index:
    """Is a number by protocol."""

    def __index__(self):
        return 10**20_000


@pytest.mark.parametrize(
    "value",
    [10**20_000, -(10**20_000), Index(), Fraction(10**20_000), [1, 10**20_000], {"a": 10**20_000}],
    ids=["int", "negative", "index", "fraction", "list", "dict"],
)
def test_too_long_an_integer_is_a_text_wherever_it_stands(value):
    """A number of more than 10,000 digits says how many it had, and is counted, at any depth and of any type."""
    plain, reasons = _row(value)
    assert "e+20000 (an integer of 20,001 digits)" in str(plain)
    assert len(reasons) == 1


def test_longest_integers_stay_exact():
    """Thousands of digits are kept."""
    for value in (10**5000, 10**10_000 - 1, 1 - 10**10_000):
        assert _row(value) == (value, [])
    plain, reasons = _row(Decimal("1E+999999999"))
    assert plain == "Decimal('1E+999999999')"
    assert len(reasons) == 1


def test_too_long_an_integer_warns_once():
    """It is told once for each name, whatever its digits."""
    with pytest.warns(TrackwayWarning, match="'n' is too long an integer") as caught:
        for exponent in (20_000, 30_000):
            normalise({"n": 10**exponent})
    assert len(caught) == 1


class Lazy(Sequence):
    """Makes its items as it is asked."""

    def __init__(self, length, item):
        self.length, self.item = length, item

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.item(index)


def test_sequence_that_makes_its_items_is_cut():
    """Two million items that do not exist yet are not made; the first are kept, and it is said."""
    plain, reasons = _row(Lazy(2_000_000, lambda index: {"i": index}))
    assert len(plain) == MAX_ITEMS
    assert plain[-1] == {"i": MAX_ITEMS - 1}
    assert "more than 10,000 items" in reasons[0]
    assert _row(Lazy(3, lambda index: index)) == ([0, 1, 2], [])


def _shared(depth):
    """A list of two references to a list of two references and so on."""
    value = []
    for _ in range(depth):
        value = [value, value]
    return value


class Deep(Sequence):
    """Holds itself anew, without end."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return Deep()


@pytest.mark.parametrize(
    "value",
    [
        _shared(60),
        Deep(),
        [[0.0] * 1000] * 100_000,
        [np.zeros(1000)] * 100_000,
        [{"a": [1, object]}] * 300_000,
    ],
    ids=["shared", "endless", "repeated list", "repeated array", "repeated mapping"],
)
def test_payload_that_multiplies_itself_is_bounded(value):
    """What holds the same lists many times over ends after a million values, in seconds, and says so."""
    started = time.process_time()
    plain, reasons = _row(value)
    assert time.process_time() - started < 30
    assert _leaves(plain) < 2.5 * MAX_VALUES
    assert 1 <= reasons.count("comes after 1,000,000 values of its row; logged as a text") <= 3  # once a path


def test_large_lists_and_arrays_that_exist_are_kept_whole():
    """What the caller holds in memory anyway is not cut, and costs no neighbour."""
    for value in (list(range(1_500_000)), np.zeros((1500, 1000))):
        plain, reasons = _row(value)
        assert (len(plain), reasons) == (len(value), [])
