"""A run delivered to Trackio, the screen and lines of JSON."""

from __future__ import annotations

import json
import logging

import pytest
from trackio_server import configuration, new_project, rows, runs

from trackway.replay import replay
from trackway.store import read_history
from trackway.values import decode


@pytest.fixture
def project():
    """A project of the test's own."""
    return new_project()


def test_trackios_database_holds_the_run(digits, project):
    """Rows, hyper-parameters, summary and failure are those of the run; superseded rows are a run beside it."""
    report = replay(digits, to={"type": "trackio", "project": project})
    found = [(step, row) for step, row in rows(project, "digits") if "event" not in row]
    assert (report.rows, report.failed) == (14, 0)
    assert [(step, row["loss"]) for step, row in found] == [(row["_step"], row["loss"]) for row in read_history(digits)]
    assert [row["odd"] for _, row in found[6:]] == ["NaN"] * 4
    assert runs(project)["digits~1"] == "digits (superseded 1)"
    superseded = [(step, row) for step, row in rows(project, "digits~1") if "event" not in row]
    assert [step for step, _ in superseded] == [6, 7, 8, 9]
    assert {"image", "sound", "table", "weights"} <= superseded[-1][1].keys()
    known = configuration(project, "digits")
    assert (known["lr"], known["model/width"], known["summary/best"]) == (0.1, [1, 2], 0.25)
    assert known["trackway/failed"] == "ValueError: boom"


def test_a_second_time_adds_no_row(digits, project):
    """Trackio's rows stay as they are."""
    replay(digits, to={"type": "trackio", "project": project})
    before = rows(project, "digits")
    assert replay(digits, to={"type": "trackio", "project": project}).rows == 0
    assert rows(project, "digits") == before


def test_after_a_kill_trackio_has_each_row_once(long, with_more, killed, project):
    """A replay that was killed is completed by a further one: rows, events, configuration and summary."""
    folder = with_more(long(8000), 8000)
    to = {"type": "trackio", "project": project}
    killed(folder, to)
    there = len([row for _, row in rows(project, "long") if "event" not in row])
    report = replay(folder, to=to)
    assert 700 <= there < 8000
    assert report.rows + report.skipped == 8000
    found = [(step, row) for step, row in rows(project, "long") if "event" not in row]
    assert found == [(step, {"loss": 1 / (step + 1), "n": step}) for step in range(8000)]
    events = [(step, row) for step, row in rows(project, "long") if "event" in row]
    assert events == [(step, {"event": "tick", "tick/at": step}) for step in range(0, 8000, 50)]
    assert configuration(project, "long") == {"lr": 0.1, "summary/best": 0.25}


def test_what_trackio_has_beyond_the_note_comes_once(long, with_more, project):
    """Rows and events that had arrived when a replay was killed, before it could note that, are not there twice."""
    folder = with_more(long(300), 300)
    to = {"type": "trackio", "project": project}
    replay(folder, to=to)
    (note,) = (folder / "replay").glob("trackio-*.json")
    before = rows(project, "long")
    for text in (None, {"offset": 0, "last": None, "highest": None, "rows": 0, "events": 0}):  # none, and none of rows
        if text is None:
            note.unlink()
        else:
            note.write_text(json.dumps({**json.loads(note.read_text()), **text, "state": ""}))
        assert replay(folder, to=to).rows == 0
        assert rows(project, "long") == before


def test_lines_of_json_hold_the_run(digits, caplog):
    """Each row is a record with its step and values, before them the hyper-parameters and behind them the end."""
    caplog.set_level(logging.INFO, "lines")
    replay(digits, to={"type": "json_logger", "logger_name": "lines"})
    records = [decode(message) for name, _, message in caplog.record_tuples if name == "lines"]
    kinds = [record["event"] for record in records]
    assert kinds[0] == "hparams"
    assert kinds.count("log") == 14
    assert kinds[-1] == "finish"
    assert [r["metrics"]["loss"] for r in records if r["event"] == "log"][-4:] == [106.0, 107.0, 108.0, 109.0]
    assert json.dumps(records[0]["hparams"]) == '{"lr": 0.1, "model": {"width": [1, 2]}}'


def test_the_screen_shows_the_run(digits, capsys):
    """Each row is a line."""
    report = replay(digits, to="console")
    out = capsys.readouterr().out + capsys.readouterr().err
    assert report.rows == 14
    assert "109" in out
