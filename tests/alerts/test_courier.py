"""Delivery on a thread of its own: order, attempts, a queue with an end, and the end of a run."""

from __future__ import annotations

import contextvars
import logging
import os
import threading

import pytest
from programs import wait_for

from trackway.alerts import Alert, AlertRule
from trackway.alerts._channels import CallChannel
from trackway.alerts._courier import Courier
from trackway.errors import LifecycleError
from trackway.tracker import Ledger

WAIT = 20.0


def _alert(number=0):
    return Alert(AlertRule("loss > 5"), "loss > 5", "warning", f"alert {number}", "", number, 1.0)


class Made:
    """A courier, and what it counts and gives back."""

    def __init__(self, limit=100, retries=4, delay=0.001):
        self.ledger = Ledger("alerts")
        self.returned = []
        self.courier = Courier(limit=limit, retries=retries, delay=delay, ledger=self.ledger, give_back=self.take_back)

    def take_back(self, alert, name):
        """Keep what is given back."""
        assert name in {"page", "other"}
        self.returned.append(alert)

    def put(self, function, *numbers, name="page"):
        """Have *function* called with one alert for each number."""
        for number in numbers:
            self.courier.put(name, CallChannel(function), _alert(number), _alert(number))


@pytest.fixture
def made():
    """A courier with the limits of the defaults, which waits a millisecond before it tries again."""
    return Made()


class Failing:
    """Fails as often as it is told, then keeps the steps of alerts."""

    def __init__(self, times, error=None):
        self.left = times
        self.error = error or ConnectionError("no route")
        self.calls = 0
        self.steps = []

    def __call__(self, alert):
        """Take an alert."""
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        self.steps.append(alert.step)


def test_the_thread_starts_with_the_first_alert_and_ends_with_the_courier(made):
    """No alert, no thread; all of a courier's alerts are delivered on one daemon thread, which `stop` ends."""
    before = set(threading.enumerate())
    seen = []
    made.courier.stop(WAIT)
    assert set(threading.enumerate()) == before
    made = Made()
    made.put(lambda _: seen.append(threading.current_thread()), 0, 1)
    made.courier.stop(WAIT)
    assert len(set(seen)) == 1
    assert seen[0].daemon
    assert not seen[0].is_alive()
    assert made.ledger.report().delivered == 2


def test_an_alert_that_fails_is_tried_again_and_arrives_once(made):
    """A channel that fails now and then gets each alert once, in some order, and nothing is given back."""
    page = Failing(2)
    made.put(page, 0, 1)
    assert made.courier.flush(WAIT)
    assert sorted(page.steps) == [0, 1]
    assert page.calls == 4
    report = made.ledger.report()
    assert (report.delivered, report.failed, report.dropped) == (2, {"page": 2}, {})
    assert made.returned == []
    made.courier.stop(WAIT)


def test_an_alert_that_always_fails_is_given_up_and_given_back(caplog):
    """After so many attempts an alert is counted, and its rule gets it back; the log says so once."""
    made = Made(retries=2)
    page = Failing(-1)
    made.put(page, 0)
    assert made.courier.flush(WAIT)
    assert page.calls == 3
    assert [alert.step for alert in made.returned] == [0]
    assert made.ledger.report().dropped == {"given up, every attempt failed": 1}
    assert [one.getMessage() for one in caplog.records if "no route" in one.getMessage()] == [
        "alerts.page failed: ConnectionError: no route; training goes on (further ones are only counted)"
    ]
    made.courier.stop(WAIT)


def test_a_channel_that_is_down_is_tried_once_for_each_alert_until_it_works(caplog):
    """After an alert that was given up, further ones cost one attempt each; the first that arrives ends that."""
    made = Made(retries=2)
    page = Failing(4)
    for number in range(3):
        made.put(page, number)
        assert made.courier.flush(WAIT)
    assert (page.calls, page.steps) == (5, [2])
    assert len(made.returned) == 2
    assert "alerts: page works again" in caplog.messages
    made.courier.stop(WAIT)


def test_a_channel_that_fails_does_not_hold_up_another():
    """While one channel waits to be tried again, others get their alerts."""
    made = Made(delay=WAIT)
    told = threading.Event()
    page = Failing(-1)
    made.put(page, 0)
    made.put(lambda _: told.set(), 1, name="other")
    assert told.wait(WAIT)
    assert page.calls == 1
    assert made.courier.pending >= 1
    made.courier.stop(0)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_callable_that_ends_the_program_ends_nothing(made, error):
    """`sys.exit` in a channel is a failure like others: the thread lives on."""
    page = Failing(1, error)
    made.put(page, 0)
    assert made.courier.flush(WAIT)
    assert page.steps == [0]
    made.courier.stop(WAIT)


def test_a_channel_that_wants_to_end_the_run_is_not_called_again(made):
    """A `LifecycleError` is a mistake in the program, which another attempt would repeat."""
    page = Failing(-1, LifecycleError("not from here"))
    made.put(page, 0)
    assert made.courier.flush(WAIT)
    assert page.calls == 1
    made.courier.stop(WAIT)


def test_a_full_queue_lets_the_oldest_go(caplog):
    """The queue has an end: the alert that waited longest goes, counted, and the log says so once."""
    made = Made(limit=2)
    began, go, steps = threading.Event(), threading.Event(), []

    def page(alert):
        began.set()
        assert go.wait(WAIT)
        steps.append(alert.step)

    made.put(page, 0)
    assert began.wait(WAIT)
    made.put(page, 1, 2, 3, 4)
    assert made.courier.pending == 3
    go.set()
    made.courier.stop(WAIT)
    assert steps == [0, 3, 4]
    assert [alert.step for alert in made.returned] == [1, 2]
    assert made.ledger.report().dropped == {"the queue was full, and it had waited longest": 2}
    assert sum("queue was full" in message for message in caplog.messages) == 1


class Picky(Failing):
    """Fails for the alert of step 0 alone."""

    def __call__(self, alert):
        """Take an alert."""
        self.left = alert.step == 0
        super().__call__(alert)


def test_an_alert_that_a_channel_refuses_does_not_hold_up_the_next(made):
    """It lines up again behind the others."""
    page = Picky(0)
    made.put(page, 0, 1, 2)
    assert made.courier.flush(WAIT)
    assert page.steps == [1, 2]
    assert [alert.step for alert in made.returned] == [0]
    made.courier.stop(WAIT)


def test_at_the_end_each_alert_is_tried_at_once():
    """Also behind one that fails."""
    made = Made(delay=WAIT)
    page = Picky(0)
    made.put(page, 0, 1, 2)
    assert wait_for(lambda: made.ledger.report().failed)
    made.courier.stop(WAIT / 2)
    assert page.steps == [1, 2]


def test_the_end_does_not_wait_for_the_time_of_the_next_attempt():
    """`stop` has what waits for another attempt tried at once."""
    made = Made(delay=WAIT)
    page = Failing(1)
    made.put(page, 0)
    assert wait_for(lambda: made.ledger.report().failed)
    made.courier.stop(WAIT / 2)
    assert page.steps == [0]


def test_the_end_counts_what_its_time_is_too_short_for(caplog):
    """A call that hangs is left behind; it and what waits are counted, given back, and named in one message."""
    made = Made()
    began, go = threading.Event(), threading.Event()

    def hang(_):
        began.set()
        go.wait(WAIT)

    made.put(hang, 0)
    assert began.wait(WAIT)
    made.put(hang, 1)
    made.courier.stop(0.01)
    assert made.ledger.report().dropped == {"not delivered when the run ended": 2}
    assert len(made.returned) == 2
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR] == [
        "alerts: 2 not delivered when the run ended: 'alert 0' to page, 'alert 1' to page"
    ]
    go.set()
    made.courier._thread.join(WAIT)
    assert made.ledger.report().delivered == 0
    made.put(hang, 2)
    assert made.ledger.report().dropped == {"not delivered when the run ended": 3}


def test_a_callable_sees_the_context_of_the_row(made):
    """Context variables are those of whoever committed the row that fired."""
    variable = contextvars.ContextVar("variable")
    variable.set("of the row")
    seen = []
    made.put(lambda _: seen.append(variable.get(None)), 0)
    made.courier.stop(WAIT)
    assert seen == ["of the row"]


def test_waiting_from_a_channel_does_not_wait_for_itself(made):
    """`flush` within a channel returns at once; `inside` is true there, and nowhere else."""
    seen = []
    made.put(lambda _: seen.append((made.courier.inside, made.courier.flush(WAIT))), 0)
    made.courier.stop(WAIT)
    assert seen == [(True, False)]
    assert not made.courier.inside


def test_without_a_thread_alerts_are_counted_as_lost(made, monkeypatch):
    """Where the interpreter starts no thread any more, alerts are counted and given back."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    made.put(print, 0)
    assert made.ledger.report().dropped == {"no thread can be started": 1}
    assert len(made.returned) == 1
    made.courier.stop(0)


def test_a_forked_child_is_not_the_thread_that_delivers(made):
    """In a child forked by a channel, the only thread is not the courier's, and waits for nothing."""
    codes = []

    def fork(_):
        pid = os.fork()
        if pid == 0:
            os._exit(3 if made.courier.inside or made.courier.flush(WAIT) else 0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    made.put(fork, 0)
    made.courier.stop(WAIT)
    assert codes == [0]
