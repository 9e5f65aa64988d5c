"""What it costs a training loop to log a value that a device still computes."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from compiled.steps import Params, by_hand, step_by_hand, work_of
from figures import Figure, Turns, ratios
from running.rows import Log, Sizes, bare_loop

import trackway
from trackway.run import Run

HOST_SECONDS = 0.6e-3
STEPS = {"50 us": 50e-6, "1 ms": 1e-3}


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Compare a loop that logs its loss to one that does not."""
    for label, aim in STEPS.items():
        work, _ = work_of(aim)
        with (
            tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder,
            trackway.start(dir=folder, run_id="run") as run,
            bare_loop(Path(folder, "bare.jsonl")) as bare,
        ):
            seconds = Turns(sizes.rounds).compare(
                {
                    "silent": work.running(by_hand(1), host_seconds=HOST_SECONDS),
                    "logging": work.running(_logging(_to_run(run)), host_seconds=HOST_SECONDS),
                    "bare": work.running(_logging(_by_hand(bare)), host_seconds=HOST_SECONDS),
                    "behind": work.running(_logging(_of_the_step_before()), host_seconds=HOST_SECONDS),
                }
            )
            assert run.report().late == 0
        loop = f"{label} step, 0.6 ms of host work: "
        name = f"{loop}run.log of the loss on its device / not logged"
        yield Figure(name, ratios(seconds["logging"], seconds["silent"]), at_most=1.05 if aim >= HOST_SECONDS else None)
        name = f"{loop}float of the loss, orjson.dumps and os.write / not logged"
        yield Figure(name, ratios(seconds["bare"], seconds["silent"]))
        name = f"{loop}float of the loss of the step before, nothing written / not logged"
        yield Figure(name, ratios(seconds["behind"], seconds["silent"]))


def _to_run(run: Run) -> Log:
    return lambda metrics, step: run.log({"loss": metrics["loss"]}, step=step)


def _by_hand(bare: Log) -> Log:
    return lambda metrics, step: bare({"loss": float(metrics["loss"])}, step)


def _of_the_step_before() -> Log:
    """Read the loss a step late and write nothing: the least that reading it can cost."""
    last: list[Any] = []

    def read(metrics: dict[str, Any], _step: int) -> None:
        last.append(metrics["loss"])
        if len(last) > 1:
            float(last.pop(0))

    return read


def _logging(log: Log) -> Callable[[Params, Any], Params]:
    step, numbers = jax.jit(step_by_hand(1)), itertools.count()

    def advance(params: Params, batch: Any) -> Params:
        params, metrics = step(params, batch)
        log(metrics, next(numbers))
        return params

    return advance
