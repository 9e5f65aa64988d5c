"""What a real TensorBoard server makes of the event files."""

from __future__ import annotations

import numpy as np
import pytest
import tensorboard_server as server

from trackway.backends.tensorboard import TensorboardConfig
from trackway.values import Histogram, Image, Text

pytestmark = pytest.mark.server

NAMES = ["with space", "a@b:c(d)%", "ünï/日本", "quote'\"", "/leading", "a//b", "x" * 300]


def train(logdir, run, hparams, *, failed=False):
    """A short run with something of every kind."""
    tracker = TensorboardConfig(str(logdir)).build(run)
    tracker.log_hyperparameters(hparams)
    for step in range(20):
        tracker.log({"loss": 1.0 / (step + 1), "w": Histogram.from_array(np.arange(step + 2.0))}, step=step)
    tracker.log({"im": Image(np.zeros((4, 6, 3))), "note": Text("# hi"), "diverged": float("nan")}, step=20)
    tracker.log(dict.fromkeys(NAMES, 2.5), step=20)
    tracker.log_summary({"best": 0.05})
    if failed:
        tracker.mark_failed(RuntimeError("no"))
    tracker.finish()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server on the log directory of two runs with different hyper-parameters."""
    logdir = tmp_path_factory.mktemp("logs")
    train(logdir, "one", {"lr": 0.1, "flag": True, "opt": {"name": "adam"}, "none": None, "nan": float("nan")})
    train(logdir, "two", {"lr": 0.2, "flag": False, "extra": [1]}, failed=True)
    with server.serve(logdir) as url:
        server.wait_for(lambda: len(server.get(url, "/data/plugin/scalars/tags")) == 2)
        server.wait_for(lambda: len(server.hparams_table(url)) == 2)
        yield url


def test_there_is_one_run_for_each_run(url):
    """Hyper-parameters make no run of their own."""
    assert sorted(server.get(url, "/data/runs")) == ["one", "two"]


def test_curves(url):
    """All points of a curve are served, and names are what they were."""
    points = server.get(url, "/data/plugin/scalars/scalars", run="one", tag="loss")
    assert [(step, value) for _, step, value in points] == [(s, float(np.float32(1 / (s + 1)))) for s in range(20)]
    tags = server.get(url, "/data/plugin/scalars/tags")["two"]
    assert set(NAMES) <= set(tags)
    for name in NAMES:
        assert server.get(url, "/data/plugin/scalars/scalars", run="two", tag=name)[0][1:] == [20, 2.5]


def test_histograms_images_and_texts(url):
    """The other dashboards have their data."""
    histograms = server.get(url, "/data/plugin/histograms/histograms", run="one", tag="w")
    assert len(histograms) == 20
    assert sum(count for _, _, count in histograms[-1][2]) == 21
    images = server.get(url, "/data/plugin/images/images", run="one", tag="im", sample=0)
    png = server.get(url, f"/data/plugin/images/individualImage?{images[0]['query']}")
    assert (images[0]["step"], png[:4]) == (20, b"\x89PNG")
    texts = server.get(url, "/data/plugin/text/text", run="one", tag="note/text_summary")
    assert "<h1>hi</h1>" in texts[0]["text"]


def test_hparams_table(url):
    """Each run is a row with its own hyper-parameters, metrics and state, and none hides another's columns."""
    one, two = sorted(server.hparams_table(url), key=lambda row: row["name"])
    assert one["hparams"] == {"lr": 0.1, "flag": True, "opt/name": "adam", "none": "None", "nan": "NaN"}
    assert two["hparams"] == {"lr": 0.2, "flag": False, "extra": "[1]"}
    assert (one["status"], two["status"]) == ("STATUS_SUCCESS", "STATUS_FAILURE")
    assert one["metrics"]["summary/best"] == pytest.approx(0.05)
    assert one["metrics"]["loss"] == pytest.approx(0.05)
