# ruff: noqa: INP001 - a tool, run by path
"""Parts of a page that are generated: they stand between two comments that name them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]


def read(page: Path) -> dict[str, str]:
    """Return the generated sections of *page* by name."""
    return {found["name"]: found["body"] for found in _pattern().finditer(page.read_text(encoding="utf-8"))}


def write(page: Path, bodies: Mapping[str, str]) -> None:
    """Replace the sections of *page*; each of *bodies* must have its place there."""
    text = page.read_text(encoding="utf-8")
    for name, body in bodies.items():
        pattern = _pattern(re.escape(name))
        if not pattern.search(text):
            raise LookupError(f"{page} has no section {name}")
        text = pattern.sub(lambda found, body=body: f"{found['head']}\n{body}{found['tail']}", text)  # type: ignore[misc]
    page.write_text(text, encoding="utf-8")


def _pattern(name: str = r"[^\s]+") -> re.Pattern[str]:
    head = rf"(?P<head><!-- generated: (?P<name>{name}) -->\n)"
    return re.compile(rf"{head}\n?(?P<body>.*?)(?P<tail><!-- end -->)", re.DOTALL)


def main(page: str, bodies: Mapping[str, str]) -> None:
    """Print the sections, or with `--write` put them into *page*."""
    if "--write" in sys.argv[1:]:
        write(DOCS / page, bodies)
    else:
        sys.stdout.write("\n".join(bodies.values()))
