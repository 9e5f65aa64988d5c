# ruff: noqa: INP001, T201 - a script, which says on the screen what it has made
"""Take pictures of a web page in headless Chromium.

    python docs/tools/screenshot.py http://127.0.0.1:6006 scalars.png
    python docs/tools/screenshot.py "http://127.0.0.1:6006/#hparams" hparams.png --click "HPARAMS" --wait 3
    python docs/tools/screenshot.py --tensorboard runs/tensorboard docs/images
    python docs/tools/screenshot.py --trackio ~/.cache/huggingface/trackio docs/images

The last two start TensorBoard on a log directory and take its scalars, histograms, images and HParams tabs, and
Trackio on its folder and take its metrics and media. Their data are those of

    python examples/train_digits.py --config_path examples/digits_everywhere.yaml

Chromium comes from the system (`apt-get install chromium fonts-dejavu-core`), the rest from `pip install playwright`.
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TABS = {
    "scalars": "scalars&tagFilter=train|validation",
    "histograms": "histograms",
    "images": "images",
    "hparams": "hparams",
}
"""Picture to the fragment of TensorBoard's address."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SUPPORT = Path(__file__).parents[2] / "tests" / "support"
PAGES = {"metrics": "?project=digits", "media": "media?project=digits"}
"""Picture to the path of Trackio's page."""


def shoot(page: Any, url: str, out: Path, clicks: Sequence[str] = (), wait: float = 2.0) -> None:
    """Save a picture of *url* as *out*, after clicking the elements that hold each of the texts *clicks* in turn."""
    page.goto("about:blank")
    page.goto(url)
    page.wait_for_timeout(1000 * wait)
    for text in clicks:
        page.get_by_text(text, exact=True).first.click(timeout=10_000)
        page.wait_for_timeout(1000 * wait)
    out.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=out)
    print(out)


def tensorboard(page: Any, logdir: Path, out: Path, wait: float) -> None:
    """Save pictures of TensorBoard's tabs, on *logdir*, in the folder *out*."""
    server = runpy.run_path(str(SUPPORT / "tensorboard_server.py"))
    with server["serve"](logdir) as url:
        server["wait_for"](lambda: server["get"](url, "/data/plugin/scalars/tags"))
        for name, tab in TABS.items():
            shoot(page, f"{url}/?darkMode=false#{tab}", out / f"tensorboard-{name}.png", wait=wait)


def trackio(page: Any, folder: Path, out: Path, wait: float) -> None:
    """Save pictures of Trackio's pages, on its *folder*, in the folder *out*."""
    server = runpy.run_path(str(SUPPORT / "trackio_server.py"))
    with server["serve"](folder.resolve()) as served:
        url = served.url.partition("/?")[0]
        for name, path in PAGES.items():
            shoot(page, f"{url}/{path}", out / f"trackio-{name}.png", wait=wait)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="the page; left out with --tensorboard and --trackio")
    parser.add_argument("out", type=Path, help="the picture, or with these two the folder for the pictures")
    parser.add_argument("--tensorboard", type=Path, metavar="LOGDIR", help="take the tabs of TensorBoard on LOGDIR")
    parser.add_argument("--trackio", type=Path, metavar="FOLDER", help="take pages of Trackio on FOLDER")
    parser.add_argument("--click", action="append", default=[], metavar="TEXT", help="click this first; repeatable")
    parser.add_argument("--wait", type=float, default=3.0, help="seconds to wait for the page, and after each click")
    parser.add_argument("--size", default="1400x900", help="width x height of the window, in pixels")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    args = parser.parse_args()
    if [args.url, args.tensorboard, args.trackio].count(None) != 2:  # noqa: PLR2004 - one of three is given
        parser.error("give either a URL, or --tensorboard LOGDIR, or --trackio FOLDER")
    from playwright.sync_api import sync_playwright

    width, height = map(int, args.size.split("x"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": width, "height": height})
        if args.tensorboard is not None:
            tensorboard(page, args.tensorboard, args.out, args.wait)
        elif args.trackio is not None:
            trackio(page, args.trackio, args.out, args.wait)
        else:
            shoot(page, args.url, args.out, args.click, args.wait)
        browser.close()


if __name__ == "__main__":
    main()
