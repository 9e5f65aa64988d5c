"""What a payload may hold in compiled code: nesting, lists, text, None, constants."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured import assert_logs, flat, run, tap
from jax import lax

import trackway
from trackway.testing import RecordingTracker
from trackway.tracker import current_tracker


@pytest.fixture
def tracker():
    """A recording tracker that is current."""
    with current_tracker(RecordingTracker()) as recording:
        yield recording


def row_of(f, *args):
    """Return the row that one compiled call of *f* delivers, its names flat."""
    with current_tracker(RecordingTracker()) as tracker:
        trackway.jit(f)(*args)
    [(_, row)] = tracker.rows
    return flat(row)


def test_nested_mappings_are_flat_names():
    """Names of nested mappings are joined by slashes."""

    def f(x):
        trackway.log({"a": {"b": x, "c": {"d": x + 1}}, "e": x + 2, 5: x + 3})
        return x

    expected = {"a/b": 1.0, "a/c/d": 2.0, "e": 3.0, "5": 4.0}
    assert_logs(run(f, 1.0)[1], expected)
    assert_logs(row_of(f, 1.0), expected)


def test_reductions_by_name_reach_into_nested_mappings():
    """A mapping of reductions uses the flat names."""

    def f(x):
        for k in range(2):
            trackway.log({"a": {"b": x + k, "c": x + k}}, reduce={"a/b": "sum"})
        return x

    assert_logs(run(f, 1.0)[1], {"a/b": 3.0, "a/c": 1.5})


def test_lists():
    """A list of numbers arrives as one, reduced entry by entry."""

    def f(xs):
        return lax.scan(lambda c, x: (c, trackway.log({"l": [x, x + 1, (x * 2,)]})), 0.0, xs)

    row = row_of(f, jnp.array([1.0, 3.0]))
    assert row == {"l": [2.0, 3.0, [4.0]]}


def test_text_and_none_arrive_as_they_are():
    """What is no number is a constant of the program and stands in the row."""
    payload = {"note": "text", "nothing": None, "config": {"name": "relu", "sizes": [1, 2]}}
    row = row_of(lambda x: tap(x, {"x": x, **payload}), 1.0)
    assert row == {"x": 1.0, "note": "text", "nothing": None, "config/name": "relu", "config/sizes": [1, 2]}
    logs = run(lambda x: tap(x, {"x": x, **payload}), 1.0)[1]
    assert logs["note"] == "text"
    assert logs["config/name"] == "relu"
    assert logs["nothing"] is None


def test_text_without_any_number():
    """A payload of nothing but text is logged when the program runs."""
    assert row_of(lambda x: tap(x, {"note": "text"}), 1.0) == {"note": "text"}


def test_text_in_a_loop_and_in_lanes():
    """Text logged many times arrives once."""
    f = jax.vmap(lambda x: lax.scan(lambda c, _: (c, trackway.log({"n": 1, "note": "t"}, reduce="sum")), x, None, 3))
    assert row_of(f, jnp.arange(2.0)) == {"n": 6, "note": "t"}


def by_sign(x):
    """Logs a text for each branch."""

    def positive(x):
        trackway.log({"sign": "positive", "only": "here"})
        return x

    def negative(x):
        trackway.log({"sign": "negative"})
        return x

    return lax.cond(x > 0, positive, negative, x)


def test_text_in_branches():
    """The text of the branch that was taken arrives."""
    assert row_of(by_sign, 1.0) == {"sign": "positive", "only": "here"}
    assert row_of(by_sign, -1.0) == {"sign": "negative"}


def test_text_in_branches_of_a_loop():
    """Of the texts of a loop the last one logged arrives, and none where no branch logged."""
    assert row_of(lambda xs: lax.map(by_sign, xs), jnp.array([1.0, 2.0, -3.0])) == {"sign": "negative", "only": "here"}
    assert row_of(lambda xs: lax.map(by_sign, xs), jnp.array([-1.0, -3.0])) == {"sign": "negative"}


def test_texts_of_one_name():
    """Of several texts of one name in one call the last one stands, as on the host."""

    def f(x):
        trackway.log({"note": "first"})
        trackway.log({"note": "second"})
        return x

    assert row_of(f, 1.0) == {"note": "second"}


def test_python_numbers_are_samples():
    """A number known when tracing is a sample each time it is executed."""

    def f(xs):
        return lax.scan(lambda c, x: (c, trackway.log({"n": 1, "half": 0.5, "yes": True}, reduce="sum")), 0.0, xs)

    row = row_of(f, jnp.arange(4.0))
    assert row == {"n": 4, "half": 2.0, "yes": 4}
    assert [type(row[name]) for name in ("n", "half", "yes")] == [int, float, int]


def test_numpy_values_are_those_of_the_time_of_tracing():
    """A host buffer that is changed later does not change what is logged."""
    buffer = np.array([1.0, 2.0])
    step = trackway.jit(lambda x: tap(x, {"buffer": buffer, "x": x}))
    with current_tracker(RecordingTracker()) as tracker:
        step(1.0)
        buffer[:] = 99
        step(2.0)
    assert [row["buffer"] for _, row in tracker.rows] == [[1.0, 2.0], [1.0, 2.0]]


def test_numbers_too_large_for_the_device():
    """An integer that fits no type of the device arrives exactly."""
    assert row_of(lambda x: tap(x, {"big": 2**40, "x": x}), 1.0) == {"big": 2**40, "x": 1.0}


def test_arrays_arrive_as_lists():
    """An array of any shape is a metric; one of a single entry is a number, as on the host."""

    def f(x):
        trackway.log(
            {"grid": jnp.stack([x, x + 1]).reshape(2, 1), "single": x.reshape(1, 1), "empty": jnp.zeros((0, 2))}
        )
        return x

    assert row_of(f, jnp.float32(1)) == {"grid": [[1.0], [2.0]], "single": 1.0, "empty": []}


def test_payloads_are_neither_kept_nor_changed():
    """The caller's mapping stays as it is, and changes of it after the call are not seen."""

    def f(x):
        payload = {"x": x, "more": {"y": x}}
        trackway.log(payload)
        assert sorted(payload) == ["more", "x"]
        payload["x"] = x + 100
        payload["more"]["y"] = None
        return x

    assert row_of(f, 1.0) == {"x": 1.0, "more/y": 1.0}


def test_an_empty_payload_logs_nothing(tracker):
    """A call without metrics makes no row."""
    trackway.jit(lambda x: tap(x, {}))(1.0)
    assert tracker.rows == []


def test_values_without_a_numeric_type_do_no_harm():
    """An object that no tracker knows is treated as on the host and costs no other metric."""

    class Odd:
        def __repr__(self):
            return "odd"

    with pytest.warns(trackway.TrackwayWarning, match="odd"):
        row = row_of(lambda x: tap(x, {"odd": Odd(), "x": x}), 1.0)
    assert row["x"] == 1.0
    assert "odd" in str(row["odd"])


def test_integer_extremes_and_booleans_keep_their_type():
    """The last value of an integer or a boolean reaches the row as such."""

    def f(x):
        trackway.log({"i": x.astype(jnp.int32), "b": x > 0, "u": x.astype(jnp.uint8)}, reduce="last")
        return x

    row = row_of(f, jnp.float32(3))
    assert row == {"i": 3, "b": True, "u": 3}
    assert [type(row[name]) for name in ("i", "b", "u")] == [int, bool, int]
