"""Objects that say themselves what they are in a row, and payloads taken apart for a compiled function."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from trackway.errors import TracerError
from trackway.values import Histogram, Pending, normalise, resolve
from trackway.values._row import pendings
from trackway.values._walk import Walk


class Logs(Mapping):
    """A mapping that has a better idea of its row than its items."""

    def __init__(self, **items):
        """Hold *items*."""
        self.items_ = items

    def __getitem__(self, name):
        return self.items_[name]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)

    def __trackway_row__(self):
        return {"row": list(self.items_), "_reserved": 1}

    def __trackway_pending__(self):
        return Pending(self, lambda logs: {name: float(value) for name, value in logs.items_.items()}, parts=())


def test_an_object_gives_its_row():
    """What `__trackway_row__` returns is the payload, with all rules for one."""
    row = normalise(Logs(a=1, b=2), warn=False)
    assert row == {"row": ["a", "b"]}
    assert [downgrade.path for downgrade in row.downgrades] == ["_reserved"]


def test_an_object_in_a_payload_gives_a_pending():
    """Nested at any depth, it is a leaf that resolves to a dict of plain values."""
    row = normalise({"eval": Logs(a=1), "all": [Logs(b=2)]})
    assert row.pending
    assert isinstance(row["eval"], Pending)
    done = resolve(row)
    assert (done, done.pending) == ({"eval": {"a": 1.0}, "all": [{"b": 2.0}]}, False)


@pytest.mark.parametrize("row", [3, None, "text"])
def test_a_row_that_is_no_mapping_is_an_error(row):
    """An object that gives something else is no payload."""

    class Wrong:
        def __trackway_row__(self):
            return row

    with pytest.raises(TypeError, match="metrics must be a mapping"):
        normalise(Wrong())


def test_the_class_of_such_an_object_is_no_payload():
    """The hook is that of instances."""
    with pytest.raises(TypeError, match="metrics must be a mapping"):
        normalise(Logs)
    assert normalise({"class": Logs})["class"].endswith("Logs")


def test_pendings_are_found_at_any_depth():
    """Every leaf that is not on the host is listed, in order."""
    leaves = [Pending(i) for i in range(3)]
    row = normalise({"a": leaves[0], "b": {"c": [1, leaves[1], [leaves[2]]]}, "d": "x"})
    assert list(pendings(row)) == leaves
    assert list(pendings(normalise({"a": 1}))) == []


class Taken:
    """What is handed to the callback, and a mark for each in the row."""

    def __init__(self):
        """Start with none."""
        self.values = []

    def __call__(self, value):
        self.values.append(value)
        return f"#{len(self.values) - 1}"


def in_trace(make):
    """Return the row of `make(traced value)` and what was taken out of it."""
    taken, rows = Taken(), []

    @jax.jit
    def step_fn(x):
        rows.append(normalise(make(x), warn=False, arrays=taken))

    step_fn(jnp.float32(1))
    return rows[0], taken.values


@pytest.mark.parametrize(
    "value",
    [
        np.arange(3),
        np.ones((2, 2), np.float16),
        np.array([True]),
        np.zeros((0,)),
        np.array([1j]),
        np.ones(2, ml_dtypes.bfloat16),
        jnp.ones(3),
        jnp.float32(1),
        jnp.int32(3),
    ],
)
def test_arrays_are_handed_over(value):
    """Arrays of NumPy that have an axis, and all of JAX, are taken as they are, wherever they stand."""
    row, taken = in_trace(lambda x: {"a": value, "b": {"c": [1, value, x]}})
    assert row == {"a": "#0", "b": {"c": [1, "#1", "#2"]}}
    assert taken[0] is taken[1] is value
    assert isinstance(taken[2], jax.core.Tracer)
    assert not row.pending


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (3, 3),
        (0.5, 0.5),
        (True, True),
        ("text", "text"),
        (np.float32(0.5), 0.5),
        (np.array(3), 3),
        (ml_dtypes.bfloat16(0.5), 0.5),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([None, 1], object), [None, 1]),
        (np.ma.masked_array([1, 2], [False, True]), [1, None]),
        (np.array([(1, 2.0)], [("x", int), ("y", float)]), {"x": 1, "y": 2.0}),
        (np.ones(2, np.longdouble), [1.0, 1.0]),
        (None, None),
    ],
)
def test_other_values_stay_in_the_row(value, plain):
    """Numbers, texts and arrays that no device can hold are plain values as ever."""
    row, taken = in_trace(lambda _x: {"a": value})
    assert (row, taken) == ({"a": plain}, [])


def test_histograms_with_a_value_of_jax_are_handed_over_whole():
    """One that is traced, or lies on a device, is one leaf; one of the host is its host form."""
    edges, host = np.linspace(0, 1, 3), Histogram.from_array(np.ones(3))
    on_device = Histogram.from_array(jnp.ones(3))
    row, taken = in_trace(lambda x: {"t": Histogram.from_array(x[None], edges=edges), "d": on_device, "h": host})
    assert (row["t"], row["d"], row["h"]) == ("#0", "#1", host)
    assert type(taken[0]) is Histogram
    assert taken[1] is on_device
    assert len(taken) == 2


def test_keys_of_a_random_generator_have_no_numbers():
    """Traced or not, they become a text and are not handed over."""
    key = jax.random.key(0)
    row, taken = in_trace(lambda x: {"a": key, "b": jax.random.key(x.astype(int)), "c": x})
    assert [type(row[name]) for name in "ab"] == [str, str]
    assert (row["c"], len(taken)) == ("#0", 1)


def test_mappings_of_a_trace_are_walked():
    """An object with a form of its own is a mapping of its items while arrays are handed over."""
    row, taken = in_trace(lambda x: {"eval": Logs(a=x, n=3)})
    assert row == {"eval": {"a": "#0", "n": 3}}
    assert len(taken) == 1


def test_without_a_callback_traced_values_are_refused():
    """Nothing is handed over unless somebody asks for it."""
    refused = []

    @jax.jit
    def step_fn(x):
        with pytest.raises(TracerError) as error:
            normalise({"x": x})
        refused.append(error)

    step_fn(jnp.float32(1))
    assert len(refused) == 1
    assert Walk().arrays is None
