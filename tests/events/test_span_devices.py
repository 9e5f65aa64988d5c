"""Spans around what devices compute."""

from __future__ import annotations

import sys
import types

import pytest

from trackway.errors import TrackwayWarning
from trackway.events import span
from trackway.events._waiting import wait_for


def test_wait_is_for_decorators_and_the_method_for_blocks(kept):
    """Each says so where the other is meant."""
    with pytest.raises(TypeError, match=r"s\.wait"), span("forward", wait=True):
        pass
    with pytest.raises(TypeError, match="generator"):

        @span("items", wait=True)
        def items():
            yield 1


class Waited:
    """An array as far as waiting goes."""

    def __init__(self):
        self.waits = 0

    def block_until_ready(self):
        """Count."""
        self.waits += 1
        return self


@pytest.mark.parametrize("with_jax", [True, False])
def test_what_is_waited_for(kept, monkeypatch, with_jax):
    """Arrays anywhere in mappings, lists and tuples are, by their protocol, with JAX and without."""
    if with_jax:
        pytest.importorskip("jax")
    else:
        monkeypatch.delitem(sys.modules, "jax", raising=False)
    arrays = [Waited() for _ in range(4)]
    tree = {"a": arrays[0], 1: [arrays[1], (arrays[2],)], "rest": "text", "none": None}
    with span("forward") as s:
        assert s.wait(tree) is tree

    @span("decorated", wait=True)
    def forward():
        return arrays[3]

    assert forward() is arrays[3]
    assert [array.waits for array in arrays] == [1, 1, 1, 1]


def test_pytorch_devices_are_waited_for(monkeypatch):
    """Each device of the tensors once, a CPU never. PyTorch is stood in for: this is about what it is asked."""
    asked = []

    class Tensor:
        def __init__(self, kind, index=None):
            self.device = types.SimpleNamespace(type=kind, index=index)

    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    torch.cuda = types.SimpleNamespace(synchronize=lambda device: asked.append((device.type, device.index)))
    torch.mps = types.SimpleNamespace(synchronize=lambda: asked.append("mps"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    wait_for([Tensor("cuda", 1), {"a": Tensor("cuda", 1)}, Tensor("cpu"), Tensor("mps")])
    assert asked == [("cuda", 1), "mps"]


def test_a_span_in_a_traced_function_is_left_out(kept):
    """It would measure the tracing: said once, and nothing is kept; one around the call is."""
    jax = pytest.importorskip("jax")

    @jax.jit
    def step(x):
        with span("inside") as s:
            return s.wait(x * 2)

    @jax.jit
    @span("decorated", wait=True)
    def other(x):
        return x + 1

    with span("outside") as s, pytest.warns(TrackwayWarning, match="'inside' is inside a function that JAX traces"):
        s.wait(other(step(3.0)))
    assert kept.paths() == ["outside"]


def test_the_result_of_a_compiled_function_is_waited_for(kept):
    """A decorated compiled function works as before, and its result is there when its span ends."""
    jax = pytest.importorskip("jax")
    step = span("step", wait=True)(jax.jit(lambda x: {"out": (x @ x).sum()}))
    assert step(jax.numpy.ones((64, 64)))["out"].is_ready()
    assert kept.paths() == ["step"]


def test_attributes_do_not_wait_for_a_device(kept):
    """Of an array that is under way, type and shape are kept; of one that is there, the value."""

    class Late:
        dtype, shape, ready = "float32", (2, 3), False

        def is_ready(self):
            return self.ready

        def copy_to_host_async(self):
            raise AssertionError("its transfer was started")

        def __array__(self, dtype=None, copy=None):
            raise AssertionError("it was read")

    jax = pytest.importorskip("jax")
    there = jax.block_until_ready(jax.numpy.float32(2.0))
    with span("forward", late=Late(), there=there, nested={"list": [there]}):
        pass
    assert kept.spans[0].attributes == {"late": "float32[2, 3]", "there": 2.0, "nested": {"list": [2.0]}}


def test_an_array_that_was_deleted_is_no_error(kept):
    """Of attributes that cannot be read, what they are is kept."""
    jax = pytest.importorskip("jax")
    array = jax.numpy.ones(3)
    array.delete()
    with span("forward", gone=array, batch=2):
        pass
    assert kept.spans[0].attributes == {"batch": 2, "gone": "float32[3]"}
