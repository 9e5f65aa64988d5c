"""The example as a user runs it: a program in a folder of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"
TIME_LIMIT = 110


@pytest.fixture(scope="session")
def run_example():
    """Return a function that runs the example in a folder with command-line arguments; it must end with *code*."""

    def run(folder, *arguments, code=0):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKWAY_")}
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), *arguments],
            cwd=folder,
            env=environment | {"JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def digits():
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("train_digits", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_digits"] = module  # dataclasses look their annotations up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["train_digits"]
