"""Histograms: exact, for any values, on the host and where the array lies."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackway.errors import ConfigError, TracerError
from trackway.values import Histogram, normalise
from trackway.values._histogram import MAX_BINS

RNG = np.random.default_rng(0)
HARD = {
    "normal": RNG.normal(size=1000),
    "constant": np.full(7, 3.25),
    "zero": np.zeros(5),
    "large constant": np.full(5, 1e30),
    "neighbours": np.array([1.0, np.nextafter(np.float32(1), np.float32(2)).astype(float)] * 3),
    "whole range": np.array([-3e38, 0.0, 3e38]),
    "greatest": np.full(3, float(np.finfo(np.float32).max)),
    "outlier": np.concatenate([np.full(1000, 1e-12), [1e12]]),
    "tiny": np.array([1e-40, 2e-40]),
    "with holes": np.array([np.nan, 1.0, np.inf, -np.inf, 2.0, np.nan]),
    "all nan": np.full(4, np.nan),
    "all infinite": np.array([np.inf, -np.inf, np.inf]),
    "one": np.array([5.0]),
}


def check_counts(histogram, values):
    """Check counts, extremes and sums against NumPy, for the histogram's own edges."""
    host = histogram.to_host()
    finite = np.asarray(values, np.float64).ravel()
    finite = finite[np.isfinite(finite)]
    assert np.all(np.diff(host.edges) > 0)
    assert host.counts.tolist() == np.histogram(finite, bins=host.edges)[0].tolist()
    assert int(host.counts.sum()) == host.num == finite.size
    if finite.size:
        assert (host.min, host.max) == (finite.min(), finite.max())
    return host


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("bins", [1, 31, MAX_BINS])
def test_host_histogram_is_exact(name, bins):
    """Counts, extremes and non-finite counts hold for every kind of range."""
    values = HARD[name]
    host = check_counts(Histogram.from_array(values, num_bins=bins), values)
    assert host.nan == int(np.isnan(values).sum())
    assert (host.posinf, host.neginf) == (int((values == np.inf).sum()), int((values == -np.inf).sum()))


@jax.jit
def compiled(x):
    """Make a histogram inside a compiled function."""
    return Histogram.from_array(jnp.ravel(x), num_bins=31)


@pytest.mark.parametrize("name", HARD)
def test_device_histogram_is_exact(name):
    """A JAX array gets the same counts where it lies, inside a compiled function and outside."""
    values = jnp.asarray(np.resize(HARD[name], 1001), jnp.float32)  # one length, so that one compilation does
    outside, inside = Histogram.from_array(values), compiled(values)
    reference = np.where(np.abs(values) < np.finfo(np.float32).tiny, 0, values)  # compiled code flushes subnormals
    for histogram in (outside, inside):
        host = histogram.to_host()
        assert np.all(np.diff(host.edges) >= 0)
        assert int(host.counts.sum()) == host.num == int(np.isfinite(values).sum())
        assert host.nan == int(np.isnan(values).sum())
        if name != "tiny":
            finite = reference[np.isfinite(reference)].astype(np.float64)
            assert host.counts.tolist() == np.histogram(finite, bins=host.edges)[0].tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "int32", "uint8", "bool", "int4", "float8_e4m3fn"])
def test_types_are_widened_first(dtype):
    """Low precision does not spoil the counts or the sums, on the host and on the device."""
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    values = (np.arange(1000) % 7).astype(numpy_type)
    expected = values.astype(np.float64)
    for array in (values, jnp.asarray(values)):
        host = check_counts(Histogram.from_array(array, num_bins=5), expected)
        assert host.sum == expected.sum()
        assert host.mean == pytest.approx(expected.mean(), rel=1e-6)
        assert host.variance == pytest.approx(expected.var(), rel=1e-5)


def test_edges_without_an_argument_are_those_of_numpy():
    """The default divides the range evenly, as NumPy does."""
    values = HARD["normal"]
    np.testing.assert_array_equal(Histogram.from_array(values).edges, np.histogram(values, bins=31)[1])


def test_extreme_integers_are_counted():
    """The whole range of 64-bit integers is a range like others."""
    values = np.array([-(2**63), 0, 2**63 - 1])
    host = Histogram.from_array(values, num_bins=3)
    assert host.counts.tolist() == [1, 1, 1]


@pytest.mark.parametrize("values", [[], np.zeros((3, 0)), jnp.zeros((0,))])
def test_empty_array_has_a_histogram(values):
    """No values give no counts, and NaN where there is nothing to tell."""
    host = Histogram.from_array(values, num_bins=4)
    assert host.counts.tolist() == [0, 0, 0, 0]
    assert np.isnan([host.min, host.max, host.mean, host.variance]).all()
    assert host.num == 0


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
def test_given_edges_count_what_lies_between_them(make):
    """Values outside are in the sums and not in the counts; the last bin holds its right border."""
    values = make(np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 9.0], np.float32))
    host = Histogram.from_array(values, edges=[0.0, 1.0, 2.0]).to_host()
    assert host.counts.tolist() == [2, 2]
    assert (host.num, host.max) == (6, 9.0)


@pytest.mark.parametrize("bins", [0, -1, MAX_BINS + 1, 2.0, True, "auto"])
def test_number_of_bins_is_bounded(bins):
    """Too many bins, or none, are refused when the histogram is made."""
    with pytest.raises(ConfigError, match="num_bins must be an integer from 1 to 512"):
        Histogram.from_array([1.0], num_bins=bins)


@pytest.mark.parametrize("edges", [[0.0], [1.0, 1.0], [2.0, 1.0], [0.0, np.nan], [[0.0, 1.0]], np.arange(600)])
def test_edges_must_increase(edges):
    """Borders out of order, or too few or many, are refused."""
    with pytest.raises(ValueError, match="edges must be"):
        Histogram.from_array([1.0], edges=edges)


def test_traced_edges_and_complex_values_are_refused():
    """What cannot be checked or ordered is an error that says so."""
    with pytest.raises(TracerError, match="edges"):
        jax.jit(lambda e: Histogram.from_array(jnp.ones(3), edges=e))(jnp.arange(3.0))
    with pytest.raises(ConfigError, match="complex"):
        Histogram.from_array(np.array([1j]))


def test_histogram_is_a_tree_of_jax():
    """A histogram goes through scan and grad's auxiliary output like any other tree."""

    def body(carry, x):
        return carry, Histogram.from_array(x, num_bins=2)

    stacked = jax.lax.scan(body, 0.0, jnp.arange(12.0).reshape(3, 4))[1]
    assert stacked.counts.shape == (3, 2)
    last = jax.tree.map(lambda leaf: leaf[-1], stacked)
    assert check_counts(last, np.arange(8.0, 12.0)).num == 4


def test_traced_histogram_is_an_error_on_the_host():
    """A histogram of traced values is refused like a traced number."""

    def step(x):
        normalise({"h": Histogram.from_array(x)})
        return x

    with pytest.raises(TracerError, match="'h'"):
        jax.jit(step)(jnp.ones(3))


def test_merged_histogram_counts_both():
    """Two histograms with the same edges add up; with others they are refused."""
    first, second = RNG.normal(size=50), RNG.normal(size=70)
    edges = np.linspace(-8, 8, 9)
    merged = Histogram.from_array(first, edges=edges).merge(Histogram.from_array(jnp.asarray(second), edges=edges))
    whole = Histogram.from_array(np.concatenate([first, second.astype(np.float32)]), edges=edges)
    assert merged.counts.tolist() == whole.counts.tolist()
    assert (merged.num, merged.min, merged.max) == (120, whole.min, whole.max)
    assert merged.sum == pytest.approx(whole.sum, rel=1e-5)
    empty = Histogram.from_array([], edges=edges)
    assert empty.merge(merged).min == merged.min
    with pytest.raises(ValueError, match="edges"):
        merged.merge(Histogram.from_array(first))


def test_sums_that_overflow_are_infinite():
    """Squares beyond the range of floats are infinity, not an exception."""
    host = Histogram.from_array(np.array([1e200, 3e200]))
    assert host.sum_squares == host.variance == np.inf
    assert Histogram.from_array(np.full(3, 1e200)).variance == 0.0


@pytest.mark.parametrize(
    ("make", "offset"),
    [(np.asarray, 0.0), (np.asarray, 1e9), (np.asarray, -1e15), (jnp.asarray, 0.0), (jnp.asarray, 1e4)],
)
def test_variance_does_not_drown_in_the_mean(make, offset):
    """Values far from zero and close to each other have the variance that they have among themselves."""
    values = make(np.float64(offset) + np.arange(1000) % 2)
    assert Histogram.from_array(values).to_host().variance == pytest.approx(0.25)
    assert float(jax.jit(lambda x: Histogram.from_array(x).variance)(jnp.arange(5.0))) == 2.0


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=6), min_size=2, max_size=4))
def test_variance_of_merged_histograms_is_that_of_all_values(parts):
    """Merging in any number of pieces gives the variance of the whole."""
    edges = [-1e6, 0.0, 1e6]
    merged = Histogram.from_array([], edges=edges)
    for part in parts:
        merged = merged.merge(Histogram.from_array(part, edges=edges))
    values = np.concatenate([np.asarray(part, np.float64) for part in parts])
    if values.size:
        assert merged.variance == pytest.approx(values.var(), rel=1e-9, abs=1e-6)
    else:
        assert np.isnan(merged.variance)


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from trackway.values import Histogram, normalise, resolve
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
x = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
sharded = jax.device_put(x, NamedSharding(mesh, P("a", "b")))
host = resolve(normalise({"h": Histogram.from_array(sharded)}))["h"]
assert host.counts.tolist() == np.histogram(x.astype(np.float64), bins=host.edges)[0].tolist()
text = jax.jit(Histogram.from_array).lower(sharded).compile().as_text()
assert "all-gather" not in text, text
assert resolve(normalise({"x": sharded}))["x"] == x.tolist()
"""


def test_sharded_array_is_counted_where_it_lies():
    """Four devices count their own shards; only the counts travel."""
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("bins", [1, 2, 31, 512])
@pytest.mark.parametrize(
    "values",
    [
        [1.7976931348623157e308],
        [-1.7976931348623157e308],
        [5e-324, 1e-323],
        [1.0, 1 + 2e-16],
        [-1.79e308, 1.79e308],
        [0],
    ],
    ids=str,
)
def test_bins_exist_at_the_ends_of_the_number_range(values, bins):
    """The largest, the smallest and nearly equal numbers get finite, increasing edges, and every value its bin."""
    histogram = Histogram.from_array(np.array(values), bins)
    assert histogram.counts.sum() == len(values)
    assert np.all(np.isfinite(histogram.edges))
    assert np.all(histogram.edges[1:] > histogram.edges[:-1])
