"""The documentation as a site."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.site,
    pytest.mark.slow,  # the whole site is built
    pytest.mark.skipif(
        importlib.util.find_spec("mkdocstrings") is None or importlib.util.find_spec("material") is None,
        reason="the packages of the group `docs` are not installed; `make docs` installs them",
    ),
]

FOR_THE_VERBS = {"trace_active", "traced_log"}
"""Names of `trackway.capture` that the layer below looks up, and nobody else calls."""


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    """Build the site strictly, so that any warning fails, and return its folder."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site, pages):
    """Each source has its page, and the tools have none."""
    for name in (name for name in pages if name.startswith("docs/")):
        assert (site / name.removeprefix("docs/")).with_suffix(".html").is_file(), name
    assert not (site / "tools").exists()


def test_nothing_is_fetched_from_elsewhere(site):
    """Scripts, styles, fonts and images of the pages are the site's own, so that it works without a network."""
    tag = re.compile(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?(https?:[^\" >]+)|<link\b[^>]*\bhref=\"?(https?:[^\" >]+)")
    fetched = {found[0] for page in site.rglob("*.html") for found in tag.finditer(page.read_text())}
    assert fetched == set()


def test_search_knows_pages_and_names(site):
    """The search index, which is part of the site, has the text of the pages and the names of the reference."""
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    titles = {re.sub(r"<[^>]+>", "", entry["title"]) for entry in entries}
    assert "Choosing trackers in YAML" in titles
    assert any("once training has started" in entry["text"] for entry in entries)
    places = {entry["location"] for entry in entries}
    assert "reference/tracker.html#trackway.tracker.CompositeTracker" in places


def test_examples_of_docstrings_are_code(site):
    """What begins with `>>>` is a block of code in the reference, not a quotation."""
    for page in ("index", "testing", "run"):
        text = (site / "reference" / f"{page}.html").read_text()
        assert "&gt;&gt;&gt; " in text
        assert "<blockquote>" not in text


def test_included_files_are_shown(site, root):
    """The page on backends shows the very files of the example."""
    shown = html.unescape(re.sub(r"<[^>]+>", "", (site / "writing-a-backend.html").read_text()))
    plugin = root / "examples" / "plugin"
    for name in ("src/trackway_sqlite/tracker.py", "src/trackway_sqlite/config.py", "tests/test_sqlite.py"):
        assert (plugin / name).read_text().strip() in shown


def test_every_public_name_is_in_the_reference(site):
    """Each name of each public package is documented on its page."""
    for package in (
        "tracker",
        "values",
        "run",
        "config",
        "store",
        "capture",
        "events",
        "alerts",
        "replay",
        "testing",
        "errors",
    ):
        module = importlib.import_module(f"trackway.{package}")
        text = (site / "reference" / f"{package}.html").read_text()
        public = set(module.__all__) - FOR_THE_VERBS
        missing = [name for name in public if f'id="trackway.{package}.{name}"' not in text]
        assert missing == [], package


@pytest.mark.server
def test_search_works_in_pages_opened_as_files(site):
    """In a browser that has opened a page from the disk, the search finds what is on other pages."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto((site / "reference" / "tracker.html").as_uri())
        page.click("input[name=query]")
        page.keyboard.type("disable_after")  # `fill` presses no key, and the search listens to keys alone
        page.wait_for_selector(".md-search-result__item", timeout=45_000)  # the index is built in the browser
        found = page.locator(".md-search-result__item").all_inner_texts()
        browser.close()
    assert any("BackgroundPolicy" in text for text in found), found
