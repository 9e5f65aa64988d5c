"""Tests of captured logs that are known to fail on a version of JAX, or with what it is going to turn on."""

from __future__ import annotations

import tomllib
from pathlib import Path

import jax
import pytest

HERE = Path(__file__).parent


def _applies(failure):
    """Return whether *failure* is about the JAX that runs."""
    if "switch" in failure:
        return bool(getattr(jax.config, failure["switch"], False))
    return jax.__version_info__ < tuple(int(part) for part in failure["jax_below"].split("."))


def pytest_collection_modifyitems(items):
    """Expect the known failures of this JAX to fail."""
    failures = tomllib.loads((HERE / "known_failures.toml").read_text())["failure"]
    for failure in filter(_applies, failures):
        for item in items:
            names = {f"{item.path.name}::{name}" for name in (item.name, item.name.partition("[")[0])}
            if item.path.parent == HERE and names & set(failure["tests"]):
                item.add_marker(pytest.mark.xfail(reason=failure["reason"], strict=False))
