"""Every backend of the library stands what a tracker has to stand."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest

from trackway.backends.console import ConsoleTracker
from trackway.backends.json_logger import JsonLoggerTracker
from trackway.backends.local import LocalConfig
from trackway.backends.tensorboard import TensorboardConfig
from trackway.config import TrackerConfig
from trackway.store import LocalTracker, read_rows
from trackway.testing import TrackerConformance
from trackway.tracker import BackgroundTracker, leaves
from trackway.values import decode, flatten


@pytest.fixture(autouse=True)
def quiet(caplog):
    """The messages about downgrades are not the subject here."""
    caplog.set_level(logging.ERROR, "trackway")


class TestLocal(TrackerConformance):
    """The run directory."""

    def make(self, folder):
        """Make one."""
        return LocalTracker(folder / "run")

    def read(self, tracker, folder):
        """Read the rows back from the file."""
        return [(row.pop("_step"), flatten(row)) for row in read_rows(folder / "run")]


class TestLocalStrict(TestLocal):
    """The run directory in strict JSON."""

    def make(self, folder):
        """Make one."""
        return LocalTracker(folder / "run", strict_json=True)


class TestJsonLogger(TrackerConformance):
    """JSON lines on a logger."""

    def make(self, folder):
        """Make one that writes to a file."""
        folder.mkdir(parents=True, exist_ok=True)
        logger = logging.getLogger(f"test.json_logger.{folder}")
        logger.propagate = False
        logger.setLevel(logging.INFO)
        for handler in logger.handlers[:]:
            handler.close()
            logger.removeHandler(handler)
        logger.addHandler(logging.FileHandler(folder / "log.jsonl", delay=True, errors="backslashreplace"))
        return JsonLoggerTracker(logger)

    def read(self, tracker, folder):
        """Read the records of the event "log"."""
        for handler in tracker.logger.handlers:
            handler.close()
        records = [decode(line) for line in (folder / "log.jsonl").read_bytes().splitlines()]
        return [(r["step"], flatten(r["metrics"])) for r in records if r["event"] == "log"]


class TestConsole(TrackerConformance):
    """Lines for people; numbers have six digits."""

    rel_tol = 1e-5

    def make(self, folder):
        """Make one that writes into memory."""
        self.streams[folder] = io.StringIO()
        return ConsoleTracker(self.streams[folder])

    streams = {}  # noqa: RUF012 - shared by the tests of this class on purpose

    def read(self, tracker, folder):
        """Read the lines that begin with a step."""
        text = self.streams[folder].getvalue()
        rows = []
        for line in text.splitlines():
            match = re.match(r"step=(-?\d+) ?(.*)", line)
            if match:
                rows.append((int(match[1]), dict(_pairs(match[2]))))
        return rows


def _pairs(text):
    """Names and numbers of one console line."""
    for key, value in re.findall(r'("(?:[^"\\]|\\.)*"|[^\s="]+)=("(?:[^"\\]|\\.)*"|[^\s]+)', text):
        try:
            number = int(value) if re.fullmatch(r"-?\d+", value) else float(value)
        except ValueError:
            continue
        yield (json.loads(key) if key.startswith('"') else key), number


class TestTensorboard(TrackerConformance):
    """Event files, which hold float32."""

    rel_tol = 1e-6

    def make(self, folder):
        """Make one, as `init` gives it."""
        return TensorboardConfig(logdir=str(folder / "tb")).init("run")

    def read(self, tracker, folder):
        """Read the scalars back with TensorBoard's own reader."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        accumulator = EventAccumulator(str(folder / "tb" / "run"), size_guidance={"scalars": 0})
        accumulator.Reload()
        tags = accumulator.Tags()["scalars"]
        return [(event.step, {tag: event.value}) for tag in tags for event in accumulator.Scalars(tag)]


class TestTensorboardBuilt(TestTensorboard):
    """The same as `build` gives it: in the background."""

    def make(self, folder):
        """Make one."""
        tracker = TensorboardConfig(logdir=str(folder / "tb")).build("run")
        assert isinstance(tracker, BackgroundTracker)
        return tracker


@pytest.mark.parametrize("kind", ["noop", "console", "json_logger", "local", "tensorboard", "wandb", "trackio"])
class TestNotActive:
    """A backend that is disabled, or on another rank than the primary one."""

    def test_disabled_backends_conform(self, kind, tmp_path, monkeypatch):
        """With tracking disabled the whole conformance class passes on the stand-in, which bears the name."""
        monkeypatch.setenv("TRACKWAY_MODE", "disabled")
        self._check(kind, tmp_path)

    def test_backends_on_other_ranks_conform(self, kind, tmp_path, monkeypatch):
        """So it does on a rank that does not write."""
        if kind == "local":
            pytest.skip("the run directory is written by all ranks")
        monkeypatch.setenv("RANK", "1")
        self._check(kind, tmp_path)

    def _check(self, kind, tmp_path):
        config = TrackerConfig.get_choice_class(kind)()

        class StandIn(TrackerConformance):
            keeps = False

            def make(self, folder):
                return config.build("run")

        assert [leaf.name for leaf in leaves(config.build("run"))] == [kind]
        suite = StandIn()
        tests = [name for name in dir(suite) if name.startswith("test_")]
        for number, name in enumerate(tests):
            folder = tmp_path / str(number)
            folder.mkdir()
            getattr(suite, name)(folder)
        assert len(tests) > 15


def test_local_on_another_rank_writes_rows_only(tmp_path, monkeypatch):
    """The run directory of a rank above zero gets that rank's rows and nothing else."""
    monkeypatch.setenv("RANK", "2")
    with LocalConfig(dir=str(tmp_path)).build("run") as tracker:
        tracker.log({"a": 1}, step=0)
        tracker.log_summary({"best": 1})
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["metrics.rank2.jsonl"]
