"""The list of tests that are expected to fail on some version of JAX."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

CAPTURE = Path(__file__).resolve().parents[1] / "capture"


def _functions(name):
    return {
        node.name for node in ast.walk(ast.parse((CAPTURE / name).read_text())) if isinstance(node, ast.FunctionDef)
    }


def test_every_entry_names_tests_that_exist():
    """A test that was renamed or removed does not stay in the list, where it would expect nothing."""
    for failure in tomllib.loads((CAPTURE / "known_failures.toml").read_text())["failure"]:
        assert ("switch" in failure) != ("jax_below" in failure), failure
        assert failure["reason"]
        for test in failure["tests"]:
            file, _, name = test.partition("::")
            assert name.partition("[")[0] in _functions(file), test
