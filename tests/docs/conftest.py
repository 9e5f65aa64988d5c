"""The pages of the documentation, taken apart into their fenced blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]*)"')


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, title, text and the line on which the text begins."""

    language: str
    title: str
    text: str
    line: int

    @property
    def included(self):
        """Whether the block shows a file of the repository."""
        return "--8<--" in self.text


@dataclass(frozen=True)
class Page:
    """A Markdown file and its blocks."""

    path: Path

    @property
    def name(self):
        """Return the path in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self):
        """Return the source."""
        return self.path.read_text(encoding="utf-8")

    @property
    def blocks(self):
        """Return the fenced blocks in their order."""
        text = self.text
        return [
            Block(
                found["language"],
                (_TITLE.findall(found["options"]) or [""])[0],
                found["text"],
                text.count("\n", 0, found.start("text")) + 1,
            )
            for found in _FENCE.finditer(text)
        ]

    @property
    def prose(self):
        """Return the source without its fenced blocks."""
        return _FENCE.sub("", self.text)


def is_shown(shown, printed):
    """Tell whether *printed* is what is *shown*, where `...` is anything in a line, and alone any number of lines."""
    pattern = ""
    for line in shown.strip("\n").splitlines():
        if line.strip() == "...":
            pattern += r"(.*\n)*?"
        else:
            pattern += ".*?".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n"
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None


FILES = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *ROOT.glob("*.md")]
PAGES = [Page(path) for path in sorted(FILES)]


@pytest.fixture(scope="session")
def root():
    """Return the root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def pages():
    """Return all pages by their path in the repository."""
    return {page.name: page for page in PAGES}


@pytest.fixture(scope="session")
def shown():
    """Return the function that compares what a page shows with what was printed."""
    return is_shown


def pytest_generate_tests(metafunc):
    """Run a test that asks for a `page` once for each of them, and one for a `live_page` for those with code."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=lambda page: page.name)
    if "live_page" in metafunc.fixturenames:
        live = [page for page in PAGES if any(b.language in {"python", "yaml", "bash"} for b in page.blocks)]
        metafunc.parametrize("live_page", live, ids=lambda page: page.name)
