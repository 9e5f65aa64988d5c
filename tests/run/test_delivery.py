"""Trackers that fall behind, fail, or are away get their rows from the run directory."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from service import WAIT, Service, ServiceConfig

import trackway
from trackway.backends.local import LocalConfig
from trackway.store import StoredRun
from trackway.tracker import BackgroundPolicy
from trackway.values import Audio, Histogram, Html, Image, Table, Text


def start(tmp_path: Path, service: Service, *, more=(), options=None, **policy):
    """Start a run of *service*, with a policy."""
    config = ServiceConfig(service, background=BackgroundPolicy(**policy), **(options or {}))
    return trackway.start([config, *more], dir=tmp_path, run_id="run")


def until(condition):
    """Wait for *condition*."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_rows_that_the_queue_has_no_room_for_are_read_from_the_run_directory(tmp_path):
    """A tracker that hangs for a while gets every row, once and in order, while the queue stays as small as it is."""
    service = Service()
    service.go.clear()
    with start(tmp_path, service, queue_size=10) as run:
        for step in range(1000):
            run.log({"x": step / 7, "n": step}, step=step)
            if step == 500:
                run.log_summary({"half": True})
        assert run.backends.loggers[0]._queue._calls.qsize() < 20
        service.go.set()
    assert service.rows == [(step, {"x": step / 7, "n": step}) for step in range(1000)]
    assert service.recorder.summary == {"half": True}
    report = run.report().trackers[0]
    assert (report.accepted, report.delivered, report.pending, report.dropped) == (1000, 1000, 0, {})


def test_filters_hold_for_rows_that_are_read_again(tmp_path):
    """Names, prefix and step filter are applied to rows from the run directory as to others."""
    service = Service()
    service.go.clear()
    options = {"every_steps": 3, "exclude": ["hidden"], "prefix": "p/", "rename": {"x": "y"}}
    with start(tmp_path, service, options=options, queue_size=2) as run:
        for step in range(60):
            run.log({"x": step, "hidden": 1}, step=step)
        service.go.set()
    assert service.rows == [(step, {"p/y": step}) for step in range(0, 60, 3)]


def test_values_that_are_read_again_are_what_was_logged(tmp_path):
    """Histograms, media, huge and non-finite numbers, nested names and odd names survive the way over the disk."""
    values = {
        "histogram": Histogram.from_array(np.arange(10.0)),
        "nested": {"image": Image(np.arange(48, dtype=np.uint8).reshape(4, 4, 3), caption="c"), "n": 2**70},
        "grey": Image(np.arange(16, dtype=np.uint8).reshape(4, 4)),
        "audio": Audio(np.arange(-50, 50, dtype=np.int16), 8000),
        "table": Table(["a", "b"], [[1, "x"], [2.5, None]]),
        "text": Text("two\nlines ü"),
        "html": Html("<b>bold</b>"),
        "list": [1, float("nan"), float("-inf"), None, "text"],
        "größe / 大": 3,
        "nan": float("nan"),
        "none": None,
    }
    direct, spilled = Service(), Service()
    spilled.go.clear()
    policy = BackgroundPolicy(queue_size=1)
    with trackway.start(
        [ServiceConfig(direct), ServiceConfig(spilled, label="spilled", background=policy)], dir=tmp_path, run_id="run"
    ) as run:
        for step in range(4):
            run.log(values, step=step)
        run.log({}, step=4)
        spilled.go.set()
    described = [[(step, _described(row)) for step, row in one.rows] for one in (direct, spilled)]
    assert len(described[0]) == 4
    assert described[0] == described[1]
    assert np.array_equal(spilled.rows[3][1]["nested"]["image"].pixels, values["nested"]["image"].pixels)
    assert np.array_equal(spilled.rows[3][1]["audio"].samples, values["audio"].samples)
    assert spilled.rows[3][1]["text"].text == values["text"].text
    assert spilled.rows[3][1]["table"].data == values["table"].data


def _described(value):
    if isinstance(value, dict):
        return {name: _described(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_described, value))
    return repr(value.describe()) if hasattr(value, "describe") else repr(value)


def test_pictures_are_left_to_the_store_before_the_queue_is_full(tmp_path):
    """Rows with media are few in memory: the store has them in files."""
    service = Service()
    service.go.clear()
    with start(tmp_path, service) as run:
        for step in range(200):
            run.log({"picture": Image(np.full((8, 8), step, np.uint8))}, step=step)
        assert run.backends.loggers[0]._queue._calls.qsize() <= 70
        service.go.set()
    assert [row["picture"].pixels[0, 0] for _, row in service.rows] == list(range(200))


def test_a_service_that_comes_back_gets_what_it_missed(tmp_path, caplog):
    """After so many failures in a row the tracker is tried now and then; then it gets all rows, each once."""
    service = Service()
    with start(tmp_path, service, disable_after=3) as run:
        run.log({"x": 0}, step=0)
        run.flush(commit_open=True)
        service.up.clear()
        for step in range(1, 50):
            run.log({"x": step}, step=step)
        until(lambda: "3 calls in a row failed; its rows wait in the run directory" in caplog.text)
        run.flush()
        assert run.report().trackers[0].pending >= 45
        service.up.set()
    assert service.rows == [(step, {"x": step}) for step in range(50)]
    assert "service: works again" in caplog.text
    report = run.report().trackers[0]
    assert (report.delivered, report.pending, report.dropped) == (50, 0, {})
    assert report.failed["log"] >= 3


def test_the_next_start_delivers_what_an_absent_service_missed(tmp_path, caplog):
    """What is not delivered when a run ends is when it is continued, before the new rows, each row once."""
    service = Service()
    with start(tmp_path, service, disable_after=3, finish_timeout=2.0) as run:
        for step in range(20):
            run.log({"x": step}, step=step)
        run.flush(commit_open=True)
        service.up.clear()
        for step in range(20, 50):
            run.log({"x": step}, step=step)
    assert run.report().trackers[0].pending == 30
    assert "30 rows could not be delivered in 2 s; they are in the run directory" in caplog.text
    assert service.recorder.finished

    again = Service()
    with start(tmp_path, again) as run:
        run.log({"x": 50})
    assert again.rows == [(step, {"x": step}) for step in range(20, 51)]
    third = Service()
    with start(tmp_path, third) as run:
        run.log({"x": 51})
    assert third.rows == [(51, {"x": 51})]


def log_two(run, service):
    """Log two rows, the second of which fails, too few for an outage."""
    run.log({"x": 0}, step=0, commit=True)
    run.flush()
    service.up.clear()
    run.log({"x": 1}, step=1, commit=True)
    until(lambda: run.report().trackers[0].failed)


@pytest.mark.parametrize("back", [True, False])
def test_the_last_row_is_tried_once_more_at_the_end(tmp_path, caplog, back):
    """A row that failed is delivered at the end or, where that fails, too, by the next start."""
    service = Service()
    with start(tmp_path, service) as run:
        log_two(run, service)
        run.log_summary({"y": 2})  # whatever comes of that
        if back:
            service.up.set()
    report = run.report().trackers[0]
    assert (report.delivered, report.pending) == ((2, 0) if back else (1, 1))
    assert ("1 rows could not be delivered" in caplog.text) is not back
    again = Service()
    with start(tmp_path, again) as run:
        run.log({"x": 2})
    assert [step for step, _ in service.rows + again.rows] == [0, 1, 2]


def test_what_is_superseded_is_not_tried_once_more(tmp_path):
    """A row that failed before its run went back behind it does not follow at the end."""
    service = Service()
    with start(tmp_path, service) as run:
        log_two(run, service)
        run.rewind(1)
        service.up.set()
    assert service.rows == [(0, {"x": 0})]
    assert run.report().trackers[0].failed == {"log": 1}


def test_a_service_that_says_what_it_lacks_gets_that(tmp_path):
    """What a service says of itself goes before what was noted here; a new one gets the whole run."""
    with start(tmp_path, Service()) as run:
        for step in range(10):
            run.log({"x": step}, step=step)
    lost_some = Service(first_missing=7)
    with start(tmp_path, lost_some) as run:
        run.log({"x": 10})
    assert [step for step, _ in lost_some.rows] == [7, 8, 9, 10]
    new = Service(first_missing=0)
    with start(tmp_path, new) as run:
        run.log({"x": 11})
    assert [step for step, _ in new.rows] == list(range(12))


def test_rows_of_an_attempt_that_was_superseded_are_not_made_good(tmp_path):
    """A run that goes on from an earlier checkpoint delivers what came before that, and what the last attempt was."""
    away = Service()
    away.up.clear()
    policy = {"disable_after": 1, "finish_timeout": 0.5}
    with start(tmp_path, away, **policy) as run:
        for step in range(10):
            run.log({"x": step}, step=step)
    config = ServiceConfig(away, background=BackgroundPolicy(**policy))
    state = {"run_id": "run", "next_step": 5}
    with trackway.start([config], dir=tmp_path, resume_state=state) as run:
        for step in range(5, 8):
            run.log({"x": -step}, step=step)
    service = Service(first_missing=0)
    with trackway.start([ServiceConfig(service)], dir=tmp_path, resume_state={"run_id": "run", "next_step": 7}) as run:
        run.log({"x": 100})
    assert service.rows[:5] == [(step, {"x": step}) for step in range(5)]
    assert service.rows[5:] == [(5, {"x": -5}), (6, {"x": -6}), (7, {"x": 100})]


def test_a_service_ahead_of_a_superseded_attempt_is_told(tmp_path):
    """What a service has of rows that another attempt took the place of, while it was away, is rewound first."""
    service = Service()
    with start(tmp_path, service) as run:
        for step in range(10):
            run.log({"x": step}, step=step)
    service.up.clear()
    away = Service()
    away.up.clear()
    config = ServiceConfig(away, background=BackgroundPolicy(disable_after=1, finish_timeout=0.5))
    with trackway.start([config], dir=tmp_path, resume_state={"run_id": "run", "next_step": 6}) as run:
        for step in range(6, 12):
            run.log({"x": -step}, step=step)
    back = Service(first_missing=10)
    with start(tmp_path, back) as run:
        run.log({"x": 12})
    assert back.recorder.rewinds[0] == (6, 0)
    assert back.rows == [(step, {"x": -step}) for step in range(6, 12)] + [(12, {"x": 12})]


def test_a_slow_tracker_ends_in_time_and_the_rest_stays(tmp_path):
    """At the end the rows of a slow tracker that do not fit into its time are left, and it is finished in time."""
    service = Service()
    log = service.recorder.log

    def slow(*args, **kwargs):
        time.sleep(0.02)
        log(*args, **kwargs)

    service.recorder.log = slow
    started = time.monotonic()
    with start(tmp_path, service, queue_size=10, finish_timeout=1.0) as run:
        for step in range(2000):
            run.log({"x": step}, step=step)
    assert time.monotonic() - started < WAIT
    report = run.report().trackers[0]
    assert service.recorder.finished
    assert 0 < report.delivered < 2000
    assert report.pending == 2000 - report.delivered
    again = Service()
    with start(tmp_path, again) as run:
        run.log({"x": 2000})
    assert [step for step, _ in service.rows + again.rows] == list(range(2001))


@pytest.mark.parametrize("on_full", ["drop_newest", "drop_oldest"])
def test_who_wants_rows_dropped_has_them_dropped(tmp_path, on_full):
    """The other policies are as without a run directory; what is dropped is counted."""
    service = Service()
    service.go.clear()
    with start(tmp_path, service, queue_size=10, on_full=on_full) as run:
        for step in range(100):
            run.log({"x": step}, step=step, commit=True)  # none is left for when the service is there again
        service.go.set()
    report = run.report().trackers[0]
    assert report.dropped["queue of 10 rows full"] == 100 - len(service.rows)
    assert len(service.rows) in {10, 11}
    assert service.rows[-1][0] == (99 if on_full == "drop_oldest" else service.rows[-1][0])


def test_who_waits_for_a_tracker_that_hangs_waits_once(tmp_path):
    """Under "block" the time-out is spent once, not for every row of a tracker that takes nothing at all."""
    service = Service()
    service.go.clear()
    with start(tmp_path, service, queue_size=5, on_full="block", block_timeout=0.5) as run:
        started = time.monotonic()
        for step in range(100):
            run.log({"x": step}, step=step)
        assert time.monotonic() - started < 0.5 * 20
        service.go.set()
    report = run.report().trackers[0]
    assert report.dropped["queue of 5 rows full"] == 100 - len(service.rows)


def test_a_run_without_a_directory_drops_rows_and_says_so(tmp_path, caplog):
    """Without a store "spill" has nothing to read from: the newest rows are dropped, counted and said."""
    service = Service()
    service.go.clear()
    policy = BackgroundPolicy(queue_size=5)
    with trackway.start([ServiceConfig(service, background=policy)], store=False) as run:
        for step in range(50):
            run.log({"x": step}, step=step)
        service.go.set()
    assert run.report().trackers[0].dropped["queue of 5 rows full"] == 50 - len(service.rows)
    assert "queue of 5 rows full" in caplog.text


def test_spilled_rows_wait_for_a_disk_that_is_full(tmp_path, monkeypatch):
    """Rows that the store itself could not write yet reach the tracker once it could."""
    service = Service()
    service.go.clear()
    with start(tmp_path, service, queue_size=2) as run:
        assert run.store is not None
        writer, fd = run.store._rows, run.store._rows._fd
        full = threading.Event()
        full.set()
        write = trackway.store._writer.os.write

        def refuse(number, data):
            if number == fd and full.is_set():
                raise OSError(28, "No space left on device")
            return write(number, data)

        monkeypatch.setattr("trackway.store._writer.os.write", refuse)
        for step in range(100):
            run.log({"x": step}, step=step)
        service.go.set()
        until(lambda: len(service.rows) >= 2)
        assert writer.waiting
        full.clear()
    monkeypatch.undo()
    assert service.rows == [(step, {"x": step}) for step in range(100)]


def test_a_killed_process_delivers_the_rest_next_time(tmp_path):
    """How far a tracker came is noted on the disk; the run directory tells later readers nothing else by it."""
    service = Service()
    with start(tmp_path, service) as run:
        for step in range(10):
            run.log({"x": step}, step=step)
    assert (tmp_path / "run" / "delivery" / "ServiceConfig.json").read_bytes() == b'{"format":1,"attempt":1,"step":9}\n'
    assert len(StoredRun(tmp_path / "run").history(None)) == 10


def test_a_start_that_fails_leaves_no_note(tmp_path):
    """The folder of the notes goes with what a failed start made."""
    broken = LocalConfig(label="a")
    with pytest.raises(trackway.errors.ConfigError):
        start(tmp_path, Service(), more=[broken, LocalConfig(label="a")])
    assert not (tmp_path / "run").exists()


def test_a_damaged_note_is_none(tmp_path):
    """A note that cannot be read says nothing: the run is continued, with the new rows alone."""
    with start(tmp_path, Service()) as run:
        run.log({"x": 0}, step=0)
    for damage in (b"{", b"[]", b'{"step":"x","attempt":1}'):
        (tmp_path / "run" / "delivery" / "ServiceConfig.json").write_bytes(damage)
        service = Service()
        with start(tmp_path, service) as run:
            run.log({"x": 1})
        assert len(service.rows) == 1


def test_two_trackers_of_one_name_have_a_note_each(tmp_path):
    """How far the one came says nothing about the other."""
    ahead, away = Service(), Service()
    away.up.clear()
    policy = BackgroundPolicy(disable_after=1, finish_timeout=0.5)
    with trackway.start(
        [ServiceConfig(ahead), ServiceConfig(away, background=policy)], dir=tmp_path, run_id="run"
    ) as run:
        run.log({"x": 0}, step=0)
    away.up.set()
    first, second = Service(), Service()
    with trackway.start([ServiceConfig(first), ServiceConfig(second)], dir=tmp_path, run_id="run") as run:
        run.log({"x": 1})
    assert [step for step, _ in first.rows] == [1]
    assert [step for step, _ in second.rows] == [0, 1]
