"""Runs to look at, and a way to call the commands."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from run_files import write_run

from trackway.cli import main

pytest.importorskip("click")


class Said(NamedTuple):
    """What a command said: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(capsys):
    """Return a function that calls the program in this process."""

    def call_main(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Said(code, *capsys.readouterr())

    return call_main


@pytest.fixture(scope="session")
def ten(tmp_path_factory):
    """Return a folder of ten runs, of which `digits-3` is the best and `digits-4` the second; read only."""
    folder = tmp_path_factory.mktemp("ten")
    for number in range(10):
        far = abs(number - 3.2)
        rows = [
            (step, {"train": {"loss": 2 * math.exp(-step / 40) + far / 10}, "val/loss": 1 / (1 + step) + far / 5,
                    "test/acc": 0.9 - far / 20 + (0.05 if step == 50 else 0.0)})
            for step in range(0, 100, 10)
        ]  # fmt: skip
        write_run(folder, f"digits-{number}", rows, {"lr": 10.0**-number, "model": {"width": 32 * (number % 2 + 1)}})
    return folder
