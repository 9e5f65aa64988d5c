"""Rows read out of packed buffers, wherever these lie, and whether a function is being traced."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from trackway.capture import _jaxcompat as compat
from trackway.capture._reading import Slot, row_reader

NAMES = ("a", "b", "c")


def number_at(start, buffer=0):
    """Return where one number lies."""
    return Slot(buffer, start, (), is_bool=False)


@pytest.fixture
def read():
    """Read a row of three numbers at the start of the first buffer."""
    return row_reader(NAMES, [number_at(at) for at in range(3)], None)


@pytest.mark.parametrize("kind", ["float32", "int32", "uint32", "float16", "int8"])
@pytest.mark.parametrize("put", [jnp.asarray, np.asarray])
def test_numbers_are_those_that_numpy_gives(read, put, kind):
    """The memory of a buffer is read as its type says, the same at every row; what is behind the names is left out."""
    values = np.array([1.1, 100.7, 3, 4]).astype(kind)
    for _ in range(3):
        assert read([put(values)]) == (None, dict(zip(NAMES, values.tolist(), strict=False)))
    assert {type(value) for value in read([put(values)])[1].values()} == {type(values[0].item())}


@pytest.mark.parametrize("kind", ["float64", "int64", "uint64"])
def test_wide_numbers(read, kind):
    """Numbers of 64 bits keep all of them."""
    values = np.array([1, 2**53 + 1, 3]).astype(kind)
    with jax.enable_x64(True):
        assert read([jnp.asarray(values)])[1] == dict(zip(NAMES, values.tolist(), strict=True))


def test_a_vector_that_is_not_in_one_piece(read):
    """Every other number of a NumPy array is read as it is, first or later."""
    apart = np.arange(6, dtype=np.float32)[::2]
    assert [read([one])[1]["b"] for one in (apart, apart.copy(), apart)] == [2.0] * 3
    other = row_reader(NAMES, [number_at(at) for at in range(3)], None)
    assert [other([one])[1]["b"] for one in (apart.copy(), apart)] == [2.0] * 2


def test_not_a_number(read):
    """What is not finite comes as it is."""
    assert str(read([jnp.array([jnp.nan, jnp.inf, -jnp.inf])])[1]) == "{'a': nan, 'b': inf, 'c': -inf}"


@pytest.mark.skipif(jax.device_count() == 1, reason="needs several devices")
def test_a_buffer_that_every_device_has(read):
    """A row that lies on several devices is read all the same, also after others that lay on one."""
    values = jnp.arange(3.0)
    mesh = jax.make_mesh((jax.device_count(),), ("i",))
    spread = jax.device_put(values, NamedSharding(mesh, PartitionSpec()))
    expected = (None, {"a": 0.0, "b": 1.0, "c": 2.0})
    assert [read([one]) for one in (spread, values, spread)] == [expected] * 3
    other = row_reader(NAMES, [number_at(at) for at in range(3)], None)
    assert [other([one]) for one in (values, spread, values)] == [expected] * 3


def test_a_deleted_buffer_is_the_error_that_jax_makes_of_it(read):
    """Whoever reads the row learns what happened."""
    read([jnp.arange(3.0)])
    gone = jnp.arange(3.0)
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        read([gone])


def test_several_buffers_and_a_step():
    """Numbers keep the order in which they were logged, whichever buffer each is in."""
    read = row_reader(NAMES, [number_at(1), number_at(0, buffer=1), number_at(0)], number_at(1, buffer=1))
    step, row = read([jnp.array([3.0, 1.0]), jnp.array([2, 77])])
    assert (step, list(row.items())) == (77, [("a", 1.0), ("b", 2), ("c", 3.0)])
    assert (type(step), row.flat) == (int, True)


def test_tracing_is_known_however_it_is_found_out(monkeypatch):
    """The short look at JAX's state says what JAX says, and inside of `jit` what a constant says."""
    seen = []

    def look(x):
        for name in ("_state_is_known", "_state_is_clean"):
            seen.append(compat.tracing())
            monkeypatch.setattr(compat, name, None)
        seen.append(compat.tracing())
        monkeypatch.undo()
        return x

    look(0)
    assert seen == [False] * 3
    for transform in (jax.jit, jax.grad, jax.vmap):
        seen.clear()
        transform(look)(jnp.ones(2) if transform is jax.vmap else 1.0)
        assert seen[:2] == [True] * 2
        assert seen[2] or transform is not jax.jit
