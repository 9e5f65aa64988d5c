"""What it costs a training loop that the service of its tracker dies: pace, slowest rows, and the end.

    python benchmarks/away.py [rounds]

In each round the same loop runs twice under W&B, once with a server on this machine that is there to the end, and once
with one that is killed after a tenth of the steps; then the same for Trackio and a server of one's own. The server is a
process of its own. Prints the medians, and exits with 1 if a bound is missed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, print_table, ratios

import trackway
from trackway.backends.trackio import TrackioConfig
from trackway.backends.wandb import WandbConfig
from trackway.config import TrackerConfig
from trackway.tracker import BackgroundPolicy

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
STEPS = 500
STEP_SECONDS = 2e-3
LIMITS = BackgroundPolicy(finish_timeout=6.0)
SERVE = """
import fake_wandb, time
with fake_wandb.FakeWandb() as server:
    print(server.url, flush=True)
    time.sleep(600)
"""


@dataclass
class Run:
    """What one run took: seconds of the loop and of the end, microseconds of the slowest of a hundred rows."""

    loop: float
    slowest: float
    end: float


@contextlib.contextmanager
def wandb_server() -> Iterator[tuple[TrackerConfig, Callable[[], None]]]:
    """Yield a configuration of W&B for a server that runs, and what kills that."""
    words = [sys.executable, "-c", SERVE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=SUPPORT) as server:
        try:
            assert server.stdout is not None
            os.environ["WANDB_BASE_URL"] = server.stdout.readline().strip()
            yield WandbConfig(save_code=False, finish_timeout=3, background=LIMITS), server.kill
        finally:
            server.kill()
    import wandb

    wandb.teardown()


@contextlib.contextmanager
def own_trackio_server() -> Iterator[tuple[TrackerConfig, Callable[[], None]]]:
    """Yield a configuration of Trackio for a server that runs, and what kills that."""
    import trackio_server  # sets where Trackio keeps things, before that is imported

    with tempfile.TemporaryDirectory() as folder, trackio_server.serve(Path(folder)) as served:
        config = TrackioConfig("bench", server_url=served.url, finish_timeout=3, background=LIMITS)
        yield config, served.stop


def measured(config: TrackerConfig, kill: Callable[[], None] | None) -> Run:
    """Run the loop, in which *kill* is called after a tenth of the steps."""
    times = []
    with tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder:
        run = trackway.start([config], dir=folder)
        started = time.perf_counter()
        for step in range(STEPS):
            if kill is not None and step == STEPS // 10:
                kill()
            until = time.perf_counter() + STEP_SECONDS
            while time.perf_counter() < until:
                pass
            begun = time.perf_counter_ns()
            trackway.log({"loss": 1 / (step + 1), "accuracy": step / STEPS}, step=step)
            times.append(time.perf_counter_ns() - begun)
        loop = time.perf_counter() - started
        begun_to_end = time.perf_counter()
        trackway.finish()
        end = time.perf_counter() - begun_to_end
        report = run.report()
        assert report.store is not None
        assert report.store.delivered == STEPS
    return Run(loop, statistics.quantiles(times, n=100)[-1] / 1e3, end)


def main() -> int:
    """Measure and print."""
    logging.getLogger("trackway").setLevel(logging.CRITICAL)
    sys.path.insert(0, str(SUPPORT))
    home = tempfile.mkdtemp(prefix="trackway-bench-")
    os.environ |= {f"WANDB_{name}": home for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR")}
    os.environ |= {"WANDB_API_KEY": "0" * 40, "WANDB_ERROR_REPORTING": "false", "WANDB_CONSOLE": "off"}
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    figures = []
    for name, serve in (("W&B", wandb_server), ("Trackio", own_trackio_server)):
        runs: dict[bool, list[Run]] = {True: [], False: []}
        for _ in range(rounds):
            for dies in random.sample([True, False], k=2):
                with serve() as (config, kill):
                    runs[dies].append(measured(config, kill if dies else None))
                print(".", end="", file=sys.stderr, flush=True)
        dead, alive = runs[True], runs[False]
        pace = ratios([run.loop for run in dead], [run.loop for run in alive])
        figures += [
            Figure(f"{name}: loop whose server dies / whose server lives", pace, at_most=1.1),
            Figure(f"{name}: 99th percentile of log, server dies", [run.slowest for run in dead], unit="us"),
            Figure(f"{name}: 99th percentile of log, server lives", [run.slowest for run in alive], unit="us"),
            Figure(f"{name}: finish, server dies, of at most 6 s", [run.end for run in dead], at_most=7.0, unit="s"),
            Figure(f"{name}: finish, server lives", [run.end for run in alive], unit="s"),
        ]
    print_table(figures)
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    raise SystemExit(main())
