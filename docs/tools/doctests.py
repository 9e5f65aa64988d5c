# ruff: noqa: INP001 - a tool, run by path
"""An extension of griffe: examples in docstrings that begin with `>>>` become blocks of code in the reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$|```).*\n?)*)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts fences around the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_kwargs: Any) -> None:
        """Change the docstring of *obj*, if it has one."""
        self._change(obj)

    def on_package(self, *, pkg: griffe.Module, **_kwargs: Any) -> None:
        """Do the same for the package itself, which is no object to griffe."""
        self._change(pkg)

    def _change(self, obj: griffe.Object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    return f"```pycon\n{example[0].rstrip()}\n```\n"
