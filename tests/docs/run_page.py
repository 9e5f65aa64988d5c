"""Run the blocks of one page in order, in one namespace and in the present folder; see `test_pages.py`.

Reads the steps as JSON from standard input and writes what each of them printed as JSON to the file given.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import draccus
import yaml

from trackway import TrackwayWarning
from trackway.config import Trackers, TrackingConfig

FIELDS = {"tracker": Trackers, "tracking": TrackingConfig}


def main() -> None:
    """Run every step; the first one that fails ends the program with its traceback."""
    page = types.ModuleType("page")
    sys.modules["page"] = page  # dataclasses look their annotations up there
    warnings.simplefilter("error", TrackwayWarning)
    printed = [STEPS[step["kind"]](page, step) for step in json.load(sys.stdin)]
    Path(sys.argv[1]).write_text(json.dumps(printed))


def run_python(page: types.ModuleType, step: dict[str, Any]) -> str:
    """Execute Python in the page's namespace; tracebacks name the page and its line."""
    code = compile("\n" * (step["line"] - 1) + step["text"], step["page"], "exec")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, vars(page))
    return output.getvalue()


def write_file(_page: types.ModuleType, step: dict[str, Any]) -> str:
    """Write a block that has a file name for its title."""
    path = Path(step["title"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(step["text"])
    return ""


def run_shell(_page: types.ModuleType, step: dict[str, Any]) -> str:
    """Run the commands that start one of the page's own programs."""
    output = ""
    for command in step["text"].splitlines():
        words = command.split()
        if len(words) > 1 and words[0] == "python" and Path(words[1]).is_file():
            done = subprocess.run(
                ["/bin/sh", "-ec", command.replace("python", sys.executable, 1)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}"
            output += done.stdout
    return output


def parse_yaml(_page: types.ModuleType, step: dict[str, Any]) -> str:
    """Parse YAML into the type that it belongs to; one that is titled "wrong" has to fail, and its message returned."""
    data = yaml.safe_load(step["text"])
    where = f"{step['page']}:{step['line']}"
    try:
        config = draccus.decode(_type_of(data), data)
    except ValueError as error:
        if step["title"] != "wrong":
            raise ValueError(where) from error
        return str(error)
    assert step["title"] != "wrong", f"{where}: is right"
    assert draccus.decode(type(config), draccus.encode(config)) == config
    return ""


def _type_of(data: Any) -> Any:
    """The type of a field that may hold *data*: trackers, or a dataclass with trackers or their run somewhere."""
    if isinstance(data, list) or "type" in data:
        return Trackers
    assert _speaks_of_trackers(data), f"no trackers in {data}"
    fields = []
    for name, value in data.items():
        nested = isinstance(value, dict) and _speaks_of_trackers(value)
        fields.append((name, FIELDS.get(name) or (_type_of(value) if nested else Any)))
    return dataclasses.make_dataclass("Config", fields)


def _speaks_of_trackers(data: dict[str, Any]) -> bool:
    return any(
        name in FIELDS or (isinstance(value, dict) and _speaks_of_trackers(value)) for name, value in data.items()
    )


STEPS = {"python": run_python, "file": write_file, "bash": run_shell, "yaml": parse_yaml}

if __name__ == "__main__":
    main()
