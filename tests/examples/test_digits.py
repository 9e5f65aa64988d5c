"""The example trains, and what it logged is read back from every place that it chose."""

from __future__ import annotations

import json
import math
import re

import draccus
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trackway.store import read_rows

slow = pytest.mark.slow  # the first test of these waits for the whole training of the default configuration
STEPS = 330
ONE_EPOCH = ("--trainer.epochs", "1", "--trainer.tracking.run_id", "short")
WITHOUT_STORE = ("--trainer.tracking.store", "false")


class Demo:
    """One run of the example with its own configuration file."""

    def __init__(self, folder, output):
        """Read what the run in *folder* left."""
        self.output = output
        (self.directory,) = (folder / "runs").glob("digits-*")
        self.events = folder / "runs" / "tensorboard" / self.directory.name
        self.rows = read_rows(self.directory)

    def values(self, name):
        """Return step and value of every row that has *name*."""
        return [(row["_step"], row[name]) for row in self.rows if name in row]

    def json(self, name):
        """Return the content of a JSON file of the run."""
        return json.loads((self.directory / name).read_text())


@pytest.fixture(scope="module")
def demo(run_example, tmp_path_factory):
    """Run the example without any argument, once."""
    folder = tmp_path_factory.mktemp("demo")
    return Demo(folder, run_example(folder).stdout)


@pytest.fixture(scope="module")
def events(demo):
    """Return TensorBoard's own reader of the run, which keeps every point."""
    everything = {"scalars": 0, "histograms": 0, "images": 0, "tensors": 0}
    accumulator = EventAccumulator(str(demo.events), size_guidance=everything)
    accumulator.Reload()
    return accumulator


@slow
def test_it_learns(demo):
    """The network recognises more than 95 % of the validation images."""
    assert demo.json("summary.json")["best_accuracy"] > 0.95


@slow
def test_every_step_is_a_row(demo):
    """The run directory has one row per step, whatever was logged for it, and validations beside the training."""
    assert [row["_step"] for row in demo.rows] == list(range(1, STEPS + 1))
    losses = demo.values("train/loss")
    assert sorted(step for step, _ in losses) == list(range(1, STEPS + 1))
    assert all(math.isfinite(loss) for _, loss in losses)
    assert len(demo.values("validation/accuracy")) == 15


@slow
def test_its_events_tell_the_story(demo):
    """Start, checkpoint and end; no rule found anything, and validating is a span of each epoch."""
    events = [json.loads(line) for line in (demo.directory / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["train_start", "checkpoint", "train_end"]
    assert events[2]["steps"] == STEPS
    assert "event checkpoint step=" in demo.output
    assert len(demo.values("time/validate")) == 15
    assert len((demo.directory / "spans.jsonl").read_text().splitlines()) == 15


def test_a_training_that_diverges_alerts_and_fails(run_example, tmp_path):
    """A rule says so at the step at which it happens, and the run ends as failed."""
    done = run_example(tmp_path, *ONE_EPOCH, "--trainer.learning_rate", "1e9", code=1)
    folder = tmp_path / "runs" / "short"
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["train_start", "alert", "train_failed"]
    assert (events[1]["level"], events[1]["_step"] < 22) == ("error", True)
    assert "training has diverged" in done.stderr + done.stdout
    state = json.loads((folder / "run.json").read_text())
    assert (state["state"], state["error"]["type"]) == ("failed", "FloatingPointError")


@slow
def test_gradient_histograms_hold_every_weight(demo, digits):
    """A histogram made inside the compiled step counts each gradient of its layer once."""
    gradients = demo.values("gradients")
    assert [step for step, _ in gradients] == list(range(22, STEPS + 1, 22))
    params = digits.init_params(digits.ModelConfig(), 0)
    for _, layers in gradients:
        assert set(layers) == {"conv1", "output"}
        for name, histogram in layers.items():
            assert sum(histogram["counts"]) == params[name]["weight"].size


@slow
def test_sample_images_are_files_with_captions(demo):
    """The samples of the last step lie as PNG files in the run directory, under captions that say what was seen."""
    ((step, samples),) = demo.values("samples")
    assert step == STEPS
    for sample in samples.values():
        assert sample["_type"] == "image"
        assert (demo.directory / sample["path"]).read_bytes().startswith(b"\x89PNG")
        assert re.fullmatch(r"predicted \d, is \d", sample["caption"])
    first = samples["0"]["caption"]
    assert first[len("predicted ")] != first[-1], "the most doubtful sample is a mistake"


@slow
def test_summary_agrees_with_the_rows(demo):
    """The best accuracy of the summary is the best one that was logged, at its step."""
    accuracies = dict(demo.values("validation/accuracy"))
    summary = demo.json("summary.json")
    assert summary["best_accuracy"] == max(accuracies.values())
    assert accuracies[summary["best_step"]] == summary["best_accuracy"]
    assert demo.json("run.json")["state"] == "finished"


@slow
def test_confusion_table_counts_every_image(demo):
    """The confusion table has a row per digit and counts each of the 360 validation images once."""
    ((_, reference),) = demo.values("validation/confusion")
    table = json.loads((demo.directory / reference["path"]).read_text())
    assert len(table["columns"]) == 11
    assert sum(sum(row[1:]) for row in table["data"]) == 360


@slow
def test_configuration_reads_back(demo, digits):
    """The configuration stored with the run parses to the one that was used."""
    stored = draccus.parse(digits.Config, config_path=demo.directory / "artifacts" / "config.yaml", args=[])
    assert stored == draccus.parse(digits.Config, config_path=digits.DEFAULT_CONFIG, args=[])
    assert [type(tracker).__name__ for tracker in stored.trainer.tracking.trackers] == [
        "LocalConfig",
        "ConsoleConfig",
        "TensorboardConfig",
    ]


@slow
def test_stored_parameters_give_the_best_accuracy(demo, digits):
    """The parameters kept as an artifact reach the accuracy that the summary promises."""
    params = {}
    with np.load(demo.directory / "artifacts" / "parameters.npz") as arrays:
        for name in arrays:
            layer, _, kind = name.partition(".")
            params.setdefault(layer, {})[kind] = arrays[name]
    _, validation = digits.load_data(0)
    _, accuracy = digits.loss_and_accuracy(params, *validation)
    assert float(accuracy) == pytest.approx(demo.json("summary.json")["best_accuracy"], abs=1e-6)


@slow
def test_tensorboard_has_the_same_numbers(demo, events):
    """TensorBoard's reader finds every logged point, at its step and equal to float32 precision."""
    for name in ("train/loss", "validation/accuracy"):
        seen = sorted((event.step, event.value) for event in events.Scalars(name))
        assert seen == [(step, np.float32(value)) for step, value in sorted(demo.values(name))]


@slow
def test_tensorboard_has_histograms_images_and_hyperparameters(demo, events):
    """TensorBoard's reader finds the gradient histograms, the images and a single run with hyper-parameters."""
    tags = events.Tags()
    assert {"gradients/conv1", "gradients/output"} <= set(tags["histograms"])
    assert [event.step for event in events.Histograms("gradients/conv1")] == list(range(22, STEPS + 1, 22))
    assert len([tag for tag in tags["images"] if tag.startswith("samples/")]) == 8
    assert "_hparams_/session_start_info" in events.summary_metadata
    assert len(list(demo.events.parent.rglob("events.out.tfevents.*"))) == 1


@slow
def test_it_ends_by_saying_where_the_run_is(demo):
    """The last lines name the run directory, the command that shows it, and the result."""
    ending = demo.output[demo.output.rindex("\n  step  ") :]
    assert f"are in runs/{demo.directory.name}" in ending
    assert "tensorboard --logdir runs/tensorboard" in ending
    assert re.search(r"best validation accuracy 9\d\.\d\d%", ending)
    assert ending.count("\n") < 15


@slow
def test_console_is_readable(demo):
    """The console shows one line of training values per epoch, not one per step."""
    lines = [line for line in demo.output.splitlines() if " train/loss=" in line and line.startswith("step=")]
    assert [line.partition(" ")[0] for line in lines] == [f"step={step}" for step in range(22, STEPS + 1, 22)]


@slow
def test_it_can_leave_nothing_behind(run_example, tmp_path):
    """With the noop tracker and no store on the command line the training runs, and writes no file."""
    done = run_example(tmp_path, *ONE_EPOCH, *WITHOUT_STORE, "--trainer.tracking.trackers", "{type: noop}")
    assert "best validation accuracy" in done.stdout
    assert not list(tmp_path.iterdir())


@slow
def test_trackers_listed_on_the_command_line(run_example, tmp_path):
    """A list on the command line replaces that of the file: lines on both streams, and no TensorBoard log."""
    both = "[{type: console}, {type: json_logger}]"
    done = run_example(tmp_path, *ONE_EPOCH, *WITHOUT_STORE, "--trainer.tracking.trackers", both)
    records = [json.loads(line[line.index("{") :]) for line in done.stderr.splitlines() if '"tracker"' in line]
    steps = [record["step"] for record in records if "train/loss" in record.get("metrics", {})]
    assert steps == list(range(1, 23))
    assert records[-1]["event"] == "finish"
    assert "step=1 train/loss=" in done.stdout
    assert not list(tmp_path.iterdir())


@slow
def test_own_configuration_file(run_example, tmp_path):
    """A file given with --config_path takes the place of the example's own, and the command line wins over it."""
    (tmp_path / "my.yaml").write_text("trainer:\n  epochs: 9\n  learning_rate: 0.01\n  tracking: {trackers: []}\n")
    done = run_example(tmp_path, "--config_path", "my.yaml", *ONE_EPOCH)
    rows = read_rows(tmp_path / "runs" / "short")
    assert max(row["_step"] for row in rows) == 22
    stored = (tmp_path / "runs" / "short" / "artifacts" / "config.yaml").read_text()
    assert "learning_rate: 0.01" in stored
    assert "epochs: 1\n" in stored
    assert "Warning" not in done.stderr
