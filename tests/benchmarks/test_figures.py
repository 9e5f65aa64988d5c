"""The table of `make bench`: what counts as missed, who has their turn, and that every group still runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def figures(monkeypatch):
    """Return the module with the table."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import figures

    yield figures
    del sys.modules["figures"]


@pytest.mark.parametrize(
    ("bounds", "missed"),
    [
        ({}, False),
        ({"at_most": 2.0}, False),
        ({"at_most": 1.9}, True),
        ({"at_least": 2.0}, False),
        ({"at_least": 2.1}, True),
        ({"at_most": 2.0, "at_least": 2.0}, False),
        ({"at_most": 3.0, "at_least": 2.5}, True),
    ],
)
def test_the_median_is_what_is_judged(figures, bounds, missed):
    """A figure is missed if its median is outside a bound, whatever single rounds were."""
    figure = figures.Figure("rows", [9.0, 2.0, 0.1], **bounds)
    assert figure.missed is missed
    assert figure.line(10).endswith("MISSED" if missed else "ok" if bounds else "3")


def test_what_is_no_number_is_missed(figures):
    """A figure that came out as NaN is not taken for a good one."""
    assert figures.Figure("rows", [float("nan")], at_most=1.0).missed


def test_lines_of_a_table_are_aligned(figures, capsys):
    """However long the names, the bounds of all figures stand in one column; a figure may have a single value."""
    figures.print_table(
        [
            figures.Figure("short", [1.0], at_most=2.0),
            figures.Figure("much longer", [1.0, 3.0], at_most=20.0, unit="ms"),
        ]
    )
    heading, rule, short, long = capsys.readouterr().out.strip().splitlines()
    assert len(rule) == len(heading)
    assert short.index("<= 2") == long.index("<= 20") == heading.index("bound")


def test_every_variant_has_its_turn_in_every_round(figures):
    """One time of each variant comes from each round, and rounds do not overlap."""
    calls = []

    def variant(name):
        return lambda _: calls.append(name) or float(len(calls))

    seconds = figures.Turns(5).compare({"a": variant("a"), "b": variant("b")}, calibrated=False)
    assert [set(calls[first : first + 2]) for first in range(0, 10, 2)] == [{"a", "b"}] * 5
    assert [{a, b} for a, b in zip(seconds["a"], seconds["b"], strict=True)] == [
        {first, first + 1.0} for first in (1.0, 3.0, 5.0, 7.0, 9.0)
    ]


def test_a_comparison_that_is_late_ends_after_three_rounds(figures):
    """Past the deadline three rounds are measured all the same, and no more."""
    turns = figures.Turns(10, deadline=0.0)
    assert turns.over
    assert turns.compare({"a": lambda _: 1.0}, calibrated=False) == {"a": [1.0] * 3}


def test_ratios_are_those_of_the_same_round(figures):
    """Each round gives one quotient."""
    assert figures.ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


@pytest.mark.slow  # one process for each group, and some more that read
def test_the_groups_without_further_packages_run():
    """Rows, slow rows, many names, a full disk and the long run are measured, in sizes that say nothing of speed."""
    pytest.importorskip("polars")
    groups = ("cost", "tail", "names", "outage", "long")
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "run.py", "--quick", "--only", *groups],
        capture_output=True,
        text=True,
        timeout=100,
    )
    lines = done.stdout.splitlines()
    assert done.stdout, done.stderr
    verdicts = [line for line in lines if line.endswith((" ok", " MISSED"))]
    assert len(verdicts) == 22
    assert done.returncode == any(line.endswith("MISSED") for line in verdicts)
    exact = [line for line in verdicts if "messages that" in line or "names in the" in line or "rows missing" in line]
    assert len(exact) == 3
    assert all(line.endswith("ok") for line in exact)
