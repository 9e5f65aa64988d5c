"""`type: console`: what stands on the terminal."""

from __future__ import annotations

import io
import shlex
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackway.backends.console import ConsoleConfig, ConsoleTracker
from trackway.errors import ConfigError
from trackway.events._text import pairs_text, value_text
from trackway.values import Audio, Histogram, Html, Image, Table, Text


def _printed(metrics, step=5):
    """The line for one row."""
    stream = io.StringIO()
    ConsoleTracker(stream).log(metrics, step=step)
    return stream.getvalue().removesuffix("\n")


def test_row_is_one_readable_line():
    """The step comes first, nested names are joined, floats have six digits, integers all."""
    row = {"loss": 0.5, "train": {"acc": 0.912345678}, "n": 123456789012, "ok": True, "none": None, "mode": "eval"}
    assert _printed(row) == "step=5 loss=0.5 train/acc=0.912346 n=123456789012 ok=True none=None mode=eval"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-10, "1e-10"), (float("nan"), "nan"), (-float("inf"), "-inf"), (1e22, "1e+22"), (-0.0, "-0"),
        (2**70, str(2**70)), pytest.param(10**5000, "1.000000e+5000...(5001 digits)", id="huge"), (-7, "-7"),
        ("two words", '"two words"'), ("", '""'), ("nan", '"nan"'), ('say "x"', '"say \\"x\\""'),
        ("a\nb", '"a\\nb"'), ("\x1b[31mred", '"\\u001b[31mred"'), ("\u202e", '"\\u202e"'), ("\udc80", '"\\udc80"'),
        ("x" * 500, '"' + "x" * 120 + '"...(500 characters)'), ("[1]", '"[1]"'),
        ([1, 2.5, "a b"], '[1,2.5,"a b"]'), (list(range(100)), "[0,1,2,3,4,5,6,7,...](100 items)"),
        ([[1, 2], [3]], "[[1,2],[3]]"), ({}, "{}"), ([{"a b": 1}], '[{"a b":1}]'),
    ],
)  # fmt: skip
def test_values_are_short_and_harmless(value, text):
    """Texts that are not one plain word are quoted, long ones are cut and say how long they are."""
    assert value_text(value) == text


def test_objects_are_described():
    """Histograms and media are short descriptions."""
    row = {
        "h": Histogram.from_array(np.array([1.0, 3.0, np.nan])),
        "i": Image(np.zeros((28, 14), dtype=np.uint8)),
        "rgb": Image(np.zeros((2, 2, 3), dtype=np.uint8)),
        "a": Audio(np.zeros(4000), 8000),
        "t": Table(["a", "b"], [[1, 2]]),
        "x": Text("hello"),
        "p": Html("<b>"),
    }
    assert _printed(row) == (
        "step=5 h=hist(n=2 mean=2 min=1 max=3 nan=1) i=image(14x28) rgb=image(2x2x3) a=audio(0.5s,8000Hz) "
        "t=table(1x2) x=text(5 characters) p=html(3 characters)"
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("a b", '"a b"=1'),
        ("a=b", '"a=b"=1'),
        ("", '""=1'),
        ("a\nb", '"a\\nb"=1'),
        ("step", '"step"=1'),
        ("é/ü", "é/ü=1"),
    ],
)
def test_names_are_quoted_where_need_be(key, text):
    """A name cannot be taken for something else, nor for the step."""
    assert _printed({key: 1}) == f"step=5 {text}"


def test_names_are_never_merged_or_lost():
    """Two names that flatten to one are both shown, and similar names stay apart."""
    assert _printed({"a/b": 1, "a": {"b": 2}, "a_b": 3}) == "step=5 a/b=1 a/b=2 a_b=3"


@given(st.dictionaries(st.text(st.characters(), max_size=8), st.text(st.characters(), max_size=150), max_size=5))
def test_anything_is_one_printable_line(values):
    """Whatever is logged the line has only printable characters, and as many pairs as there were names."""
    text = pairs_text(values)
    assert text.isprintable()
    assert text.count("=") >= len(values)


@given(st.dictionaries(st.from_regex(r"[a-z/]{1,8}", fullmatch=True), st.text("ab '=\"", max_size=10), max_size=5))
def test_pairs_can_be_told_apart(values):
    """A shell's rules split the line into exactly the pairs that were logged."""
    assert shlex.split(pairs_text(values)) == [f"{key}={value}" for key, value in values.items()]


def test_other_calls_have_lines_of_their_own():
    """Hyper-parameters, summary, artifacts and the end are lines that say what they are."""
    stream = io.StringIO()
    tracker = ConsoleTracker(stream)
    tracker.log_hyperparameters({"lr": 0.1, "model": {"width": 64}})
    tracker.log({"loss": 0.5})
    tracker.log_summary({"best": 0.4})
    tracker.log_artifact("/tmp/my model.pt", type="model")
    tracker.mark_failed(ValueError("bad\nvalue"))
    tracker.finish()
    tracker.finish()
    assert stream.getvalue().splitlines() == [
        "hparams lr=0.1 model/width=64",
        "step=0 loss=0.5",
        "summary best=0.4",
        'artifact name="my model.pt" type=model',
        'finish rows=1 error="ValueError: bad\\nvalue" loss=0.5 best=0.4',
    ]


def test_output_is_looked_up_at_each_call(capsys, monkeypatch):
    """A tracker made before standard output was replaced prints to the new one."""
    tracker = ConsoleTracker()
    tracker.log({"n": 1}, step=1)
    replaced = io.StringIO()
    monkeypatch.setattr(sys, "stdout", replaced)
    tracker.log({"n": 2}, step=2)
    assert capsys.readouterr().out == "step=1 n=1\n"
    assert replaced.getvalue() == "step=2 n=2\n"


def test_standard_error_can_be_chosen(capsys):
    """`stream: stderr` prints there; anything else is refused."""
    ConsoleConfig(stream="stderr").init(None).log({"n": 1}, step=1)
    assert capsys.readouterr().err == "step=1 n=1\n"
    with pytest.raises(ConfigError, match="stdout, stderr"):
        ConsoleConfig(stream="file").init(None)


class Broken(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, text):
        """Fail."""
        raise BrokenPipeError(32, "Broken pipe")


def _closed():
    """A stream that is closed."""
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Broken(), _closed()])
def test_stream_that_fails_is_counted(stream, caplog):
    """A closed or broken stream does not stop training; it is said once."""
    tracker = ConsoleTracker(stream)
    for step in range(3):
        tracker.log({"loss": 1.0}, step=step)
    tracker.flush()
    tracker.finish()
    report = tracker.report()
    assert (report.accepted, report.delivered, report.failed["log"]) == (3, 0, 3)
    assert caplog.text.count("console.log failed") == 1


def test_process_without_output_is_no_trouble(monkeypatch):
    """Where there is no standard output at all lines are counted."""
    monkeypatch.setattr(sys, "stdout", None)
    tracker = ConsoleTracker()
    tracker.log({"loss": 1.0}, step=0)
    tracker.flush()
    assert tracker.report().failed == {"log": 1}


def test_characters_that_the_stream_lacks_are_escaped():
    """On an ASCII terminal other letters are escapes."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    ConsoleTracker(stream).log({"größe": "é"}, step=0)
    assert raw.getvalue() == b"step=0 gr\\xf6\\xdfe=\\xe9\n"


def test_lines_of_threads_are_whole():
    """Lines of eight threads do not mix."""
    stream = io.StringIO()
    tracker = ConsoleTracker(stream)
    threads = [
        threading.Thread(target=lambda: [tracker.log({"n": n, "x": "y" * 50}) for n in range(100)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 800
    assert all(line.endswith("x=" + "y" * 50) for line in lines)
    assert tracker.report().delivered == 800


def test_after_finish_nothing_is_printed():
    """A call after `finish` is counted."""
    stream = io.StringIO()
    tracker = ConsoleTracker(stream)
    tracker.finish()
    tracker.log({"loss": 1.0}, step=0)
    assert stream.getvalue() == "finish rows=0\n"
    assert sum(tracker.report().dropped.values()) == 1


class UnprintableError(Exception):
    """Has no text."""

    def __str__(self):
        """Raise."""
        raise RuntimeError("no text")


@pytest.mark.parametrize(("error", "text"), [(UnprintableError(), "UnprintableError"), (KeyError(1), '"KeyError: 1"')])
def test_finish_of_a_failed_run_never_raises(error, text):
    """The last line names the error, also one whose text raises."""
    stream = io.StringIO()
    tracker = ConsoleTracker(stream)
    tracker.mark_failed(error)
    tracker.finish()
    assert stream.getvalue() == f"finish rows=0 error={text}\n"


def test_long_names_are_cut_and_say_how_long_they_are():
    """A name of a hundred thousand characters does not fill the screen; one of two hundred is shown whole."""
    assert _printed({"k" * 200: 1}) == f"step=5 {'k' * 200}=1"
    assert _printed({"k" * 100_000: 1, "x": 2}) == f'step=5 "{"k" * 200}"...(100000 characters)=1 x=2'
    assert len(_printed({"a": {"b" * 300: {"c" * 300: 1}}})) < 250


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (["a,b", "c"], '["a,b",c]'), (["a", "b", "c"], "[a,b,c]"), (["a]", "{b"], '["a]","{b"]'),
        ([["x,y"], {"k": "p:q"}], '[["x,y"],{k:"p:q"}]'), ([{"a,b": 1, "c:d": 2}], '[{"a,b":1,"c:d":2}]'),
    ],
)  # fmt: skip
def test_items_that_hold_a_separator_are_quoted(items, text):
    """Lists of different items look different."""
    assert value_text(items) == text
    assert value_text("a,b") == "a,b"


def test_described_values_are_counted():
    """Histograms and media, of which the line shows a description, are counted as converted."""
    tracker = ConsoleTracker(io.StringIO())
    image = Image(np.zeros((2, 2), np.uint8))
    tracker.log({"a": image, "b": {"c": [image]}, "t": Text("x"), "h": Histogram.from_array([1.0]), "x": 1, "l": [1]})
    tracker.log_hyperparameters({"a": image})
    assert tracker.report().converted == {"media are described, not kept": 5}
