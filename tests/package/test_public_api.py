"""A snapshot of the public names and signatures, so that none changes unnoticed.

`python tests/package/test_public_api.py` writes it anew; the difference belongs in the change log.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from pathlib import Path

SNAPSHOT = Path(__file__).with_name("public_api.txt")
MODULES = (
    "trackway",
    "trackway.alerts",
    "trackway.backends",
    "trackway.config",
    "trackway.events",
    "trackway.replay",
    "trackway.run",
    "trackway.store",
    "trackway.testing",
    "trackway.tracker",
)
BACKENDS = ("console", "hook", "json_logger", "local", "noop", "tensorboard")


def described():
    """Return the lines of the snapshot."""
    lines = []
    for name in (*MODULES, "trackway.values", "trackway.capture", "trackway.errors"):
        module = importlib.import_module(name)
        lines += [line for attribute in getattr(module, "__all__", []) for line in _lines(name, module, attribute)]
    for backend in BACKENDS:
        module = importlib.import_module(f"trackway.backends.{backend}")
        lines += [line for attribute in module.__all__ for line in _lines(module.__name__, module, attribute)]
    return lines


def _lines(name, module, attribute):
    value = getattr(module, attribute)
    yield f"{name}.{attribute}{_signature(value)}"
    if inspect.isclass(value) and value.__module__.startswith(name):
        package = value.__module__.rpartition(".")[0]
        own = [base for base in value.__mro__ if base.__module__.rpartition(".")[0] == package]
        members = {name: method for base in reversed(own) for name, method in vars(base).items()}
        for member, method in sorted(members.items()):
            if not member.startswith("_") and (
                inspect.isfunction(method) or isinstance(method, classmethod | property)
            ):
                yield f"{name}.{attribute}.{member}{_signature(getattr(value, member))}"


def _signature(value):
    if not callable(value):
        return ""
    if dataclasses.is_dataclass(value):
        return "(" + ", ".join(f.name + "*" * f.kw_only for f in dataclasses.fields(value) if f.init) + ")"
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "()"
    marks = {inspect.Parameter.KEYWORD_ONLY: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown = [p.name + marks.get(p.kind, "") + ("=" if p.default is not p.empty else "") for p in parameters]
    return "(" + ", ".join(shown) + ")"


def test_the_public_api_is_that_of_the_snapshot():
    """Names, parameters, which of them have defaults and which are keyword-only are what the snapshot says."""
    assert described() == SNAPSHOT.read_text().splitlines()


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(described()) + "\n")
