"""Rows that are delivered late have the time at which they were begun."""

from __future__ import annotations

from datetime import datetime

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trackio_server import new_project, rows

from trackway.replay import replay
from trackway.store import read_rows


def test_tensorboard_has_the_times_of_the_rows(long, tmp_path):
    """The wall time of each point is when its row was begun."""
    replay(long(5), to={"type": "tensorboard", "logdir": str(tmp_path)})
    reader = EventAccumulator(str(tmp_path / "long"), size_guidance={"scalars": 0}).Reload()
    assert [event.wall_time for event in reader.Scalars("n")] == [1.7e9 + step for step in range(5)]


def test_trackios_database_has_the_times_of_the_rows(long):
    """So has the database of this machine."""
    project = new_project()
    replay(long(3), to={"type": "trackio", "project": project})
    times = [datetime.fromisoformat(time).timestamp() for _, time in rows(project, "long", column="timestamp")]
    assert times == [1.7e9 + step for step in range(3)]


def test_events_of_a_copy_have_their_times(digits, tmp_path):
    """So have events in another run directory."""
    replay(digits, to={"type": "local", "dir": str(tmp_path)})
    assert (tmp_path / "digits/events.jsonl").read_bytes() == (digits / "events.jsonl").read_bytes()
    assert read_rows(tmp_path / "digits")[0]["_time"] == read_rows(digits)[0]["_time"]
