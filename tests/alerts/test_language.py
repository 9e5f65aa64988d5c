"""What rules may say, and what is said about those that are wrong."""

from __future__ import annotations

import builtins
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackway.alerts import AlertRule, parse_rule
from trackway.alerts._explain import explain
from trackway.alerts._functions import FUNCTIONS
from trackway.alerts._grammar import _parser, parse_condition
from trackway.errors import AlertSyntaxError, ConfigError, TrackwayError


def test_a_text_gives_all_parts_of_a_rule():
    """Condition, duration, level and message are separated; what is left out has its default."""
    rule = parse_rule("zscore(train/loss[50]) > 4 for 3 => error: loss spike: look")
    assert rule == AlertRule("zscore(train/loss[50]) > 4", "error", "loss spike: look", for_points=3)
    assert parse_rule("loss > 5") == AlertRule("loss > 5", level="warning", message="", for_points=1, mode="edge")
    assert parse_rule("loss>5 for 1h30m =>info") == AlertRule("loss>5", "info", for_seconds=5400.0)
    assert parse_rule("`a => b` > 1 => info").when == "`a => b` > 1"
    assert parse_rule(rule) is rule


def test_a_mapping_gives_fields_and_durations_as_text():
    """`for` stands for either of two fields, and `when` may be a whole text."""
    item = {"when": "loss > 5", "for": "90s", "cooldown": "10m", "channels": "log", "recovery": True, "max_fires": 2}
    expected = AlertRule("loss > 5", for_seconds=90, cooldown=600, channels=("log",), recovery=True, max_fires=2)
    assert parse_rule(item) == expected
    assert parse_rule({"when": "loss > 5 for 3 => error", "name": "high"}) == AlertRule(
        "loss > 5", "error", name="high", for_points=3
    )
    assert parse_rule({"when": "a > 1", "for": 4}) == parse_rule({"when": "a > 1", "for": "4"})


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"level": "error"}, "the key 'when' is a text such as 'loss > 5', not None"),
        ({"when": "a > 1", "levl": "error"}, "unknown key 'levl'; did you mean 'level'?; allowed are: when"),
        ({"when": "a > 1", "level": "eror"}, "level is one of info, warning, error, not 'eror'; did you mean 'error'?"),
        ({"when": "a > 1 => info", "level": "error"}, "'level' is given twice"),
        ({"when": "a > 1", "for": 2, "for_points": 3}, "give one of them alone"),
        ({"when": "a > 1", "for": "soon"}, "for is a number of seconds, 0 or more, or a text such as '90s'"),
        ({"when": "a > 1", "cooldown": -1}, "cooldown is a number of seconds"),
        ({"when": "a > 1", "cooldown": 10**400}, "cooldown is a number of seconds"),
        ({"when": "a > 1", "max_fires": 0}, "max_fires is a whole number, 1 or more, not 0"),
        ({"when": "a > 1", "for": True}, "for_points is a whole number"),
        ({"when": "a > 1", "channels": [1]}, "channels is a list of names"),
        ({"when": "a > 1", "message": 3}, "message is a text, not 3"),
        ({"when": "no_data(60s)", "for": 3}, "give a time, such as for 60s"),
        (3, "got int; a rule is a text such as"),
    ],
)
def test_wrong_fields_say_what_is_allowed(item, said):
    """Each names the field, what it got and what it takes."""
    with pytest.raises(AlertSyntaxError) as caught:
        parse_rule(item)
    assert said in str(caught.value)
    assert isinstance(caught.value, ValueError | TrackwayError)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("loss>5", "loss > 5"),
        ("train.loss > 1e3", "train.loss > 1000"),
        ("`grad norm`>.5", "`grad norm` > 0.5"),
        ("`and` > 1 or `NaN` > 1 or `mean` > `step`", "`and` > 1 or `NaN` > 1 or `mean` > `step`"),
        ("`a.b` > 1 or `ab` > 1", "`a.b` > 1 or ab > 1"),
        ("`a``b` > 1", "`a``b` > 1"),
        ("layer/0/norm > 1 and order < 2 and notes > 3", "layer/0/norm > 1 and order < 2 and notes > 3"),
        ("(a > 1 or b > 2) and not c > 3", "(a > 1 or b > 2) and not c > 3"),
        ("a > 1 or b > 2 and c > 3", "a > 1 or b > 2 and c > 3"),
        ("a - (b - c) * 2 / -d > -1", "a - (b - c) * 2 / -d > -1"),
        ("1 < a <= 2", "1 < a and a <= 2"),
        ("a / b > 2 and a/b > 2", "a / b > 2 and a/b > 2"),
        ("abs(a - b) >= +1", "abs(a - b) >= 1"),
        ("mean(loss[1h30m]) > 60s", "mean(loss[90m]) > 1m"),
        ("age(val/loss) > 500ms and elapsed > 1d", "age(val/loss) > 0.5s and elapsed > 1d"),
        ("diff(a) > 1 or last(a) > 2", "diff(a[2]) > 1 or last(a[1]) > 2"),
        ("ema(a, 0.1) > ema(a[20])", "ema(a, 0.1) > ema(a[20])"),
        ("stalled(a[5], 0.5) or increasing(a[3s])", "stalled(a[5], 0.5) or increasing(a[3s])"),
        (
            "isnan(a) and no_data(90s) and has(b)\n and step >= 10",
            "isnan(a) and no_data(90s) and has(b) and step >= 10",
        ),
        ("verlust_größe > 1", "verlust_größe > 1"),
    ],
)
def test_conditions_are_read_as_they_are_meant(text, normal):
    """Precedence, names, durations and defaults: the text made of what was understood is read as the same."""
    condition = parse_condition(text)
    assert str(condition.root) == normal
    assert parse_condition(normal) == condition


WRONG = [
    ("loss", 1, "loss is a number, and a condition is true or false; compare it with something, as in loss > 5"),
    ("meen(loss[50]) > 3", 1, "there is no function 'meen'; did you mean mean?"),
    ("a > 1 and zzz(loss)", 11, "there is no function 'zzz'; there are abs, age"),
    ("mean(loss[50]) >", 17, "the condition is not complete: expected a metric, a number, '(', '+', '-' or a duration"),
    ("mean(loss[50] > 3", 18, "the condition is not complete: expected ')', ','"),
    (
        "mean(loss[50]) 3",
        16,
        "'3' is not expected here: expected a comparison such as >, 'and', 'or', 'for' or the end",
    ),
    (
        "loss => 5",
        9,
        "after => comes a level: info, warning or error, then a colon and a message; the comparison is >=",
    ),
    ("loss > 5 => eror: x", 13, "did you mean error?"),
    ("loss > 5 => error:", 19, "after the colon comes a message"),
    ("loss > 5 for 2.5", 14, "after for comes a whole number of rows, 1 or more, or a duration such as 60s"),
    ("loss > 5 for 0", 14, "after for comes a whole number"),
    ("a > 1 && b > 3", 7, "'&' is not expected here; write and"),
    ("a > 1 AND b > 3", 7, "'AND' is not expected here"),
    ("!isnan(a)", 1, "write not"),
    ("a = 3", 3, "did you mean ==?"),
    ("a ^ 2 > 3", 3, "powers are not part of the language"),
    ("grad norm > 3", 6, "'norm' is not expected here"),
    ("'grad norm' > 3", 1, "a metric's name stands in backticks"),
    ("loss == nan", 9, "write isnan(...) to ask for NaN"),
    ("done == true", 9, "truth values are logged as 1 and 0"),
    ("_step > 3", 1, "write step for the step of the row"),
    ("`_time` > 3", 1, "write elapsed"),
    ("mean > 3", 1, "mean is a function; write mean(loss[50]), or a metric in backticks"),
    ("median(loss) > 3", 8, "median needs a window; as in median(loss[50])"),
    ("zscore(loss[2]) > 1", 8, "zscore needs a window of 3 points or more"),
    ("loss[50] > 3", 1, "loss[50] is a window of points, not a number; give it to a function: mean(loss[50])"),
    ("isnan(loss[4])", 7, "loss[4] is a window of points"),
    ("mean(a + b) > 2", 6, "mean takes a metric and a window, not a + b; as in mean(loss[50])"),
    ("mean(a[5], 3) > 2", 1, "mean takes a metric and a window, not 2 arguments"),
    ("has(a[5])", 5, "has takes no window; write has(a)"),
    ("no_data(loss)", 9, "no_data takes a duration; as in no_data(60s)"),
    ("no_data() or a > 1", 1, "no_data takes a duration, not 0 arguments"),
    ("step(3) > 1", 1, "step takes nothing, not 1 arguments"),
    ("ema(a) > 1", 5, "ema takes a window, or the weight of the newest value"),
    ("ema(a[5], 0.1) > 1", 5, "ema takes a window, or the weight"),
    ("ema(a[10m]) > 1", 5, "the window of ema is a number of points"),
    ("ema(a, 2) > 1", 8, "the weight of the newest value in ema is a number over 0, and 1 at most"),
    ("stalled(a[5], b)", 15, "the second argument of stalled is a number, 0 or more"),
    ("mean(a[1.5]) > 3", 8, "a window has 1 to 1000000 points, or a duration such as 10m"),
    ("mean(a[0s]) > 3", 8, "a window in time is longer than nothing"),
    ("max(a[9999999]) > 3", 7, "a window has 1 to 1000000 points"),
    ("mean(a)[5] > 3", 8, "a window follows the name of a metric, as in mean(loss[50])"),
    ("1 < 2", 1, "1 < 2 reads no metric, and is always the same"),
    ("not loss", 5, "loss is a number, and a condition is needed here; compare it with something"),
    ("(a > 3) + 1 > 2", 1, "a > 3 is true or false, and a number is needed here"),
    ("a > 1e999", 5, "the number is too large for floating point"),
    ("", 1, "a condition is missing, such as loss > 5"),
    ("  => error", 1, "a condition is missing"),
    ("not " * 200 + "a > 3", 609, "more than 50 operations are nested; split the rule into several"),
    ("(" * 900 + "a" + ")" * 900 + " > 3", 852, "more than 50 operations are nested"),
    ("a + " * 400 + "a > 3", 1, "more than 50 operations are nested"),
    ("x " * 3000, 2001, "a condition has 2000 characters at most"),
]


@pytest.mark.parametrize(("text", "column", "said"), WRONG, ids=range(len(WRONG)))
def test_errors_point_at_the_place(text, column, said):
    """The message names the column, what is wrong and what helps; the caret stands below the place."""
    with pytest.raises(AlertSyntaxError) as caught:
        parse_rule(text)
    head, shown, caret = str(caught.value).splitlines()
    assert head.startswith(f"alert rule, column {column}: ")
    assert said in head
    assert caret.strip() == "^"
    assert len(shown) < 120
    if len(text) < 100:
        assert shown == f"  {text}"
        assert caret.index("^") == column + 1


def test_a_condition_that_is_a_field_has_no_more_than_a_condition():
    """`for` and the arrow belong to texts; in the field `when` of the class they are said to be wrong."""
    with pytest.raises(AlertSyntaxError, match="'for' is a field of its own, for_points or for_seconds"):
        AlertRule(when="a > 1 for 3")
    with pytest.raises(AlertSyntaxError, match="fields of its own, such as level; the comparison is >="):
        AlertRule(when="a > 1 => error")
    with pytest.raises(AlertSyntaxError, match="when is a text such as"):
        AlertRule(when=None)


def test_control_characters_of_a_rule_do_not_reach_the_terminal():
    """The text is shown with blanks in their place, so that the caret still points at the right one."""
    with pytest.raises(AlertSyntaxError) as caught:
        parse_rule("`a\x1b[31m\n` > > 3")
    head, shown, caret = str(caught.value).splitlines()
    assert "\x1b" not in str(caught.value)
    assert shown[caret.index("^")] == ">"
    assert head.startswith("alert rule, column 13")


@given(text=st.text(st.sampled_from("ab1 .5<>=()[]+-*/`,&smand ornotfor\n\x00é"), max_size=30) | st.text(max_size=20))
def test_any_text_is_a_rule_or_an_error_that_points_at_something(text):
    """No other exception comes of any text, and what is a rule reads as itself again."""
    try:
        rule, said = parse_rule(text), ""
    except AlertSyntaxError as error:
        rule, said = None, str(error)
    if rule is None:
        assert "\n" in said or "holds between rows" in said
    else:
        assert parse_condition(str(parse_condition(rule.when).root)) == parse_condition(rule.when)


def test_rules_can_be_kept_and_compared():
    """They hash, and survive pickling."""
    rule = parse_rule("loss > 5 => error: high")
    assert pickle.loads(pickle.dumps(rule)) == rule
    assert len({rule, parse_rule("loss > 5 => error: high")}) == 1


def test_without_lark_the_error_says_what_to_install(monkeypatch):
    """It is a configuration error, which comes when a rule is read."""
    real = builtins.__import__

    def without_lark(name, *rest):
        if name.partition(".")[0] == "lark":
            raise ImportError(name)
        return real(name, *rest)

    _parser.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without_lark)
    with pytest.raises(ConfigError, match=r'pip install "trackway\[alerts\]"'):
        parse_rule("never_read_before > 5")


def test_lark_is_imported_for_rules_alone():
    """Importing the package leaves the parser out."""
    program = "import sys, trackway.alerts; assert 'lark' not in sys.modules, 'lark'"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_explained(name):
    """The explanation of a rule with any of the functions names it, and when its value is unknown."""
    texts = {
        "abs": "abs(a) > 1", "isnan": "isnan(a)", "isinf": "isinf(a)", "has": "has(a)", "age": "age(a) > 1",
        "step": "step > 1", "elapsed": "elapsed > 1", "no_data": "no_data(60s)", "increasing": "increasing(a[5])",
        "decreasing": "decreasing(a[5])", "stalled": "stalled(a[5])",
    }  # fmt: skip
    told = explain(parse_rule(texts.get(name, f"{name}(a[5]) > 1")))
    assert all(told[topic] for topic in ("meaning", "looks", "fires", "title"))
    windowed = FUNCTIONS[name].takes == "series" and name != "count"
    assert any("unknown until there are 5" in text for text in told["values"]) == windowed
    assert told["metrics"] == ([] if name in {"step", "elapsed", "no_data"} else ["a"])


def test_an_explanation_says_what_a_rule_does():
    """Meaning, looks and firing are told in words."""
    rule = AlertRule(
        "not (a > 3 or no_data(60s)) and mean(loss[10m]) <= 2 * min(loss)", for_points=3, for_seconds=60,
        mode="level", cooldown=600, max_fires=1, recovery=True, channels=(),
    )  # fmt: skip
    told = explain(rule)
    assert told["meaning"] == (
        "(it is not so that (a is greater than 3 or no row was accepted for 1m)) "
        "and mean(loss[10m]) is at most 2 * min(loss)"
    )
    assert told["looks"] == "at each row that has a or a finite value of loss, and between rows"
    assert told["fires"] == (
        "once it has held at 3 looks in succession and for 1m; again whenever it holds; "
        "not within 10m of the last time; once at most; says so when it no longer holds"
    )
    assert told["values"][1:] == [
        (
            "mean(loss[10m]) is the mean, over the finite values of loss of the last 10m; "
            "unknown until its first one is 10m old"
        ),
        "min(loss) is the smallest value, over all finite values of loss; unknown until there is one",
    ]
    assert told["channels"] == "none"


def test_the_page_has_every_function():
    """The table of the documentation names each function, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "alert-rules.md").read_text()
    table = page.partition("## Functions")[2].partition("## Windows")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted({name for cell in cells for name in re.findall(r"`(\w+)[(`]", cell)}) == sorted(FUNCTIONS)
