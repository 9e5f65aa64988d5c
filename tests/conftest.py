"""Global state of the library is reset around every test."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# of the time that compiling takes, the older code generator for fused loops needs half
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8 --xla_cpu_use_fusion_emitters=false")

from trackway import _notices
from trackway.tracker import _current


@pytest.fixture(autouse=True)
def fresh_state(monkeypatch):
    """Forget what was said, and start without a tracker and without trackway's environment variables."""
    for variable in [name for name in os.environ if name.startswith("TRACKWAY_")]:
        monkeypatch.delenv(variable)
    for variable in [name for name in os.environ if name.startswith(("RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "PMI_"))]:
        monkeypatch.delenv(variable, raising=False)
    _notices.forget_said()
    yield
    _current.set_global_tracker(None)
    for entry in (*_current._in_context.get(), *_current._entries):
        _current.pop(entry)
    _notices.forget_said()
