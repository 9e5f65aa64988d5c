"""What the pages show is what happens."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

RUNNER = Path(__file__).with_name("run_page.py")
PLUGIN = Path(__file__).parents[2] / "examples" / "plugin" / "src"
PRINTS = "prints"
_ANSWER = re.compile(r"#\s*->\s?(.*)$", re.MULTILINE)
_PRELUDE = "import trackway_sqlite.config"  # some YAML is that of an installed plugin
_WITH_PLUGIN = {"docs/writing-a-backend.md", "examples/plugin/README.md"}


def _steps(page):
    """Return what there is to run, and beside each step what it has to print (None: anything)."""
    steps, expected = [], []
    for block, following in pairwise([*page.blocks, None]):
        if block.language not in {"python", "yaml", "bash"} or block.included:
            continue
        kind = "file" if block.title and "." in block.title else block.language
        steps.append({"kind": kind, "page": page.name, **vars(block)})
        shown = following is not None and following.language == "text" and following.title == PRINTS
        answers = "\n".join(_ANSWER.findall(block.text)) if block.language == "python" else ""
        expected.append(following.text if shown else answers or None)
        if kind == "file" and block.language == "yaml":
            steps.append({**steps[-1], "kind": "yaml"})
            expected.append(None)
    return steps, expected


def test_blocks_do_what_they_show(live_page, tmp_path, shown):
    """Every Python, YAML and shell block of a page runs, one after the other, and prints what the page shows."""
    steps, expected = _steps(live_page)
    if live_page.name in _WITH_PLUGIN:
        steps.insert(0, {"kind": "python", "page": live_page.name, "line": 1, "text": _PRELUDE})
        expected.insert(0, None)
    folder = tmp_path / "page"
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKWAY_")}
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(tmp_path / "printed.json")],
        input=json.dumps(steps),
        cwd=folder,
        env=environment | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(PLUGIN), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    for step, wanted, printed in zip(steps, expected, json.loads((tmp_path / "printed.json").read_text()), strict=True):
        where = f"{live_page.name}:{step['line']}"
        assert wanted is None or shown(wanted, printed), f"{where} shows\n{wanted}\nbut prints\n{printed}"


def test_files_of_the_repository_that_a_page_shows_exist(page, root):
    """A page that includes a file names one that is there."""
    for block in page.blocks:
        for name in re.findall(r'--8<-- "([^":]+)', block.text):
            assert (root / name).is_file(), f"{page.name}:{block.line}: {name}"
