"""The page on the command line shows what the commands print."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

pytest.importorskip("plotext")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def tool():
    """Return the tool that makes the generated parts of the page."""
    sys.path.insert(0, str(DOCS / "tools"))
    try:
        spec = importlib.util.spec_from_file_location("cli_page", DOCS / "tools" / "cli_page.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(DOCS / "tools"))


def test_the_page_shows_what_the_commands_print(tool, tmp_path):
    """Every part is the output of its command; `docs/tools/cli_page.py --write` brings the page up to date."""
    fresh = tool.bodies(tmp_path.resolve())
    shown = tool.sections.read(DOCS / tool.PAGE)
    assert shown.keys() == fresh.keys()
    types = [[line.split()[0] for line in part.pop("backends").splitlines() if line] for part in (shown, fresh)]
    assert types[0] == types[1]  # what is installed differs from machine to machine
    for name, body in fresh.items():
        assert shown[name] == body, name
    assert (tmp_path / tool.PICTURE).read_bytes().startswith(b"\x89PNG")


def test_the_page_has_its_picture(tool):
    """It is a PNG file of some size, and not a large one."""
    picture = DOCS / "images" / tool.PICTURE
    assert f"](images/{picture.name})" in (DOCS / tool.PAGE).read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert 5_000 < picture.stat().st_size < 120_000
