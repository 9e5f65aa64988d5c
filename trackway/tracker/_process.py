"""Which of several processes this one is."""

from __future__ import annotations

import os
import sys

__all__ = ["is_primary", "process_rank"]

_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def process_rank() -> int:
    """Return this process's rank among those of one job; 0 for a job of one process.

    Taken from the first of RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK that is set, else from JAX if
    `jax.distributed` is initialised. JAX is never imported nor initialised for it.
    """
    for variable in _VARIABLES:
        value = os.environ.get(variable, "").strip()
        if value.isdecimal():
            return int(value)
    return _jax_rank()


def _jax_rank() -> int:
    # private, because the public jax.process_index() starts JAX's backends, which takes memory of an accelerator
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is None:
        return 0
    return int(getattr(state, "process_id", 0))


def is_primary() -> bool:
    """Whether this process is the one that writes to backends which exist once per run."""
    return process_rank() == 0
