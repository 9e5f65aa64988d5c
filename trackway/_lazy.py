"""Names that are found when they are asked for, so that importing a package does not import all of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazily"]


def lazily(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for *module* that takes each name of *homes*, at its first use, from the module given.

    A name whose home is a submodule of that name is this submodule.

    Modules of layers above are named by text only: nothing here imports them.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = importlib.import_module(homes[name])
        value = home if homes[name] == f"{module}.{name}" else getattr(home, name)
        setattr(sys.modules[module], name, value)
        return value

    return find
