"""What members that fail and hang cost the training of the digits example.

The same compiled step is trained in turns under three trackers: the run directory alone; the run directory beside a
member that raises on every call and one, in the background, that never answers; and a noop. Prints the medians of the
same-round ratios.

    python benchmarks/fan_out.py [rounds]
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from trackway import BackgroundPolicy, BackgroundTracker, CompositeTracker, NoopTracker, Tracker, current_tracker
from trackway.store import LocalTracker
from trackway.testing import FailingTracker, SlowTracker

STEPS = 66
EXAMPLE = Path(__file__).parents[1] / "examples" / "train_digits.py"


def load_example() -> ModuleType:
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("train_digits", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Trainer:
    """Three epochs of the example, repeatable."""

    def __init__(self) -> None:
        self._example: Any = load_example()
        training, _ = self._example.load_data(0)
        self._optimizer = self._example.optax.adam(1e-3)
        self._step = self._example.make_train_step(self._optimizer, 22)
        self._batches = list(itertools.islice(self._example.batches(training, 64, 9, 0), STEPS))
        self.seconds(NoopTracker())  # compiles

    def seconds(self, tracker: Tracker) -> float:
        """Return how long the steps take under *tracker*, its rows delivered."""
        params = self._example.init_params(self._example.ModelConfig(), 0)
        state = self._optimizer.init(params)
        started = time.perf_counter()
        with current_tracker(tracker):
            for step, batch in enumerate(self._batches, start=1):
                params, state = self._step(params, state, *batch, step)
            self._example.jax.block_until_ready(params)
        return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    logging.getLogger("trackway").setLevel(logging.CRITICAL)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    trainer = Trainer()
    ratios: dict[str, list[float]] = {"with failing and hanging members / healthy alone": [], "healthy / noop": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            hanging = SlowTracker(NoopTracker("hanging"), seconds=None)
            healthy = LocalTracker(Path(folder) / f"healthy-{turn}")
            beside = LocalTracker(Path(folder) / f"beside-{turn}")
            background = BackgroundTracker(hanging, BackgroundPolicy(finish_timeout=0.2))
            trackers = {
                "noop": NoopTracker(),
                "alone": CompositeTracker([healthy]),
                "together": CompositeTracker([FailingTracker(), background, beside]),
            }
            order = random.sample(list(trackers), k=len(trackers))  # who comes first must not matter
            seconds = {name: trainer.seconds(trackers[name]) for name in order}
            ratios["healthy / noop"].append(seconds["alone"] / seconds["noop"])
            ratios["with failing and hanging members / healthy alone"].append(seconds["together"] / seconds["alone"])
            for tracker in (healthy, beside, background):
                tracker.finish()
            hanging.release()
    for name, values in ratios.items():
        print(f"{name:<50} {statistics.median(values):5.2f}x  (median of {rounds} rounds of {STEPS} steps)")


if __name__ == "__main__":
    main()
