"""Arrays by protocol: of NumPy, of other libraries, of every kind of element."""

from __future__ import annotations

import numpy as np
import pytest

from trackway.values import normalise, to_plain


class Tensor:
    """What a tensor of another library looks like: an array that refuses `__array__` and has `tolist`."""

    def __init__(self, values):
        """Take nested lists of numbers."""
        self._values = np.asarray(values, dtype=np.float32)
        self.dtype = "their.bfloat16"
        self.shape = self._values.shape

    def __array__(self, dtype=None, copy=None):
        raise TypeError("unsupported ScalarType BFloat16")

    def tolist(self):
        """Return the values."""
        return self._values.tolist()


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.ones((1, 1, 1)), 1.0),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.arange(8)[::-2], [7, 5, 3, 1]),
        (np.zeros((0,)), []),
        (np.zeros((3, 0)), []),
        (np.array([True, False]), [True, False]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array("a"), "a"),
        (np.array([b"a", b"\xff"]), ["a", "base64:/w=="]),
        (np.array(["2026-01-02", "NaT"], "M8[D]"), ["2026-01-02", "NaT"]),
        (np.datetime64("2026-01-02T03:04:05"), "2026-01-02T03:04:05"),
        (np.timedelta64(1500, "ms"), 1.5),
        (np.array([1, 2], "m8[m]"), [60.0, 120.0]),
        (np.timedelta64(2, "Y"), "2 years"),
        (np.array([1j, 2]), {"real": [0.0, 2.0], "imag": [1.0, 0.0]}),
        (np.array([(1, 2.5)], [("a", "i4"), ("b", "f4")]), {"a": 1, "b": 2.5}),
        (np.array([(1, 2), (3, 4)], [("a", "i4"), ("b", "i4")]), {"a": [1, 3], "b": [2, 4]}),
        (np.array([None, "x", np.float32(1)], dtype=object), [None, "x", 1.0]),
        (np.ma.masked_array([1, 2], [False, True]), [1, None]),
        (np.void(b"ab"), "ab"),
        (np.array([2**63, 2**64 - 1], np.uint64), [2**63, 2**64 - 1]),
    ],
)
def test_array_becomes_a_number_or_nested_lists(array, expected):
    """One element is a scalar, more are lists in the array's shape, whatever the elements are."""
    row = normalise({"x": array, "n": 1})
    assert row == {"x": expected, "n": 1}
    assert row.downgrades == ()


def test_large_array_is_kept_number_by_number():
    """Nothing is guessed to be a histogram: all numbers are in the row."""
    array = np.random.default_rng(0).normal(size=(100, 50)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(to_plain(array), np.float32), array)


def test_array_that_the_caller_changes_later_keeps_its_values():
    """A buffer that is used again does not reach into the row."""
    buffer = np.ones(3)
    row = normalise({"x": buffer})
    buffer[:] = 7
    assert row["x"] == [1.0, 1.0, 1.0]


def test_tensor_that_refuses_conversion_gives_its_list():
    """A tensor of another library is read by `tolist` where `__array__` fails."""
    assert to_plain(Tensor([0.5])) == 0.5
    assert to_plain(Tensor([[0.5, 1.5]])) == [[0.5, 1.5]]


def test_array_is_known_by_its_instance_too():
    """`dtype` and `shape` set on the object are enough."""

    class Dynamic:
        def __init__(self):
            self.dtype, self.shape = "x", (2,)

        def tolist(self):
            return [1, 2]

    assert to_plain(Dynamic()) == [1, 2]


def test_thing_with_a_shape_and_no_values_is_a_text():
    """The mere description of an array is logged as text, and counted."""
    import jax

    row = normalise({"spec": jax.ShapeDtypeStruct((2,), np.float32), "n": 1}, warn=False)
    assert row["spec"] == "ShapeDtypeStruct(shape=(2,), dtype=float32)"
    assert len(row.downgrades) == 1


def test_object_array_that_contains_itself_is_cut():
    """A cycle through an object array ends like any other."""
    array = np.empty(2, dtype=object)
    array[0], array[1] = 1, array
    plain = normalise({"x": array}, warn=False)["x"]
    assert plain[0] == 1
    assert plain[1].startswith("<cycle")
