# ruff: noqa: INP001 - a tool, run by path
"""The tables of the fields that the configurations of runs and backends have.

python docs/tools/fields.py            prints them
python docs/tools/fields.py --write    puts them into the pages
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from typing import Any

import sections

from trackway.config import TrackerConfig, Trackers, TrackingConfig
from trackway.config._types import describe
from trackway.tracker import BackgroundPolicy

PAGES = ("backends.md", "choosing-trackers.md", "runs.md")
BUILT_IN = ("local", "tensorboard", "wandb", "trackio", "console", "json_logger", "hook", "noop")
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def bodies() -> dict[str, dict[str, str]]:
    """Return the generated sections by page."""
    tables = {name: _table(_config(name)) for name in BUILT_IN}
    common = {"options": _table(TrackerConfig), "background": _table(BackgroundPolicy)}
    run = {"tracking": _table(TrackingConfig)}
    return {"backends.md": tables, "choosing-trackers.md": common, "runs.md": run}


def _config(name: str) -> Any:
    return TrackerConfig.get_choice_class(name)


def _table(cls: Any) -> str:
    rows = [_row(cls, field) for field in dataclasses.fields(cls) if _is_own(cls, field)]
    if not rows:
        return "It has no fields of its own.\n\n"
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n\n"


def _is_own(cls: Any, field: dataclasses.Field[Any]) -> bool:
    """Whether *cls* declares the field itself, or gives it a default of its own."""
    inherited = {
        f.name: _default(f)
        for base in cls.__mro__[1:]
        if dataclasses.is_dataclass(base)
        for f in dataclasses.fields(base)
    }
    return field.name not in inherited or inherited[field.name] != _default(field)


def _row(cls: Any, field: dataclasses.Field[Any]) -> str:
    hint = typing.get_type_hints(cls)[field.name]
    kind = "trackers: one, or a list" if hint is Trackers else describe(hint).replace("|", "\\|")
    meaning = _meanings(cls).get(field.name) or _meanings(TrackerConfig).get(field.name, "")
    return f"| `{field.name}` | {kind} | `{_shown(_default(field))}` | {meaning} |"


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _shown(default: Any) -> str:
    """Return a default as YAML has it."""
    names = {None: "null", True: "true", False: "false"}
    if isinstance(default, Trackers):
        return "[{type: local}]"
    if default is None or isinstance(default, bool):
        return names[default]
    if isinstance(default, str):
        return default or '""'
    return "[]" if default == () else str(default)


def _meanings(cls: Any) -> dict[str, str]:
    """Return what the docstring says under "Attributes", on one line each."""
    section = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    return {name: " ".join(text.split()).replace("|", "\\|") for name, text in _ENTRY.findall(section)}


if __name__ == "__main__":
    for page, parts in bodies().items():
        if "--write" in sys.argv:
            sections.write(sections.DOCS / page, parts)
        else:
            sections.main(page, parts)
