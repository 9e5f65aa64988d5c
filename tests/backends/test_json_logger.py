"""`type: json_logger`: records on a Python logger."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trackway.backends.json_logger import JsonLoggerConfig, JsonLoggerTracker
from trackway.errors import ConfigError
from trackway.values import Histogram, Image, Text, decode, normalise


class Collecting(logging.Handler):
    """Keeps messages."""

    def __init__(self):
        """Begin with none."""
        super().__init__()
        self.messages = []

    def emit(self, record):
        """Keep one."""
        self.messages.append(record.getMessage())


@pytest.fixture
def sink():
    """A logger of the test's own with a handler, and what that received."""
    logger = logging.Logger("mine", logging.INFO)  # noqa: LOG001 - known to nobody else
    handler = Collecting()
    logger.addHandler(handler)
    handler.tracker = JsonLoggerTracker(logger)
    return handler


def test_each_call_is_one_json_record(sink):
    """The five events have the documented form; finish carries last values and summary, which wins."""
    tracker = sink.tracker
    tracker.log_hyperparameters({"lr": 0.1})
    tracker.log({"loss": 0.5, "acc": 0.1}, step=1)
    tracker.log({"loss": 0.25})
    tracker.log_summary({"acc": 0.9})
    tracker.log_artifact("/tmp/model.pt", type="model")
    tracker.finish()
    head = {"tracker": "json_logger"}
    assert list(map(json.loads, sink.messages)) == [
        head | {"event": "hparams", "hparams": {"lr": 0.1}},
        head | {"event": "log", "step": 1, "metrics": {"loss": 0.5, "acc": 0.1}},
        head | {"event": "log", "step": 2, "metrics": {"loss": 0.25}},
        head | {"event": "summary", "summary": {"acc": 0.9}},
        head | {"event": "artifact", "path": "/tmp/model.pt", "name": "model.pt", "type": "model"},
        head | {"event": "finish", "summary": {"loss": 0.25, "acc": 0.9}},
    ]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("strict", [False, True])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(min_size=1, max_size=5).filter(lambda k: k[0] != "_"), _VALUES, max_size=4))
def test_lines_parse_back_to_equal_values(sink, strict, metrics):
    """Whatever was logged comes back from the message, which is one line."""
    tracker = JsonLoggerTracker(sink.tracker.logger, strict_json=strict)
    row = normalise(metrics, warn=False)  # a reserved name gets an underscore more, which has tests of its own
    tracker.log(row, step=0)
    message = sink.messages[-1]
    assert "\n" not in message
    assert repr(decode(message)["metrics"]) == repr(dict(row))


def test_numbers_of_all_libraries_are_numbers(sink):
    """NumPy scalars, histograms and images are JSON, not the text of a Python object."""
    sink.tracker.log(
        {
            "f": np.float32(0.5),
            "i": np.int64(2**60),
            "h": Histogram.from_array(np.arange(10.0)),
            "img": Image(np.zeros((2, 3), dtype=np.uint8)),
        },
        step=np.int32(1),
    )
    metrics = json.loads(sink.messages[0])["metrics"]
    assert (metrics["f"], metrics["i"], metrics["h"]["num"]) == (0.5, 2**60, 10)
    assert (metrics["img"]["_type"], metrics["img"]["width"]) == ("image", 3)


def test_percent_signs_are_no_formats(sink):
    """A metric named like a format string is written as it is."""
    sink.tracker.log({"%s %d": "100%"}, step=0)
    assert json.loads(sink.messages[0])["metrics"] == {"%s %d": "100%"}


def test_threads_lose_no_record(sink):
    """Records of eight threads are all there, each whole, with steps of their own."""
    threads = [threading.Thread(target=lambda: [sink.tracker.log({"n": n}) for n in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads(message)["step"] for message in sink.messages) == list(range(1600))
    assert sink.tracker.report().delivered == 1600


def test_after_finish_nothing_is_written(sink):
    """A call after `finish` is counted; finishing again writes no second record."""
    sink.tracker.finish()
    sink.tracker.finish()
    sink.tracker.log({"loss": 1.0}, step=0)
    assert len(sink.messages) == 1
    assert sum(sink.tracker.report().dropped.values()) == 1


@pytest.mark.parametrize("level", ["DEBUG", "info", 15, logging.WARNING])
def test_level_is_set_and_used(level):
    """The logger is set to the level, given by name or number, and records have it, so that they pass."""
    config = JsonLoggerConfig(logger_name=f"trackway.test.{level}", level=level)
    tracker = config.init(None)
    handler = Collecting()
    tracker.logger.addHandler(handler)
    tracker.log({"loss": 1.0}, step=0)
    number = level if isinstance(level, int) else logging.getLevelNamesMapping()[level.upper()]
    assert tracker.logger.level == number
    assert len(handler.messages) == 1


@pytest.mark.parametrize("level", ["LOUD", -1, True])
def test_unknown_level_is_refused(level):
    """A level that does not exist is an error that lists those that do."""
    with pytest.raises(ConfigError, match="INFO"):
        JsonLoggerConfig(level=level).init(None)


@pytest.mark.parametrize("change", ["disabled", "level"])
def test_logger_that_takes_nothing_is_noticed(sink, change, caplog):
    """A logger that someone disabled or raised later does not swallow rows in silence."""
    logger = sink.tracker.logger
    if change == "disabled":
        logger.disabled = True
    else:
        logger.setLevel(logging.ERROR)
    sink.tracker.log({"loss": 1.0}, step=0)
    report = sink.tracker.report()
    assert (report.accepted, report.delivered, sum(report.dropped.values())) == (1, 0, 1)
    assert "the logger mine" in caplog.text


def test_filter_that_raises_does_not_stop_training(sink):
    """A fault in the user's logging is counted."""

    def broken(_):
        raise RuntimeError("broken filter")

    sink.tracker.logger.addFilter(broken)
    sink.tracker.log({"loss": 1.0}, step=0)
    assert sink.tracker.report().failed == {"log": 1}


def test_media_and_downgrades_are_counted(sink):
    """A value stored as text is in the report."""
    with pytest.warns(UserWarning, match="thing"):
        sink.tracker.log({"thing": object()}, step=0)
    assert sum(sink.tracker.report().converted.values()) == 1


def _lines(setup):
    """What a new process writes to standard error and to standard output."""
    program = f"""
        import logging, sys
        from trackway.backends.json_logger import JsonLoggerConfig, JsonLoggerTracker
        {textwrap.indent(textwrap.dedent(setup), " " * 8).strip()}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines(), done.stdout.splitlines()


def test_new_user_sees_something():
    """Without any logging set up the lines go to standard error, once, also with two trackers."""
    err, out = _lines("""
        for _ in range(2):
            JsonLoggerConfig().init(None).log({"loss": 0.5}, step=1)
    """)
    assert [json.loads(line)["metrics"] for line in err] == [{"loss": 0.5}] * 2
    assert out == []


def test_logging_set_up_later_takes_over():
    """Once the user configures the root logger lines appear there alone; propagation is as it was."""
    err, out = _lines("""
        tracker = JsonLoggerConfig().init(None)
        tracker.log({"n": 1}, step=1)
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        tracker.log({"n": 2}, step=2)
        assert tracker.logger.propagate
    """)
    assert [json.loads(line)["step"] for line in err] == [1]
    assert [json.loads(line)["step"] for line in out] == [2]


def test_handler_of_the_user_is_enough():
    """A logger that has a handler, its own or inherited, gets none; one that does nothing does not count."""
    err, out = _lines("""
        logging.getLogger("trackway").addHandler(logging.NullHandler())
        JsonLoggerConfig().init(None).log({"n": 1}, step=1)
        logging.getLogger("app").addHandler(logging.StreamHandler(sys.stdout))
        tracker = JsonLoggerConfig("app.metrics").init(None)
        tracker.log({"n": 2}, step=2)
        assert tracker.logger.handlers == []
    """)
    assert [json.loads(line)["step"] for line in err] == [1]
    assert [json.loads(line)["step"] for line in out] == [2]


def test_nan_stays_in_the_finish_record(sink):
    """A diverged run says so in its last record too."""
    sink.tracker.log({"loss": math.nan}, step=0)
    sink.tracker.finish()
    assert math.isnan(decode(sink.messages[-1])["summary"]["loss"])


@pytest.mark.parametrize("char", ["\x7f", "\x80", "\x85", "\x9b", "\x9f", "\u2028", "\u2029"])
def test_no_character_ends_the_line_or_speaks_to_a_terminal(sink, char):
    """Characters that JSON allows and that a terminal or a reader of lines acts on are escapes, and read back equal."""
    row = {f"k{char}": f"x{char}31m{char}", "n": {"deep": [char * 3]}, "odd": "é日\\u0085"}
    sink.tracker.log(row, step=0)
    (message,) = sink.messages
    assert char not in message
    assert message.splitlines() == [message]
    assert json.loads(message)["metrics"] == decode(message)["metrics"] == row


def test_every_control_character_is_an_escape(sink):
    """None of the code points that control a terminal stands in a record as itself."""
    text = "".join(map(chr, [*range(0xA1), 0x2028, 0x2029]))
    sink.tracker.log({"t": text}, step=0)
    assert not [c for c in sink.messages[0] if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c in "\u2028\u2029"]
    assert decode(sink.messages[0])["metrics"]["t"] == text


def test_given_logger_without_a_handler_is_heard():
    """A logger that the caller made and gave no handler speaks to standard error until there is one."""
    err, out = _lines("""
        mine = logging.getLogger("mine")
        mine.setLevel(logging.INFO)
        tracker = JsonLoggerTracker(mine)
        JsonLoggerTracker(mine)
        tracker.log({"n": 1}, step=1)
        logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
        tracker.log({"n": 2}, step=2)
        assert mine.propagate and mine.level == logging.INFO
    """)
    assert [json.loads(line)["step"] for line in err] == [1]
    assert [json.loads(line)["step"] for line in out] == [2]


def test_described_media_are_counted(sink):
    """A picture of which the line has only the size is counted as converted, wherever it stands; a text is not."""
    image = Image(np.zeros((2, 2), np.uint8))
    sink.tracker.log({"a": image, "b": {"c": [image, 1, image]}, "t": Text("x"), "h": Histogram.from_array([1.0])})
    assert sink.tracker.report().converted == {"media are described, not kept": 3}
    sink.tracker.log_summary({"best": image})
    assert sink.tracker.report().converted == {"media are described, not kept": 4}
