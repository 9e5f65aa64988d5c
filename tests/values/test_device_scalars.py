"""Single numbers on a device take a short way through `normalise`: what they become is what others become."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from trackway.errors import TracerError, TrackwayWarning
from trackway.values import Pending, Row, normalise, resolve, to_plain
from trackway.values._arrays import array_to_plain
from trackway.values._pending import hold
from trackway.values._scalars import _MAX_KNOWN, _known

SHAPES = [(), (1,), (1, 1)]
REALS = ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32"]
WHOLES = ["int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
NUMBERS = {
    **dict.fromkeys(REALS, (0.1, -3.0, 0.0, -0.0, np.nan)),
    **{name: (info.min, info.max, 1) for name in WHOLES for info in [ml_dtypes.iinfo(jnp.dtype(name))]},
    "bool": (True, False),
}


@jax.jit
def slow(x):
    """Take long enough that the result is not ready when the call returns."""
    return jax.lax.fori_loop(0, 100, lambda _, a: jnp.tanh(a @ a), x)[0, 0]


@jax.jit
def after(image, number):
    """Return *number*, as soon as *image* is computed."""
    return jnp.where(image > 0, number, jnp.zeros_like(number))


@functools.partial(jax.jit, donate_argnums=0)
def overwrite(x):
    """Use the input's buffer for the output."""
    return x + jnp.ones_like(x)


def square():
    """Return a matrix whose `slow` image is 1."""
    return jnp.ones((600, 600), jnp.float32).block_until_ready()


def late(number):
    """Return *number* as an array that is still being computed."""
    return after(slow(square()), number)


def same(first, second):
    """Tell whether two plain values are of one type and print the same: NaN and the sign of zero count too."""
    return type(first) is type(second) and repr(first) == repr(second)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_number_at_hand_is_what_the_same_array_on_the_host_is(dtype, shape):
    """Every type and rank gives the number that NumPy's array gives, at the top and in the depth of a row."""
    for number in NUMBERS[dtype]:
        host = np.full(shape, number, jnp.dtype(dtype))
        array = jnp.asarray(host).block_until_ready()
        row = normalise({"x": array})
        assert same(row["x"], to_plain(host))
        assert (row.pending, row.flat, row.downgrades) == (False, True, ())
        assert same(normalise({"x": {"y": [array]}})["x"]["y"][0], row["x"])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["bool", "int4", "uint32", "float8_e5m2", "bfloat16", "float16", "float32"])
def test_late_number_is_what_the_same_array_on_the_host_is(dtype, shape):
    """A number that is computed later resolves to what it would have been, in a row that holds numbers only."""
    host = np.full(shape, NUMBERS[dtype][0], jnp.dtype(dtype))
    row = normalise({"x": late(jnp.asarray(host)), "n": 1})
    assert row.pending
    assert not row.flat
    assert isinstance(row["x"], Pending)
    done = resolve(row)
    assert same(done["x"], to_plain(host))
    assert (done["n"], done.pending, done.flat) == (1, False, True)


def test_wide_numbers_are_exact():
    """Integers and floats of 64 bits lose nothing on their way."""
    with jax.enable_x64(True):
        for host in (np.uint64(2**64 - 1), np.int64(-(2**63)), np.float64(0.1)):
            assert same(normalise({"x": jnp.asarray(host).block_until_ready()})["x"], host.item())
            assert same(resolve(normalise({"x": late(jnp.asarray(host))}))["x"], host.item())


def test_number_is_what_the_way_of_large_arrays_makes_of_it():
    """Held and converted like an array of any size, a number comes out the same."""
    for array in (jnp.float32(0.1), jnp.bfloat16(0.1), jnp.int32(7), late(jnp.float32(0.1)), late(jnp.int8(-3))):
        expected = array_to_plain(hold(array), lambda item: item)
        assert same(resolve(normalise({"x": array}))["x"], expected)


def test_neighbours_of_all_plain_kinds_are_kept():
    """Plain values and NumPy's scalars beside the array are as in any other row; the payload stays as it is."""
    loss = jnp.float32(0.5).block_until_ready()
    payload = {"loss": loss, "n": 3, "t": "x", "none": None, "b": True, "np": np.float16(0.5), "big": 10**50}
    row = normalise(payload)
    assert type(row) is Row
    assert row == normalise({"deep": payload})["deep"]
    assert list(row) == list(payload)
    assert payload["loss"] is loss


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda: jnp.arange(3), [0, 1, 2]),
        (lambda: jnp.zeros((1, 0)), []),
        (lambda: jnp.complex64(1 + 2j), {"real": 1.0, "imag": 2.0}),
        (lambda: (1, 2), [1, 2]),
        (lambda: np.ones(2), [1.0, 1.0]),
    ],
    ids=["larger", "empty", "complex", "tuple", "numpy"],
)
def test_number_beside_what_is_none_has_its_value(value, expected):
    """A row with something else in it is not called flat, and has everything."""
    row = normalise({"loss": late(jnp.float32(0.5)), "x": value(), "at hand": jnp.int32(1)})
    assert not row.flat
    done = resolve(row)
    assert done == {"loss": 0.5, "x": expected, "at hand": 1}
    assert not done.flat


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
def test_late_number_survives_donation(dtype, shape):
    """A step that overwrites the buffer after the call changes nothing of what was logged."""
    value = late(jnp.ones(shape, dtype))
    row = normalise({"x": value})
    overwrite(value)
    assert value.is_deleted()
    assert resolve(row)["x"] == 1


def test_number_that_was_deleted_before_is_a_text_with_the_cure():
    """A scalar whose buffer is gone costs itself, at the top and in the depth, and not the neighbours."""
    value, other = jnp.float32(1.0), jnp.float32(2.0).block_until_ready()
    value.delete()
    with pytest.warns(TrackwayWarning, match=r"cannot be read from the device.*log it before that") as caught:
        row = normalise({"y": other, "x": value, "deep": {"x": value}})
        again = normalise({"y": other, "x": value})
    assert len(caught) == 2
    assert row["y"] == again["y"] == 2.0
    assert [downgrade.path for downgrade in row.downgrades] == ["x", "deep/x"]
    assert again["x"] == row["x"] == row["deep"]["x"]
    assert again["x"].startswith("<not logged")


def test_pending_number_whose_buffer_is_deleted_is_ready_and_says_why():
    """Asking for what was deleted meanwhile neither waits nor raises."""
    array = late(jnp.float32(1.0))
    pending = Pending(array, name="x")
    array.delete()
    assert pending.is_ready()
    assert "deleted" in pending.outcome()[1]


def test_traced_number_is_an_error_that_names_the_metric():
    """A tracer beside a concrete number is refused as ever."""
    loss = jnp.float32(0.5)

    @jax.jit
    def step(x):
        normalise({"loss": loss, "traced": x})
        return x

    with pytest.raises(TracerError, match="'traced' is a traced JAX value"):
        step(1.0)


def test_late_number_logged_while_a_function_is_traced_is_no_part_of_it():
    """The value is there, and the trace has no further operation."""
    rows = []
    loss = late(jnp.float32(0.5))

    def step(x):
        rows.append(normalise({"loss": loss}))
        return x

    jax.make_jaxpr(step)(1.0)
    assert resolve(rows[0]) == {"loss": 0.5}
    assert isinstance(rows[0]["loss"], float)


def test_reserved_names_of_numbers_are_treated_as_ever():
    """Names with an underscore at their beginning are left out, or kept where that is wanted; keys become texts."""
    one = jnp.int32(1).block_until_ready()
    row = normalise({"_x": one, "loss": one}, warn=False)
    assert (row, [downgrade.lost for downgrade in row.downgrades]) == ({"loss": 1}, [True])
    assert normalise({"_x": one, "_bigint": one}, reserved=False, warn=False) == {"_x": 1, "_bigint_": 1}
    assert normalise({3: one, "loss": one}) == {"3": 1, "loss": 1}


def test_arrays_are_handed_to_who_asks_for_them():
    """With a function for arrays, none of them becomes a number."""
    met = []
    value = jnp.float32(0.5)
    assert normalise({"x": value}, arrays=lambda array: met.append(array) or "taken") == {"x": "taken"}
    assert met[0] is value


@pytest.mark.parametrize("spec", [P(), P("a"), P(None, "b")])
def test_number_on_many_devices_is_read(spec):
    """Eight devices that hold one number, each whole or one of them alone, make no difference."""
    devices = np.array(jax.devices()[:8])
    mesh = Mesh(devices.reshape(8, 1) if spec == P(None, "b") else devices.reshape(1, 8), ("a", "b"))
    array = jax.device_put(np.full((1, 1), 0.5, np.float32), NamedSharding(mesh, spec))
    assert normalise({"x": array.block_until_ready()}) == {"x": 0.5}
    image = slow(jax.device_put(square()[:300, :300], NamedSharding(mesh, P())))
    row = normalise({"loss": image, "x": after(image, array)})
    assert resolve(row) == {"loss": 1.0, "x": 0.5}


def test_sharded_array_and_its_mean_are_read():
    """What eight devices hold in parts stays a list, and its mean a number."""
    mesh = Mesh(np.array(jax.devices()[:8]), ("a",))
    array = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("a")))
    row = resolve(normalise({"x": array, "mean": array.mean()}))
    assert row == {"x": list(range(8)), "mean": 3.5}


def test_what_is_known_of_places_is_bounded():
    """A program that makes a new sharding at every step does not fill the memory, and reads its numbers."""
    device = jax.devices()[:1]
    for number in range(_MAX_KNOWN + 20):
        sharding = NamedSharding(Mesh(np.array(device), (f"axis{number}",)), P())
        assert resolve(normalise({"x": jax.device_put(np.int32(number), sharding)})) == {"x": number}
    assert 0 < len(_known) <= _MAX_KNOWN
