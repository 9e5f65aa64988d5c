"""The example's training under a composite of which one member fails, one hangs, and one is healthy."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import pytest

from trackway import BackgroundPolicy, BackgroundTracker, CompositeTracker, NoopTracker, current_tracker
from trackway.store import LocalTracker, read_rows
from trackway.testing import FailingTracker, SlowTracker

STEPS = 60
HISTOGRAM_EVERY = 20
FINISH_TIMEOUT = 1.0


@pytest.fixture
def steps(digits):
    """Return a function that trains for some steps under a tracker and returns the seconds taken."""
    training, _ = digits.load_data(0)
    optimizer = digits.optax.adam(1e-3)
    train_step = digits.make_train_step(optimizer, HISTOGRAM_EVERY)
    batches = list(itertools.islice(digits.batches(training, 64, 9, 0), STEPS))

    def train(tracker, count=STEPS):
        params = digits.init_params(digits.ModelConfig(), 0)
        state = optimizer.init(params)
        started = time.perf_counter()
        with current_tracker(tracker):
            for step, batch in enumerate(batches[:count], start=1):
                params, state = train_step(params, state, *batch, step)
            digits.jax.block_until_ready(params)
        return time.perf_counter() - started

    train(NoopTracker(), count=1)  # compiles
    return train


@pytest.fixture
def fan(tmp_path):
    """Return three members and the composite of them; what hangs is let go at the end."""
    hanging = SlowTracker(NoopTracker("hanging"), seconds=None)
    background = BackgroundTracker(hanging, BackgroundPolicy(finish_timeout=FINISH_TIMEOUT))
    failing = FailingTracker(NoopTracker("failing"))
    healthy = LocalTracker(tmp_path / "run")
    yield SimpleNamespace(
        failing=failing,
        background=background,
        healthy=healthy,
        tracker=CompositeTracker([failing, background, healthy]),
    )
    hanging.release()


@pytest.mark.slow  # compiles the training step, about five seconds on two cores
def test_training_goes_on(steps, fan, tmp_path, caplog, record_property):
    """Training ends at its usual pace, the healthy member has every row, and finish keeps its bound and reports."""
    alone = steps(NoopTracker())
    together = steps(fan.tracker)
    record_property("pace_beside_noop", together / alone)
    assert together < 4 * alone + 1, "a member that fails or hangs holds the training up"

    started = time.perf_counter()
    fan.tracker.finish()
    assert time.perf_counter() - started < FINISH_TIMEOUT + 2

    rows = read_rows(tmp_path / "run")
    assert sorted(row["_step"] for row in rows if "train/loss" in row) == list(range(1, STEPS + 1))
    assert sum("gradients" in row for row in rows) == STEPS // HISTOGRAM_EVERY

    failures, *_ = fan.tracker.failures()
    assert failures.failed == {"log": STEPS, "finish": 1}
    report = fan.background.report()
    assert (report.accepted, report.delivered, report.pending) == (STEPS, 0, STEPS)
    assert caplog.text.count("failing.log failed") == 1, "said once, then counted"
    assert f"hanging: finish did not end within {FINISH_TIMEOUT:g} s" in caplog.text
    assert f"{STEPS} rows are still queued" in caplog.text
