"""What JAX compiles, as metrics."""

from __future__ import annotations

import sys

import pytest

import trackway
from trackway.capture import mute
from trackway.errors import ConfigError, FatalTrackerError
from trackway.events import watch_compiles
from trackway.run import Run
from trackway.testing import FailingTracker, RecordingTracker
from trackway.tracker import RequiredTracker, current_tracker

jax = pytest.importorskip("jax")
jnp, monitoring = jax.numpy, pytest.importorskip("jax.monitoring")

TRACE, BUILD = (f"/jax/core/compile/{part}_duration" for part in ("jaxpr_trace", "backend_compile"))
NAMES = {"compile/count", "compile/seconds", "compile/cache_hits"}


class Sums(RecordingTracker):
    """Sums up what is added."""

    def __init__(self):
        super().__init__()
        self.sums = {}

    def add(self, metrics):
        """Add to `sums`."""
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0) + value


def compiled(name="step", seconds=0.5):
    """Have JAX tell of one program, as it does when it compiled one."""
    monitoring.record_event_duration_secs(BUILD, seconds, fun_name=f"jit({name})")


def test_a_row_says_what_was_compiled_in_it():
    """The first step compiles, as does one with another shape; those between have no such metrics."""

    @jax.jit
    def step(x):
        return (x * 2).sum()

    batches = [jnp.ones(3), jnp.ones(3), jnp.ones(4)]
    rows = []
    with Run(store=None) as run, watch_compiles() as compiles:
        run.on_commit(rows.append)
        for number, batch in enumerate(batches):
            trackway.log({"n": number}, step=number)
            step(batch)
        run.flush(commit_open=True)
    first, second, third = rows
    assert set(first) >= NAMES
    assert not NAMES & set(second)
    assert (first["compile/count"], third["compile/count"]) == (1, 1)
    assert first["compile/seconds"] > 0
    assert compiles.functions["step"] == 2
    assert compiles.recompiled() == {"step": 2}
    assert compiles.count == 2


def test_nothing_counts_twice():
    """What is traced inside another function, or compiled while it is traced, is part of that one's time."""
    with current_tracker(Sums()) as tracker, watch_compiles() as compiles:
        monitoring.record_event_duration_secs(TRACE, 1.0, fun_name="inner")
        monitoring.record_event_duration_secs(TRACE, 5.0, fun_name="outer")  # it began before the inner one
        compiled(seconds=0.0)
    assert compiles.seconds == pytest.approx(5.0, abs=0.01)
    assert tracker.sums["compile/seconds"] == compiles.seconds
    assert tracker.sums["compile/count"] == 1


def test_cache_hits_are_counted():
    """A program that came from the cache on disk is one of those that were made ready."""
    with current_tracker(Sums()) as tracker, watch_compiles() as compiles:
        monitoring.record_event("/jax/compilation_cache/cache_hits")
        monitoring.record_event("/jax/compilation_cache/cache_misses")
        compiled()
    assert compiles.cache_hits == tracker.sums["compile/cache_hits"] == 1


def test_the_cache_on_disk_is_seen(tmp_path):
    """The second time a program comes from the disk."""
    from jax.experimental.compilation_cache import compilation_cache

    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for name, value in zip(names, (str(tmp_path), 0, 0), strict=True):
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        with watch_compiles() as compiles:
            for _ in range(2):
                jax.jit(lambda x: x * 17 + 4)(3.0)
                jax.clear_caches()
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
    assert compiles.count >= 2
    assert 1 <= compiles.cache_hits < compiles.count


def test_it_ends():
    """After its block, and after being called, nothing is counted, also where JAX still calls."""
    with current_tracker(Sums()) as tracker:
        with watch_compiles() as compiles:
            compiled()
        compiled()
        compiles._on_duration(BUILD, 1.0)
        compiles._on_event("/jax/compilation_cache/cache_hits")
        stop = watch_compiles()
        stop()
        stop()
        compiled()
    assert (compiles.count, compiles.cache_hits, stop.count) == (1, 0, 0)
    assert tracker.sums["compile/count"] == 1


def test_of_two_that_watch_one_adds():
    """Both know all, and the metrics are not doubled; when the first has ended, the second goes on."""
    with current_tracker(Sums()) as tracker:
        first, second = watch_compiles(), watch_compiles()
        compiled()
        assert tracker.sums["compile/count"] == first.count == second.count == 1
        first()
        compiled()
        second()
    assert second.count == 2
    assert tracker.sums["compile/count"] == 3, "the second adds all that it has not told before"


def test_a_tracker_can_be_given():
    """It gets the metrics, whichever is current."""
    own = Sums()
    with current_tracker(Sums()) as other, watch_compiles(own):
        compiled()
    assert own.sums["compile/count"] == 1
    assert other.sums == {}


def test_what_comes_before_a_tracker_is_added_later():
    """And what comes while everything is muted."""
    with watch_compiles():
        compiled()
        with current_tracker(Sums()) as tracker:
            with mute():
                compiled()
            assert tracker.sums == {}
            compiled()
    assert tracker.sums["compile/count"] == 3


def test_a_tracker_that_fails_does_not_reach_the_compiler():
    """The function is compiled all the same; a required tracker's failure comes with the next verb."""
    with current_tracker(FailingTracker(Sums(), methods=("add",))), watch_compiles():
        assert jax.jit(lambda x: x + 31)(1.0) == 32
    required = RequiredTracker(FailingTracker(Sums(), methods=("add",)))
    with current_tracker(required), watch_compiles():
        assert jax.jit(lambda x: x + 32)(1.0) == 33
        with pytest.raises(FatalTrackerError):
            trackway.log({"loss": 1.0}, step=0)


def test_names_are_bounded():
    """A program that makes functions without end does not fill the memory."""
    with watch_compiles() as compiles:
        for number in range(1100):
            compiled(f"f{number}")
        compiled("f0")
        monitoring.record_event_duration_secs(BUILD, 0.1)
    assert len(compiles.functions) == 1000
    assert compiles.functions["f0"] == 2
    assert compiles.count == 1102


def test_a_tracker_is_checked():
    """Something else is an error where it is given, and nothing watches then."""
    with pytest.raises(TypeError, match="watch_compiles takes a tracker"):
        watch_compiles("run")


def test_without_jax_it_says_what_to_install(monkeypatch):
    """The error names the extra."""
    for name in [name for name in sys.modules if name == "jax" or name.startswith("jax.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"trackway\[jax\]"):
        watch_compiles()
