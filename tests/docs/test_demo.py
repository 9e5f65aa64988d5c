"""The demo does what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


@pytest.mark.slow  # the whole demo, from importing JAX to its last epoch
def test_the_demo_prints_what_the_page_shows(pages, root, tmp_path, shown):
    """The text beside the pictures of TensorBoard is what the demo prints at its end, save for the numbers."""
    (block,) = (block for block in pages["docs/tensorboard.md"].blocks if block.title == "make demo")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKWAY_")}
    done = subprocess.run(
        [sys.executable, str(root / "examples" / "train_digits.py")],
        cwd=tmp_path,
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert shown(_masked(block.text), _masked(done.stdout)), done.stdout[-2000:]


def _masked(text):
    """Return *text* without what differs between runs and machines: numbers, and where commands are."""
    text = re.sub(r"\S*/tensorboard --logdir", "tensorboard --logdir", text)
    return re.sub(r" +", " ", re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", text))


def test_the_pictures_are_there(pages, root):
    """The page on TensorBoard shows curves, histograms, images and hyper-parameters, each a PNG file of some size."""
    text = pages["docs/tensorboard.md"].text
    for name in ("scalars", "histograms", "images", "hparams"):
        picture = root / "docs" / "images" / f"tensorboard-{name}.png"
        assert f"](images/{picture.name})" in text
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 10_000
