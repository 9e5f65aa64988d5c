"""Ranks, and the import promises of the tracker layer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trackway.tracker import is_primary, process_rank
from trackway.tracker._process import fixed, job


@pytest.fixture(autouse=True)
def launcher(monkeypatch):
    """No launcher but the one of the test."""
    for variable in [name for name in os.environ if name.startswith(("RANK", "WORLD_", "SLURM_", "OMPI_", "PMI_"))]:
        monkeypatch.delenv(variable)

    def launch(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return launch


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_rank_comes_from_the_launcher(launcher, variable):
    """Each launcher's variable gives the rank."""
    launcher(**{variable: "3"})
    assert process_rank() == 3
    assert not is_primary()
    assert job().several


def test_one_process_is_primary(launcher):
    """Without a launcher, or with a variable that is no number, the process is the primary one."""
    assert is_primary()
    launcher(RANK="none")
    assert process_rank() == 0
    assert not job().several


@pytest.mark.parametrize(
    ("variables", "rank", "size"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, 1, 4),
        ({"RANK": "0", "WORLD_SIZE": "4"}, 0, 4),
        ({"RANK": "0"}, 0, None),
        ({"RANK": "5", "WORLD_SIZE": "2"}, 5, None),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1, 2),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "16"}, 0, 8),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "16"}, 3, 16),
        ({"RANK": "2", "WORLD_SIZE": "4", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, 2, 4),
    ],
)
def test_size_comes_from_the_launcher_too(launcher, variables, rank, size):
    """The number of processes is that of the launcher that gave the rank; one that cannot be is not known."""
    launcher(**variables)
    assert job()[:2] == (rank, size)
    assert job().several == (rank > 0 or (size or 1) > 1)


def test_a_shell_of_slurm_is_no_process_of_a_job(launcher):
    """`sbatch` and `salloc` give their shells rank 0 and the size of the steps to come; only `srun` starts one."""
    launcher(SLURM_PROCID="0", SLURM_NTASKS="16")
    assert job() == (0, 1, "")
    assert not job().several
    launcher(PMI_RANK="1", PMI_SIZE="2")
    assert job()[:2] == (1, 2)


def test_a_rank_can_be_fixed(launcher):
    """While a run is started, what comes up meanwhile changes nothing."""
    launcher(RANK="1")
    with fixed(job()):
        launcher(RANK="2")
        assert process_rank() == 1
    assert process_rank() == 2


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
