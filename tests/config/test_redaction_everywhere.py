"""Secrets planted wherever a run meets them are in nothing that any backend wrote."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from types import SimpleNamespace

import pytest

from tests.support.wandb_records import _bodies, read_records, record_files
from trackway.values._secret_texts import mark

SECRETS = {
    "config": "c1Zq8RmK4xW9vB7nT2pLd5Yh",
    "url": "u2Zq8RmK4xW9vB7nT2pLd5Yh",
    "nested": "n3Zq8RmK4xW9vB7nT2pLd5Yh",
    "flag": "f4Zq8RmK4xW9vB7nT2pLd5Yh",
    "assignment": "a5Zq8RmK4xW9vB7nT2pLd5Yh",
    "environment": "e6Zq8RmK4xW9vB7nT2pLd5Yh",
    "git": "g7Zq8RmK4xW9vB7nT2pLd5Yh",
    "event": "v8Zq8RmK4xW9vB7nT2pLd5Yh",
    "metric": "AKIA" + "Z8RMK4XW9VB7NT2P",
    "error": "r9Zq8RmK4xW9vB7nT2pLd5Yh",
    "artifact": "t1Zq8RmK4xW9vB7nT2pLd5Yh",
    "summary": "s2Zq8RmK4xW9vB7nT2pLd5Yh",
    "alert": "l3Zq8RmK4xW9vB7nT2pLd5Yh",
    "code": "d4Zq8RmK4xW9vB7nT2pLd5Yh",
}
PROGRAM = """
import dataclasses, json, pathlib, sys
import draccus, yaml
import trackway
from trackway.config import Trackers

planted = json.load(sys.stdin)
out = pathlib.Path(sys.argv[1])
config = {
    "service": {"api_key": planted["config"], "clients": [{"hfToken": planted["nested"]}]},
    "database": f"postgres://bob:{planted['url']}@db:5432/x",
    "note": f"we use {planted['environment']} here",
    "lr": 0.1,
}
file = out.parent / f"model-api_key={planted['artifact']}.txt"
file.write_text("weights")
trackers = draccus.decode(Trackers, yaml.safe_load((out.parent / "trackers.yaml").read_text()))


def log_to(tracker):
    tracker.log_hyperparameters(config)
    tracker.log({"loss": 0.5, "note": f"key {planted['metric']}"}, step=0)
    tracker.log_summary({"login": {"password": planted["summary"]}, "loss": 0.5})
    tracker.log_event("login", {"password": planted["event"], "of": f"x{planted['environment']}y"}, step=0)
    tracker.alert(f"curl https://a:{planted['alert']}@h", f"token={planted['alert']}")
    tracker.log_artifact(file)


def fail():
    raise RuntimeError(f"https://bob:{planted['error']}@h refused {planted['flag']} of api_key={planted['error']}")


if "bare" in sys.argv:
    for entry in trackers:
        tracker = entry.init("bare")
        log_to(tracker)
        try:
            fail()
        except RuntimeError as error:
            tracker.mark_failed(error)
        tracker.finish()
else:
    try:
        with trackway.start(trackers, run_id="r", config=config) as run:
            log_to(run)
            fail()
    except RuntimeError:
        pass
"""


def trackers_in(out):
    """Return the configuration of every backend that writes, as YAML."""
    return json.dumps(
        [
            {"type": "local", "dir": str(out / "runs")},
            {"type": "json_logger"},
            {"type": "console"},
            {"type": "tensorboard", "logdir": str(out / "tensorboard")},
            {"type": "wandb", "mode": "offline", "dir": str(out)},
            {"type": "trackio"},
        ]
    )


def git(folder, *arguments):
    """Call git in *folder*."""
    told = ["-c", "user.name=n", "-c", "user.email=n@example.com"]
    subprocess.run(["git", *told, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module", params=["run", "bare"])
def written(request, tmp_path_factory):
    """What a program with secrets everywhere left behind: by a run, and by backends called directly."""
    folder = tmp_path_factory.mktemp("planted")
    out = folder / "out"
    out.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "leaky.py").write_text(f'API_KEY = "{SECRETS["code"]}"\n')
    (folder / "trackers.yaml").write_text(trackers_in(out))
    git(folder, "init", "-q")
    git(folder, "remote", "add", "origin", f"https://bot:{SECRETS['git']}@example.com/x.git")
    git(folder, "add", "program.py")
    git(folder, "commit", "-q", "-m", "x")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "TRACKIO_"))},
        "MY_SERVICE_TOKEN": SECRETS["environment"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        **{f"WANDB_{name}_DIR": str(out / "wandb") for name in ("DATA", "CACHE", "CONFIG", "ARTIFACT")},
        "TRACKIO_DIR": str(out / "trackio"),
        "HOME": str(out),
    }
    flags = ["--api-key", SECRETS["flag"], f"--trainer.token={SECRETS['assignment']}", request.param]
    done = subprocess.run(
        [sys.executable, "program.py", str(out), *flags],
        cwd=folder,
        env=environment,
        input=json.dumps(SECRETS),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(out=out, kind=request.param, files=contents(out, done.stdout, done.stderr))


def contents(out, stdout, stderr):
    """Return all that was written: bytes by name, and beside the files what is in pieces in them, put together."""
    found = {"stdout": stdout.encode(), "stderr": stderr.encode()}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        found[f"name of {name}"] = name.encode()
        if path.is_file():
            found[name] = path.read_bytes()
        if path.suffix == ".wandb" and path.is_file():
            found[f"records of {name}"] = b"\n".join(_bodies(path.read_bytes()))
        if path.suffix == ".db":
            found[f"values of {name}"] = b"\n".join(values_in(path))
    return found


def values_in(path):
    """Yield each text in a database, which may lie there in pieces."""
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        for row in itertools.chain.from_iterable(database.execute(f'select * from "{table}"') for table in tables):
            yield from (value if isinstance(value, bytes) else str(value).encode() for value in row)


@pytest.mark.parametrize("place", SECRETS)
def test_no_byte_of_it_is_written(written, place):
    """A secret in the configuration, a flag, the environment, an address, an event, a text or the code is nowhere."""
    assert [name for name, content in written.files.items() if SECRETS[place].encode() in content] == []


@pytest.mark.parametrize(
    ("backend", "part"),
    [("local", "config.yaml"), ("tensorboard", "tensorboard/"), ("wandb", "records of "), ("trackio", "trackio/")],
)
def test_fingerprints_are_there(written, backend, part):
    """Each backend has the fingerprint of the secret in its configuration, so that runs can be compared."""
    content = b"".join(content for name, content in written.files.items() if part in name)
    assert mark(SECRETS["config"]).encode() in content, backend


def test_fingerprints_are_printed(written):
    """What the console and the JSON logger print has the fingerprints of events and texts."""
    for place in ("config", "event", "metric"):
        assert mark(SECRETS[place]).encode() in written.files["stdout"]


def test_the_run_directory_tells_what_was_replaced(written):
    """The command line, the error and the names of artifacts are told, with fingerprints in the place of secrets."""
    (path,) = (written.out / "runs").glob("*/run.json")
    record = json.loads(path.read_text())
    (attempt,) = record["attempts"]
    assert attempt["command"][2:4] == ["--api-key", mark(SECRETS["flag"])]
    assert attempt["command"][4] == f"--trainer.token={mark(SECRETS['assignment'])}"
    assert mark(SECRETS["error"]) in record["error"]["message"]
    told = mark(SECRETS["artifact"])[1:-1].replace(" sha256:", "-")
    assert f"model-api_key={told}.txt" in [one["name"] for one in record["artifacts"]]


def test_wandb_has_the_command_line_and_the_code(written):
    """W&B is told the command line without its secrets, and has the code without the file that holds one."""
    records = b"".join(content for name, content in written.files.items() if name.startswith("records of "))
    assert mark(SECRETS["flag"]).encode() in records
    (path,) = record_files(written.out)
    saved = {entry.path for one in read_records(path).artifacts for entry in one.manifest.contents}
    assert "program.py" in saved
    assert "leaky.py" not in saved
