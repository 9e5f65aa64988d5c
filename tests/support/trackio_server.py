"""Trackio's folder for the tests of a process, what databases hold, and a real server on 127.0.0.1.

Trackio reads `TRACKIO_DIR` when it is imported: this module has to be imported first.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "TOKEN", "Served", "configuration", "free_port", "new_project", "rows", "runs", "serve"]

TOKEN = "for-the-tests"

if "trackio" in sys.modules:
    raise ImportError("trackio was imported before its folder could be set")
FOLDER = Path(tempfile.mkdtemp(prefix="trackway-trackio-"))
os.environ["TRACKIO_DIR"] = str(FOLDER)
for _variable in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WRITE_TOKEN", "TRACKIO_WEBHOOK_URL", "HF_TOKEN"):
    os.environ.pop(_variable, None)
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
_numbers = itertools.count()


def new_project() -> str:
    """Return a name that no other test uses."""
    return f"project{next(_numbers)}"


def _query(project: str, folder: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    path = folder / f"{project}.db"
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, values).fetchall()


def runs(project: str, folder: Path = FOLDER) -> dict[str, str]:
    """Return the name of each run by its id."""
    return dict(_query(project, folder, "SELECT DISTINCT run_id, run_name FROM metrics"))


def rows(project: str, run_id: str, folder: Path = FOLDER, column: str = "metrics") -> list[tuple[int, Any]]:
    """Return step and *column* of the rows of a run, in the order in which they came; empty rows are left out."""
    query = f"SELECT step, {column} FROM metrics WHERE run_id = ? AND length(metrics) > 2 ORDER BY id"
    found = _query(project, folder, query, run_id)
    return [(step, json.loads(value) if column == "metrics" else value) for step, value in found]


def configuration(project: str, run_id: str, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the configuration of a run, without what Trackio adds."""
    (found,) = _query(project, folder, "SELECT config FROM configs WHERE run_id = ?", run_id)
    return {name: value for name, value in json.loads(found[0]).items() if not name.startswith("_")}


@dataclass
class Served:
    """A server.

    Attributes:
        url: Where it is, with the write token.
        folder: Its data.
        process: The process.
    """

    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End it, as a machine that goes down does."""
        self.process.kill()
        self.process.wait(20)


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serve(folder: Path, port: int | None = None) -> Iterator[Served]:
    """Serve what is in *folder* for a block, which begins once the server answers."""
    port = port or free_port()
    environment = {**os.environ, "TRACKIO_DIR": str(folder), "TRACKIO_WRITE_TOKEN": TOKEN, "BROWSER": "/bin/true"}
    command = [str(Path(sys.executable).with_name("trackio")), "show", "--host", "127.0.0.1"]
    process = subprocess.Popen(
        command,
        env={**environment, "GRADIO_SERVER_PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    served = Served(f"http://127.0.0.1:{port}/?write_token={TOKEN}", folder, process)
    try:
        _wait_until_it_answers(port, process)
        yield served
    finally:
        served.stop()


def _wait_until_it_answers(port: int, process: subprocess.Popen[bytes], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"trackio ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/version", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"the server did not answer within {seconds:g} s")
