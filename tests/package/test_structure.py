"""The shape of the code: small rooms, layers, no names of this or that machine."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "trackway").rglob("*.py"))
ALL_PYTHON = [
    p for folder in ("trackway", "tests", "examples", "benchmarks", "docs") for p in (ROOT / folder).rglob("*.py")
]


def _functions():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, node, _code_lines(node)


def _code_lines(node):
    """Lines of a function without its docstring."""
    body = node.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    return (body[-1].end_lineno - body[0].lineno + 1) if body else 0


def test_files_are_small():
    """No file is over 400 lines."""
    too_long = {str(p.relative_to(ROOT)): n for p in ALL_PYTHON if (n := len(p.read_text().splitlines())) > 400}
    assert too_long == {}


def test_functions_are_short():
    """The median function is under ten lines, nine of ten are under thirty, none is over sixty."""
    lengths = sorted(length for _, _, length in _functions())
    assert statistics.median(lengths) < 10
    assert lengths[int(0.9 * len(lengths))] < 30
    assert [f"{p.name}:{n.name}" for p, n, length in _functions() if length > 60] == []


def test_arguments_are_typed():
    """Every function of the package has its arguments and its result annotated."""
    bare = []
    for path, node, _ in _functions():
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        missing = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
        if missing or (node.returns is None and node.name != "__init__"):
            bare.append(f"{path.name}:{node.lineno} {node.name} {missing}")
    assert bare == []


# The capture layer is about JAX; what is imported before JAX is needed is not.
WITHOUT_JAX = {"__init__.py", "_door.py", "_scopes.py", "_settings.py"}


@pytest.mark.parametrize("library", ["jax", "torch", "wandb", "tensorboardX", "trackio", "yaml", "tqdm", "rich"])
def test_no_module_imports_a_backend_library_at_its_top(library):
    """Libraries of backends and frameworks are imported inside functions only."""
    offenders = []
    for path in FILES:
        if library == "jax" and "capture" in path.parts and path.name not in WITHOUT_JAX:
            continue
        for node in ast.parse(path.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            offenders += [path.name for name in names if name.partition(".")[0] == library]
    assert offenders == []
