"""A real TensorBoard server shows what the example logged."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import tensorboard_server as tensorboard

from trackway.store import read_rows

EPOCHS = 2
STEPS = 22 * EPOCHS

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,  # trains for two epochs, then starts the server: twenty seconds on two cores
]


@pytest.fixture(scope="module")
def folder(run_example, tmp_path_factory):
    """Return the folder in which the example was run."""
    folder = tmp_path_factory.mktemp("served")
    run_example(folder, "--trainer.epochs", str(EPOCHS), "--trainer.tracking.run_id", "served")
    return folder / "runs"


@pytest.fixture(scope="module")
def server(folder):
    """Return the URL of a TensorBoard server that has loaded the run to its end."""
    with tensorboard.serve(folder / "tensorboard") as url:
        tensorboard.wait_for(lambda: "summary/best_accuracy" in tags(url, "scalars"))
        yield url


def tags(url, plugin):
    """Return the tags that a plugin has for the run."""
    return tensorboard.get(url, f"/data/plugin/{plugin}/tags").get("served", {})


def test_curves(server, folder):
    """The server has one run, whose curves are the rows of the run directory to float32 precision."""
    assert tensorboard.get(server, "/data/runs") == ["served"]
    for name in ("train/loss", "validation/accuracy"):
        points = tensorboard.get(server, "/data/plugin/scalars/scalars", run="served", tag=name)
        logged = [(row["_step"], np.float32(row[name])) for row in read_rows(folder / "served") if name in row]
        assert sorted((step, np.float32(value)) for _, step, value in points) == sorted(logged)


def test_histogram(server):
    """The server has the histogram of the first layer's gradients, which counts each of its weights."""
    points = tensorboard.get(server, "/data/plugin/histograms/histograms", run="served", tag="gradients/conv1")
    assert [step for _, step, _ in points] == [22, 44]
    for _, _, buckets in points:
        assert sum(count for _, _, count in buckets) == pytest.approx(3 * 3 * 1 * 16)


def test_images(server):
    """The server has the eight samples as pictures, and their captions."""
    samples = [tag for tag in tags(server, "images") if tag.startswith("samples/")]
    assert len(samples) == 8
    (entry,) = tensorboard.get(server, "/data/plugin/images/images", run="served", tag=samples[0], sample=0)
    assert entry["step"] == STEPS
    assert tensorboard.get(server, f"/data/plugin/images/individualImage?{entry['query']}").startswith(b"\x89PNG")


def test_hyperparameters(server, folder):
    """The HParams table has one line: the run, its hyper-parameters, its result, and that it ended well."""
    (line,) = tensorboard.hparams_table(server)
    assert line["name"] == "served"
    assert line["status"] == "STATUS_SUCCESS"
    assert line["hparams"]["trainer/learning_rate"] == pytest.approx(0.004)
    assert line["hparams"]["model/channels"] == 16
    best = json.loads((folder / "served" / "summary.json").read_text())["best_accuracy"]
    assert line["metrics"]["summary/best_accuracy"] == pytest.approx(best)


@pytest.fixture(scope="module")
def page():
    """Return a page of headless Chromium; without a browser the tests are left out, but not in CI."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None and not os.environ.get("CI"):
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser.new_page(viewport={"width": 1800, "height": 1000})
        browser.close()


@pytest.mark.parametrize(
    ("tab", "text"),
    [
        ("scalars&tagFilter=train", "train/loss"),
        ("histograms", "gradients/conv1"),
        ("images", "samples/0"),
        ("hparams", "model/channels"),
    ],
)
def test_a_person_sees_it_in_a_browser(page, server, tab, text):
    """TensorBoard's page in Chromium shows the curves, the histogram, the images and the HParams table."""
    page.goto("about:blank")
    page.goto(f"{server}/#{tab}")
    shown = page.get_by_text(text, exact=True).first
    shown.wait_for(state="visible", timeout=20_000)
    assert shown.is_visible()
