"""Names at the places where code written for other trackers imports them from."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazily"]


def lazily(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module `__getattr__` that finds each name of *homes* in the module given for it, when it is asked for.

    Layers above this one are named by text only: nothing here imports them.
    """

    def find(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return find
