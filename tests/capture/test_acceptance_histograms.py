"""Distributions and the latest values from compiled loops: `Histogram`, `Hist` and `Ring`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import run
from jax import lax

import trackway
from trackway import capture
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker
from trackway.values import Histogram

EDGES = [0.0, 1.0, 2.0, 4.0]
ROWS = np.array([[0.5, 1.5, 3.0], [1.0, np.nan, 9.0], [np.inf, 0.25, 4.0], [-1.0, -np.inf, 2.0]], np.float32)


def in_scan(log, rows):
    """Log each row in a scan."""
    return lax.scan(lambda c, row: (c, log(row)), 0.0, rows)


def in_vmap(log, rows):
    """Log each row in a lane."""
    return jax.vmap(log)(rows)


def in_while(log, rows):
    """Log each row in a while loop."""

    def body(i):
        log(rows[i])
        return i + 1

    return lax.while_loop(lambda i: i < len(rows), body, 0)


def in_calls(log, rows):
    """Log each row by a call of a cached function."""
    call = jax.jit(log)
    for row in rows:
        call(row)


WAYS = [in_scan, in_vmap, in_while, in_calls]


def whole(edges=None):
    """The histogram of all rows at once, by NumPy."""
    return Histogram.from_array(ROWS, num_bins=4, edges=edges)


@pytest.mark.parametrize("way", WAYS)
def test_histograms_with_equal_edges_combine_exactly(way):
    """Where the edges are given, the result is the histogram of all the values."""
    logs = run(lambda rows: way(lambda row: trackway.log({"h": Histogram.from_array(row, edges=EDGES)}), rows), ROWS)[1]
    got, expected = logs["h"], whole(EDGES)
    assert isinstance(got, Histogram)
    assert got.on_host()
    assert np.asarray(got.edges).tolist() == EDGES
    assert np.asarray(got.counts).tolist() == [2, 2, 3]
    assert (got.min, got.max, got.num) == (-1.0, 9.0, 9)
    assert (got.nan, got.posinf, got.neginf) == (1, 1, 1)
    assert np.isclose(got.sum, expected.sum)
    assert np.isclose(got.sum_squares, expected.sum_squares)
    assert np.isclose(got.variance, expected.variance, rtol=1e-5)


@pytest.mark.parametrize("way", [in_scan, in_vmap])
def test_histograms_without_edges_keep_exact_moments(way):
    """Without given edges the bins are those of the first sample; moments and counts of values stay exact."""
    logs = run(lambda rows: way(lambda row: trackway.log({"h": Histogram.from_array(row, 4)}), rows), ROWS)[1]
    got, expected = logs["h"], whole()
    assert (got.min, got.max, got.num) == (-1.0, 9.0, 9)
    assert (got.nan, got.posinf, got.neginf) == (1, 1, 1)
    assert int(np.sum(got.counts)) == 9
    assert np.isclose(got.mean, expected.mean)
    assert np.isclose(got.variance, expected.variance, rtol=1e-5)


def test_one_histogram_is_left_as_it_is():
    """A histogram that is logged once keeps its own bins."""
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0, np.nan], np.float32)
    got = run(lambda x: trackway.log({"h": Histogram.from_array(x, 4)}), x)[1]["h"]
    assert np.asarray(got.edges).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert np.asarray(got.counts).tolist() == [1, 1, 1, 2]
    assert got.nan == 1


def test_a_histogram_in_a_branch():
    """A branch not taken adds nothing to a histogram; taken nowhere, it is absent."""

    def log(row):
        histogram = Histogram.from_array(row, edges=EDGES)
        lax.cond(row[0] > 0, lambda: trackway.log({"h": histogram}), lambda: None)

    got = run(lambda rows: in_scan(log, rows), ROWS[:2])[1]["h"]
    assert np.asarray(got.counts).tolist() == [1, 2, 1]
    assert got.num == 5
    assert run(lambda rows: in_scan(log, rows), ROWS[[3, 3]])[1] == {}


def test_a_histogram_through_a_compiled_step():
    """A histogram reaches the tracker as one."""

    @trackway.jit
    def step(rows):
        in_scan(lambda row: trackway.log({"h": Histogram.from_array(row, edges=EDGES)}), rows)
        return rows

    with current_tracker(RecordingTracker()) as tracker:
        step(ROWS)
    [(_, row)] = tracker.rows
    assert isinstance(row["h"], Histogram)
    assert np.asarray(row["h"].counts).tolist() == [2, 2, 3]


@pytest.mark.parametrize("way", WAYS)
def test_hist_counts_values_between_fixed_edges(way):
    """`Hist` makes one histogram of everything logged under it."""

    def log(row):
        trackway.log({"h": row}, reduce=capture.Hist(0.0, 4.0, 4))

    got = run(lambda rows: way(log, rows), np.array([[0.5, 1.5], [3.5, 1.25]], np.float32))[1]["h"]
    assert isinstance(got, Histogram)
    assert np.asarray(got.edges).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert np.asarray(got.counts).tolist() == [1, 2, 0, 1]
    assert (got.min, got.max, got.num, got.sum) == (0.5, 3.5, 4, 6.75)


def test_hist_of_numbers_and_borders():
    """Each scalar is one value; a bin holds its left border and the last one both."""

    def f(xs):
        return lax.scan(lambda c, x: (c, trackway.log({"h": x}, reduce={"h": capture.Hist(0, 2, 2)})), 0.0, xs)

    got = run(f, jnp.array([0.0, 1.0, 2.0, 0.5]))[1]["h"]
    assert np.asarray(got.counts).tolist() == [2, 2]


def kept(ring):
    """The entries of a ring that were filled."""
    return np.ma.asarray(ring).compressed().tolist()


@pytest.mark.parametrize("way", WAYS)
def test_ring_keeps_the_last_samples(way):
    """`Ring(k)` has the last k samples, the oldest first, in any kind of loop."""

    def log(x):
        trackway.log({"r": x}, reduce=capture.Ring(3))

    assert kept(run(lambda xs: way(log, xs), jnp.arange(5.0))[1]["r"]) == [2.0, 3.0, 4.0]
    assert kept(run(lambda xs: way(log, xs), jnp.arange(2.0))[1]["r"]) == [0.0, 1.0]


def test_ring_in_a_branch_of_a_loop():
    """Only what was executed enters a ring; with nothing in it, it is absent."""

    def f(xs):
        def body(i):
            lax.cond(xs[i] > 0, lambda: trackway.log({"r": xs[i]}, reduce=capture.Ring(2)), lambda: None)
            return i + 1

        return lax.while_loop(lambda i: i < len(xs), body, 0)

    assert kept(run(f, jnp.array([1.0, 2.0, -3.0, 4.0, -5.0]))[1]["r"]) == [2.0, 4.0]
    assert run(f, jnp.array([-1.0, -2.0]))[1] == {}


def test_ring_of_vectors_in_nested_loops():
    """Samples of any shape are kept, across the iterations of outer loops."""

    def inner(c, t):
        trackway.log({"r": jnp.array([c, t])}, reduce=capture.Ring(3))
        return c, None

    def f(x):
        return lax.scan(lambda c, _: (lax.scan(inner, c, jnp.arange(2.0))[0] + 1, None), x, None, length=2)

    ring = run(f, 0.0)[1]["r"]
    assert np.asarray(ring).tolist() == [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]


def test_parameters_are_checked():
    """Bins and sizes that make no sense are errors where they are written."""
    for make in (lambda: capture.Hist(1.0, 0.0, 3), lambda: capture.Hist(0.0, 1.0, 0), lambda: capture.Ring(0)):
        with pytest.raises(ValueError, match=r"\d"):
            make()
