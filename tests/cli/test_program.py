"""The program as a whole: help, mistakes, strangers' runs, pipes and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from run_files import stranger

import trackway

COMMANDS = ("runs", "show", "history", "tail", "plot", "compare", "best", "export", "backends")
PROGRAM = [sys.executable, "-m", "trackway.cli"]
BAD = "\x1b]0;owned\x07\x1b[31m\u202eevil\u200b\x00\x9b2J\n\r\t\ud800"
_CONTROL = {chr(code) for code in (*range(32), *range(0x7F, 0xA0))} - {"\n"} | set("\u202e\u200b\u2066\ufeff\ud800")


def test_help_lists_the_commands_and_imports_none(tmp_path):
    """Listing them needs click, and nothing of what reads runs."""
    code = (
        "import sys; from trackway.cli import main; main(['--help'])\n"
        "heavy = {'numpy', 'orjson', 'rich', 'matplotlib', 'plotext', 'jax', 'pandas', 'yaml', 'trackway.store'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=_environment()
    )
    *help_text, imported = done.stdout.splitlines()
    assert imported == "[]", done.stderr
    assert {line.split()[0] for line in help_text if line.strip()} >= set(COMMANDS)


def _environment(**more):
    root = os.path.dirname(os.path.dirname(trackway.__file__))  # noqa: PTH120 - as text
    return {**os.environ, "PYTHONPATH": root, **more}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(call, name):
    """Its help has a sentence, and says what its options mean."""
    said = call(name, "--help")
    assert (said.code, said.err) == (0, "")
    assert f"Usage: trackway {name}" in said.out


def test_the_version_is_printed(call):
    """It is that of the package."""
    assert call("--version") == (0, f"trackway {trackway.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["rums"], 2, "Did you mean 'runs'?"),
        (["show"], 2, "Missing argument 'RUN'"),
        (["runs", "--no-such-option"], 2, "No such option"),
        (["runs", "nowhere"], 1, "No such file or directory: nowhere"),
        (["show", "digits-33", "--dir", "ten"], 1, "did you mean digits-3"),
        (["show", "x\x1b[31m\n"], 1, "no run 'x\\x1b[31m"),
        (["history", "a\0b"], 1, "no run"),
        (["tail", "/dev/null"], 1, "neither"),
        (["plot", "ten/digits-3", "-m", "no/such"], 1, "there are no numbers that match no/such in digits-3"),
        (["plot", "ten/digits-3", "-o", "x.gif"], 2, "a picture ends with .png, .svg, .pdf"),
        (["plot", "ten/digits-3", "--smooth", "1"], 2, "1 is not from 0"),
        (["best", "ten"], 2, "Missing option '--metric'"),
    ],
)
def test_mistakes_are_said_in_a_line(call, ten, monkeypatch, *, arguments, code, text):
    """No traceback, no half of an output, and a cure where there is one."""
    monkeypatch.chdir(ten.parent)
    if not (ten.parent / "ten").exists():
        (ten.parent / "ten").symlink_to(ten)
    said = call(*arguments)
    assert (said.code, said.out) == (code, "")
    assert text in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "."], ["runs", ".", "--metrics", "*", "--config", "*"], ["runs", ".", "--json"], ["show", "a"],
        ["show", "a", "--json"], ["history", "a"], ["history", "a", "--format", "csv"], ["history", "a", "--json"],
        ["tail", "a"], ["tail", "a", "--json"], ["plot", "a"], ["plot", "a", "a"], ["plot", "a", "--json"],
        ["compare", "a", "b", "--all"], ["compare", "a", "b", "--json"], ["best", ".", "--metric", "loss"],
        ["best", ".", "--metric", "no"], ["runs", ".", "--where", "no=1"], ["runs", "--sort", "no"],
    ],
)  # fmt: skip
def test_hostile_runs_are_harmless(call, tmp_path, monkeypatch, arguments):
    """No control character, no turned writing and no endless text gets from a run to the terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKWAY_DIR", ".")
    long = BAD + "x" * 10**6
    manifest = {
        "id": long, "state": "failed", "error": {"type": BAD, "message": long},
        "attempts": [{"number": BAD, "start": BAD, "end": 1e300, "host": long, "command": [long], "git": BAD}] * 2,
        "artifacts": [{"name": long, "type": BAD, "path": BAD, "size": BAD}],
    }  # fmt: skip
    rows = [{"_step": step, "_time": 1.0, "loss": step, BAD: long, "number" + BAD: step} for step in range(3)]
    values = {BAD: long, "deep": {BAD: [BAD]}, "number" + BAD: 1.0}
    for name in "ab":
        stranger(tmp_path / name, manifest=manifest, summary=values, config={**values, "name": name}, rows=rows)
    (tmp_path / "a" / "metrics.jsonl").open("a").write("damaged \x1b[31m\n")
    said = call(*arguments)
    assert not _CONTROL & set(said.out + said.err)
    failing = 2 if "--sort" in arguments else 1
    assert said.code == (failing if {"no", "no=1"} & set(arguments) else 0)
    text = "--json" in arguments or "--format" in arguments
    assert max(map(len, (said.out + said.err).splitlines())) < (10**7 if text else 2000)


def test_links_of_a_stranger_are_not_followed(call, tmp_path):
    """A file of rows that leads elsewhere is an error that names it."""
    (tmp_path / "secret").write_text('{"_step": 1, "password": 1}\n')
    folder = stranger(tmp_path / "a")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").symlink_to(tmp_path / "secret")
    for command in ("history", "tail", "plot"):
        said = call(command, folder)
        assert (said.code, "password" in said.out + said.err) == (1, False)
    assert call("runs", tmp_path).code == 0


def test_a_reader_that_goes_away_is_no_error(ten):
    """As with `trackway history ... | head -1`."""
    command = [*PROGRAM, "history", str(ten / "digits-3"), "--json", "-n", "-1"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=_environment())
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_ctrl_c_ends_quietly(tmp_path):
    """With the exit code that shells give it."""
    folder = stranger(tmp_path / "a", rows=[{"_step": 1, "_time": 1.0, "loss": 0.5}])
    command = [*PROGRAM, "tail", str(folder), "--follow"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        assert process.stdout.readline() == "step 1: loss=0.5\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "")


def test_a_missing_library_is_said_in_a_line(call, ten, monkeypatch):
    """And how to install it."""
    for library, arguments in (
        ("plotext", ["plot", ten / "digits-3"]),
        ("matplotlib", ["plot", ten / "digits-3", "-o", "x.png"]),
        ("pyarrow.parquet", ["export", ten / "digits-3", "--format", "parquet"]),
    ):
        monkeypatch.setitem(sys.modules, library, None)
        said = call(*arguments)
        assert (said.code, said.out) == (1, "")
        assert said.err.count("\n") == 1
        assert 'pip install "trackway[' in said.err


def test_without_click_the_program_says_what_to_install(tmp_path):
    """In one line."""
    code = "import sys; sys.modules['click'] = None; from trackway.cli import main; sys.exit(main(['runs']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=_environment()
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'trackway: the command line needs click; pip install "trackway[cli]"\n'


def test_the_shell_completes_commands_and_runs(ten):
    """With click's own completion for bash."""
    for words, expected in (("trackway ta", "tail"), ("trackway show digits-7", "digits-7")):
        done = subprocess.run(
            [sys.executable, "-c", "from trackway.cli import main; main([])"],
            env=_environment(
                _TRACKWAY_COMPLETE="bash_complete",
                COMP_WORDS=words,
                COMP_CWORD=str(words.count(" ")),
                TRACKWAY_DIR=str(ten),
            ),
            capture_output=True,
            text=True,
        )
        assert f"plain,{expected}" in done.stdout.splitlines(), done.stderr


def test_a_new_user_finds_plots_and_exports_the_best_run(call, ten, tmp_path, monkeypatch):
    """The best of ten runs, plotted against the second, and exported: three commands, from the first one's JSON."""
    monkeypatch.setenv("TRACKWAY_DIR", str(ten))
    best, second = json.loads(call("best", "--metric", "val/loss", "--json").out)[:2]
    assert (best["id"], second["id"]) == ("digits-3", "digits-4")
    said = call("plot", best["id"], second["id"], "-m", "val/loss", "-o", tmp_path / "best.png")
    assert (said.code, (tmp_path / "best.png").read_bytes()[:4]) == (0, b"\x89PNG")
    said = call("export", best["id"], "-o", tmp_path / "best")
    assert said.out.startswith("10 rows")
    assert (tmp_path / "best" / "rows.csv").exists()
