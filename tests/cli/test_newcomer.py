"""A newcomer with ten runs, who knows no more than what the help says."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from run_files import stranger, write_run

import trackway

pytest.importorskip("matplotlib")
pytest.importorskip("plotext")
pytest.importorskip("pyarrow")

RATES = (3.0, 1.0, 0.5, 0.25, 0.1, 0.05, 0.03, 0.01, 0.005, 0.003)
TRAINING = f"""
import trackway

for rate in {RATES}:
    with trackway.start(config={{"lr": rate, "model": {{"width": 64}}}}):
        weight = 4.0
        for step in range(60):
            weight -= rate * weight / 2
            loss = weight**2 + rate / 10
            trackway.log({{"train/loss": weight**2, "val/loss": loss, "test/accuracy": 1 / (1 + loss)}}, step=step)
"""
BEST, SECOND = 0.25, 0.1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder in which the newcomer has run a training script; the ids of the runs are those made up."""
    place = tmp_path_factory.mktemp("newcomer")
    root = os.path.dirname(os.path.dirname(trackway.__file__))  # noqa: PTH120 - as text
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKWAY_")}
    subprocess.run([sys.executable, "-c", TRAINING], cwd=place, env=environment | {"PYTHONPATH": root}, check=True)
    return place


@pytest.fixture
def there(folder, monkeypatch):
    """Work in the newcomer's folder."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TRACKWAY_DIR", raising=False)
    return folder


def examples(text):
    """Return the commands that a help shows as examples, without the program's name."""
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("    trackway ")]


def expanded(words):
    """Return *words* with paths in the place of patterns, as a shell does it."""
    here = Path()
    return [name for word in words for name in (map(str, sorted(here.glob(word))) if "runs/" in word else [word])]


def table(text):
    """Return the lines of a table, as words."""
    return [line.split() for line in text.splitlines()]


def test_the_help_leads_from_ten_runs_to_the_best_its_curve_and_its_rows(call, there):
    """Each command is one that the help of the program shows, with the ids that the one before it printed."""
    best, plot, export = examples(call("--help").out)
    assert [best[0], plot[0], export[0]] == ["best", "plot", "export"]
    assert len(table(call("runs").out)) == 1 + len(RATES)
    assert "there are test/accuracy, train/loss, val/loss" in call("best").err
    head, first, second, *rest = table(call(*best).out)
    assert head == ["run", "state", "val/loss", "step", "lr"]
    assert (float(first[4]), float(second[4]), len(rest)) == (BEST, SECOND, 8)
    drawn = call(plot[0], first[0], second[0], *plot[2:])
    assert (drawn.code, drawn.err) == (0, "")
    assert drawn.out.startswith(f"val/loss  • {first[0]}  x {second[0]}\n")
    said = call(plot[0], first[0], second[0], *plot[2:], "-o", "best.png")
    assert said == (0, "the plot is in best.png\n", "")
    assert (there / "best.png").read_bytes().startswith(b"\x89PNG")
    said = call(*[first[0] if word == "RUN" else word for word in export])
    assert said.out == f"60 rows, and config.json, rows.csv, run.json, summary.json, are in {first[0]}-export\n"
    rows = list(csv.DictReader((there / f"{first[0]}-export" / "rows.csv").open()))
    assert [int(row["_step"]) for row in rows] == list(range(60))
    assert json.loads((there / f"{first[0]}-export" / "config.json").read_text())["lr"] == BEST


def test_every_example_of_a_help_can_be_called(call, tmp_path, monkeypatch):
    """As it stands, but for one on a store and one that does not end, on runs of the names that they have."""
    monkeypatch.chdir(tmp_path)
    for number in (2, 3):
        rows = [(step, {"val/loss": 1 / (step + number), "train/loss": 1.0, "test/accuracy": 0.5}) for step in range(9)]
        write_run(tmp_path / "runs", f"digits-{number}", rows, {"lr": 0.1 * number})
    for name in ("runs", "show", "history", "tail", "plot", "compare", "best", "export"):
        shown = examples(call(name, "--help").out)
        assert len(shown) == 2, name
        for words in shown:
            if "--follow" not in words and "://" not in words[1]:
                said = call(*expanded(words))
                assert said.code == 0, (words, said.err)


def test_runs_shows_what_tells_the_runs_apart(call, there):
    """The learning rate, which differs, and not the width, which does not, without being asked."""
    head, *lines = table(call("runs", "--sort", "val/loss").out)
    assert head == ["run", "state", "step", "lr", "train/loss", "val/loss", "test/accuracy", "started", "took"]
    assert [float(line[3]) for line in lines[:2]] == [BEST, SECOND]
    assert table(call("runs", "--config", "model/width").out)[0][3] == "model/width"
    assert "lr" not in table(call("runs", "--where", "lr=0.1").out)[0]


def test_what_differs_is_not_looked_for_in_very_many_runs(call, tmp_path):
    """Which would take seconds; nor is a long text or a list a column unasked."""
    for number in range(3):
        stranger(tmp_path / "few" / str(number), config={"text": "x" * 40 + str(number), "list": [number], "n": number})
    assert table(call("runs", tmp_path / "few").out)[0] == ["run", "state", "step", "n", "started", "took"]
    for number in range(101):
        stranger(tmp_path / "many" / str(number), config={"n": number})
    assert table(call("runs", tmp_path / "many").out)[0] == ["run", "state", "step", "started", "took"]


def test_a_part_of_an_id_is_enough(call, there):
    """Where no other run has it: the ids made up differ in their ends."""
    first, *_ = table(call("best", "-m", "val/loss").out)[1:]
    for part in (first[0][-6:], first[0][-6:-2]):
        assert call("show", part).out.startswith(f"run        {first[0]}\n")
    said = call("show", first[0][:4])
    assert (said.code, said.out) == (1, "")
    assert "of several runs that is a part of the id: " in said.err
    assert "no such id" in call("show", first[0][-3:]).err


@pytest.mark.parametrize(
    ("arguments", "code", "cure"),
    [
        (["best"], 2, "Missing option '--metric'; there are test/accuracy, train/loss, val/loss"),
        (["best", "-m", "loss"], 1, "no run has a finite value of 'loss'; there are test/accuracy, train/loss"),
        (["plot", "{best}", "-m", "loss"], 1, "; there are test/accuracy, train/loss, val/loss"),
        (["plot", "{best}", "-o", "best"], 2, "give 'best.png', say"),
        (["show", "runs"], 1, "that folder is none; it holds runs: give one of them, such as runs/"),
        (["show", "empty"], 1, "that folder is none; it has no run.json and no rows"),
        (["show", "notes.txt"], 1, "that file is none of rows, whose names end with .jsonl"),
        (["export", "{best}", "-o", "best.csv"], 2, "`trackway history RUN -n -1 -o best.csv` writes the rows alone"),
        (["runs", "{best}"], 0, "it is a run itself, which `trackway show {best}` shows"),
        (["best", "{best}", "-m", "loss"], 1, "it is a run itself, which `trackway show {best}` shows"),
        (["runs", "nowhere"], 1, "No such file or directory: nowhere; runs are in the folder 'runs' below where"),
        (["show", "x", "--dir", "nowhere"], 1, "there are no runs in 'nowhere'"),
        (["show", "quite-another"], 1, "`trackway runs runs` lists what there is"),
    ],
)
def test_mistakes_of_a_newcomer_lead_on(call, there, *, arguments, code, cure):
    """Each message says what to do instead, in a line."""
    (there / "notes.txt").write_text("mine")
    (there / "empty").mkdir(exist_ok=True)
    best = f"runs/{table(call('best', '-m', 'val/loss').out)[1][0]}"
    said = call(*[word.format(best=best) for word in arguments])
    assert (said.code, said.out) == (code, "")
    assert cure.format(best=best) in said.err
    assert len(re.findall(r"^trackway: ", said.err, re.MULTILINE)) == 1
    assert not (there / "best.csv").exists()


@pytest.mark.parametrize(
    ("metric", "given", "greatest"),
    [
        ("test/accuracy", [], True),
        ("valAcc", [], True),
        ("episode_return", [], True),
        ("val/loss", [], False),
        ("accuracy_loss", [], False),
        ("mapping", [], False),
        ("test/accuracy", ["--mode", "min"], False),
        ("val/loss", ["--mode", "max"], True),
    ],
)
def test_more_is_better_where_the_name_says_so(call, tmp_path, *, metric, given, greatest):
    """And it is said, so that nobody takes the worst run for the best one; --mode decides otherwise."""
    for number in range(3):
        write_run(tmp_path, f"run-{number}", [(0, {metric: number})])
    said = call("best", tmp_path, "--metric", metric, *given)
    assert table(said.out)[1][0] == ("run-2" if greatest else "run-0")
    told = f"trackway: the greatest value of {metric} counts as the best one; --mode min takes the least\n"
    assert said.err == (told if greatest and not given else "")
