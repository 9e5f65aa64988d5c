"""The commands that the pages tell people to type exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def targets(root):
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def project(root):
    """Return the project table of pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def _commands(page):
    """Return the lines of the page's shell blocks."""
    return [line for block in page.blocks if block.language == "bash" for line in block.text.splitlines() if line]


def test_every_command_is_one_that_exists(page, root, targets, project):
    """A command is a Makefile target, an installation of what exists, a program that is there, or TensorBoard."""
    files = {block.title for block in page.blocks}
    for command in _commands(page):
        words = command.split()
        if words[0] == "make":
            assert set(words[1:]) <= targets, command
        elif words[:2] == ["pip", "install"]:
            wanted = re.fullmatch(r'"?(?:trackway|\.)(?:\[([\w,]+)\])?"?', words[2])
            assert wanted or words[2] == "pytest", command
            extras = (wanted and wanted[1]) or "all"
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), command
        elif words[0].endswith("python"):
            assert words[1] in files or words[1:3] == ["-m", "pytest"] or (root / words[1]).is_file(), command
        else:
            assert [words[0].removeprefix(".venv/bin/"), words[1]] == ["tensorboard", "--logdir"], command


def test_extras_named_in_prose_exist(page, project):
    """So do the extras in the text around."""
    for extras in re.findall(r"trackway\[([\w,]+)\]", page.prose):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_make_targets_named_in_prose_exist(page, targets):
    """A target in the text is one of the Makefile."""
    assert set(re.findall(r"`make ([a-z-]+)`", page.prose)) <= targets


def test_the_readme_has_the_two_commands(pages):
    """A newcomer finds how to see it work and how to run the tests."""
    assert {"make demo", "make test"} <= set(_commands(pages["README.md"]))


def test_the_readme_is_short(pages):
    """It has fewer than 120 lines."""
    assert len(pages["README.md"].text.splitlines()) < 120


def test_links_between_files_of_the_repository_resolve(page):
    """A relative link leads to a file, and what follows `#` to one of its headings."""
    for target in re.findall(r"(?:\]\(|\bhref=\")([^)\"\s]+)[)\"]", page.prose):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        assert path.is_file(), f"{page.name}: {target}"
        assert not anchor or anchor in _anchors(path), f"{page.name}: {target}"


def _anchors(path: Path):
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_pages_name_no_machine(page):
    """No page holds a path of somebody's machine or the host of a package registry."""
    foreign = r"/(?:work|root|home|Users|mnt|opt|srv|var|usr)/|index-url|artifactory|pythonhosted|\w+\.\w+/simple\b"
    assert re.findall(foreign, page.text) == []


def test_sentences_have_lines_of_their_own(page):
    """The source has one sentence per line, so that a change of one is a change of one line."""
    prose = re.sub(r"<!-- generated.*?<!-- end -->", "", page.prose, flags=re.DOTALL)
    lines = [re.sub(r"^\d+\. ", "", line) for line in prose.splitlines() if not line.startswith("|")]
    assert [line for line in lines if re.search(r"[a-z0-9)`*]\. [A-Z`]", line)] == []
