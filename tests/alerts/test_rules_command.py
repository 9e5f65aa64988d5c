"""`trackway rules`: what a rule means, and where it would have fired."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import pytest
from run_files import stranger, write_run

import trackway
from trackway.alerts import RuleEngine
from trackway.cli import main
from trackway.store import read_history

pytest.importorskip("click")


class Said(NamedTuple):
    """What a command said: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(capsys):
    """Return a function that calls `trackway rules` in this process."""

    def call_rules(*arguments):
        capsys.readouterr()
        code = main(["rules", *map(str, arguments)])
        return Said(code, *capsys.readouterr())

    return call_rules


@pytest.fixture
def run(tmp_path):
    """Return a run whose loss is high at steps 30 and 31, and NaN at step 50."""
    rows = [(step, {"train": {"loss": 9.0 if step in {30, 31} else 1.0 + step % 2}}) for step in range(60)]
    rows[50] = (50, {"train": {"loss": math.nan}})
    return write_run(tmp_path, "digits-1", rows)


def test_explain_says_what_a_rule_does(call):
    """In lines, or as JSON; several rules one after the other."""
    rule = "zscore(train/loss[50]) > 4 for 3 => error: loss spike"
    said = call("explain", rule, "isnan(x)")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == rule
    assert "  reads     train/loss" in lines
    assert "  holds     when zscore(train/loss[50]) is greater than 4" in lines
    assert "  fires     once it has held at 3 looks in succession; again only after it has ceased to hold" in lines
    assert "  alert     error: loss spike" in lines
    assert "  holds     when x is NaN" in lines
    (told,) = json.loads(call("explain", rule, "--json").out)
    assert (told["rule"], told["metrics"], told["level"]) == (rule, ["train/loss"], "error")


def test_a_rule_that_is_wrong_is_pointed_at(call):
    """The exit code is 1, and the message is that of the language."""
    said = call("explain", "meen(loss[50]) > 3")
    assert (said.code, said.out) == (1, "")
    assert "alert rule, column 1: there is no function 'meen'; did you mean mean?" in said.err
    marked = call("explain", "loss >").err.splitlines()
    assert marked[0].startswith("trackway: error: alert rule, column 7: ")
    (at,) = [number for number, line in enumerate(marked) if line.strip() == "^"]
    assert marked[at - 1].rstrip().endswith("loss >")
    assert marked[at].index("^") == marked[at - 1].index("loss >") + len("loss >")
    assert call("test", "meen(loss[50]) > 3", "--run", "no-such-run").err.startswith("trackway: error: alert rule")


def test_test_shows_where_a_rule_fires(call, run):
    """A line for each alert, with the values that were seen there."""
    said = call("test", "train/loss > 5", "isnan(train.loss) => error: diverged", "--run", run)
    head, *lines = said.out.splitlines()
    assert head.split() == ["step", "time", "state", "level", "rule", "values"]
    assert [(line.split()[0], line.split()[4]) for line in lines] == [("30", "warning"), ("50", "error")]
    assert lines[0].endswith("train/loss > 5     train/loss = 9")
    assert lines[1].endswith("isnan(train.loss)  train.loss = nan")
    assert (said.code, said.err) == (0, "")


def test_test_finds_the_run_by_its_id(call, run):
    """In the folder that --dir names; a run that is not there ends with 1."""
    said = call("test", "train/loss > 5", "--run", "digits-1", "--dir", run.parent, "--json")
    assert [(alert["step"], alert["state"], alert["values"]) for alert in json.loads(said.out)] == [
        (30, "firing", {"train/loss": 9.0})
    ]
    assert call("test", "train/loss > 5", "--run", "nothing", "--dir", run.parent).code == 1


def test_what_does_not_fire_is_said_with_what_may_be_meant(call, run):
    """A rule that never fires, and a metric that the run does not have."""
    said = call("test", "train/los > 5", "train/loss > 99", "--run", run)
    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines() == [
        "trackway: train/los > 5: does not fire in 60 rows",
        "trackway: train/loss > 99: does not fire in 60 rows",
        "trackway: the run has no metric 'train/los'; did you mean train/loss?",
    ]


def test_long_answers_are_cut_and_say_so(call, run):
    """--limit is the number of lines; JSON has all of them."""
    said = call("test", "train/loss >= 2", "--run", run, "-n", 3)
    assert len(said.out.splitlines()) == 4
    assert "more alerts; show them with --limit, or --json" in said.err
    assert (
        len(json.loads(call("test", "train/loss >= 2", "--run", run, "--json").out)) == 28
    )  # NaN between two ends no alert


def test_names_of_strangers_cannot_steer_the_terminal(call, tmp_path):
    """Control characters of metrics are shown as escapes."""
    folder = stranger(tmp_path / "run", rows=[{"_step": 1, "_time": 1.0, "a\x1b[31m": 9}])
    said = call("test", "`a\x1b[31m` > 5", "b > 1", "--run", folder)
    assert said.code == 0
    assert "\x1b" not in said.out + said.err
    assert r"`a\x1b[31m` = 9" in said.out
    assert "\x1b" not in call("explain", "`a\x1b[31m` > 5").out


def test_a_replay_over_the_store_is_what_the_live_run_saw(call, tmp_path):
    """The engine that watched the rows, also resumed in the middle, fired at the steps that the command shows."""
    values = [(step, {"x": math.sin(step * step), "y": {"z": step % 7}}) for step in range(300)]
    rules = ["zscore(x[20]) > 1.7", "mean(x[30]) > 0.1 for 2", "increasing(y.z[4])", "ema(x[9]) > std(x[10]) / 2"]
    folder = write_run(tmp_path, "run", values)
    rows = read_history(folder, -1)
    first, second = RuleEngine(rules), RuleEngine(rules)
    live = [alert for row in rows[:140] for alert in first.observe(row["_step"], row["_time"], row)]
    second.backfill(rows[:140])
    live += [alert for row in rows[140:] for alert in second.observe(row["_step"], row["_time"], row)]
    shown = json.loads(call("test", *rules, "--run", folder, "--json").out)
    assert [(alert["rule"], alert["step"]) for alert in shown] == [(alert.rule.when, alert.step) for alert in live]
    assert len({alert.rule for alert in live}) == len(rules)


def test_rows_are_looked_at_as_they_were_committed(call, tmp_path):
    """With `step_policy="allow"` a step may come again, and each of its rows is one of its own, in their order."""
    with trackway.start(dir=tmp_path, run_id="again", step_policy="allow") as run:
        for step, loss in ((0, 1.0), (1, 9.0), (2, 1.0), (1, 9.0), (1, 2.0), (0, 9.0)):
            run.log({"loss": loss}, step=step, commit=True)
    shown = json.loads(call("test", "loss > 5", "--run", "again", "--dir", tmp_path, "--json").out)
    assert [alert["step"] for alert in shown] == [1, 1, 0]
    assert "does not fire in 6 rows" in call("test", "loss > 50", "--run", "again", "--dir", tmp_path).err


def test_rows_that_an_attempt_replaced_are_not_looked_at(call, tmp_path):
    """Of a run that went back to an earlier step the rows that count are looked at; damaged lines are said."""
    rows = [{"_step": step, "_time": 1.0 + step, "loss": 9.0 * (step == 2)} for step in range(4)]
    rows += [{"_step": step, "_time": 9.0 + step, "_attempt": 2, "loss": 9.0 * (step == 3)} for step in (2, 3)]
    folder = stranger(tmp_path / "run", rows=rows)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("no row\n")
    said = call("test", "loss > 5", "--run", folder, "--json")
    assert [alert["step"] for alert in json.loads(said.out)] == [3]
    assert said.err == "trackway: 1 lines of rows are damaged and left out\n"
