"""Programs that tests run in processes of their own, to see how these end."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["PREAMBLE", "content", "errors_of", "run_program", "started", "wait_for"]

PREAMBLE = """
import os, signal, sys, threading, time
from trackway.errors import *
from trackway.run import Run
from trackway.store import LocalTracker
from trackway.tracker import BackgroundTracker, Tracker

class Lines(Tracker):
    name = "lines"

    def log(self, metrics, *, step=None, commit=None):
        self.write(step, dict(metrics))

    def finish(self):
        self.write("finish")

    def write(self, *words):
        file = os.open(sys.argv[1] + ".backend", os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # children share no buffer
        os.write(file, (" ".join(map(str, words)) + "\\n").encode())
        os.close(file)

    log_hyperparameters = log_summary = log_artifact = lambda self, *args, **kwargs: None

def begin(*trackers, **options):
    return Run(trackers, LocalTracker(sys.argv[1], exclusive=True), **options)
"""


def _command(source: str, folder: Path) -> list[str]:
    return [sys.executable, "-W", "error::DeprecationWarning", "-c", PREAMBLE + textwrap.dedent(source), str(folder)]


def run_program(source: str, folder: Path, seconds: float = 20) -> subprocess.CompletedProcess[str]:
    """Run *source* behind the preamble; `begin()` in it starts a run in *folder*."""
    return subprocess.run(_command(source, folder), capture_output=True, text=True, timeout=seconds, check=False)


@contextlib.contextmanager
def started(source: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run *source* likewise beside the block, which goes on once it has printed a line; killed at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(_command(source, folder), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            process.first_line = process.stdout.readline()  # type: ignore[attr-defined]
            yield process
        finally:
            process.kill()


def content(folder: Path, name: str = "run.json") -> Any:
    """What a JSON file of a run directory holds."""
    return json.loads((folder / name).read_bytes())


def errors_of(process: subprocess.Popen[str]) -> str:
    """What a process has written to its standard error; waits for its end."""
    return process.communicate(timeout=20)[1]


def wait_for(condition: Any, seconds: float = 20.0) -> bool:
    """Wait until *condition* holds; return whether it came to that."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
