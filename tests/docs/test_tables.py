"""Tables of the pages agree with the code and the tests."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib

import pytest

from trackway.config import TrackerConfig


@pytest.fixture(scope="module")
def tools(root):
    """Return a function that imports a tool of the documentation."""
    sys.path.insert(0, str(root / "docs" / "tools"))
    yield importlib.import_module
    sys.path.remove(str(root / "docs" / "tools"))


def _rows(text):
    """Return the cells of every table row in *text*."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def _tests_of(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", ["docs/failures.md", "docs/architecture.md"])
def test_each_promise_names_a_test_that_exists(pages, root, name):
    """Every row of the tables of failures and invariants ends with a test, and the test is there."""
    rows = [row for row in _rows(pages[name].prose) if row[-1] != "test" and ("::" in row[-1] or len(row) > 3)]
    named = [re.fullmatch(r"(?:<small>)?`([\w/]+\.py)::(test_\w+)`(?:</small>)?", row[-1]) for row in rows]
    assert len(named) > 8
    assert all(named), [row for row, found in zip(rows, named, strict=False) if not found]
    missing = [found[0] for found in named if found[2] not in _tests_of(root / "tests" / found[1])]
    assert missing == []


def test_each_name_of_the_migration_table_is_importable(pages):
    """Both paths of every row lead to the same thing."""
    rows = [row for row in _rows(pages["docs/migrating.md"].prose) if row[0].startswith("`levanter.tracker.")]
    rows = [row for row in rows if re.fullmatch(r"`trackway[\w.]+`", row[1])]
    assert len(rows) > 15
    for old, same, short in ([cell.strip("`") for cell in row] for row in rows):
        assert same == old.replace("levanter", "trackway")
        assert _found(same) is _found(short)


def _found(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_the_capability_table_is_fresh(tools, root):
    """The table on the page is what `docs/tools/capabilities.py --write` would write now."""
    capabilities, sections = tools("capabilities"), tools("sections")
    assert sections.read(root / "docs" / capabilities.PAGE) == capabilities.bodies()


def test_the_capability_table_has_every_backend(tools):
    """No built-in backend that keeps something is missing from the table."""
    built_in = {
        name for name, cls in TrackerConfig.get_known_choices().items() if cls.__module__.startswith("trackway.")
    }
    assert set(tools("capabilities").MAKERS) == built_in - {"noop"}


@pytest.mark.parametrize("name", ["backends.md", "choosing-trackers.md", "runs.md"])
def test_the_tables_of_fields_are_fresh(tools, root, name):
    """Names, types, defaults and meanings are those of the dataclasses; `docs/tools/fields.py --write` writes them."""
    fields, sections = tools("fields"), tools("sections")
    assert sections.read(root / "docs" / name) == fields.bodies()[name]


def test_every_backend_has_a_table_of_fields(tools):
    """The page of backends has each built-in type."""
    built_in = {
        name for name, cls in TrackerConfig.get_known_choices().items() if cls.__module__.startswith("trackway.")
    }
    assert set(tools("fields").BUILT_IN) == built_in


def _built_in():
    choices = TrackerConfig.get_known_choices()
    return {name for name, cls in choices.items() if cls.__module__.startswith("trackway.backends.")}


def test_the_drawing_is_fresh(tools, root):
    """The drawing on the page of compiled code is what `docs/tools/drawing.py --write` would write now."""
    drawing = tools("drawing")
    assert root / "docs" / "images" / "jit.svg" == drawing.FILE
    assert drawing.FILE.read_text(encoding="utf-8") == drawing.svg()


def test_each_recipe_has_its_program(pages, root):
    """The pages name every program of `examples/recipes`, and no other."""
    lines = pages["docs/jit-recipes.md"].prose.splitlines()
    named = {
        name for line in lines if re.fullmatch(r"(`\w+\.py`(, )?)+", line) for name in re.findall(r"\w+\.py", line)
    }
    named |= set(re.findall(r"`examples/recipes/(\w+\.py)`", pages["docs/continuing.md"].prose))
    assert named == {path.name for path in (root / "examples" / "recipes").glob("*.py")}


def test_the_table_of_reductions_is_complete(pages):
    """The page of compiled code explains each name that `reduce` takes, and no other."""
    from trackway.tracker._verbs import REDUCTIONS

    cells = [row[0] for row in _rows(pages["docs/jit.md"].prose)]
    named = [name for cell in cells if re.fullmatch(r'(`"\w+"`(, )?)+', cell) for name in re.findall(r"\w+", cell)]
    assert sorted(named) == sorted(REDUCTIONS)


def test_the_format_on_the_page_is_the_one_written(pages):
    """The page of the run directory describes the format that this version writes."""
    from trackway.store import FORMAT

    assert f"This page describes format {FORMAT}," in pages["docs/run-directory.md"].text


def test_the_layers_on_the_page_are_those_that_are_held(pages, root):
    """The page on the architecture lists the layers of the import-linter contract, in their order."""
    contract = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert "\n".join(contract["layers"]) + "\n" in [block.text for block in pages["docs/architecture.md"].blocks]


def test_every_package_is_on_the_map(pages, root):
    """The map of modules has each package, and no other."""
    packages = {path.parent.name for path in (root / "trackway").glob("*/__init__.py")} | {"errors"}
    rows = [row[0] for row in _rows(pages["docs/architecture.md"].prose) if re.fullmatch(r"`trackway\.\w+`", row[0])]
    assert {row.strip("`").partition(".")[2] for row in rows} == packages
