"""The thread that looks at rules when no row comes."""

from __future__ import annotations

import threading
import time

import pytest
from programs import wait_for

from trackway._locks import new_lock
from trackway.alerts import Alerts
from trackway.alerts._watchdog import Watchdog
from trackway.errors import FatalTrackerError
from trackway.tracker import _callbacks

WAIT = 20.0
HANGS = "no_data(50ms) => error: training hangs"


def _threads():
    return [one for one in threading.enumerate() if one.name == "trackway-alerts-watchdog"]


class Started:
    """Alerts whose watchdog runs, and what the backends got."""

    def __init__(self, *rules, lock=None, send=None, interval=0.01, **options):
        self.told = []
        self.came = threading.Event()
        self.alerts = Alerts(rules, lock=lock, send=send or self.take, interval=interval, run_id="run-7", **options)
        self.alerts.start()

    def take(self, alert):
        """Keep an alert."""
        self.told.append(alert)
        self.came.set()

    def row(self, step, **values):
        """Give a row."""
        self.alerts.deliver(self.alerts.observe(step, time.time(), values))


def test_a_training_that_hangs_is_told_of():
    """When no row comes for as long as a rule says, the backends hear of it once, from the watchdog's thread."""
    started = Started(HANGS)
    started.row(3, loss=1)
    assert started.came.wait(WAIT)
    started.alerts.stop(WAIT)
    (alert,) = started.told
    assert (alert.title, alert.level, alert.step) == ("training hangs", "error", 3)
    assert alert.text.startswith("no_data(50ms) after step 3")
    assert alert.text.endswith("run: run-7")


def test_a_hang_that_ends_and_comes_again_is_told_again():
    """A row ends a hang, also for the watchdog; the next hang is an alert of its own."""
    started = Started({"when": HANGS, "recovery": True})
    for step in range(2):
        started.row(step)
        assert wait_for(lambda step=step: len(started.told) == 2 * step + 1)
    started.row(2)
    started.alerts.stop(WAIT)
    assert [alert.state for alert in started.told[:4]] == ["firing", "recovered", "firing", "recovered"]


def test_a_slow_channel_hears_of_a_hang():
    """A channel with a thread of its own gets the alert of the watchdog, too, while training hangs."""
    came = threading.Event()
    started = Started(HANGS, channels=[{"call": lambda _: came.set(), "name": "page"}])
    assert came.wait(WAIT)
    started.alerts.stop(WAIT)


def test_a_hang_whose_delivery_failed_is_told_again():
    """An alert of the watchdog that was not delivered is given back, though no row comes."""
    calls = []

    def page(alert):
        calls.append(alert.step)
        if len(calls) == 1:
            raise ConnectionError("no route")

    started = Started(HANGS, channels=[{"call": page, "name": "page"}], retries=0, retry_delay=0.001)
    started.row(3)
    assert wait_for(lambda: len(calls) == 2)
    started.alerts.stop(WAIT)
    assert calls == [3, 3]


def test_there_is_no_thread_without_a_rule_that_needs_it():
    """Rules that only rows can fire start no thread; `stop` ends the one that others need."""
    started = Started("loss > 5")
    assert _threads() == []
    started.alerts.stop(WAIT)
    started = Started("no_data(1h)")
    (thread,) = _threads()
    assert thread.daemon
    started.alerts.stop(WAIT)
    assert _threads() == []


def test_the_lock_is_held_while_rules_are_looked_at():
    """The watchdog never looks while a row is being taken, and tells nobody under the lock."""
    lock = new_lock()
    free = []

    def send(_):
        threads = [threading.Thread(target=lambda: free.append(lock.acquire(timeout=WAIT)))]
        threads[0].start()
        threads[0].join()
        came.set()

    came = threading.Event()
    with lock:
        started = Started(HANGS, lock=lock, send=send)
        assert not came.wait(0.15)
    assert came.wait(WAIT)
    started.alerts.stop(WAIT)
    assert free[0] is True


def test_a_lock_that_is_never_free_is_said_once(caplog):
    """Where a row hangs in the midst of being written, the log says that nobody can look."""
    lock = new_lock()
    with lock:
        started = Started(HANGS, lock=lock)
        assert wait_for(lambda: any("the disk may hang" in message for message in caplog.messages))
        time.sleep(0.05)
        started.alerts.stop(WAIT)
    assert sum("the disk may hang" in message for message in caplog.messages) == 1


def test_a_required_tracker_that_fails_there_stops_the_training_thread():
    """`FatalTrackerError` on the watchdog's thread is kept for the next call on the host."""

    def send(_):
        came.set()
        raise FatalTrackerError("required")

    came = threading.Event()
    started = Started(HANGS, send=send)
    assert came.wait(WAIT)
    started.alerts.stop(WAIT)
    with pytest.raises(FatalTrackerError, match="required"):
        _callbacks.raise_deferred()


def test_a_look_that_fails_does_not_end_the_watchdog(caplog):
    """Whatever goes wrong in a look is said once, and the next look is taken."""
    looks = []

    def look():
        looks.append(1)
        raise ValueError("bad")

    watchdog = Watchdog(look, 0.001)
    watchdog.start()
    assert wait_for(lambda: len(looks) > 3)
    watchdog.stop(WAIT)
    assert caplog.messages == ["alerts: the watchdog failed: bad"]


@pytest.mark.parametrize(("due", "slept"), [(None, 7.0), (0.5, 0.5), (60.0, 7.0), (0.0, 0.02)])
def test_it_sleeps_until_something_may_be_due(monkeypatch, due, slept):
    """It sleeps as long as the rules allow, never longer than its interval, and never not at all."""
    waits = []

    def wait(seconds):
        waits.append(seconds)
        return len(waits) > 2

    watchdog = Watchdog(lambda: due, 7.0)
    monkeypatch.setattr(watchdog._ended, "wait", wait)
    watchdog._run()
    assert waits == [0.0, slept, slept]


def test_without_a_thread_the_log_says_what_goes_unnoticed(monkeypatch, caplog):
    """Where no thread can be started, training goes on, and a warning says what is missing."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    started = Started(HANGS)
    assert "so that a hang goes unnoticed" in caplog.text
    started.alerts.stop(WAIT)
