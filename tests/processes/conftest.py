"""Jobs of several real processes, under `jax.distributed` or without."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TIME_LIMIT = 100
_UNSET = ("RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "PMI_", "TRACKWAY_", "WANDB_")
_PREAMBLE = """
import json, os, signal, sys, time
from pathlib import Path

folder, number, size, address = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

def tell(**values):
    told = folder / f"told{number}.json"
    known = json.loads(told.read_text()) if told.exists() else {}
    told.write_text(json.dumps(known | values))

def wait_for(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)
"""
_JAX = """
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, size, number, coordinator_bind_address=address)
"""


class Job:
    """The processes of a job, which all run one program.

    Attributes:
        folder: Where they work.
        processes: They themselves, by rank.
    """

    def __init__(self, program, size, folder, *, jax=True, **variables):
        """Start *size* processes; `{rank}` in a variable's value is that of the process."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        source = _PREAMBLE + (_JAX if jax else "") + textwrap.dedent(program)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_UNSET)}
        kept |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        self.folder = Path(folder)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", source, str(folder), str(rank), str(size), address],
                cwd=folder,
                env=kept | {name: value.format(rank=rank) for name, value in variables.items()},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def end(self):
        """Wait for all of them; return what each has printed, and its exit code."""
        outputs = [process.communicate(timeout=TIME_LIMIT) for process in self.processes]
        self.errors = [errors for _, errors in outputs]
        return [process.returncode for process in self.processes]

    def told(self, rank):
        """What the process has told."""
        return json.loads((self.folder / f"told{rank}.json").read_text())

    def kill(self):
        """Kill what is left of it."""
        for process in self.processes:
            process.kill()
            with contextlib.suppress(ValueError):
                process.communicate(timeout=TIME_LIMIT)


@pytest.fixture(scope="module")
def start_job():
    """Return a function that starts a job; what is left of it is killed when the tests of the module are over."""
    jobs = []

    def start(*arguments, **options):
        jobs.append(Job(*arguments, **options))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


@pytest.fixture(scope="module")
def run_job(start_job):
    """Return a function that runs a job to its end, in which every process must succeed."""

    def run(*arguments, **options):
        job = start_job(*arguments, **options)
        codes = job.end()
        assert codes == [0] * len(codes), "\n".join(job.errors)
        return job

    return run
