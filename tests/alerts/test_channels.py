"""Where alerts go, and how a configuration names it."""

from __future__ import annotations

import logging
import sys

import pytest
from alert_receiver import receiving

from trackway.alerts import Alert, AlertRule
from trackway.alerts._apprise import AppriseChannel, NotTakenError
from trackway.alerts._channels import channel_spec, open_channel
from trackway.alerts._message import completed, on_one_line
from trackway.errors import ConfigError

SECRET = "t0psecret"


def _alert(level="error", state="firing", title="loss is high", text="loss > 5\nstep 3: loss = 7"):
    rule = AlertRule("loss > 5", level=level)
    return Alert(rule, "loss > 5", level, title, text, 3, 1.0, state, {"loss": 7.0})


def _open(item, send=print):
    return open_channel(channel_spec(item, "alerts.channels[0]"), send)


@pytest.fixture
def receiver():
    """A web service that takes alerts."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def chat(receiver, monkeypatch):
    """A channel to it, whose URL holds a password and a token."""
    url = receiver.url.replace("127.0.0.1", f"user:{SECRET}@127.0.0.1") + f"{SECRET}/hook"
    monkeypatch.setenv("CHAT_URL", url)
    return AppriseChannel("CHAT_URL")


@pytest.mark.parametrize(
    ("level", "state", "logged"),
    [
        ("info", "firing", "INFO"),
        ("warning", "firing", "WARNING"),
        ("error", "firing", "ERROR"),
        ("error", "recovered", "INFO"),
    ],
)
def test_the_log_gets_one_line_at_the_level_of_the_alert(caplog, level, state, logged):
    """The channel "log" writes title and text in one line; that a condition is over is information."""
    caplog.set_level(logging.INFO, "trackway")
    _open("log").deliver(_alert(level, state))
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        (logged, "alert: loss is high: loss > 5; step 3: loss = 7")
    ]


def test_backends_are_told_of_an_end_as_information():
    """The channel "backends" hands alerts over at their level, and their end at "info"."""
    told = []
    channel = _open("backends", told.append)
    channel.deliver(_alert("error"))
    channel.deliver(_alert("error", "recovered"))
    assert [(one.level, one.state) for one in told] == [("error", "firing"), ("info", "recovered")]


def test_a_callable_is_found_by_its_import_path(tmp_path, monkeypatch):
    """A text with a colon names a callable, also one within a class; a callable itself needs no name."""
    (tmp_path / "pager_of_test.py").write_text("told = []\nclass Pager:\n    ring = staticmethod(told.append)\n")
    monkeypatch.syspath_prepend(tmp_path)
    _open("pager_of_test:Pager.ring").deliver(_alert())
    _open({"call": "pager_of_test:told.append", "name": "pager"}).deliver(_alert("info"))
    told = sys.modules["pager_of_test"].told
    assert [one.level for one in told] == ["error", "info"]
    del sys.modules["pager_of_test"]


def test_a_service_of_apprise_gets_the_alert(chat, receiver):
    """The service whose URL is in the environment gets title, text and kind, as they are."""
    chat.deliver(_alert(text="a <b> & \\n\nc"))
    chat.deliver(_alert("warning"))
    chat.deliver(_alert("error", "recovered"))
    assert [one["type"] for one in receiver.bodies] == ["failure", "warning", "success"]
    assert receiver.bodies[0]["title"] == "loss is high"
    assert receiver.bodies[0]["message"] == "a <b> & \\n\nc"


def test_a_service_that_shows_html_gets_the_text_as_text(receiver, monkeypatch):
    """Where a message is HTML, what looks like markup in an alert is shown, and takes no effect."""
    monkeypatch.setenv("CHAT_URL", f"{receiver.url}?format=html")
    AppriseChannel("CHAT_URL").deliver(_alert(text="<script>\nx & y"))
    assert receiver.bodies[0]["message"].replace("\r", "") == "&lt;script&gt;<br/>\nx &amp; y"


def test_a_service_that_refuses_is_an_error_without_secrets(chat, receiver, caplog):
    """The reason that apprise gives is told; neither it nor apprise's own log shows the password or the token."""
    caplog.set_level(logging.DEBUG)
    receiver.answers = [500]
    with pytest.raises(NotTakenError, match="500") as refused:
        chat.deliver(_alert())
    receiver.close()
    with pytest.raises(NotTakenError, match="Connection error") as away:
        chat.deliver(_alert())
    assert SECRET not in f"{refused.value} {away.value} {caplog.text}"
    logging.getLogger("apprise").warning("of someone else")
    assert "of someone else" in caplog.text


def test_a_variable_that_is_missing_is_named(monkeypatch):
    """A channel whose environment variable is not set, or empty, is a configuration error that names it."""
    for value in (None, " "):
        monkeypatch.delenv("CHAT_URL", raising=False) if value is None else monkeypatch.setenv("CHAT_URL", value)
        with pytest.raises(ConfigError, match="CHAT_URL is not set"):
            _open({"apprise": "CHAT_URL"})


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (SECRET, "holds no URL"),
        (f"jsom://{SECRET}", "no service jsom://; did you mean json"),
        (f"slack://{SECRET}", "the slack:// URL"),
        (f"json://{SECRET} json://{SECRET}", "more than one URL"),
    ],
)
def test_a_wrong_url_is_an_error_that_does_not_show_it(monkeypatch, caplog, url, words):
    """What a variable holds is shown neither in the error nor in a log."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("CHAT_URL", url)
    with pytest.raises(ConfigError, match=words) as wrong:
        _open({"apprise": "CHAT_URL"})
    told = f"{wrong.value!r} {wrong.value.__cause__!r} {wrong.value.__context__!r} {caplog.text}"
    assert SECRET not in told
    assert "CHAT_URL" in str(wrong.value)


@pytest.mark.parametrize("item", [f"slack://{SECRET}/a", {"apprise": f"slack://{SECRET}"}, {"apprise": [SECRET]}])
def test_a_url_in_the_configuration_is_refused_without_showing_it(item):
    """A URL belongs into the environment; the error says so, and does not repeat it."""
    with pytest.raises(ConfigError, match="environment variable") as wrong:
        channel_spec(item, "alerts.channels[0]")
    assert SECRET not in str(wrong.value)


def test_without_apprise_the_error_says_how_to_install_it(monkeypatch):
    """Where the library is missing, the error names the extra."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setenv("CHAT_URL", "json://127.0.0.1/")
    with pytest.raises(ConfigError, match=r"pip install 'trackway\[alerts\]'"):
        _open({"apprise": "CHAT_URL"})


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("logs", "did you mean log"),
        ("a.b", "must be 'log'"),
        (7, "got int"),
        ({"aprise": "X"}, r"channels\[0\].aprise: unknown field .* did you mean apprise"),
        ({"apprise": "X", "level": "warn"}, r"channels\[0\].level must be one of info, warning, error, got 'warn'"),
        ({"apprise": "X", "name": ""}, "name must be a text"),
        ({"apprise": "X", "call": "a:b"}, "not both"),
        ({"call": "log"}, "call must be"),
        ({"name": "chat"}, "must have `apprise` or `call`"),
    ],
)
def test_a_channel_that_is_none_is_refused_when_it_is_read(item, words):
    """Errors in the configuration name the place, what is allowed, and what may be meant."""
    with pytest.raises(ConfigError, match=words):
        channel_spec(item, "alerts.channels[0]")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_module_here:f", "cannot import no_such_module_here: ModuleNotFoundError"),
        ("json:dump_", "json has no dump_; did you mean dump"),
        ("sys:maxsize", "must be a callable that takes an alert, got int"),
    ],
)
def test_a_callable_that_cannot_be_had_is_an_error_at_the_start(path, words):
    """Opening a channel says what is wrong with its import path."""
    with pytest.raises(ConfigError, match=words):
        _open(path)


def test_a_level_keeps_lesser_alerts_from_a_channel():
    """A channel with a level takes alerts of that one and of graver ones."""
    spec = channel_spec({"name": "log", "level": "warning"}, "x")
    assert [spec.takes(level) for level in ("info", "warning", "error")] == [False, True, True]


def test_what_is_told_has_the_run_and_no_control_characters():
    """Titles and texts come from runs: what controls a terminal is shown as escapes, and what is long is cut."""
    told = completed(_alert(title="a\x1b[2J\nb", text="x = \ud800\u202e\ny" + "z" * 3000), "run-7")
    assert told.title == "a\\x1b[2J\\nb"
    assert told.text.startswith("x = \\ud800\\u202e\ny")
    assert len(told.text) < 2100
    told = completed(_alert(), "run-7", held_back=3)
    assert told.text.splitlines()[2:] == [
        "run: run-7",
        "earlier alerts of this rule, held back by the rate limit: 3",
    ]
    assert on_one_line(_alert(text="")) == "loss is high"
