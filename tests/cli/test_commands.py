"""The commands that read, on ten runs."""

from __future__ import annotations

import csv
import io
import json

import pytest
from run_files import stranger, write_run

from trackway.store import read_history


def test_runs_lists_state_last_step_and_metrics(call, ten):
    """One line for each run, the metrics chosen by a glob and the values of the configuration beside them."""
    said = call("runs", ten, "--metrics", "val/*,test/acc", "--config", "lr", "--sort", "val/loss", "-n", 2)
    head, *lines = said.out.splitlines()
    assert head.split() == ["run", "state", "step", "lr", "test/acc", "val/loss", "started", "took"]
    assert [line.split()[:3] for line in lines] == [["digits-3", "finished", "90"], ["digits-4", "finished", "90"]]
    assert lines[0].split()[3:6] == ["0.001", "0.89", "0.050989"]
    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["lr=0.001"], [3]), (["lr>=0.01"], [0, 1, 2]), (["lr<1e-7"], [8, 9]), (["lr!=1", "lr>0.01"], [1]),
        (["model/width=64", "lr<=1e-6"], [7, 9]), (["model.width=64", "lr==1e-7"], [7]),
        (["state=fin*", "lr>0.5"], [0]),
        (["val/loss<0.1"], [3]),
    ],
)  # fmt: skip
def test_runs_are_filtered_by_configuration(call, ten, conditions, expected):
    """Conditions are all to hold; numbers are compared as numbers, texts by globs."""
    options = [part for condition in conditions for part in ("--where", condition)]
    found = json.loads(call("runs", ten, "--sort", "id", "--json", *options).out)
    assert [run["id"] for run in found] == [f"digits-{number}" for number in expected]


def test_a_condition_on_a_value_that_no_run_has_says_what_there_is(call, ten):
    """And one that is no condition is wrong usage."""
    said = call("runs", ten, "--where", "lrr=1")
    assert (said.code, said.out) == (1, "")
    assert "no run has a value 'lrr'; in configurations: lr, model/width" in said.err
    assert call("runs", ten, "--where", "lr").code == 2


def test_runs_are_sorted_both_ways_with_missing_values_last(call, tmp_path):
    """NaN counts as missing."""
    values = {"a": {"x": 2.0}, "b": {"x": 1.0}, "c": {"y": 1.0}, "d": {"x": float("nan")}}
    for name, summary in values.items():
        stranger(tmp_path / name, summary=summary)
    for options, expected in (((), "bacd"), (("--reverse",), "abcd")):
        found = json.loads(call("runs", tmp_path, "--sort", "x", "--json", *options).out)
        assert "".join(run["id"] for run in found) == expected
    assert call("runs", tmp_path, "--sort", "z").code == 2


def test_json_is_valid_for_values_that_json_does_not_have(call, tmp_path):
    """NaN and infinities are texts, and integers keep all their digits."""
    rows = [(0, {"a": float("nan"), "b": float("-inf"), "c": 10**30})]
    write_run(tmp_path, "a", rows)
    (row,) = json.loads(call("history", tmp_path / "a", "--json").out, parse_constant=pytest.fail)
    assert (row["a"], row["b"], row["c"]) == ("NaN", "-Infinity", 10**30)
    (run,) = json.loads(call("runs", tmp_path, "--metrics", "*", "--json").out, parse_constant=pytest.fail)
    assert run["metrics"] == {"a": "NaN", "b": "-Infinity", "c": 10**30}
    assert json.loads(call("show", tmp_path / "a", "--json").out, parse_constant=pytest.fail)["summary"]["a"] == "NaN"


def test_show_tells_all_that_is_known(call, tmp_path):
    """State and error, attempts, configuration, summary and artifacts."""
    attempts = [
        {"number": 1, "start": 1e9, "end": 1e9 + 3700, "first_step": 0, "host": "one", "state": "preempted"},
        {"number": 2, "start": 1e9 + 4000, "end": 1e9 + 4060, "first_step": 70, "host": "two", "state": "failed",
         "command": ["train.py", "a b"], "git": "abc"},
    ]  # fmt: skip
    manifest = {
        "state": "failed", "error": {"type": "ValueError", "message": "no data"}, "attempts": attempts,
        "artifacts": [{"name": "weights", "type": "model", "size": 2048, "path": "artifacts/weights"}],
    }  # fmt: skip
    rows = [{"_step": 70, "_time": 1e9, "_attempt": 2, "loss": 0.5}]
    folder = stranger(tmp_path / "a", manifest=manifest, summary={"loss": 0.5}, config={"m": {"w": 64}}, rows=rows)
    said = call("show", folder)
    parts = [" ".join(line.split()) for line in said.out.splitlines()]
    assert {"run a", "state failed", "error ValueError: no data", "last step 70", "host two"} <= set(parts)
    assert {"took 1h 07m", "command train.py 'a b'", "m/w 64", "loss 0.5"} <= set(parts)
    assert "weights model 2 KiB artifacts/weights" in parts
    assert any(line.startswith("1 preempted, from step 0, ") and line.endswith("1h 01m, on one") for line in parts)
    assert json.loads(call("show", folder, "--json").out)["attempts"] == attempts


def test_history_gives_the_rows_asked_for(call, ten):
    """Their number, names and steps, as a table."""
    said = call("history", ten / "digits-3", "-n", 2, "--metrics", "val/*,test/acc", "--step-range", "20:60")
    assert [line.split() for line in said.out.splitlines()] == [
        ["step", "val/loss", "test/acc"],
        ["40", "0.0643902", "0.89"],
        ["50", "0.0596078", "0.94"],
    ]


def test_history_as_csv_and_json_is_what_the_reader_returns(call, ten):
    """On standard output."""
    wanted = read_history(ten / "digits-3", 3)
    assert json.loads(call("history", "digits-3", "--dir", ten, "-n", 3, "--format", "json").out) == wanted
    lines = list(csv.DictReader(io.StringIO(call("history", ten / "digits-3", "-n", 3, "--format", "csv").out)))
    assert [(int(line["_step"]), float(line["train/loss"])) for line in lines] == [
        (row["_step"], row["train"]["loss"]) for row in wanted
    ]


def test_history_as_parquet_has_the_types_of_the_values(call, ten, tmp_path):
    """The ending of the file says the format."""
    parquet = pytest.importorskip("pyarrow.parquet")
    assert call("history", ten / "digits-3", "-n", -1, "-o", tmp_path / "rows.parquet").code == 0
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert table.num_rows == 10
    assert {name: str(table.schema.field(name).type) for name in ("_step", "val/loss")} == {
        "_step": "int64",
        "val/loss": "double",
    }


@pytest.mark.parametrize(
    "options",
    [
        ["--format", "parquet"], ["--step-range", "5"], ["--step-range", "a:b"], ["-n", "-2"],
        ["--json", "--format", "csv"],
        ["-o", "rows.txt"], ["--format", "xml"], ["--format", "table", "-o", "rows.csv"],
    ],
)  # fmt: skip
def test_wrong_usage_of_history_is_said_in_a_few_lines(call, ten, options):
    """The exit code is 2, and nothing is printed or written."""
    said = call("history", ten / "digits-3", *options)
    assert (said.code, said.out) == (2, "")
    assert "error: " in said.err
    assert len(said.err.splitlines()) <= 4


def test_compare_shows_only_what_differs(call, ten):
    """Values of the configuration and results, with what one of the runs lacks."""
    said = call("compare", "digits-3", "digits-5", "--dir", ten)
    assert [line.split() for line in said.out.split("config\n")[1].split("\n\n")[0].splitlines()] == [
        ["digits-3", "digits-5"],
        ["lr", "0.001", "1e-05"],
    ]
    assert "test/acc" in said.out
    assert "model/width" not in said.out
    assert "model/width" in call("compare", "digits-3", "digits-5", "--dir", ten, "--all").out
    parts = json.loads(call("compare", "digits-3", "digits-5", "--dir", ten, "--json", "-m", "test/acc").out)
    assert parts["config"] == [{"name": "lr", "values": {"digits-3": 1e-3, "digits-5": 1e-5}}]
    assert [line["name"] for line in parts["results"]] == ["test/acc"]


def test_compare_tells_runs_of_one_id_apart_by_their_paths(call, tmp_path):
    """And a single run is wrong usage."""
    for number, part in enumerate(("one", "two")):
        stranger(tmp_path / part / "same", config={"lr": number, **({"extra": None} if number else {})})
    paths = [str(tmp_path / part / "same") for part in ("one", "two")]
    parts = json.loads(call("compare", *paths, "--json").out)
    assert parts["runs"] == paths
    assert {line["name"]: line["values"] for line in parts["config"]} == {
        "lr": dict(zip(paths, (0, 1), strict=True)),
        "extra": {paths[1]: None},
    }
    assert call("compare", paths[0]).code == 2


def test_best_ranks_runs_and_shows_another_metric_where_the_first_was_best(call, ten):
    """The other value is that of the same step, not the last one."""
    said = call("best", ten, "--metric", "test/acc", "--mode", "max", "--show", "val/loss", "-n", 2, "-c", "lr")
    assert [line.split() for line in said.out.splitlines()] == [
        ["run", "state", "test/acc", "step", "val/loss", "lr"],
        ["digits-3", "finished", "0.94", "50", "0.0596078", "0.001"],
        ["digits-4", "finished", "0.91", "50", "0.179608", "0.0001"],
    ]


def test_best_says_what_runs_lack(call, ten, tmp_path):
    """No run with the metric is a failure that lists the metrics; a column without values is said to be so."""
    said = call("best", ten, "--metric", "valloss")
    assert (said.code, said.out) == (1, "")
    assert "there are test/acc, train/loss, val/loss" in said.err
    write_run(tmp_path, "a", [(0, {"loss": 1.0}), (1, {"acc": 1.0})])
    write_run(tmp_path, "b", [(0, {"loss": float("nan")})])
    said = call("best", tmp_path, "--metric", "loss", "--show", "acc")
    assert said.out.splitlines()[1].split() == ["a", "finished", "1", "0", "-"]
    assert "acc was not logged at these steps" in said.err
    assert "1 runs have no finite value of loss" in said.err


@pytest.mark.parametrize("form", ["csv", "json", "jsonl", "parquet"])
def test_export_writes_rows_configuration_and_summary(call, ten, tmp_path, form):
    """The folder holds what the reader returns, and is complete or not there."""
    target = tmp_path / "out"
    said = call("export", "digits-3", "--dir", ten, "--format", form, "-o", target)
    assert (said.code, said.err) == (0, "")
    assert sorted(path.name for path in target.iterdir()) == ["config.json", f"rows.{form}", "run.json", "summary.json"]
    assert json.loads((target / "config.json").read_text()) == {"lr": 1e-3, "model": {"width": 64}}
    assert json.loads((target / "run.json").read_text())["state"] == "finished"
    wanted = read_history(ten / "digits-3")
    text = "" if form == "parquet" else (target / f"rows.{form}").read_text()
    match form:
        case "csv":
            assert [int(row["_step"]) for row in csv.DictReader(io.StringIO(text))] == list(range(0, 100, 10))
        case "json":
            assert json.loads(text) == wanted
        case "jsonl":
            assert [json.loads(line) for line in text.splitlines()] == wanted
        case _:
            assert pytest.importorskip("pyarrow.parquet").read_table(target / "rows.parquet").num_rows == 10


def test_export_replaces_only_an_export_and_only_if_asked(call, ten, tmp_path):
    """A folder of other things is never touched."""
    target = tmp_path / "out"
    for options, code in (((), 0), ((), 1), (("--force",), 0)):
        assert call("export", ten / "digits-3", "-o", target, *options).code == code
    (target / "thesis.tex").touch()
    said = call("export", ten / "digits-3", "-o", target, "--force")
    assert (said.code, "holds other things" in said.err) == (1, True)
    assert (target / "thesis.tex").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_backends_lists_types_and_what_they_keep(call):
    """The table of capabilities is found out by logging."""
    said = json.loads(call("backends", "--json", "--capabilities").out)
    assert {"console", "json_logger", "local", "noop", "tensorboard"} <= {line["type"] for line in said["backends"]}
    assert said["capabilities"]["NaN, ±inf"]["local"] == "native"


def test_a_backend_whose_library_is_missing_says_how_to_get_it(call, monkeypatch):
    """It is listed all the same."""
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorboardX" else find(name, *rest)
    )
    (line,) = [line for line in call("backends").out.splitlines() if line.startswith("tensorboard")]
    assert line.split(maxsplit=3) == ["tensorboard", "missing", "trackway", 'pip install "trackway[tensorboard]"']


def test_an_earlier_attempt_that_never_ended_has_crashed(call, tmp_path):
    """What it says of itself is that it runs; the one after it shows that it does not."""
    attempts = [
        {"number": 1, "state": "running", "first_step": 0, "start": 100.0},
        {"number": 2, "state": "running", "first_step": 5, "start": 200.0},
    ]
    folder = stranger(tmp_path / "run", manifest={"state": "running", "attempts": attempts})
    first, second = [line.split() for line in call("show", folder).out.splitlines() if "from step" in line]
    assert (first[:2], second[:2]) == (["1", "crashed,"], ["2", "running,"])
