"""Processes that a launcher numbers, before `jax.distributed` is up, or without it."""

from __future__ import annotations

import pytest

import trackway
from trackway.capture._processes import reduce_across_processes
from trackway.config import TrackingConfig
from trackway.errors import ConfigError
from trackway.store import read_history
from trackway.testing import RecordingTracker


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """The folder of run directories; there is no launcher but the one of the test."""
    for variable in ("WORLD_SIZE", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TRACKWAY_DIR", str(tmp_path))
    return tmp_path


def launch(monkeypatch, **variables):
    """Set the variables of a launcher."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "who"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "rank 0 of 2, by RANK"),
        ({"RANK": "1"}, "rank 1, by RANK"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, "rank 1 of 4, by SLURM_PROCID"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, "rank 0 of 4, by SLURM_PROCID"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "rank 0 of 2, by OMPI_COMM_WORLD_RANK"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "rank 1 of 2, by PMI_RANK"),
    ],
)
def test_processes_that_cannot_agree_need_a_run_id(monkeypatch, folder, variables, who):
    """Rank 0 as well as the others: each would make up an id of its own. Nothing is started."""
    launch(monkeypatch, **variables)
    with pytest.raises(
        ConfigError, match=f"this process is {who}, and the processes of the job cannot agree"
    ) as caught:
        trackway.start()
    for cure in ("the same run_id", "TRACKWAY_RUN_ID", "jax.distributed.initialize()", "RANK=0 and WORLD_SIZE=1"):
        assert cure in str(caught.value)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_a_process_on_its_own_makes_up_an_id(monkeypatch, variables):
    """Also in a job of one process, and in the shell of a batch job."""
    launch(monkeypatch, **variables)
    with trackway.start() as run:
        assert run.run_id
    assert reduce_across_processes({"x": 1, "deep": {"y": True}}) == {"x": 1.0, "deep/y": 1.0}


@pytest.mark.parametrize("by", ["argument", "environment", "checkpoint"])
def test_an_id_that_all_are_given_will_do(monkeypatch, folder, by):
    """By argument, by TRACKWAY_RUN_ID, or in the state of a checkpoint, that all of them read."""
    options = {"argument": {"run_id": "a"}, "checkpoint": {"resume_state": {"run_id": "a", "next_step": 0}}}
    if by == "environment":
        monkeypatch.setenv("TRACKWAY_RUN_ID", "a")
    for rank in range(2):
        launch(monkeypatch, RANK=str(rank), WORLD_SIZE="2")
        with trackway.start(**options.get(by, {})):
            trackway.log({"x": rank}, step=0)
    assert [(row["_rank"], row["x"]) for row in read_history(folder / "a", ranks="all")] == [(0, 0), (1, 1)]


def test_nobody_needs_an_id_where_nothing_is_kept(monkeypatch, folder):
    """A job in which trackway is switched off runs."""
    launch(monkeypatch, RANK="1", WORLD_SIZE="2", TRACKWAY_MODE="disabled")
    with trackway.start() as run:
        trackway.log({"x": 1}, step=0)
    assert run.run_id
    assert list(folder.iterdir()) == []


def test_the_rank_of_a_run_is_that_of_its_start(monkeypatch, folder):
    """Whatever the environment says later, the rows go on in the same file."""
    launch(monkeypatch, RANK="1")
    with trackway.start(RecordingTracker(), run_id="a") as run:
        launch(monkeypatch, RANK="0")
        trackway.log({"x": 1}, step=0)
        assert run.store.rank == 1
    assert [path.name for path in (folder / "a").iterdir()] == ["metrics.rank1.jsonl"]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "30", True, None])
def test_agree_timeout_is_a_number_of_seconds(timeout):
    """Anything else is refused, in a configuration and in a call."""
    with pytest.raises(ConfigError, match="agree_timeout must be a number of seconds above 0, got"):
        TrackingConfig(agree_timeout=timeout)
    with pytest.raises(ConfigError, match="agree_timeout must be"):
        trackway.start(agree_timeout=timeout)


def test_numbers_cannot_be_reduced_without_jax_knowing_of_the_others(monkeypatch):
    """The number of one process would pass for that of all."""
    launch(monkeypatch, RANK="0", WORLD_SIZE="2")
    with pytest.raises(ConfigError, match=r"this process is rank 0 of 2, by RANK, and JAX knows of no other; call"):
        reduce_across_processes({"x": 1})


LATE = """
import logging
import trackway
logging.basicConfig(level=logging.WARNING, filename=folder / f"log{number}.txt")

with trackway.start(dir="runs", run_id=f"early{number}") as run:
    trackway.log({"x": number}, step=0)
    import jax
    jax.distributed.initialize(address, size, number, coordinator_bind_address=address)
    trackway.log({"x": number}, step=1)
    tell(rank=run.store.rank, now=trackway.tracker.process_rank())
with trackway.start(dir="runs") as run:
    tell(run_id=run.run_id, then=run.store.rank)
"""


def test_jax_that_comes_up_later_changes_no_run(run_job, tmp_path):
    """The run stays that of the rank it was started as, which is said once; the next one has the rank of JAX."""
    job = run_job(LATE, 2, tmp_path, jax=False)
    for rank in range(2):
        told = job.told(rank)
        assert (told["rank"], told["now"], told["then"]) == (0, rank, rank)
        rows = read_history(tmp_path / "runs" / f"early{rank}")
        assert [(row["_step"], row["x"]) for row in rows] == [(0, rank), (1, rank)]
        said = (tmp_path / f"log{rank}.txt").read_text(encoding="utf-8")
        assert said.count("a run was started as rank 0, but for jax.distributed this process is rank 1 of 2") == rank
    assert job.told(0)["run_id"] == job.told(1)["run_id"]
