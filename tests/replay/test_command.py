"""`trackway replay` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trackway.cli import main
from trackway.store import read_rows

pytest.importorskip("click")


@pytest.fixture
def call(capsys):
    """Return a function that calls the program in this process, and gives exit code, output and standard error."""

    def call_main(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return call_main


def test_a_run_is_delivered_and_a_table_says_so(digits, tmp_path, call):
    """Several targets, of which each has a line; a second time there is nothing to deliver."""
    local, board = f"{{type: local, dir: {tmp_path / 'c'}}}", f"{{type: tensorboard, logdir: {tmp_path / 'tb'}}}"
    code, out, _ = call("replay", digits, "--to", local, "--to", board)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["run", "target", "rows", "events", "artifacts", "skipped", "failed", "complete"],
        ["digits", "local", "14", "1", "4", "0", "0", "yes"],
        ["digits", "tensorboard", "14", "1", "4", "0", "0", "yes"],
    ]
    code, out, _ = call("replay", digits, "--to", f"[{local}, {board}]", "--json")
    (report,) = json.loads(out)
    assert code == 0
    assert (report["run"], report["state"]) == ("digits", "failed")
    assert [(target["rows"], target["skipped"]) for target in report["targets"]] == [(0, 14), (0, 14)]


def test_runs_are_found_by_their_ids(long, tmp_path, call):
    """Several runs, by id in --dir, are delivered one after the other."""
    folder = long(3, "a").parent
    long(4, "b")
    code, out, _ = call("replay", "a", "b", "--dir", folder, "--to", f"{{type: local, dir: {tmp_path / 'c'}}}")
    assert code == 0
    assert len(out.splitlines()) == 3
    assert [len(read_rows(tmp_path / "c" / name)) for name in "ab"] == [3, 4]


def test_a_dry_run_says_what_would_be_delivered(digits, tmp_path, call):
    """And writes nothing."""
    code, out, _ = call("replay", digits, "--to", f"{{type: local, dir: {tmp_path / 'c'}}}", "--dry-run")
    assert (code, out.split()[-6:]) == (0, ["14", "1", "4", "0", "0", "no"])
    assert not (tmp_path / "c").exists()
    assert not (digits / "replay").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--to", "{type: tensorbord}"], 1, "unknown tracker type 'tensorbord'; did you mean tensorboard?"),
        (["--to", "{type: ["], 2, "is no YAML"),
        ([], 2, "Missing option '--to'"),
        (["--to", "local"], 1, "say where to: `{type: local, dir: FOLDER}`"),
        (["--to", "{type: tensorboard, logdir: /proc/nowhere}"], 1, "run long: tensorboard: to (tensorboard) could"),
    ],
    ids=["type", "yaml", "none", "itself", "folder"],
)
def test_mistakes_are_said_in_a_line(long, call, words, code, message):
    """Without a traceback, and with the exit codes of the other commands."""
    got, _, err = call("replay", long(3), *words)
    assert got == code
    assert message in err
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if line.startswith("trackway: error")]) == 1


def test_one_run_that_fails_keeps_no_other_from_its_target(long, tmp_path, call):
    """The others are delivered, and the exit code tells."""
    good, bad = long(3, "good"), long(3, "bad")
    (bad / "run.json").write_text((bad / "run.json").read_text().replace('"bad"', '"../bad"'))
    code, out, err = call("replay", bad, good, "--to", f"{{type: local, dir: {tmp_path / 'c'}}}")
    assert code == 1
    assert "cannot be delivered under its id" in err
    assert "good" in out
    assert len(read_rows(tmp_path / "c" / "good")) == 3


def test_lines_of_json_and_progress_are_on_standard_error(long, capfd):
    """The table alone is on standard output, so that it can be piped."""
    assert main(["replay", str(long(3)), "--to", "json_logger", "--progress"]) == 0
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 2
    assert '"event":"log","step":2' in err
    assert "long to json_logger" in err


def test_ctrl_c_ends_following_with_its_code(tmp_path):
    """A run that is followed is left where it is, and the program ends at once with 130."""
    program = """
import signal, sys, threading
import trackway
from trackway.cli import main
run = trackway.start(dir=sys.argv[1] + "/runs", run_id="live")
trackway.log({"loss": 1.0}, step=0)
run.flush(commit_open=True)
threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
code = main(["replay", sys.argv[1] + "/runs/live", "--follow", "--to", "{type: local, dir: " + sys.argv[1] + "/c}"])
print("code", code, flush=True)
"""
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "code 130" in done.stdout, done.stderr
    assert len(read_rows(tmp_path / "c" / "live")) == 1
