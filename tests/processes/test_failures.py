"""What fails in one process of a job, and how the others learn of it, or do not."""

from __future__ import annotations

import pytest

from trackway.store import StoredRun, read_history

PROGRAM = """
from dataclasses import dataclass
import logging, warnings
import numpy as np
import trackway
from trackway.capture._processes import reduce_across_processes
from trackway.config import TrackerConfig
from trackway.errors import TrackwayError

logging.basicConfig(level=logging.WARNING, filename=folder / f"log{number}.txt")

@TrackerConfig.register_subclass("fragile")
@dataclass
class Fragile(TrackerConfig):
    culprit: int = 0

    def init(self, run_id):
        if number == self.culprit:
            tell(failed_at=time.time())
            raise OSError("no route to host")
        return trackway.NoopTracker()

def attempt(name, **options):
    try:
        with trackway.start(**options) as run:
            tell(**{name: [run.run_id, None, time.time()]})
    except TrackwayError as error:
        tell(**{name: [type(error).__name__, str(error), time.time()]})

def together():
    reduce_across_processes({})

together()  # whatever takes its time at the first call
attempt("first", trackers=Fragile(culprit=0, ranks="all"))
attempt("second", trackers=Fragile(culprit=1, ranks="all"), run_id="second")
attempt("third", run_id="../third" if number == 0 else "third")
attempt("fourth", run_id="fourth", resume="must")
attempt("fifth", run_id=f"fifth{number}")
attempt("sixth", run_id="sixth")
attempt("seventh", resume_state={"run_id": "sixth", "next_step": 3})

spread = jax.sharding.NamedSharding(jax.make_mesh((4,), ("data",)), jax.sharding.PartitionSpec("data"))

@trackway.jit
def step(x):
    trackway.log({"mean": x.mean(), "part": 2 * x}, step=0)

with warnings.catch_warnings(record=True) as caught, trackway.start(run_id="spread") as run:
    warnings.simplefilter("always")
    step(jax.make_array_from_process_local_data(spread, np.arange(2.0) + 2 * number))
tell(warned=[str(one.message) for one in caught], dropped=list(run.report().run.dropped.values()))

together()
if number:
    attempt("late", agree_timeout=0.3)
together()
if number == 0:
    attempt("late")
"""


@pytest.fixture(scope="module")
def job(run_job, tmp_path_factory):
    """Two processes that have run the program to its end."""
    return run_job(PROGRAM, 2, tmp_path_factory.mktemp("job"))


def outcome(job, name):
    """What came of one start in both processes: an id, or the type of the error, and its message."""
    return [job.told(rank)[name][:2] for rank in range(2)]


def test_rank_0_failing_reaches_the_others_at_once(job):
    """Within two seconds they raise the same error, which names rank 0's, and nothing is left behind."""
    first, second = outcome(job, "first")
    assert first[0] == second[0] == "ConfigError"
    assert "OSError: no route to host" in first[1]
    assert second[1].startswith("rank 1 starts no run, because rank 0 could not: trackers (fragile) could not be ")
    assert "OSError: no route to host" in second[1]
    assert job.told(1)["first"][2] - job.told(0)["failed_at"] < 2


def test_another_rank_that_fails_blocks_nobody(job):
    """Rank 0 starts its run, and the one that failed raises its own error."""
    first, second = outcome(job, "second")
    assert first == ["second", None]
    assert second[0] == "ConfigError"
    assert "OSError: no route to host" in second[1]
    assert "rank 0" not in second[1]
    assert StoredRun(job.folder / "runs" / "second").state == "finished"


@pytest.mark.parametrize(
    ("name", "message"),
    [("third", "run_id '../third' holds '/'"), ("fourth", "resume: must, but there is no run in ")],
)
def test_whatever_fails_in_rank_0_is_told(job, name, message):
    """Also what fails before there is anything to start, and what only rank 0 looks for."""
    first, second = outcome(job, name)
    assert first[1].startswith(message)
    assert second == ["ConfigError", f"rank 1 starts no run, because rank 0 could not: {first[1]}"]
    assert not (job.folder / "runs" / name).exists()


def test_ids_that_differ_give_way_to_that_of_rank_0(job):
    """A job has one run; the process that was given another id says so."""
    assert outcome(job, "fifth") == [["fifth0", None], ["fifth0", None]]
    assert "rank 1 was to write to run fifth1, and rank 0 has started run fifth0" in (
        job.folder / "log1.txt"
    ).read_text(encoding="utf-8")
    assert "fifth" not in (job.folder / "log0.txt").read_text(encoding="utf-8")


def test_a_checkpoint_is_gone_on_with_by_all(job):
    """The id of the checkpoint is that of every process."""
    assert outcome(job, "sixth") == outcome(job, "seventh") == [["sixth", None], ["sixth", None]]


def test_rank_0_that_does_not_start_is_waited_for_a_while(job):
    """After `agree_timeout` the others say what they waited for, and the cure."""
    assert job.told(1)["late"][:2] == [
        "ConfigError",
        (
            "rank 1: rank 0 has not started its run within 0.3 s; every process of the job has to call trackway.start "
            "as often as rank 0 does, and in the same order; if rank 0 needs longer, raise agree_timeout"
        ),
    ]
    assert job.told(0)["late"][1] is None


def test_a_metric_of_compiled_code_that_is_spread_costs_no_other(job):
    """It is left out, by name, with one warning and counted; what was logged with it is there."""
    rows = read_history(job.folder / "runs" / "spread", ranks="all", include_meta=False)
    assert rows == [{"mean": 1.5}, {"mean": 1.5}]
    for rank in range(2):
        (warned,) = job.told(rank)["warned"]
        assert warned.startswith("metric 'part' is spread over several processes (shape (4,))")
        assert job.told(rank)["dropped"] == [1]


KILLED = """
import trackway

with trackway.start(dir="runs", run_id="killed") as run:
    for step in range(40):
        trackway.log({"seconds": number + step / 100}, step=step)
        if number == 2 and step == 20:
            run.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
tell(run_id=run.run_id, rows=run.report().rows)
if number == 0:  # with which JAX ends the others
    wait_for(lambda: all((folder / f"told{other}.json").exists() for other in (1, 3)))
os._exit(0)  # at its usual end JAX would wait for the process that is gone
"""


def check_killed(job):
    """Check what became of the run in which rank 2 was killed at step 20."""
    assert job.end() == [0, 0, -9, 0], "\n".join(job.errors)
    rows = read_history(job.folder / "runs" / "killed", ranks="all")
    steps = {rank: [row["_step"] for row in rows if row["_rank"] == rank] for rank in range(4)}
    assert steps == {rank: list(range(20 if rank == 2 else 40)) for rank in range(4)}
    assert all(row["seconds"] == row["_rank"] + row["_step"] / 100 for row in rows)
    assert StoredRun(job.folder / "runs" / "killed").state == "finished"


def test_a_process_that_is_killed_harms_nobody(start_job, tmp_path):
    """Four processes without JAX, one of them killed: each has the rows that it committed."""
    check_killed(start_job(KILLED, 4, tmp_path, jax=False, RANK="{rank}", WORLD_SIZE="4"))


@pytest.mark.slow  # four processes that import JAX
def test_a_process_that_is_killed_harms_nobody_under_jax(start_job, tmp_path):
    """The same in a job of `jax.distributed`."""
    check_killed(start_job(KILLED.replace('run_id="killed"', 'run_id="killed" if number == 0 else None'), 4, tmp_path))
