"""What every tracker has to stand, as one class that pytest runs."""

from __future__ import annotations

import math
import os
import signal
import threading
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trackway.testing._values import AWKWARD_NAMES, VALUES
from trackway.tracker import INTERFACE, Tracker, current_tracker, get_tracker, log

__all__ = ["TrackerConformance"]

Rows = Sequence[tuple[int, dict[str, Any]]]


class TrackerConformance:
    """Behaviour that every backend has in common; subclass it with a name that pytest collects.

    ```python
    class TestMine(TrackerConformance):
        def make(self, folder):
            return MineTracker(folder / "rows.txt")

        def read(self, tracker, folder):
            return read_rows(folder / "rows.txt")
    ```

    Attributes:
        keeps: Whether the backend keeps rows that `read` can return; False for one such as noop.
        rel_tol: Relative precision at which the backend keeps numbers; 0 for float64, 1e-6 for float32.
    """

    keeps: ClassVar[bool] = True
    rel_tol: ClassVar[float] = 0.0

    def make(self, folder: Path) -> Tracker:
        """Return a fresh tracker that keeps its files, if any, in *folder*, which exists. May be called repeatedly."""
        # not abstract: pytest passes over abstract classes in silence, and their tests with them
        raise NotImplementedError(f"{type(self).__name__} must define make(folder), which returns the tracker to test")

    def read(self, tracker: Tracker, folder: Path) -> Rows:
        """Return the rows that the backend kept, `(step, {flat name: value})`, after `finish`."""
        raise NotImplementedError(f"{type(self).__name__} must define read(), or set keeps = False")

    def _made(self, folder: Path) -> Tracker:
        folder.mkdir(parents=True, exist_ok=True)
        return self.make(folder)

    def _run(self, folder: Path, use: Callable[[Tracker], Any]) -> dict[tuple[int, str], Any]:
        """Use a fresh tracker, finish it, and return what was kept by step and name."""
        tracker = self._made(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a downgrade that is said is a downgrade that is right
            use(tracker)
        tracker.finish()
        if not self.keeps:
            return {}
        return {(step, name): value for step, row in self.read(tracker, folder) for name, value in row.items()}

    def _assert_kept(self, kept: dict[tuple[int, str], Any], step: int, name: str, expected: float) -> None:
        if not self.keeps:
            return
        value = kept.get((step, name))
        assert value is not None, f"{name!r} at step {step} was lost; kept: {sorted(kept)[:10]}"
        same = value == expected or math.isclose(value, expected, rel_tol=self.rel_tol)
        assert same or (value != value and expected != expected), f"{name!r}: logged {expected!r}, kept {value!r}"  # noqa: PLR0124 - NaN

    def test_has_a_name_under_which_it_is_found(self, tmp_path: Path) -> None:
        """A tracker has a name, and `get_tracker` finds it under that name."""
        tracker = self._made(tmp_path)
        assert isinstance(tracker.name, str)
        assert tracker.name
        with current_tracker(tracker):
            assert get_tracker(tracker.name).name == tracker.name
        tracker.finish()

    def test_has_the_whole_interface(self, tmp_path: Path) -> None:
        """Every method of the interface is there, the optional ones included."""
        tracker = self._made(tmp_path)
        assert [name for name in INTERFACE if not callable(getattr(tracker, name, None))] == []
        tracker.finish()

    def test_keeps_numbers_at_their_steps(self, tmp_path: Path) -> None:
        """Numbers come back at the steps they were logged at, step 0 included, whatever integer type the step has."""

        def use(tracker: Tracker) -> None:
            for step in (0, np.int64(1), np.uint8(2)):
                tracker.log({"loss": 0.1 * int(step), "count": int(step)}, step=step)  # type: ignore[arg-type]

        kept = self._run(tmp_path, use)
        for step in range(3):
            self._assert_kept(kept, step, "loss", 0.1 * step)
            self._assert_kept(kept, step, "count", step)

    def test_counts_on_without_a_step(self, tmp_path: Path) -> None:
        """Rows without a step get the last step + 1."""

        def use(tracker: Tracker) -> None:
            tracker.log({"loss": 1.0}, step=None)
            tracker.log({"loss": 2.0}, step=7)
            tracker.log({"loss": 3.0}, step=None)

        kept = self._run(tmp_path, use)
        for step, loss in ((0, 1.0), (7, 2.0), (8, 3.0)):
            self._assert_kept(kept, step, "loss", loss)

    def test_stands_every_kind_of_value(self, tmp_path: Path) -> None:
        """No value raises, and none costs its neighbour in the row."""

        def use(tracker: Tracker) -> None:
            for step, make in enumerate(VALUES.values()):
                tracker.log({"before": step + 0.5, "value": make(), "after": step + 0.25}, step=step)

        kept = self._run(tmp_path, use)
        for step in range(len(VALUES)):
            self._assert_kept(kept, step, "before", step + 0.5)
            self._assert_kept(kept, step, "after", step + 0.25)

    def test_does_not_change_numbers(self, tmp_path: Path) -> None:
        """Numbers of every width come back equal, to the backend's own precision, NaN and infinity included."""
        numbers = {kind: make for kind, make in VALUES.items() if kind.split()[0] in {"int", "float", "numpy", "jax"}}
        odd = ("array", "digits", "bool", "complex")
        numbers = {k: m for k, m in numbers.items() if not any(word in k for word in odd)}
        numbers |= {kind: VALUES[kind] for kind in ("nan", "inf", "-inf")}
        kept = self._run(tmp_path, lambda tracker: tracker.log({k: make() for k, make in numbers.items()}, step=1))
        for kind, make in numbers.items():
            value = make()
            self._assert_kept(kept, 1, kind, value if type(value) is int else float(value))

    def test_stands_awkward_names(self, tmp_path: Path) -> None:
        """No metric name raises, and none costs its neighbour."""
        for name in AWKWARD_NAMES:
            assert isinstance(name, str)

        def use(tracker: Tracker) -> None:
            for step, name in enumerate(AWKWARD_NAMES):
                tracker.log({"neighbour": float(step), name: 1.0}, step=step)

        kept = self._run(tmp_path, use)
        for step in range(len(AWKWARD_NAMES)):
            self._assert_kept(kept, step, "neighbour", float(step))

    def test_flattens_nested_metrics_with_a_slash(self, tmp_path: Path) -> None:
        """A nested mapping is kept under names joined by a slash, read-only mappings included."""
        payload = types.MappingProxyType({"train": {"loss": 0.5, "by": {"layer": 2.0}}})
        kept = self._run(tmp_path, lambda tracker: tracker.log(payload, step=3))
        self._assert_kept(kept, 3, "train/loss", 0.5)
        self._assert_kept(kept, 3, "train/by/layer", 2.0)

    def test_takes_rows_of_a_thousand_metrics(self, tmp_path: Path) -> None:
        """A row may hold a thousand metrics."""
        kept = self._run(tmp_path, lambda tracker: tracker.log({f"m/{i}": float(i) for i in range(1000)}, step=0))
        for i in (0, 1, 999):
            self._assert_kept(kept, 0, f"m/{i}", float(i))

    def test_neither_keeps_nor_changes_the_payload(self, tmp_path: Path) -> None:
        """What the caller does with the mapping after the call does not matter, and the call does not change it."""
        payload: dict[str, Any] = {"loss": 1.0, "nested": {"a": [1.0]}}

        def use(tracker: Tracker) -> None:
            tracker.log(payload, step=0)
            assert payload == {"loss": 1.0, "nested": {"a": [1.0]}}
            payload["loss"] = 99.0
            payload["nested"]["a"].append(2.0)

        self._assert_kept(self._run(tmp_path, use), 0, "loss", 1.0)

    def test_takes_any_hyperparameters_again_and_again(self, tmp_path: Path) -> None:
        """Hyper-parameters of any kind may be logged, and logged again with other values."""

        def use(tracker: Tracker) -> None:
            tracker.log_hyperparameters({kind: make() for kind, make in VALUES.items()})
            tracker.log_hyperparameters({"lr": 0.1, "lr_again": 7, "": 1})
            tracker.log_hyperparameters({"lr": 0.2, "lr_again": 7.0})
            tracker.log({"loss": 1.0}, step=0)

        self._assert_kept(self._run(tmp_path, use), 0, "loss", 1.0)

    def test_takes_any_summary(self, tmp_path: Path) -> None:
        """Summary values of any kind may be logged, before any metric as well."""

        def use(tracker: Tracker) -> None:
            tracker.log_summary({"best": 0.1})
            tracker.log({"loss": 1.0}, step=0)
            tracker.log_summary({kind: make() for kind, make in VALUES.items()})

        self._assert_kept(self._run(tmp_path, use), 0, "loss", 1.0)

    def test_takes_artifacts(self, tmp_path: Path) -> None:
        """Files and folders are taken under any name, and may be deleted afterwards; a missing one does not raise."""
        source = tmp_path / "source"
        (source / "sub").mkdir(parents=True)
        (source / "sub" / "weights.bin").write_bytes(b"123")

        def use(tracker: Tracker) -> None:
            tracker.log_artifact(source / "sub" / "weights.bin")
            tracker.log_artifact(str(source), name="model", type="model")
            for name in AWKWARD_NAMES:
                tracker.log_artifact(source / "sub" / "weights.bin", name=name or None)
            (source / "sub" / "weights.bin").unlink()
            tracker.log_artifact(source / "sub" / "weights.bin")
            tracker.log({"loss": 1.0}, step=0)

        self._assert_kept(self._run(tmp_path / "run", use), 0, "loss", 1.0)

    def test_optional_methods_do_not_raise(self, tmp_path: Path) -> None:
        """Events, sums, alerts, flushes and the news of a failure are taken by every tracker."""

        def use(tracker: Tracker) -> None:
            tracker.log_event("checkpoint", {"path": Path("a")}, step=1)
            tracker.add({"seconds": 0.5})
            tracker.alert("title", "text", level="error")
            assert tracker.open_step() is None or isinstance(tracker.open_step(), int)
            tracker.flush()
            tracker.mark_failed(ValueError("diverged"))
            tracker.log({"loss": 1.0}, step=5)

        self._assert_kept(self._run(tmp_path, use), 5, "loss", 1.0)

    def test_threads_lose_nothing(self, tmp_path: Path) -> None:
        """Rows logged by several threads at once are all kept."""

        def use(tracker: Tracker) -> None:
            def work(worker: int) -> None:
                for i in range(25):
                    tracker.log({f"worker/{worker}": float(i)}, step=i)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=30)
                assert not thread.is_alive()

        kept = self._run(tmp_path, use)
        for worker in range(8):
            for i in range(25):
                self._assert_kept(kept, i, f"worker/{worker}", float(i))

    def test_a_forked_child_harms_nothing(self, tmp_path: Path) -> None:
        """In a forked child the tracker may be called and finished, at once, and the parent's rows stay whole."""

        def use(tracker: Tracker) -> None:
            tracker.log({"loss": 0.0}, step=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python warns of forking a process with threads: that is the test
                child = os.fork()
            if child == 0:
                _use_and_leave(tracker)
            assert _ended_within(child, seconds=5) == 0, "the forked child hung or raised"
            tracker.log({"loss": 1.0}, step=1)

        kept = self._run(tmp_path, use)
        self._assert_kept(kept, 0, "loss", 0.0)
        self._assert_kept(kept, 1, "loss", 1.0)
        assert (99, "loss") not in kept, "the forked child wrote into the parent's run"

    def test_calls_after_finish_do_nothing(self, tmp_path: Path) -> None:
        """After `finish` every call is quietly refused, and finishing again does nothing."""
        tracker = self._made(tmp_path)
        tracker.log({"loss": 1.0}, step=0)
        tracker.finish()
        tracker.log({"loss": 2.0}, step=1)
        tracker.log_summary({"best": 1.0})
        tracker.log_hyperparameters({"lr": 1.0})
        tracker.log_artifact(Path(__file__))
        tracker.flush()
        tracker.finish()
        if self.keeps:
            assert [step for step, _ in self.read(tracker, tmp_path)] == [0]

    def test_can_be_made_again_in_one_process(self, tmp_path: Path) -> None:
        """A second tracker in the same process works after the first is finished."""
        for attempt in ("first", "second"):
            kept = self._run(tmp_path / attempt, lambda tracker: tracker.log({"loss": 1.0}, step=0))
            self._assert_kept(kept, 0, "loss", 1.0)

    def test_leaves_no_thread_and_no_file_open(self, tmp_path: Path) -> None:
        """After `finish` the numbers of threads and of open files are what they were."""
        self._run(tmp_path / "warm", lambda tracker: tracker.log({"loss": 1.0}, step=0))
        threads, files = threading.active_count(), _open_files()
        for i in range(3):
            self._run(tmp_path / str(i), lambda tracker: tracker.log({"loss": 1.0}, step=0))
        assert threading.active_count() <= threads
        assert _open_files() <= files

    def test_with_block_finishes_and_lets_errors_out(self, tmp_path: Path) -> None:
        """`with tracker:` makes it current, finishes it, and never hides the block's own exception."""
        import pytest

        tracker = self._made(tmp_path)
        with pytest.raises(KeyError, match="from the block"), tracker as entered:  # noqa: PT012
            assert entered is tracker
            log({"loss": 1.0}, step=0)
            raise KeyError("from the block")
        if self.keeps:
            assert [step for step, _ in self.read(tracker, tmp_path)] == [0]


def _use_and_leave(tracker: Tracker) -> None:
    """Use the tracker in a forked child and end the child at once, whatever happens."""
    code = 1
    try:
        tracker.log({"loss": 99.0}, step=99)
        tracker.log_summary({"best": 99.0})
        tracker.flush()
        tracker.finish()
        code = 0
    finally:
        os._exit(code)


def _ended_within(pid: int, seconds: float) -> int | None:
    """Wait for a child and return its exit code; kill it and return None where it does not end in time."""
    timer = threading.Timer(seconds, os.kill, args=(pid, signal.SIGKILL))
    timer.start()
    _, status = os.waitpid(pid, 0)
    timer.cancel()
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None


def _open_files() -> int:
    folder = "/proc/self/fd"
    return len(os.listdir(folder)) if os.path.isdir(folder) else 0  # noqa: PTH112, PTH208 - no other use of a path here
