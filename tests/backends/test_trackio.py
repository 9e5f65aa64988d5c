"""Trackio runs on this machine, read back from the database."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from trackio_server import FOLDER, configuration, new_project, rows, runs

import trackway
from trackway.backends.trackio import TrackioConfig, TrackioTracker
from trackway.config import TrackerConfig
from trackway.errors import StepError, TrackwayWarning
from trackway.testing import TrackerConformance
from trackway.tracker import BackgroundTracker, leaves
from trackway.values import Audio, Histogram, Html, Image, Table, Text


@pytest.fixture
def project():
    """A project of the test's own."""
    return new_project()


@pytest.fixture
def start(project):
    """Starts a bare tracker in the project; all are finished at the end."""
    made = []

    def starter(run_id="run", **fields):
        made.append(TrackioConfig(project, **fields).init(run_id))
        return made[-1]

    yield starter
    for tracker in made:
        tracker.finish()


class TestTrackio(TrackerConformance):
    """Runs in the database of this machine."""

    @pytest.fixture(autouse=True)
    def quiet(self, caplog):
        """The messages about downgrades are not the subject here."""
        caplog.set_level(logging.ERROR, "trackway")

    projects = {}  # noqa: RUF012 - of each folder of a test

    def make(self, folder):
        """Start one."""
        self.projects[folder] = new_project()
        return TrackioConfig(self.projects[folder]).init("run")

    def read(self, tracker, folder):
        """Read the rows from the database, non-finite numbers as Trackio's own reader does."""
        odd = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
        return [
            (step, {name: odd.get(value, value) if isinstance(value, str) else value for name, value in row.items()})
            for step, row in rows(self.projects[folder], "run")
        ]


class TestTrackioBuilt(TestTrackio):
    """The same as `build` gives it: in the background."""

    def make(self, folder):
        """Start one."""
        self.projects[folder] = new_project()
        tracker = TrackioConfig(self.projects[folder]).build("run")
        assert isinstance(tracker, BackgroundTracker)
        return tracker


@pytest.mark.parametrize(("variable", "value"), [("TRACKWAY_MODE", "disabled"), ("RANK", "1")])
def test_stand_ins_conform(tmp_path, monkeypatch, variable, value):
    """Where it is disabled or the process is not the primary one the whole conformance class passes on a stand-in."""
    monkeypatch.setenv(variable, value)
    config = TrackerConfig.get_choice_class("trackio")(new_project())

    class StandIn(TrackerConformance):
        keeps = False

        def make(self, folder):
            return config.build("run")

    assert [leaf.name for leaf in leaves(config.build("run"))] == ["trackio"]
    suite = StandIn()
    for number, name in enumerate(name for name in dir(suite) if name.startswith("test_")):
        folder = tmp_path / str(number)
        folder.mkdir()
        getattr(suite, name)(folder)
    assert runs(config.project) == {}


def test_a_run_is_read_back_as_it_was_logged(tmp_path, project):
    """Rows with steps and names, hyper-parameters that change, summary and name: it all stands in the database."""
    config = TrackioConfig(project, name="shown", config={"seed": 1})
    with trackway.start([config], dir=tmp_path, run_id="r.1") as run:
        trackway.log_hyperparameters({"lr": 0.1, "model": {"width": [1, 2]}})
        for step in range(20):
            trackway.log({"loss": 1 / (step + 1), "train": {"acc": step}}, step=step)
        run.flush()
        trackway.log_hyperparameters({"lr": 0.2})
        trackway.log_summary({"best": 0.5})
    assert rows(project, "r.1") == [(step, {"loss": 1 / (step + 1), "train/acc": step}) for step in range(20)]
    assert configuration(project, "r.1") == {"seed": 1, "lr": 0.2, "model/width": [1, 2], "summary/best": 0.5}
    assert runs(project) == {"r.1": "shown"}
    report = run.report().trackers[-1]
    assert (report.accepted, report.delivered, report.pending, report.converted, report.dropped) == (20, 20, 0, {}, {})


def test_trackios_own_readers_agree(start, project):
    """`trackio.Api` and its command line find the run, its configuration and its curve."""
    tracker = start()
    tracker.log_hyperparameters({"lr": 0.1})
    tracker.log({"loss": float("inf")}, step=0)
    tracker.log({"loss": 0.25}, step=1)
    tracker.finish()
    import trackio

    (run,) = trackio.Api().runs(project)
    assert (run.name, run.config["lr"]) == ("run", 0.1)
    command = [str(Path(sys.executable).with_name("trackio")), "get", "metric", "--json"]
    command += ["--project", project, "--run", "run", "--metric", "loss"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [(value["step"], value["value"]) for value in json.loads(done.stdout)["values"]] == [
        (0, float("inf")),
        (1, 0.25),
    ]


def test_values_of_every_kind(start, project):
    """Histograms and media are Trackio's own, with their exact data; what it has no form for is converted."""
    tracker = start()
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    histogram = Histogram.from_array(np.array([0.0, 1, 2, np.nan, np.inf]), num_bins=2)
    values = {"histogram": histogram, "picture": Image(picture, caption="c"), "sound": Audio(np.zeros(80), 8000)}
    values |= {"table": Table(["a", "a"], [[1, [2]], [float("nan"), "x"]]), "text": Text("# hi"), "page": Html("<b>")}
    tracker.log({**values, "on": True, "big": 2**70, "list": [1, "x"], "none": None, "word": "w"}, step=3)
    tracker.finish()
    ((_, row),) = rows(project, "run")
    assert row["histogram"] == {"_type": "trackio.histogram", "bins": [0, 1, 2], "values": [1, 2]}
    assert (row["histogram/nan"], row["histogram/posinf"]) == (1, 1)
    assert row["table"] == {
        "_type": "trackio.table",
        "_value": [{"a": 1, "a (2)": "[2]"}, {"a": "NaN", "a (2)": "x"}],
    }
    assert row["text"] == {"_type": "trackio.markdown", "_value": "# hi"}
    assert (row["on"], row["big"], row["list"], row["none"], row["word"]) == (1, 2.0**70, [1, "x"], None, "w")
    for name, data in (
        ("picture", values["picture"].to_png()),
        ("sound", values["sound"].to_wav()),
        ("page", b"<b>"),
    ):
        assert (FOLDER / "media" / row[name]["file_path"]).read_bytes() == data
    assert row["picture"]["caption"] == "c"
    assert sum(tracker.report().converted.values()) == 5
    assert tracker.report().dropped == {}


def test_reserved_names_are_changed_and_counted(start, project):
    """Names that Trackio keeps for itself get `__` before them."""
    tracker = start()
    names = ["project", "run", "timestamp", "step", "time", "metrics"]
    tracker.log({name: number for number, name in enumerate(names)} | {"": 9}, step=0)
    tracker.log_hyperparameters({"_lr": 1})
    tracker.finish()
    ((_, row),) = rows(project, "run")
    expected = {f"__{name}": number for number, name in enumerate(names)}
    assert row == {**expected, "unnamed": 9}
    assert configuration(project, "run") == {"config/_lr": 1}
    assert sum(tracker.report().converted.values()) == 8


def test_a_row_keeps_its_own_time(start, project):
    """Rows of one batch have the times at which they were logged, not that of the writing."""
    tracker = start()
    tracker.log({"a": 1}, step=0)
    time.sleep(0.01)
    tracker.log({"a": 2}, step=1)
    tracker.finish()
    (_, first), (_, second) = rows(project, "run", column="timestamp")
    assert first < second


def test_late_and_equal_rows_are_kept(start, project):
    """A row of an earlier step is kept, and so are two rows that are alike."""
    tracker = start()
    for step in (5, 2, 2, 7):
        tracker.log({"a": 1}, step=step)
    tracker.log({"a": 1})
    tracker.flush()
    assert [step for step, _ in rows(project, "run")] == [5, 2, 2, 7, 8]


def test_a_row_that_is_sent_again_is_kept_once(start, project):
    """What another process sends again is not there twice."""
    for _ in range(2):
        tracker = start()
        for step in range(3):
            tracker.log({"a": step, "im": Image(np.full((2, 2), step, np.uint8))}, step=step)
        tracker.finish()
    assert [step for step, _ in rows(project, "run")] == [0, 1, 2]


def test_flush_waits_for_the_database(start, project):
    """After `flush` the rows are there, and hyper-parameters without a row too; they make no point in a curve."""
    tracker = start()
    tracker.log_hyperparameters({"lr": 1})
    tracker.flush()
    assert (configuration(project, "run"), rows(project, "run")) == ({"lr": 1}, [])
    assert tracker.first_missing_step() == 0
    tracker.log({"a": 1}, step=0)
    tracker.flush()
    assert rows(project, "run") == [(0, {"a": 1})]
    assert tracker.first_missing_step() == 1


def test_another_run_of_the_process_goes_on(start, project, capsys):
    """Starting one neither finishes nor replaces the run that is current in Trackio, and prints nothing."""
    import trackio

    own = trackio.init(project=project, name="own", auto_log_gpu=False, auto_log_cpu=False)
    config = trackio.config
    capsys.readouterr()
    tracker = start("ours")
    tracker.log({"a": 1}, step=0)
    trackio.log({"b": 2}, step=4)
    assert trackio.context_vars.current_run.get() is own
    assert trackio.config is config
    tracker.finish()
    assert capsys.readouterr().out == ""
    trackio.log({"b": 3}, step=5)
    trackio.finish()
    assert rows(project, own.id) == [(4, {"b": 2}), (5, {"b": 3})]
    assert rows(project, "ours") == [(0, {"a": 1})]


def test_the_current_run_is_adopted(project):
    """Without a run it takes Trackio's own; rows that are logged to that directly are written as well."""
    import trackio

    own = trackio.init(project=project, name="own", config={"k": 1}, auto_log_gpu=False, auto_log_cpu=False)
    tracker = TrackioTracker()
    assert tracker.run is own
    tracker.log({"a": 1}, step=0)
    tracker.run.log({"b": 2}, step=1)
    tracker.finish()
    assert trackio.context_vars.current_run.get() is None
    assert sorted(map(repr, rows(project, own.id))) == ["(0, {'a': 1})", "(1, {'b': 2})"]
    assert configuration(project, own.id) == {"k": 1}


def test_without_a_current_run_one_is_started():
    """It is said where nothing was there to be adopted, and the one that is started works."""
    with pytest.warns(TrackwayWarning, match="no Trackio run is active"):
        tracker = TrackioTracker()
    tracker.log({"a": 1}, step=0)
    tracker.finish()
    assert rows("trackway", tracker.run.id) == [(0, {"a": 1})]


def test_superseded_rows_become_a_run_of_their_own(start, project):
    """After `rewind` the run has one curve, and what was superseded is kept beside it, each time anew."""
    tracker = start()
    tracker.log_hyperparameters({"lr": 1})
    for step in range(6):
        tracker.log({"a": step}, step=step)
    tracker.rewind(3)
    for step in (3, 4):
        tracker.log({"a": step}, step=step)  # the same as before
    tracker.rewind(4)
    tracker.log({"a": 9})
    tracker.finish()
    assert rows(project, "run") == [(0, {"a": 0}), (1, {"a": 1}), (2, {"a": 2}), (3, {"a": 3}), (4, {"a": 9})]
    assert rows(project, "run~1") == [(3, {"a": 3}), (4, {"a": 4}), (5, {"a": 5})]
    assert rows(project, "run~2") == [(4, {"a": 4})]
    assert runs(project)["run~1"] == "run (superseded 1)"
    assert configuration(project, "run~1") == {"lr": 1}
    with pytest.raises(StepError, match="got None"):
        tracker.rewind(None)


def test_alerts_and_failures(start, project):
    """Alerts are kept with their levels, and why the run failed stands in its configuration."""
    import trackio

    tracker = start()
    tracker.log({"a": 1}, step=4)
    for level in ("info", "warning", "error"):
        tracker.alert(level, "text", level=level)
    tracker.mark_failed(ValueError("diverged"))
    tracker.finish()
    alerts = trackio.sqlite_storage.SQLiteStorage.get_alerts(project)
    found = {(alert["title"], alert["level"], alert["step"]) for alert in alerts}
    assert found == {("info", "info", 4), ("warning", "warn", 4), ("error", "error", 4), ("The run failed", "error", 4)}
    assert configuration(project, "run") == {"trackway/failed": "ValueError: diverged"}


def test_artifacts(start, project, tmp_path):
    """Bytes outlive the file, a name used again is a new version, odd names are changed, what is missing is counted."""
    import trackio

    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "w.bin").write_bytes(b"123")
    (folder / "loop").symlink_to(folder)
    (folder / "link.bin").symlink_to(folder / "sub" / "w.bin")
    tracker = start()
    tracker.log_artifact(folder, type="model")
    tracker.log_artifact(folder / "sub" / "w.bin", name="a/b")
    (folder / "sub" / "w.bin").write_bytes(b"4567")
    tracker.log_artifact(folder, type="model")
    tracker.log_artifact(folder, type="other")
    (folder / "sub" / "w.bin").unlink()
    (folder / "link.bin").unlink()
    tracker.log_artifact(folder)
    tracker.log_artifact(tmp_path / "missing")
    names = {entry["name"] for entry in trackio.sqlite_storage.SQLiteStorage.list_artifacts(project)}
    assert names == {"model", "model-other", next(name for name in names if name.startswith("a-b-"))}
    first = tracker.run.use_artifact("model:v0").download(tmp_path / "first")
    latest = tracker.run.use_artifact("model:run").download(tmp_path / "latest")
    for place, data in ((first, b"123"), (latest, b"4567")):
        assert Path(place, "sub", "w.bin").read_bytes() == Path(place, "link.bin").read_bytes() == data
    dropped = tracker.report().dropped
    assert dropped["no file or folder"] == dropped["no file in the folder"] == 1
    assert sum(tracker.report().converted.values()) == 2


def test_rows_that_cannot_be_written_are_tried_again(start, project, monkeypatch):
    """A database that fails costs nothing: `flush` raises what it raised, and the rows are written later."""
    tracker = start()
    storage = tracker._place._storage
    fails = threading.Event()
    fails.set()
    real = storage.bulk_log

    def bulk_log(**arguments):
        if fails.is_set():
            raise OSError(28, "No space left on device")
        real(**arguments)

    monkeypatch.setattr(storage, "bulk_log", bulk_log)
    tracker.log({"a": 1}, step=0)
    with pytest.raises(OSError, match="No space left"):
        tracker.flush()
    tracker.log({"a": 2}, step=1)
    assert tracker.report().pending == 2
    fails.clear()
    tracker.flush()
    assert rows(project, "run") == [(0, {"a": 1}), (1, {"a": 2})]
    assert (tracker.report().delivered, tracker.report().dropped) == (2, {})


def test_rows_that_are_never_written_are_counted(start, monkeypatch):
    """What the database refused to the end is counted as dropped, with the reason."""
    tracker = start()

    def bulk_log(**arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tracker._place._storage, "bulk_log", bulk_log)
    tracker.log({"a": 1}, step=0)
    tracker.finish()
    (reason,) = tracker.report().dropped
    assert "No space left" in reason
    assert (tracker.report().pending, tracker.report().delivered) == (0, 0)


def test_a_program_that_ends_without_finish_keeps_its_rows(project):
    """At the end of the interpreter the rows are written, of a bare tracker too."""
    program = (
        "import sys\n"
        "from trackway.backends.trackio import TrackioConfig\n"
        "tracker = TrackioConfig(sys.argv[1]).init('left')\n"
        "tracker.log_hyperparameters({'lr': 1})\n"
        "for step in range(50): tracker.log({'a': step}, step=step)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, project], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert len(rows(project, "left")) == 50
    assert configuration(project, "left") == {"lr": 1}
