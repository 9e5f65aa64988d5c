"""Values on devices: not waited for, not lost, never fatal."""

from __future__ import annotations

import functools
import logging
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trackway.errors import TracerError, TrackwayWarning
from trackway.values import Histogram, Pending, encode, normalise, resolve


@jax.jit
def slow(x):
    """Take long enough that the result is not ready when the call returns."""
    return jax.lax.fori_loop(0, 100, lambda _, a: jnp.tanh(a @ a), x)


@functools.partial(jax.jit, donate_argnums=0)
def overwrite(x):
    """Use the input's buffer for the output."""
    return x + 1


class Remote:
    """An array on an accelerator, as far as its protocol goes."""

    dtype = np.dtype("float32")
    shape = (2,)

    def __init__(self, *, addressable=True, replicated=False, error=None):
        """Say where it lies, and what reading it raises."""
        self.is_fully_addressable = addressable
        self.is_fully_replicated = replicated
        self.error = error
        self.arrived = False
        self.started = 0

    def copy_to_host_async(self):
        """Count the transfers begun."""
        self.started += 1

    def is_ready(self):
        """Tell whether the transfer has ended."""
        return self.arrived

    def addressable_data(self, index):
        """Return the local copy."""
        assert index == 0
        return Remote()

    def __array__(self, dtype=None, copy=None):
        if self.error is not None:
            raise self.error
        return np.array([1.0, 2.0], np.float32)


def square():
    """Return a matrix whose `slow` image is 1 everywhere."""
    return jnp.ones((600, 600)).block_until_ready()


def test_ready_value_on_the_cpu_is_converted_at_once():
    """What is at hand costs no detour."""
    row = normalise({"loss": jnp.float32(0.5).block_until_ready()})
    assert row == {"loss": 0.5}
    assert not row.pending
    assert resolve(row) is row


def test_value_still_being_computed_is_pending():
    """Logging does not wait: the leaf gets its value when it is resolved."""
    image = slow(square())
    row = normalise({"a": {"loss": image[0, 0]}, "xs": [image], "n": 1})
    assert row.pending
    done = resolve(row)
    assert done["a"] == {"loss": 1.0}
    assert np.asarray(done["xs"]).shape == (1, 600, 600)
    assert (done["n"], done.pending) == (1, False)


@pytest.mark.parametrize("pick", [lambda x: x, lambda x: x[0, 0], lambda x: x[:1, :1]])
def test_logged_value_survives_the_donation_of_its_buffer(pick):
    """A step that overwrites a logged array does not change or lose what was logged."""
    value = pick(slow(square()))
    row = normalise({"x": value})
    result = overwrite(value)
    assert value.is_deleted()
    assert np.all(np.asarray(resolve(row)["x"]) == 1.0)
    assert np.all(np.asarray(result) == 2.0)


def test_value_that_was_deleted_before_is_a_text_with_the_cure():
    """An array whose buffer is gone costs itself, and the warning says what to do."""
    value = jnp.ones(2)
    value.delete()
    with pytest.warns(TrackwayWarning, match=r"'x' cannot be read from the device.*log it before that"):
        row = normalise({"x": value, "n": 1})
    assert row["x"].startswith("<not logged")
    assert row["n"] == 1


def test_transfer_is_started_at_the_call_and_awaited_later():
    """An array on an accelerator begins its way to the host when it is logged."""
    remote = Remote()
    row = normalise({"x": remote})
    pending = row["x"]
    assert isinstance(pending, Pending)
    assert remote.started == 1
    assert not pending.is_ready()
    remote.arrived = True
    assert pending.is_ready()
    assert pending.resolve() == [1.0, 2.0]
    assert pending.resolve() is pending.resolve()


def test_failed_computation_is_a_text_and_one_message(caplog):
    """Reading a value whose computation failed neither raises nor passes unseen."""
    row = normalise({"a": {"loss": Remote(error=RuntimeError("out of memory"))}, "n": 1})
    with caplog.at_level(logging.WARNING, logger="trackway"):
        done = resolve(row)
        resolve(row)
    assert done == {"a": {"loss": "<unavailable: RuntimeError: out of memory>"}, "n": 1}
    assert [downgrade.path for downgrade in done.downgrades] == ["a/loss"]
    assert len(caplog.records) == 1
    assert "'a/loss' could not be read" in caplog.text


def test_replicated_array_is_read_from_the_local_copy():
    """An array of several processes that each has whole is logged by any of them."""
    row = normalise({"x": Remote(addressable=False, replicated=True)})
    assert resolve(row)["x"] == [1.0, 2.0]


def test_array_spread_over_processes_is_counted_and_named():
    """What no single process has is a downgrade that names the key and the cure, not an exception."""
    with pytest.warns(TrackwayWarning, match=r"'w' is spread over several processes.*log a reduction"):
        row = normalise({"w": Remote(addressable=False), "n": 1})
    assert row["n"] == 1
    assert row.downgrades[0].path == "w"


def test_random_key_is_a_text():
    """A typed key of JAX has no numbers; its text is kept."""
    row = normalise({"key": jax.random.key(0)}, warn=False)
    assert "key<fry>" in row["key"]
    assert len(row.downgrades) == 1


def test_traced_value_is_an_error_that_names_metric_and_cure():
    """A tracer has no value yet: the error says which metric and which call accepts it."""

    @jax.jit
    def step(x):
        normalise({"train": {"loss": [x]}})
        return x

    with pytest.raises(TracerError, match=r"'train/loss' is a traced JAX value.*`trackway.log` or `trackway.jit_log`"):
        step(1.0)


def test_concrete_array_may_be_logged_while_a_function_is_traced():
    """A pending value that is logged during a trace does not become part of it."""
    image = slow(square())
    rows = []

    @jax.jit
    def step(x):
        rows.append(normalise({"x": image}))
        return x

    step(1.0)
    assert resolve(rows[0])["x"][0][0] == 1.0


def test_histogram_of_a_device_array_is_pending_and_resolves():
    """A histogram that is still being computed arrives with host numbers."""
    row = normalise({"grad": Histogram.from_array(slow(square()))})
    assert row.pending
    host = resolve(row)["grad"]
    assert isinstance(host, Histogram)
    assert (host.num, type(host.num)) == (360_000, int)
    assert int(host.counts.sum()) == 360_000


def test_threads_that_resolve_one_value_agree():
    """A pending value may be asked for by several threads at once."""
    for _ in range(20):
        pending = normalise({"x": Remote()})["x"]
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _, p=pending: p.resolve(), range(4)))
        assert results == [[1.0, 2.0]] * 4


def test_not_a_number_is_logged_while_jax_hunts_for_it():
    """JAX's debugging mode, in which each computation of a NaN raises, does not keep one from the log."""
    image = slow(square() * jnp.nan)[0, 0]
    with jax.debug_nans(True):
        row = resolve(normalise({"loss": image}))
    assert np.isnan(row["loss"])


def test_pending_value_can_be_encoded():
    """The encoder waits for a value that nobody has resolved."""
    assert encode(normalise({"x": Remote()})) == b'{"x":[1.0,2.0]}'
