"""From the parser's tree to the nodes of a condition, checking what the grammar alone cannot."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Any, NamedTuple, final

from trackway.alerts._functions import FUNCTIONS, MAX_POINTS, Function
from trackway.alerts._grammar import Condition, expected_words, fail, hint_for, seconds_of
from trackway.alerts._nodes import (
    COMPARING,
    LOGICAL,
    Binary,
    Call,
    Metric,
    Node,
    Number,
    Unary,
    Window,
    name_text,
    parts,
)

__all__ = ["build"]

_MAX_DEPTH = 50
_NO_METRIC = {
    "nan": "write isnan(...) to ask for NaN",
    "inf": "write isinf(...) to ask for infinities",
    "infinity": "write isinf(...) to ask for infinities",
    "true": "truth values are logged as 1 and 0",
    "false": "truth values are logged as 1 and 0",
    "_step": "write step for the step of the row",
    "_time": "write elapsed for the time since the first row, age(...) for that since a metric was logged",
}


@final
class _Series(NamedTuple):
    """A metric with a window, which only functions take."""

    metric: Metric
    window: Window


@final
class _Part(NamedTuple):
    """What was built of a part of the text."""

    node: Any
    place: int
    depth: int = 0

    @property
    def truth(self) -> bool:
        """Whether it is true or false, not a number."""
        node = self.node
        if isinstance(node, Binary):
            return node.sign in COMPARING or node.sign in LOGICAL
        if isinstance(node, Unary):
            return node.sign == "not"
        return isinstance(node, Call) and FUNCTIONS[node.function].gives == "truth"


def build(parser: Any, text: str, whole: str) -> tuple[Condition, tuple[str, float] | None]:
    """Parse *text*, the beginning of *whole*; return its condition, and the field that `for` gives."""
    import lark

    try:
        tree = parser.parse(text)
    except lark.exceptions.UnexpectedCharacters as error:
        place = error.pos_in_stream or 0
        fail(whole, place, f"{text[place]!r} is not expected here", hint_for(text[place:]))
    except lark.exceptions.UnexpectedToken as error:
        _fail_at_token(whole, error, len(text.rstrip()))
    builder = _Builder(whole)
    done: dict[int, _Part] = {}
    for subtree in tree.iter_subtrees():
        children = [done[id(child)] if isinstance(child, lark.Tree) else child for child in subtree.children]
        if subtree.data == "start":
            return Condition(builder.condition(children[0])), builder.lasting(children[1:])
        done[id(subtree)] = builder.build(str(subtree.data), children)
    raise AssertionError("a parse tree has a root")


def _fail_at_token(whole: str, error: Any, end: int) -> None:
    token, place = error.token, error.token.start_pos
    expected = f"expected {expected_words(set(error.accepts or error.expected))}"
    if token.type == "$END":
        fail(whole, end, f"the condition is not complete: {expected}")
    hint = ""
    if token.type == "OPEN":
        hint = "a window follows the name of a metric, as in mean(loss[50])"
    elif token.type == "NAME" and str(token) in {"AND", "OR", "NOT", "FOR"}:
        hint = f"write {str(token).lower()}"
    elif token.type == "LEFT":
        hint = "a function has a plain name, as in mean(loss[50])"
    elif token.type in {"NUMBER", "DURATION"} and "FOR" in error.expected:
        hint = "names with other characters than letters, digits, _, / and . stand in backticks"
    fail(whole, place, f"{str(token)!r} is not expected here: {expected}", hint)


@final
class _Builder:
    """Builds nodes, bottom up."""

    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, place: int, problem: str, hint: str = "") -> Any:
        fail(self._text, place, problem, hint)

    def build(self, kind: str, children: list[Any]) -> _Part:
        make: Callable[[list[Any]], _Part] = getattr(self, f"_{kind}")
        part = make(children)
        depth = 1 + max((child.depth for child in children if isinstance(child, _Part)), default=0)
        if depth > _MAX_DEPTH:
            self.fail(part.place, f"more than {_MAX_DEPTH} operations are nested", "split the rule into several")
        return part._replace(depth=depth)

    def condition(self, part: _Part) -> Node:
        if not self._node(part).truth:
            self.fail(
                part.place,
                f"{part.node} is a number, and a condition is true or false",
                f"compare it with something, as in {part.node} > 5",
            )
        if not parts(part.node):
            self.fail(part.place, f"{part.node} reads no metric, and is always the same")
        return part.node  # type: ignore[no-any-return]

    def lasting(self, children: list[Any]) -> tuple[str, float] | None:
        """Return the field that `for` gives."""
        if not children:
            return None
        token = children[1]
        if token.type == "DURATION":
            return "for_seconds", seconds_of(str(token)) or 0.0
        if not str(token).isdecimal() or int(token) < 1:
            self.fail(token.start_pos, "after for comes a whole number of rows, 1 or more, or a duration such as 60s")
        return "for_points", int(token)

    def _node(self, part: _Part) -> _Part:
        if isinstance(part.node, _Series):
            series = f"{part.node.metric}{part.node.window}"
            self.fail(
                part.place, f"{series} is a window of points, not a number", f"give it to a function: mean({series})"
            )
        return part

    def _as_number(self, part: _Part) -> _Part:
        if self._node(part).truth:
            self.fail(part.place, f"{part.node} is true or false, and a number is needed here")
        return part

    def _as_truth(self, part: _Part) -> _Part:
        if not self._node(part).truth:
            self.fail(
                part.place, f"{part.node} is a number, and a condition is needed here", "compare it with something"
            )
        return part

    # --- one method for each kind of subtree ---

    def _binary(self, children: list[Any]) -> _Part:
        left, sign, right = children
        check = self._as_truth if str(sign) in LOGICAL else self._as_number
        return _Part(Binary(str(sign), check(left).node, check(right).node), left.place)

    def _chain(self, children: list[Any]) -> _Part:
        """Build `a < b`, or `a < b < c`, which is `a < b and b < c`."""
        node: Node | None = None
        for index in range(0, len(children) - 2, 2):
            left, sign, right = children[index : index + 3]
            link = Binary(str(sign), self._as_number(left).node, self._as_number(right).node)
            node = link if node is None else Binary("and", node, link)
        return _Part(node, children[0].place, len(children) // 2)

    def _unary(self, children: list[Any]) -> _Part:
        sign, operand = children
        if str(sign) == "not":
            return _Part(Unary("not", self._as_truth(operand).node), sign.start_pos)
        node = self._as_number(operand).node
        if isinstance(node, Number) and str(sign) == "-":
            return _Part(Number(-node.value), sign.start_pos)
        return _Part(node if str(sign) == "+" else Unary("-", node), sign.start_pos)

    def _number(self, children: list[Any]) -> _Part:
        (token,) = children
        value = seconds_of(str(token)) if token.type == "DURATION" else float(token)
        if value == math.inf:
            self.fail(token.start_pos, "the number is too large for floating point")
        return _Part(Number(value or 0.0, token.type == "DURATION"), token.start_pos)

    def _bracketed(self, children: list[Any]) -> _Part:
        return children[1]._replace(place=children[0].start_pos)  # type: ignore[no-any-return]

    def _name(self, children: list[Any]) -> _Part:
        (token,) = children
        if token.type == "QUOTED":
            name = str(token)[1:-1].replace("``", "`")
            return _Part(Metric(name, quoted="." in name), token.start_pos)
        return _Part(Metric(str(token)), token.start_pos)

    def _metric(self, children: list[Any]) -> _Part:
        metric = children[0].node
        if self._text[children[0].place] == "`" and metric.name not in {"_step", "_time"}:
            return children[0]  # type: ignore[no-any-return]
        if metric.name in {"step", "elapsed"}:
            return _Part(Call(metric.name), children[0].place)
        if metric.name.lower() in _NO_METRIC:
            hint = _NO_METRIC[metric.name.lower()]
            hint += "" if metric.name.startswith("_") else "; a metric of that name stands in backticks"
            self.fail(children[0].place, f"{metric.name} is not a value here", hint)
        if metric.name in FUNCTIONS:
            example = _example(metric.name)
            self.fail(children[0].place, f"{metric.name} is a function", f"write {example}, or a metric in backticks")
        return children[0]  # type: ignore[no-any-return]

    def _series(self, children: list[Any]) -> _Part:
        name, _, token, _ = children
        if token.type == "DURATION":
            seconds = seconds_of(str(token)) or 0.0
            if seconds <= 0:
                self.fail(token.start_pos, "a window in time is longer than nothing")
            return _Part(_Series(name.node, Window(seconds=seconds)), name.place)
        if not str(token).isdecimal() or not 1 <= int(token) <= MAX_POINTS:
            problem = f"a window has 1 to {MAX_POINTS} points, or a duration such as 10m"
            self.fail(token.start_pos, problem)
        return _Part(_Series(name.node, Window(points=int(token))), name.place)

    def _call(self, children: list[Any]) -> _Part:
        name = str(children[0])
        place = children[0].start_pos
        if name not in FUNCTIONS:
            near = difflib.get_close_matches(name.lower(), FUNCTIONS, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(FUNCTIONS))}"
            self.fail(place, f"there is no function {name!r}", hint)
        function = FUNCTIONS[name]
        given = [child for child in children if isinstance(child, _Part)]
        least = 0 if function.takes == "nothing" else 1
        most = least + (function.parameter is not None)
        if not least <= len(given) <= most:
            self.fail(place, f"{name} takes {_takes(function)}, not {len(given)} arguments", f"as in {_example(name)}")
        return _Part(self._called(name, function, given), place)

    def _called(self, name: str, function: Function, given: list[_Part]) -> Call:
        if function.takes == "nothing":
            return Call(name)
        if function.takes == "expression":
            return Call(name, operand=self._as_number(given[0]).node)
        if function.takes == "duration":
            node = given[0].node
            if not isinstance(node, Number) or node.value <= 0:
                self.fail(given[0].place, f"{name} takes a duration", f"as in {_example(name)}")
            return Call(name, parameter=node.value)
        series = given[0].node
        window = series.window if isinstance(series, _Series) else None
        metric = series.metric if isinstance(series, _Series) else series
        if not isinstance(metric, Metric):
            self.fail(given[0].place, f"{name} takes {_takes(function)}, not {metric}", f"as in {_example(name)}")
        if function.takes == "metric":
            if window is not None:
                self.fail(given[0].place, f"{name} takes no window", f"write {name}({metric})")
            return Call(name, metric)
        parameter = self._parameter(name, given[1]) if len(given) > 1 else None
        return Call(name, metric, self._window(name, function, window, parameter, given[0]), parameter=parameter)

    def _window(
        self, name: str, function: Function, window: Window | None, parameter: float | None, part: _Part
    ) -> Window:
        if name == "ema":
            if (window is None) == (parameter is None):
                self.fail(
                    part.place,
                    "ema takes a window, or the weight of the newest value",
                    "as in ema(loss[50]) or ema(loss, 0.1)",
                )
            if window is not None and window.points is None:
                self.fail(part.place, "the window of ema is a number of points", "as in ema(loss[50])")
            return window or Window()
        if window is None and function.window == "required":
            self.fail(part.place, f"{name} needs a window", f"as in {name}({name_text(part.node.name)}[50])")
        if window is None:
            return Window(points=function.window) if isinstance(function.window, int) else Window()
        if window.points is not None and window.points < function.least:
            self.fail(part.place, f"{name} needs a window of {function.least} points or more")
        return window

    def _parameter(self, name: str, part: _Part) -> float:
        node = part.node
        if name == "ema" and not (isinstance(node, Number) and 0 < node.value <= 1):
            self.fail(part.place, "the weight of the newest value in ema is a number over 0, and 1 at most")
        if not isinstance(node, Number) or node.value < 0:
            self.fail(part.place, f"the second argument of {name} is a number, 0 or more")
        return float(node.value)


def _takes(function: Function) -> str:
    words = {
        "expression": "a number",
        "series": "a metric and a window",
        "metric": "the name of a metric",
        "duration": "a duration",
        "nothing": "nothing",
    }[function.takes]
    return words if function.parameter is None else f"{words}, then {function.parameter}"


def _example(name: str) -> str:
    function = FUNCTIONS[name]
    inside = {"expression": "loss", "series": "loss[50]", "metric": "loss", "duration": "60s", "nothing": ""}[
        function.takes
    ]
    return f"{name}({inside})" if inside else name
