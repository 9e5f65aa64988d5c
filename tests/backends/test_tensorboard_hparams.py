"""Hyper-parameters reach TensorBoard's HParams plugin from the run's own event file."""

from __future__ import annotations

import copy
import subprocess
import sys
import time

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from trackway.backends.tensorboard import TensorboardConfig
from trackway.values import normalise

START, END = "_hparams_/session_start_info", "_hparams_/session_end_info"


@pytest.fixture
def tracker(tmp_path):
    """A bare tracker of the run `r` in tmp_path."""
    tracker = TensorboardConfig(str(tmp_path), flush_secs=1).init("r")
    yield tracker
    tracker.finish()


def read(logdir):
    """TensorBoard's reader of a folder or URL."""
    return EventAccumulator(logdir, size_guidance={"tensors": 0}).Reload()


def hparams(logdir):
    """Hyper-parameters as the plugin takes them: from the first such event of the run."""
    content = read(logdir).summary_metadata[START].plugin_data.content
    info = metadata.parse_session_start_info_plugin_data(content)
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in info.hparams.items()}


def configs(logdir):
    """The texts `config`, parsed where that does not take long."""
    texts = [event.tensor_proto.string_val[0].decode() for event in read(logdir).Tensors("config/text_summary")]
    bodies = [text.removeprefix("```yaml\n").removesuffix("```") for text in texts]
    return [yaml.safe_load(body) if len(body) < 100_000 else body for body in bodies]


def test_values_keep_their_types(tracker):
    """A bool stays a bool, numbers are float64, and what the plugin has no type for becomes a text."""
    given = {"lr": 0.1, "n": 3, "flag": True, "off": False, "s": "x", "none": None, "xs": [1, 2], "m": {"k": {"j": 1}}}
    tracker.log_hyperparameters({**given, "nan": float("nan"), "big": 2**60 + 1, "long": "y" * 50_000, "e": {}})
    tracker.flush()
    got = hparams(tracker.writer.logdir)
    assert got.pop("long") == "y" * 50_000
    expected = {"lr": 0.1, "n": 3.0, "flag": True, "off": False, "s": "x", "none": "None", "xs": "[1, 2]", "m/k/j": 1.0}
    assert got == {**expected, "nan": "NaN", "big": str(2**60 + 1), "e": "{}"}
    assert got["flag"] is True
    assert sum(tracker.report().converted.values()) == 5
    config = configs(tracker.writer.logdir)[0]
    assert {name: config[name] for name in given} == given


def test_values_before_the_first_row_are_one_set(tracker):
    """Everything logged before the first row is seen, later values win, and nothing is counted as late."""
    tracker.log_hyperparameters({"a": 1, "deep": {"x": 1, "y": 1}})
    time.sleep(1.2)
    tracker.log_hyperparameters({"a": 2, "b": True, "deep": {"y": 2}})
    tracker.log({"loss": 1.0}, step=0)
    tracker.finish()
    logdir = tracker.writer.logdir
    assert hparams(logdir) == {"a": 2.0, "b": True, "deep/x": 1.0, "deep/y": 2.0}
    assert configs(logdir)[-1] == {"a": 2, "b": True, "deep": {"x": 1, "y": 2}}
    assert tracker.report().converted == {}


@pytest.mark.parametrize("begin", [lambda t: t.log({"loss": 1.0}), lambda t: t.flush(), lambda t: t.writer.close()])
def test_values_after_the_run_has_begun_are_in_the_text(tracker, begin):
    """Once the columns are written they stay; what comes later is in the text `config`, counted."""
    tracker.log_hyperparameters({"a": 1})
    begin(tracker)
    tracker.log_hyperparameters({"a": 2, "b": "x"})
    tracker.finish()
    logdir = tracker.writer.logdir
    assert hparams(logdir) == {"a": 1.0}
    assert configs(logdir)[-1] == {"a": 2, "b": "x"}
    late = "hyper-parameters logged after the first row: only in the text `config`"
    assert tracker.report().converted == {late: 1}


def test_the_first_values_may_come_after_rows(tracker):
    """Columns are written when there are any, however late."""
    tracker.log({"loss": 1.0}, step=0)
    tracker.log_hyperparameters({"a": 1})
    tracker.log({"loss": 1.0}, step=1)
    tracker.finish()
    assert hparams(tracker.writer.logdir) == {"a": 1.0}
    assert tracker.report().converted == {}


def test_in_an_object_store():
    """Values are merged before they are uploaded."""
    tracker = TensorboardConfig("memory://hparams-late").init("r")
    tracker.log_hyperparameters({"a": 1})
    tracker.log_hyperparameters({"b": 2})
    tracker.finish()
    assert hparams("memory://hparams-late/r") == {"a": 1.0, "b": 2.0}
    assert configs("memory://hparams-late/r") == [{"a": 1, "b": 2}]


def test_a_bare_exit_writes_what_was_held_back(tmp_path):
    """A program that logs nothing else, and ends without finish, keeps its hyper-parameters."""
    code = f"""
from trackway.backends.tensorboard import TensorboardConfig
TensorboardConfig({str(tmp_path)!r}).init("r").log_hyperparameters({{"a": 1}})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    assert hparams(str(tmp_path / "r")) == {"a": 1.0}
    assert configs(str(tmp_path / "r")) == [{"a": 1}]


def test_the_text_is_there_before_the_first_row(tracker):
    """A program that is killed before it logs a row leaves the text `config`."""
    tracker.log_hyperparameters({"a": 1})
    deadline = time.monotonic() + 20
    while "config/text_summary" not in read(tracker.writer.logdir).Tags()["tensors"] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert configs(tracker.writer.logdir) == [{"a": 1}]


def test_many_calls_write_few_texts(tmp_path):
    """Values logged one by one do not make the file grow by all of them each time."""
    tracker = TensorboardConfig(str(tmp_path)).init("r")
    for number in range(500):
        tracker.log_hyperparameters({f"p{number}": number})
        tracker.log({"x": 1.0}, step=number)
    tracker.finish()
    texts = configs(tracker.writer.logdir)
    assert len(texts) <= 2
    assert len(texts[-1]) == 500
    assert hparams(tracker.writer.logdir) == {"p0": 0.0}


def test_the_callers_row_is_not_changed(tracker):
    """Trackers share a row: merging later values leaves it, and every mapping in it, as it was."""
    row = normalise({"model": {"opt": {"lr": 1}}, "empty": {}, "xs": [1]}, reserved=False)
    before = copy.deepcopy(dict(row))
    tracker.log_hyperparameters(row)
    tracker.log_hyperparameters({"model": {"opt": {"wd": 2}, "n": 1}, "empty": {"full": 1}, "xs": [2]})
    assert row == before
    tracker.flush()
    assert configs(tracker.writer.logdir)[-1] == {
        "model": {"opt": {"lr": 1, "wd": 2}, "n": 1},
        "empty": {"full": 1},
        "xs": [2],
    }


def test_many_values_do_not_hold_up(tracker):
    """A text of megabytes among the hyper-parameters is kept, in both places, for a second or two of processor time."""
    began = time.process_time()
    tracker.log_hyperparameters({"prompt": "x y" * 1_000_000, "lr": 0.1})
    tracker.flush()
    assert time.process_time() - began < 3
    assert hparams(tracker.writer.logdir) == {"prompt": "x y" * 1_000_000, "lr": 0.1}
    assert configs(tracker.writer.logdir)[0].startswith('{"prompt":"x y')


def test_no_extra_run_and_no_invented_metric(tracker, tmp_path):
    """There is one folder with one event file, and no scalar that was not logged."""
    tracker.log_hyperparameters({"lr": 0.1})
    tracker.finish()
    assert [path.parent for path in tmp_path.rglob("*tfevents*")] == [tmp_path / "r"]
    assert [path for path in tmp_path.rglob("*") if path.is_dir()] == [tmp_path / "r"]
    assert read(str(tmp_path / "r")).Tags()["scalars"] == []


@pytest.mark.parametrize(("failed", "status"), [(False, 1), (True, 2)])
def test_how_a_run_ended(tracker, failed, status):
    """The session ends as a success, or as a failure where the block raised."""
    tracker.log_hyperparameters({"lr": 0.1})
    if failed:
        tracker.mark_failed(ValueError("no"))
    tracker.finish()
    content = read(tracker.writer.logdir).summary_metadata[END].plugin_data.content
    info = metadata.parse_session_end_info_plugin_data(content)
    assert info.status == status
    assert info.end_time_secs > 0
