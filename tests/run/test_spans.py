"""Spans of a run: their seconds are in its rows, and each is a line of its own."""

from __future__ import annotations

import json

import pytest

import trackway
from trackway.run import Run
from trackway.tracker import Span


def span(name, seconds):
    """A span of that long."""
    return Span(name, name, 1754323200.5, seconds, 1)


def names(folder):
    """The names of the spans of a run directory."""
    return [json.loads(line)["name"] for line in (folder / "spans.jsonl").read_text().splitlines()]


def test_seconds_are_summed_into_the_open_row(run, recorder, tmp_path):
    """And not into the row after it."""
    run.log({"x": 1}, step=5)
    run.log_span(span("data", 0.25))
    run.log_span(span("data", 0.5))
    run.log({"x": 2}, step=6)
    run.flush(commit_open=True)
    assert recorder.rows == [(5, {"x": 1, "time/data": 0.75}), (6, {"x": 2})]
    assert names(tmp_path / "run") == ["data", "data"]


def test_where_no_row_is_open_they_go_to_the_next_one(run, recorder):
    """Whatever its step, also where it is committed at once; no row is made for them."""
    run.log_span(span("data", 0.25))
    run.log({"x": 1}, step=10)
    run.log_span(span("data", 0.5))
    run.log({"x": 2}, step=20, commit=True)
    run.log_span(span("data", 1.0))
    run.log({"x": 3})
    assert recorder.rows == [
        (10, {"x": 1, "time/data": 0.75}),
        (20, {"x": 2}),
        (21, {"x": 3, "time/data": 1.0}),
    ]


def test_an_end_without_a_further_row_loses_none(tmp_path, recorder):
    """A row of its own is made then."""
    with Run([recorder]) as run:
        run.log({"x": 1}, step=3, commit=True)
        run.log_span(span("save", 0.5))
    assert recorder.rows == [(3, {"x": 1}), (4, {"time/save": 0.5})]


def test_they_are_added_to_what_was_logged_under_that_name(run, recorder):
    """Also where both come to one row that is committed at once."""
    run.log_span(span("data", 0.25))
    run.log({"time/data": 7.0}, step=0, commit=True)
    assert recorder.rows == [(0, {"time/data": 7.25})]


def test_the_open_row_shows_them(run):
    """In the history."""
    run.log({"x": 1}, step=0)
    run.log_span(span("data", 0.25))
    assert run.history(include_meta=False) == [{"x": 1, "time/data": 0.25}]


def test_thousands_of_spans_between_two_rows_take_no_memory(run, recorder):
    """They are summed up meanwhile."""
    for _ in range(20_000):
        run.log_span(span("data", 0.25))
    assert len(run._core.spans) < 5000
    run.log({"x": 1})
    assert recorder.rows[0][1]["time/data"] == pytest.approx(5000.0)


def test_a_span_stays_with_the_row_that_waits_for_a_device(run, recorder):
    """It is in the row of the step in which it was measured."""
    jnp = pytest.importorskip("jax.numpy")
    run.log({"loss": jnp.float32(1.0)}, step=0)
    run.log_span(span("data", 0.25))
    run.log({"loss": jnp.float32(2.0)}, step=1)
    run.flush(commit_open=True)
    assert [row.get("time/data") for _, row in recorder.rows] == [0.25, None]


def test_the_verb_reaches_the_run(run, recorder, tmp_path):
    """With a name, a path and a duration."""
    run.log({"x": 1}, step=0)
    with trackway.span("epoch"), trackway.span("data"):
        pass
    run.flush(commit_open=True)
    assert set(recorder.rows[0][1]) == {"x", "time/epoch", "time/data"}
    assert names(tmp_path / "run") == ["data", "epoch"]


def test_after_the_end_they_are_counted(run):
    """As everything else."""
    run.finish()
    run.log_span(span("data", 0.25))
    assert run.report().run.dropped == {"called after finish": 1}


def test_a_row_that_is_dropped_takes_no_span_with_it(run, recorder):
    """The time goes to the next row that is kept."""
    run.log({"x": 1}, step=5, commit=True)
    run.log_span(span("data", 0.25))
    with pytest.warns(trackway.TrackwayWarning, match="dropped"):
        run.log({"x": 2}, step=3, commit=True)
    run.log({"x": 3}, step=6, commit=True)
    assert recorder.rows[-1] == (6, {"x": 3, "time/data": 0.25})
