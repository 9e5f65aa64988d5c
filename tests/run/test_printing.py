"""Printing committed rows, a line each."""

from __future__ import annotations

import pytest

from trackway.errors import ConfigError
from trackway.run import Run


def test_each_committed_row_is_printed_as_one_line(capsys):
    """`print=True` prints to standard output; what is not committed is not printed."""
    with Run(print=True) as run:
        run.log({"train/loss": 0.31, "lr": 3e-4}, step=100)
        run.log({"acc": 0.9}, step=100)
        assert capsys.readouterr().out == ""
        run.log({"acc": 1.0}, step=101)
        assert capsys.readouterr().out == "step 100: train/loss=0.31 lr=0.0003 acc=0.9\n"
    assert capsys.readouterr().out == "step 101: acc=1\n"


def test_a_function_gets_the_line_instead():
    """Such as `logger.info`; nested names are joined, arrays and texts are shown shortened, in one line."""
    lines = []
    with Run(print=lines.append) as run:
        run.log({"a": {"b": 1}, "text": "one\ntwo\x1b[31m", "long": "x" * 1000, "none": None, "big": [0.5] * 1000})
    (line,) = lines
    assert line.startswith("step 0: a/b=1 text=one\\ntwo\\x1b[31m long=xxx")
    assert len(line) < 400
    assert line.isprintable()


def test_a_print_function_that_fails_is_logged_and_interrupts_nothing(caplog, recorder):
    """It is counted each time and said once; every row is delivered."""

    def fail(line):
        raise OSError(line)

    with Run([recorder], print=fail) as run:
        for step in range(3):
            run.log({"x": step})
    assert [step for step, _ in recorder.rows] == [0, 1, 2]
    assert run.report().run.failed == {"print": 3}
    assert sum("print failed" in record.message for record in caplog.records) == 1


def test_a_print_function_may_log(recorder):
    """Its row is delivered and printed like others."""
    lines = []

    def write(line):
        lines.append(line)
        if len(lines) == 1:
            run.log({"nested": 1})

    with Run([recorder], print=write) as run:
        run.log({"x": 1})
    assert lines == ["step 0: x=1", "step 1: nested=1"]
    assert len(recorder.rows) == 2


@pytest.mark.parametrize("wrong", [1, "stdout", None, 0.5])
def test_print_is_a_bool_or_a_function(wrong):
    """Anything else is refused when the run starts."""
    with pytest.raises(ConfigError, match="callable that takes a line"):
        Run(print=wrong)


def test_nothing_is_printed_by_default(capsys):
    """A run is silent."""
    with Run() as run:
        run.log({"x": 1})
    assert capsys.readouterr() == ("", "")
    assert run.report().rows == 1
