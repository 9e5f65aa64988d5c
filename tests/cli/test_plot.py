"""Curves in the terminal and in files."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from run_files import write_run

from trackway.cli._series import panels_of
from trackway.cli._terminal_plot import ticks
from trackway.store._runs import read_run

pytest.importorskip("plotext")
pytest.importorskip("matplotlib")


def _lines(said):
    """Return the lines of the canvas, without frame and ticks."""
    return re.findall(r"^[^│┤]*[│┤](.*)│$", said.out, re.MULTILINE)


def test_a_falling_curve_falls(call, tmp_path):
    """The first column of the plot has its mark at the top, the last one at the bottom."""
    folder = write_run(tmp_path, "a", [(step, {"loss": 10.0 - step}) for step in range(11)])
    said = call("plot", folder, "--width", 60, "--height", 12)
    assert said.out.splitlines()[0] == "loss  a"
    canvas = _lines(said)
    assert canvas[0].strip()
    assert canvas[-1].strip()
    assert len(canvas[0]) - len(canvas[0].lstrip()) < 3
    assert len(canvas[-1]) - len(canvas[-1].lstrip()) > 40
    assert max(map(len, said.out.splitlines())) <= 60


def test_a_curve_is_drawn_to_its_last_step(call, tmp_path):
    """The axes reach beyond the last round number: what came last is in the last column, at its height."""
    folder = write_run(tmp_path, "a", [(step, {"loss": float(step > 285)}) for step in range(299)])
    canvas = _lines(call("plot", folder, "--width", 60, "--height", 12))
    assert canvas[0].rstrip() == canvas[0]
    assert canvas[0][:-6].strip() == ""
    assert canvas[-1][0] != " "


def test_several_runs_are_told_apart_without_colours(call, ten):
    """Each has a mark of its own, which the line above names."""
    said = call("plot", ten / "digits-3", ten / "digits-9", "-m", "val/loss", "--width", 70)
    assert said.out.splitlines()[0] == "val/loss  • digits-3  x digits-9"
    marks = "".join(_lines(said))
    assert "•" in marks
    assert "x" in marks


def test_each_metric_that_a_glob_matches_has_a_plot(call, ten):
    """In the order of their names."""
    said = call("plot", ten / "digits-3", "-m", "*loss", "--width", 60, "--height", 8)
    assert [line for line in said.out.splitlines() if line.endswith("  digits-3")] == [
        "train/loss  digits-3",
        "val/loss  digits-3",
    ]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "PNG"])
def test_a_picture_is_a_file_of_its_format(call, ten, tmp_path, suffix):
    """It replaces an earlier one, and nothing else is left beside it."""
    target = tmp_path / f"a.{suffix}"
    target.write_text("old")
    said = call("plot", ten / "digits-3", ten / "digits-4", "-m", "*loss", "--log", "-o", target)
    assert (said.code, said.err) == (0, "")
    begin = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix.lower()]
    assert target.read_bytes().startswith(begin)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_pictures_are_the_same_each_time(call, ten, tmp_path):
    """No date and no random name is in them."""
    for name in ("a.svg", "b.svg"):
        call("plot", ten / "digits-3", "-m", "val/loss", "-o", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_names_are_no_formulas_in_a_picture(call, tmp_path):
    """Dollars, backslashes and underscores stay what they are, and break nothing."""
    names = {"$\\frac{": 1.0, "_x": 2.0, "a_b^c$": 3.0}
    folder = write_run(tmp_path, "_$\\bad{", [(0, {"m": names}), (1, {"m": names})])
    said = call("plot", folder, "-o", tmp_path / "a.svg")
    assert (said.code, said.err) == (0, "")
    comments = re.findall(r"<!-- (.*?) -->", (tmp_path / "a.svg").read_text())  # what each text says
    assert {"m/$\\frac{", "m/_x", "m/a_b^c$", "_$\\bad{"} <= {text.strip() for text in comments}


@pytest.mark.parametrize("log", [False, True])
def test_values_that_cannot_be_drawn_are_counted(call, tmp_path, log):
    """Infinities, and on a logarithmic axis what is not positive."""
    values = [1.0, float("nan"), float("inf"), -1.0, 0.0, 2.0, 3.0]
    folder = write_run(tmp_path, "a", [(step, {"loss": value, "text": "x"}) for step, value in enumerate(values)])
    said = call("plot", folder, "--json", *(["--log"] if log else []))
    (panel,) = json.loads(said.out)
    assert (
        panel["curves"] == [{"run": "a", "x": [0, 5, 6], "y": [1, 2, 3]}] if log else len(panel["curves"][0]["x"]) == 5
    )
    assert f"loss: {3 if log else 1} values are not finite" in call("plot", folder, *(["--log"] if log else [])).err


@pytest.mark.parametrize(
    "values", [[5.0], [5.0, 5.0], [1e300, -1e300], [1e-300, 2e-300], [0.1 + 0.2, 0.3], [1e16, 1e16 + 2]]
)
@pytest.mark.parametrize("options", [[], ["--log"], ["--x", "time"], ["--smooth", "0.9"]])
def test_odd_curves_are_drawn(call, tmp_path, values, options):
    """A single point, constants, and numbers at the ends of what floats can hold."""
    folder = write_run(tmp_path, "a", [(step, {"loss": value}) for step, value in enumerate(values)])
    said = call("plot", folder, *options)
    assert said.code == 0, said.err
    assert "".join(_lines(said)).strip()


def test_smoothing_is_a_moving_average(tmp_path):
    """Its first value is the first one, and noise becomes less; without smoothing the values are as logged."""
    noise = [1.0 + 0.5 * (-1) ** step for step in range(50)]
    run = read_run(write_run(tmp_path, "a", [(step, {"loss": value}) for step, value in enumerate(noise)]))
    ((raw,),) = ([panel.curves[0].ys for panel in panels_of([("a", run)], (), smooth=0, log=False, by_time=False)],)
    ((smooth,),) = (
        [panel.curves[0].ys for panel in panels_of([("a", run)], (), smooth=0.9, log=False, by_time=False)],
    )
    assert raw.tolist() == noise
    assert smooth[0] == noise[0]
    assert abs(smooth[-1] - 1.0) < 0.05 < np.std(noise)


def test_long_curves_keep_their_extremes(tmp_path):
    """One value in a hundred thousand that stands out is drawn."""
    rows = [(step, {"loss": 100.0 if step == 54_321 else 1.0}) for step in range(100_000)]
    run = read_run(write_run(tmp_path, "a", rows))
    (panel,) = panels_of([("a", run)], (), smooth=0, log=False, by_time=False)
    assert len(panel.curves[0].xs) <= 2002
    assert (54_321, 100.0) in set(zip(panel.curves[0].xs.tolist(), panel.curves[0].ys.tolist(), strict=True))


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 299, 5, [0, 100, 200]), (0.0, 1.0, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]), (-3, 3, 3, [-2, 0, 2]), (7, 7, 4, [7]),
        (1e-9, 3e-9, 2, [1e-9, 2e-9, 3e-9]), (0, float("inf"), 3, [0]),
    ],
)  # fmt: skip
def test_ticks_are_round(low, high, count, expected):
    """They lie within the range."""
    assert ticks(low, high, count) == pytest.approx(expected)


def test_more_metrics_than_a_page_holds_are_named(call, tmp_path):
    """Twelve are plotted."""
    folder = write_run(tmp_path, "a", [(step, {f"m{n:02}": 1.0 for n in range(15)}) for step in range(2)])
    said = call("plot", folder, "-o", tmp_path / "a.png")
    assert said.out.startswith("12 plots")
    assert "3 more metrics are not plotted (m12, m13, m14, ...)" in said.err


def test_an_error_speaks_of_the_file_that_was_asked_for(call, ten, tmp_path, monkeypatch):
    """Not of the temporary one beside it, which nobody knows."""
    monkeypatch.chdir(tmp_path)
    said = call("plot", ten / "digits-3", "-m", "val/loss", "-o", "nodir/p.png")
    assert (said.code, said.err) == (1, "trackway: error: No such file or directory: nodir/p.png\n")
