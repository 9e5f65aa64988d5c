"""Which of several processes this one is, and what it can tell the others."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, final

from trackway import _notices

__all__ = ["Job", "Shared", "compare", "fixed", "forked", "is_primary", "job", "note", "process_rank", "shared"]

_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
_SLURM_STEP = "SLURM_STEP_NUM_TASKS"  # set by srun, not by the shells of sbatch and salloc
_SLICE = 1.0  # seconds for which a wait may keep Ctrl+C from being seen


class Job(NamedTuple):
    """The place of a process in its job.

    Attributes:
        rank: Its rank; 0 for a job of one process.
        size: Number of processes; None where that is not known.
        source: What says so: the name of a variable, "jax.distributed", or "" for a process on its own.
    """

    rank: int
    size: int | None
    source: str

    @property
    def several(self) -> bool:
        """Whether the job is known to have more than one process."""
        return self.rank > 0 or (self.size or 1) > 1

    def __str__(self) -> str:
        return f"rank {self.rank}" + (f" of {self.size}" if self.size else "")


_ALONE = Job(0, 1, "")
_fixed: ContextVar[Job | None] = ContextVar("trackway_job", default=None)


def job() -> Job:
    """Return this process's place in its job, as `process_rank` finds it."""
    return _fixed.get() or _find()


def process_rank() -> int:
    """Return this process's rank among those of one job; 0 for a job of one process.

    Taken from the first of RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK that is set, else from JAX if
    `jax.distributed` is initialised. JAX is never imported nor initialised for it. A launcher that started one process
    says nothing where JAX knows of several, nor does the SLURM_PROCID of a shell, as opposed to a step of `srun`. While
    a run is being started its rank is fixed.
    """
    return job().rank


def is_primary() -> bool:
    """Whether this process is the one that writes to backends which exist once per run."""
    return process_rank() == 0


@contextlib.contextmanager
def fixed(place: Job) -> Iterator[None]:
    """Have *place* be the answer of `job` and `process_rank` for a block, whatever comes up meanwhile."""
    token = _fixed.set(place)
    try:
        yield
    finally:
        _fixed.reset(token)


def _find() -> Job:
    launched, known = _launched(), _known_to_jax()
    if launched is None or (launched.size == 1 and known is not None and known.several):
        return known or _ALONE
    if launched.size is None and known is not None and known.rank == launched.rank:
        return launched._replace(size=known.size)
    return launched


def _launched() -> Job | None:
    """What the launcher says in the environment."""
    for variable, total in _LAUNCHERS:
        rank, size = _number(variable), _number(total)
        if rank is None:
            continue
        if variable == "SLURM_PROCID":
            step = _number(_SLURM_STEP)
            if not rank and step is None:  # a shell, which has 0 and the size of a step that is yet to come
                continue
            size = step or size
        return Job(rank, None if not size or size <= rank else size, variable)
    return None


def _number(variable: str) -> int | None:
    value = os.environ.get(variable, "").strip()
    return int(value) if value.isdecimal() else None


# --- JAX: private names, because the public ones start JAX's backends, which takes memory of an accelerator ---


def _distributed() -> Any:
    """The state of `jax.distributed`; None where it is not initialised."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return state if getattr(state, "client", None) is not None else None


def _known_to_jax() -> Job | None:
    state = _distributed()
    if state is not None:
        size = getattr(state, "num_processes", None)
        return Job(
            int(getattr(state, "process_id", 0) or 0), size if isinstance(size, int) else None, "jax.distributed"
        )
    bridge, jax = sys.modules.get("jax._src.xla_bridge"), sys.modules.get("jax")
    try:  # after jax.distributed.shutdown() the backends still know
        if jax is None or bridge is None or not bridge.backends_are_initialized() or jax.process_count() == 1:
            return None
        return Job(jax.process_index(), jax.process_count(), "jax.distributed")
    except Exception:
        return None


_state: dict[str, Any] = {"forked": False, "rank": None}


def note(rank: int) -> None:
    """Remember that a run was started under *rank*."""
    _state["rank"] = rank


def compare(rank: int | None = None) -> None:
    """Say once if JAX has another rank for this process than *rank*, or than that under which a run was started."""
    rank = _state["rank"] if rank is None else rank
    known = None if rank is None else _known_to_jax()
    if known is None or not known.several or known.rank == rank or forked():
        return
    _notices.log_once(
        "rank of JAX",
        f"a run was started as rank {rank}, but for jax.distributed this process is {known}; the run stays that of "
        f"rank {rank}: call jax.distributed.initialize() before trackway.start(), and see that the launcher's "
        "variables (RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK) say the same",
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _state.update(forked=True))


def forked() -> bool:
    """Whether this process was made by fork, and so is none of the job's."""
    return _state["forked"] is True


@final
class Shared:
    """Texts that the processes of a job share, in the key-value store of `jax.distributed`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, key: str, text: str) -> None:
        """Tell the others *text*; raises what JAX raises."""
        self._client.key_value_set(key, text)

    def get(self, key: str, seconds: float) -> str:
        """Return the text of *key*, waiting for it.

        Raises:
            TimeoutError: if it is not there after *seconds*.
            ConnectionError: if the store cannot be asked any more.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                return str(self._client.blocking_key_value_get(key, math.ceil(1000 * min(left, _SLICE)) or 1))
            except Exception as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise ConnectionError(str(error)) from error
                if left <= _SLICE:
                    raise TimeoutError(f"nothing came within {seconds:g} s") from None


def shared() -> Shared | None:
    """Return what this process shares with the others of its job; None where `jax.distributed` is not up.

    Nor where JAX numbers the processes in another way than their launcher does, and in a forked child.
    """
    client, known = getattr(_distributed(), "client", None), _known_to_jax()
    if forked() or known is None or not known.several or known.rank != process_rank():
        return None
    if not all(callable(getattr(client, name, None)) for name in ("key_value_set", "blocking_key_value_get")):
        return None
    return Shared(client)
