"""Memory of devices and of the process. No accelerator is needed: what the frameworks are asked is what matters."""

from __future__ import annotations

import mmap
import subprocess
import sys
import types

import pytest

from trackway.events import memory_bytes, rss_bytes


class Device:
    """A device of JAX as far as memory goes."""

    def __init__(self, platform, used):
        self.platform, self.used = platform, used

    def memory_stats(self):
        """Return what a device says; a number stands for its bytes."""
        if isinstance(self.used, Exception):
            raise self.used
        return None if self.used is None else {"bytes_in_use": self.used, "bytes_limit": 100}


class TorchDevice:
    """A device of PyTorch as far as it is looked at."""

    def __init__(self, kind, index):
        self.type, self.index = kind, index

    def __str__(self):
        return f"{self.type}:{self.index}"


@pytest.fixture
def devices(monkeypatch):
    """Return a function that has JAX say that it uses these devices, or that it has not begun to."""

    def use(*found, started=True):
        bridge = types.ModuleType("jax._src.xla_bridge")
        bridge.backends_are_initialized = lambda: started
        jax = types.ModuleType("jax")
        jax.local_devices = lambda: list(found)
        monkeypatch.setitem(sys.modules, "jax", jax)
        monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)

    return use


@pytest.fixture
def torch(monkeypatch):
    """Put a stand-in for PyTorch with two CUDA devices there, which notes what it is asked; none is installed."""
    module = types.ModuleType("torch")
    module.asked = []

    def memory_allocated(device=None):
        module.asked.append(device)
        if str(device).endswith(":7"):
            raise RuntimeError("invalid device ordinal")
        return 2000 if str(device).endswith("1") else 1000

    module.cuda = types.SimpleNamespace(memory_allocated=memory_allocated, is_initialized=lambda: module.started)
    module.mps = types.SimpleNamespace(current_allocated_memory=lambda: 77)
    module.started = True
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    return module


def test_the_first_accelerator_of_jax_is_the_default(devices):
    """CPUs do not count; a device that is asked for is the one that answers."""
    devices(Device("cpu", 1), Device("gpu", 20), gpu := Device("gpu", 30))
    assert memory_bytes() == 20
    assert (memory_bytes("gpu:1"), memory_bytes("GPU"), memory_bytes("jax:1"), memory_bytes("cpu:0")) == (30, 20, 20, 1)
    assert memory_bytes(gpu) == 30
    assert memory_bytes("gpu:2") is None
    assert memory_bytes("tpu:0") is None


@pytest.mark.parametrize("said", [None, RuntimeError("not implemented")])
def test_a_device_that_cannot_say(devices, said):
    """It is None, whatever the device does."""
    devices(device := Device("gpu", said))
    assert memory_bytes() is None
    assert memory_bytes(device) is None


def test_jax_is_not_asked_before_it_has_begun(devices):
    """As long as it has no devices, it is not made to look for any."""
    devices(Device("gpu", 20), started=False)
    assert memory_bytes() is None
    assert memory_bytes("gpu:0") is None


def test_no_framework_is_imported_nor_initialised():
    """In a new process nothing is loaded for it; and JAX, loaded, still has no devices afterwards."""
    program = (
        "import sys; from trackway.events import memory_bytes\n"
        "assert memory_bytes() is None and memory_bytes('gpu:0') is None\n"
        "assert not {'jax', 'torch'} & set(sys.modules)\n"
        "try: import jax\n"
        "except ImportError: sys.exit()\n"
        "assert memory_bytes() is None and memory_bytes('jax:0') is None\n"
        "assert not sys.modules['jax._src.xla_bridge'].backends_are_initialized()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_real_devices_of_jax_are_asked():
    """A device of this machine answers, a CPU by None."""
    jax = pytest.importorskip("jax")
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    expected = None if stats is None else stats["bytes_in_use"]
    assert memory_bytes(device) == memory_bytes("jax:0") == expected


def test_pytorch_is_asked_for_the_device_that_was_given(torch):
    """The text or the object reaches it, so that it is not the current device that answers for another one."""
    device = TorchDevice("cuda", 1)
    assert memory_bytes("cuda:1") == memory_bytes(device) == memory_bytes("gpu:1") == 2000
    assert memory_bytes() == memory_bytes("cuda") == 1000
    assert torch.asked == ["cuda:1", device, "cuda:1", None, None]
    assert memory_bytes("mps") == memory_bytes(TorchDevice("mps", None)) == 77


def test_pytorch_is_not_initialised(torch):
    """Before its first use, and for a device that is not there, the answer is None; Apple's needs no beginning."""
    assert memory_bytes("cuda:7") is None
    assert memory_bytes("xpu") is None
    torch.started = False
    torch.asked.clear()
    del torch.mps
    assert memory_bytes() is None
    assert memory_bytes("cuda:0") is None
    assert torch.asked == []


def test_a_device_of_jax_goes_before_pytorch(devices, torch):
    """With both in use, "gpu" is JAX's; without a GPU of JAX, it is PyTorch's."""
    devices(Device("gpu", 20))
    assert memory_bytes("gpu:0") == memory_bytes() == 20
    devices(Device("cpu", 1))
    assert memory_bytes("gpu:0") == memory_bytes() == 1000


@pytest.mark.parametrize("text", ["gpu:x", "", "gpu:-1", "3", "a b"])
def test_a_text_that_is_no_device(text):
    """It says what is."""
    with pytest.raises(ValueError, match="is no device"):
        memory_bytes(text)


@pytest.mark.parametrize("thing", [3, 2.5, object(), []])
def test_a_thing_that_is_no_device(thing):
    """It says what is."""
    with pytest.raises(TypeError, match="takes a device"):
        memory_bytes(thing)


@pytest.mark.parametrize("with_psutil", [True, False])
def test_the_memory_of_the_process(monkeypatch, with_psutil):
    """It grows with what is allocated, with psutil and without."""
    if not with_psutil:
        monkeypatch.setitem(sys.modules, "psutil", None)
    with mmap.mmap(-1, 64 << 20) as block:  # of its own: the heap may have that much to spare, which counts already
        before = rss_bytes()
        for offset in range(0, len(block), mmap.PAGESIZE):
            block[offset] = 1
        assert rss_bytes() - before > 32 << 20


def test_where_the_memory_of_the_process_is_not_known(monkeypatch):
    """It is None."""
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr("trackway.events._system._STATM", "/nowhere")
    assert rss_bytes() is None
