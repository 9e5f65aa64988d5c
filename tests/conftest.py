"""Global state of the library is reset around every test."""

from __future__ import annotations

import contextlib
import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# of the time that compiling takes, the older code generator for fused loops needs half
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8 --xla_cpu_use_fusion_emitters=false")

with contextlib.suppress(ImportError):  # the older versions of JAX have no hypothesis beside them
    import hypothesis

    hypothesis.settings.register_profile("suite", max_examples=50)  # where a test does not say how many
    hypothesis.settings.load_profile("suite")

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


LONG = (
    "capture/fuzz/test_fuzz.py",
    "docs/test_pages.py",
    "examples/test_digits.py",
    "backends/test_conformance.py",
    "examples/test_recipes.py",
    "values/test_histogram.py",
    "processes/test_one_run.py",
    "processes/test_example.py",
    "run/test_kill.py",
    "run/test_exits.py",
    "examples/test_digits_everywhere.py",
    "docs/test_demo.py",
    "benchmarks/test_figures.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG))
