"""Ranks, and the import promises of the tracker layer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trackway.tracker import is_primary, process_rank


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_rank_comes_from_the_launcher(monkeypatch, variable):
    """Each launcher's variable gives the rank."""
    monkeypatch.setenv(variable, "3")
    assert process_rank() == 3
    assert not is_primary()


def test_one_process_is_primary(monkeypatch):
    """Without a launcher, or with a variable that is no number, the process is the primary one."""
    assert is_primary()
    monkeypatch.setenv("RANK", "none")
    assert process_rank() == 0


def test_asking_for_the_rank_does_not_initialise_jax():
    """`jax.distributed.initialize` must still be possible after a tracker asked for the rank."""
    program = (
        "import jax; from trackway.tracker import process_rank; process_rank();"
        "from jax._src import xla_bridge as b; raise SystemExit(int(b.backends_are_initialized()))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import trackway", ["jax", "torch", "draccus", "fsspec", "tensorboardX", "wandb", "yaml"]),
        ("import trackway; trackway.log; trackway.Tracker", ["jax", "draccus", "fsspec", "asyncio", "yaml"]),
        ("from trackway.config import TrackerConfig", ["jax", "torch", "tensorboardX", "wandb", "trackio"]),
        ("import trackway.testing", ["jax", "pytest", "tensorboardX"]),
    ],
)
def test_imports_are_light(statement, absent):
    """Importing a part of the library does not load what only other parts need."""
    program = f"{statement}\nimport sys\nprint(*sorted({absent!r} & sys.modules.keys()))".replace(
        f"{absent!r} &", f"set({absent!r}) &"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert run.stdout.split() == []


def test_rank_comes_from_jax_without_starting_its_backends():
    """With `jax.distributed` initialised the rank is JAX's, and no accelerator is touched to find it."""
    program = """
import socket, sys
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{probe.getsockname()[1]}"
import jax
jax.distributed.initialize(address, 1, 0, coordinator_bind_address=address)
from jax._src import xla_bridge
from trackway.tracker import process_rank
print(process_rank(), xla_bridge.backends_are_initialized())
jax.distributed.shutdown()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout.split() == ["0", "False"], run.stderr
