"""Numbers of every library and width become the same Python numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from trackway.values import normalise, to_plain

NUMPY_INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
NUMPY_FLOATS = [np.float16, np.float32, np.float64, np.longdouble]
SMALL_FLOATS = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn"]
SMALL_INTS = ["int4", "uint4", "int2", "uint2"]
JAX_TYPES = ["int8", "uint8", "int32", "uint32", "float16", "float32", "bfloat16", "float8_e4m3fn", "int4", "uint4"]


@pytest.mark.parametrize("dtype", NUMPY_INTS)
def test_numpy_integers_stay_exact_at_their_extremes(dtype):
    """The least and greatest value of an integer type come back as the same Python int."""
    info = np.iinfo(dtype)
    for number in (int(info.min), int(info.max)):
        plain = to_plain(dtype(number))
        assert (plain, type(plain)) == (number, int)


@pytest.mark.parametrize("dtype", NUMPY_FLOATS)
@pytest.mark.parametrize("number", [0.5, -0.0, math.inf, -math.inf])
def test_numpy_floats_become_the_same_float(dtype, number):
    """A float of any width is a Python float, also where it is infinite."""
    plain = to_plain(dtype(number))
    assert type(plain) is float
    assert repr(plain) == repr(number)


@pytest.mark.parametrize("dtype", [*NUMPY_FLOATS, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_nan_of_every_width_stays_nan(dtype):
    """NaN is not dropped or turned into null, whatever its type."""
    assert math.isnan(to_plain(dtype(math.nan)))


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_floats_below_16_bits_become_floats(name):
    """Scalars and arrays of the small float types are Python floats."""
    dtype = getattr(ml_dtypes, name)
    assert to_plain(dtype(1.0)) == 1.0
    assert to_plain(np.array([1.0, 2.0], dtype)) == [1.0, 2.0]
    assert type(to_plain(np.ones((1, 1), dtype))) is float


@pytest.mark.parametrize("name", SMALL_INTS)
def test_integers_below_8_bits_become_ints(name):
    """Scalars and arrays of the small integer types are Python ints."""
    dtype = getattr(ml_dtypes, name)
    assert type(to_plain(dtype(1))) is int
    assert to_plain(np.array([1, 0], dtype)) == [1, 0]


@pytest.mark.parametrize("dtype", JAX_TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_jax_values_of_one_element_become_numbers(dtype, shape):
    """A JAX array of one element is a number, whatever its rank and type."""
    plain = to_plain(jnp.ones(shape, dtype).block_until_ready())
    assert plain == 1
    assert type(plain) is (int if "int" in dtype else float)


@pytest.mark.parametrize("value", [np.bool_(True), np.array([True]), jax.device_put(np.array(True))])
def test_booleans_stay_booleans(value):
    """A truth value of any library is a Python bool and no number."""
    assert to_plain(value) is True


@pytest.mark.parametrize("value", [2**70, -(2**70), 10**5000], ids="abc")
def test_large_ints_stay_exact(value):
    """Python integers of any length are kept."""
    assert normalise({"n": value})["n"] == value


@pytest.mark.parametrize("value", [1 + 2j, np.complex64(1 + 2j), np.array([[1 + 2j]])])
def test_complex_numbers_are_split(value):
    """A complex number becomes its real and imaginary part."""
    assert to_plain(value) == {"real": 1.0, "imag": 2.0}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1.5"), 1.5),
        (Decimal(2**70), 2**70),
        (Decimal("Infinity"), math.inf),
        (Decimal("1E+4000"), 10**4000),
        (Fraction(1, 4), 0.25),
        (Fraction(2**70, 1), 2**70),
    ],
)
def test_exact_numbers_of_the_standard_library_become_numbers(value, expected):
    """Whole numbers stay exact, others become the nearest float."""
    plain = to_plain(value)
    assert (plain, type(plain)) == (expected, type(expected))


def test_objects_that_are_numbers_by_protocol_become_numbers():
    """`__index__`, `__float__` and `__complex__` are enough to be a number."""

    class Index:
        def __index__(self):
            return 2**70

    class Real:
        def __float__(self):
            return 0.5

    class Complex:
        def __complex__(self):
            return 1j

    assert to_plain([Index(), Real(), Complex()]) == [2**70, 0.5, {"real": 0.0, "imag": 1.0}]


def test_subclasses_of_numbers_become_the_exact_type():
    """A subclass of int, float or str is reduced to its base, so that no encoder meets a type it does not know."""

    class Level(int):
        pass

    class Loss(float):
        pass

    class Name(str):
        __slots__ = ()

    row = normalise({"level": Level(3), "loss": Loss(0.5), "name": Name("x")})
    assert row == {"level": 3, "loss": 0.5, "name": "x"}
    assert [type(value) for value in row.values()] == [int, float, str]
