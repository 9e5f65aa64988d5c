"""Properties that hold for whatever is logged."""

from __future__ import annotations

import copy
import math
import re

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trackway.values import Histogram, decode, encode, flatten, normalise

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # shared machines stall
text = st.text(st.characters(exclude_categories=()), max_size=8)
# names that mean something in files are kept under others, which has tests of its own
names = text.filter(lambda name: name.rstrip("_") not in {"_type", "_nonfinite", "_bigint"})
floats = st.floats(width=64) | st.sampled_from([-0.0, 5e-324, 1.7976931348623157e308])
atoms = st.none() | st.booleans() | st.integers() | st.integers(-(10**40), 10**40) | floats | text
plain = st.recursive(
    atoms, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=20
)
arrays = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.int8, np.uint64, np.bool_, "U3", "S2", "M8[s]", "c8", object]),
    hnp.array_shapes(min_dims=0, max_side=3, min_side=0, max_dims=3),
)
odd = arrays | st.binary(max_size=4) | st.complex_numbers() | st.decimals() | st.fractions() | st.dates() | st.uuids()
keys = st.one_of(names, st.integers(), st.none(), st.binary(max_size=2), st.tuples(st.integers()))
wild = st.recursive(
    atoms | odd | st.builds(object) | st.sets(st.integers()),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
PLAIN_TYPES = {type(None), bool, int, float, str, list, dict}
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def types_in(value):
    """Return the types of all parts of *value*."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {type(value)}.union(*map(types_in, parts))


def texts_in(value):
    """Return all texts and keys in *value*, joined."""
    if isinstance(value, dict):
        return "\n".join(f"{key}\n{texts_in(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "\n".join(map(texts_in, value))
    return value if isinstance(value, str) else ""


@relaxed
@given(st.dictionaries(keys, wild, max_size=4))
def test_any_payload_becomes_plain(payload):
    """Normalising never raises, leaves plain values only, and does the same to its own result."""
    row = normalise(payload, warn=False)
    assert types_in(dict(row)) <= PLAIN_TYPES
    assert repr(normalise(dict(row), warn=False)) == repr(row)


@relaxed
@given(st.dictionaries(names, plain, max_size=4))
def test_payload_is_unchanged(payload):
    """The caller's mapping is the same afterwards, and shares nothing that can change with the row."""
    before = copy.deepcopy(payload)
    row = normalise(payload, warn=False)
    assert repr(payload) == repr(before)
    kept = {key: value for key, value in payload.items() if not key.startswith("_")}
    assert repr(dict(row)) == repr(kept)
    assert all(row[key] is not value for key, value in kept.items() if isinstance(value, list | dict))


@relaxed
@given(st.dictionaries(names, plain, max_size=4), st.booleans())
def test_encoding_and_decoding_is_the_identity(payload, strict):
    """A normalised row comes back from its line unchanged: NaN, -0.0, long integers, lone surrogates and all."""
    row = normalise(payload, warn=False)
    line = encode(row, strict=strict)
    assert b"\n" not in line
    # Two surrogates that together spell a character are that character in JSON.
    if not PAIR.search(texts_in(dict(row))):
        assert repr(decode(line)) == repr(dict(row))


@relaxed
@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), plain, max_size=4))
def test_flat_row_holds_no_nested_mapping(payload):
    """Flattening leaves mappings only where they are empty, or inside lists."""
    flat = flatten(normalise({"root": payload, "x": 1}, warn=False)) if "/" not in str(payload) else {}
    assert all(value == {} for value in flat.values() if isinstance(value, dict))


@relaxed
@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.uint64, np.bool_]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
    ),
    st.integers(1, 40),
)
def test_histogram_counts_every_value_as_numpy_does(array, bins):
    """For any array the counts are NumPy's for the same edges, and no value is forgotten."""
    histogram = Histogram.from_array(array, num_bins=bins)
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    assert histogram.counts.tolist() == np.histogram(finite, bins=histogram.edges)[0].tolist()
    assert int(histogram.counts.sum()) == histogram.num == finite.size
    assert histogram.num + histogram.nan + histogram.posinf + histogram.neginf == array.size
    assert len(histogram.edges) == bins + 1
    assert np.all(np.diff(histogram.edges) > 0)
    if finite.size:
        assert (histogram.min, histogram.max) == (finite.min(), finite.max())
    else:
        assert math.isnan(histogram.min)
