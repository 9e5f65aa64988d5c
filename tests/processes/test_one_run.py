"""Two processes under `jax.distributed` track one run: one id, one run in every backend, a file of rows for each."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb_records import record_files, records_of

from trackway.store import StoredRun

PROGRAM = """
import logging, warnings
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
import trackway
from trackway.backends.json_logger import JsonLoggerConfig
from trackway.backends.tensorboard import TensorboardConfig
from trackway.backends.wandb import WandbConfig
from trackway.capture._processes import reduce_across_processes

logger = logging.getLogger("trackway.json_logger")
logger.addHandler(logging.FileHandler(folder / f"lines{number}.jsonl"))
logger.propagate = False
everywhere = NamedSharding(jax.make_mesh((4,), ("data",)), PartitionSpec())
spread = NamedSharding(everywhere.mesh, PartitionSpec("data"))

def job_wide(start):
    return jax.make_array_from_process_local_data(spread, np.arange(2.0) + 2 * number + start)

reduced = jax.jit(lambda x: (x.sum(), 2 * x), out_shardings=everywhere)

@trackway.jit
def step(x, i):
    trackway.log({"inside": x.mean()}, step=i)
    return x + 1

trackers = [TensorboardConfig("tb"), JsonLoggerConfig(), WandbConfig(mode="offline", save_code=False)]
with warnings.catch_warnings(record=True) as caught, trackway.start(trackers, config={"lr": 0.1}) as run:
    warnings.simplefilter("always")
    for i in range(5):
        total, vector = reduced(job_wide(i))
        trackway.log({"total": total, "vector": vector, "seconds": number + i / 10}, step=i)
        step(job_wide(i), i)
    trackway.log({"part": job_wide(0), "fine": 1.0}, step=5)
    trackway.log({"part": job_wide(1)}, step=6)
    run.flush(commit_open=True)
    reduce_across_processes({"here": 1.0})  # so that the rows of all are there
    live = run.history(None, ranks="all", include_meta=True)
    names = [getattr(tracker, "name", "?") for tracker in run.backends.members()]
tell(run_id=run.run_id, live=live, warned=[str(one.message) for one in caught], names=names)
tell(converted=run.report().run.converted)

metrics = {"sum": number + 1, "nan": [1.0, float("nan")][number], "mean": jnp.float32(number)}
metrics["deep"] = {"max": 1e300 * number}
tell(reduced=reduce_across_processes(metrics, how={"sum": "sum", "deep/max": "max"}))
tell(least=reduce_across_processes({"total": total, "huge": 2**53 + number}, how="min"))

refused = []
for metrics, how in [
    ({"same": 1, f"of{number}": 1, f"too{number}": 1}, "mean"),
    ({"text": "abc" if number else 1}, "mean"),
    ({"vector": vector}, "mean"),
    ({"part": job_wide(0)}, "mean"),
    ({"how": 1}, ["mean", "sum"][number]),
    ({"how": 1}, "median"),
    ({"loss": 1}, {"los": "sum"}),
]:
    try:
        refused.append(reduce_across_processes(metrics, how))
    except (TypeError, ValueError) as error:
        refused.append(f"{type(error).__name__}: {error}")
tell(refused=refused, after=reduce_across_processes({"x": number}))
"""


@pytest.fixture(scope="module")
def job(run_job, tmp_path_factory):
    """Two processes that have run the program to its end."""
    folder = tmp_path_factory.mktemp("job")
    services = {f"WANDB_{name}": str(folder / "wandb" / name) for name in ("CACHE_DIR", "DATA_DIR", "CONFIG_DIR")}
    return run_job(PROGRAM, 2, folder, WANDB_ERROR_REPORTING="false", **services)


@pytest.fixture(scope="module")
def stored(job):
    """The one run that there is."""
    (directory,) = (job.folder / "runs").iterdir()
    return StoredRun(directory)


def test_both_processes_have_the_id_that_rank_0_made_up(job, stored):
    """No id was given, and there is one run, in one directory, with a file of rows for each process."""
    assert job.told(0)["run_id"] == job.told(1)["run_id"] == stored.path.name == stored.id
    assert sorted(path.name for path in stored.path.glob("metrics*.jsonl")) == ["metrics.jsonl", "metrics.rank1.jsonl"]
    assert stored.state == "finished"
    assert len(stored.attempts) == 1


def test_every_process_has_all_of_its_rows(stored):
    """What is the same on all processes is in both files, and what differs is each one's own."""
    rows = stored.history(None, ranks="all")
    assert [(row["_step"], row["_rank"]) for row in rows] == [(step, rank) for step in range(7) for rank in range(2)]
    for row in rows[:10]:
        step, rank = row["_step"], row["_rank"]
        assert row["total"] == 6 + 4 * step
        assert row["vector"] == [2 * (i + step) for i in range(4)]
        assert row["inside"] == 1.5 + step
        assert row["seconds"] == rank + step / 10


def test_a_live_run_shows_all_processes(job, stored):
    """The history of the running run, asked in either process, has the rows of both."""
    expected = [(step, rank) for step in range(7) for rank in range(2)]
    for rank in range(2):
        assert [(row["_step"], row["_rank"]) for row in job.told(rank)["live"]] == expected


def test_an_array_that_is_spread_over_processes_is_refused_by_name(job, stored):
    """No process has all of it: the field says so, one warning in each process does, the rest of the row is kept."""
    for rank in range(2):
        (warned,) = job.told(rank)["warned"]
        assert "metric 'part' is spread over several processes (shape (4,))" in warned
        assert "log a reduction such as its mean" in warned
        assert sum(job.told(rank)["converted"].values()) == 2
    for row in stored.history(None, ranks="all", step_range=(5, 7)):
        assert row["part"].startswith("<not logged: is spread over several processes")
        assert row.get("fine", 1.0) == 1.0


def test_tensorboard_has_one_run(job, stored):
    """Only rank 0 writes event files, and each step is there once."""
    (folder,) = (job.folder / "tb").iterdir()
    assert len(list(folder.glob("events.out.tfevents*"))) == 1
    reader = EventAccumulator(str(job.folder / "tb" / stored.id), size_guidance={"scalars": 0}).Reload()
    assert [(event.step, event.value) for event in reader.Scalars("total")] == [(i, 6.0 + 4 * i) for i in range(5)]


def test_the_json_logger_has_one_run(job):
    """Rank 0 writes a line for each row, the other process none."""
    lines = [json.loads(line) for line in (job.folder / "lines0.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "log"] == list(range(7))
    assert (job.folder / "lines1.jsonl").read_text() == ""


def test_wandb_has_one_run(job, stored):
    """There is one offline run, of rank 0, under the id of the run."""
    assert len(record_files(stored.path)) == 1
    records = records_of(stored.path)
    assert records.run.run_id == stored.id
    assert {row["_step"]: row["total"] for row in records.rows if "total" in row} == {i: 6 + 4 * i for i in range(5)}
    assert list(job.folder.glob("wandb/**/*.wandb")) == []


def test_other_ranks_have_trackers_of_the_same_names(job):
    """`get_tracker` and reports find the same names in every process."""
    assert job.told(0)["names"] == job.told(1)["names"] == ["tensorboard", "json_logger", "wandb"]


def test_numbers_are_reduced_over_processes(job):
    """Sum, mean, maximum and minimum are the same in every process, in full precision, and NaN stays NaN."""
    for rank in range(2):
        reduced = job.told(rank)["reduced"]
        assert math.isnan(reduced.pop("nan"))
        assert reduced == {"sum": 3.0, "mean": 0.5, "deep/max": 1e300}
        assert job.told(rank)["least"] == {"total": 22.0, "huge": 2.0**53}


_ALL = "ValueError: reduce_across_processes: all processes must"
_METRIC = "TypeError: reduce_across_processes: metric"
REFUSED = [
    f"{_ALL} give metrics of the same names; compared with process 0, process 1 lacks 'of0', 'too0' and adds 'of1', ",
    f"{_METRIC} 'text' must be a single number, got str (in process 1)",
    f"{_METRIC} 'vector' must be a single number, got an array of several elements (in process 0)",
    f"{_METRIC} 'part' is spread over several processes",
    f"{_ALL} reduce 'how' alike; process 0 wants the mean, process 1 the sum",
    "ValueError: reduce_across_processes: how must be one of mean, sum, max, min, got 'median' for 'how'",
    "ValueError: reduce_across_processes: how has 'los', which is none of the metrics loss",
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_cannot_be_reduced_is_an_error_in_every_process(job, case):
    """Also where only one of them gave something wrong: none is left waiting, and the next call works."""
    first, second = (job.told(rank)["refused"][case] for rank in range(2))
    assert first == second
    assert first.startswith(REFUSED[case])
    assert np.mean([job.told(rank)["after"]["x"] for rank in range(2)]) == 0.5
