"""From the text of a rule to its condition, and what is said where the text is wrong."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple, NoReturn, final

from trackway.alerts._nodes import Call, Metric, Node, Window, parts
from trackway.errors import AlertSyntaxError, ConfigError

__all__ = ["Condition", "fail", "parse_condition", "parse_rule_text", "seconds_of"]

_GRAMMAR = r"""
start: expression [FOR (NUMBER | DURATION)]
?expression: conjunction | expression OR conjunction -> binary
?conjunction: negation | conjunction AND negation -> binary
?negation: comparison | NOT negation -> unary
?comparison: sum | sum (COMPARE sum)+ -> chain
?sum: product | sum (PLUS | MINUS) product -> binary
?product: signed | product (TIMES | DIVIDE) signed -> binary
?signed: atom | (PLUS | MINUS) signed -> unary
?atom: (NUMBER | DURATION) -> number
     | name -> metric
     | name OPEN (NUMBER | DURATION) CLOSE -> series
     | NAME LEFT [expression (COMMA expression)*] RIGHT -> call
     | LEFT expression RIGHT -> bracketed
name: NAME | QUOTED

FOR: "for"
OR: "or"
AND: "and"
NOT: "not"
COMPARE: "<=" | ">=" | "==" | "!=" | "<" | ">"
PLUS: "+"
MINUS: "-"
TIMES: "*"
DIVIDE: "/"
LEFT: "("
RIGHT: ")"
OPEN: "["
CLOSE: "]"
COMMA: ","
DURATION.2: /(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+(?!\w)/
NUMBER.1: /(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?/
NAME: /[^\W\d]\w*(?:[\/.]\w+)*/
QUOTED: /`(?:[^`]|``)+`/
%ignore /\s+/
"""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WORDS = {
    "NAME": "a metric",
    "NUMBER": "a number",
    "LEFT": "'('",
    "RIGHT": "')'",
    "OPEN": "a window such as [50]",
    "CLOSE": "']'",
    "COMMA": "','",
    "COMPARE": "a comparison such as >",
    "PLUS": "'+'",
    "MINUS": "'-'",
    "TIMES": "'*'",
    "DIVIDE": "'/'",
    "AND": "'and'",
    "OR": "'or'",
    "NOT": "'not'",
    "FOR": "'for'",
    "DURATION": "a duration such as 10m",
    "$END": "the end",
}
_HINTS = {
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "=": "did you mean ==?",
    "%": "write pct_change(...) for a change in percent",
    "^": "powers are not part of the language",
    "'": "a metric's name stands in backticks, if anything",
    '"': "a metric's name stands in backticks, if anything",
    "{": "a window stands in [ ]",
}
_ARITHMETIC = frozenset({"'+'", "'-'", "'*'", "'/'"})
_ARROW = re.compile(r"`(?:[^`]|``)*`|(=>)")
_BLANKS = re.compile(r"`(?:[^`]|``)*`|\s+")
_LEVELS = ("info", "warning", "error")
_MAX_TEXT = 2000
_MAX_SHOWN = 110


@final
class Condition(NamedTuple):
    """A condition that was understood."""

    root: Node

    @property
    def timed(self) -> bool:
        """Whether it may begin to hold between rows."""
        return any(isinstance(part, Call) and part.function in {"no_data", "age", "elapsed"} for part in self.parts)

    @property
    def reads_all(self) -> bool:
        """Whether its value depends on all rows since the first, not on the newest alone."""
        calls = [part for part in self.parts if isinstance(part, Call)]
        return any(call.function in {"elapsed", "has", "ema"} or call.window == Window() for call in calls)

    @property
    def parts(self) -> list[Metric | Call]:
        """What it reads."""
        return parts(self.root)

    @property
    def triggers(self) -> list[tuple[Metric, bool]]:
        """The metrics at whose points it is looked at, and whether at finite ones alone; none: at every row."""
        found: dict[Metric, bool] = {}
        for part in self.parts:
            if isinstance(part, Metric):
                found[part] = False
            elif part.metric is not None and part.function not in {"has", "age", "count"}:
                found.setdefault(part.metric, True)
        return list(found.items())


def parse_condition(text: str) -> Condition:
    """Return the condition that *text* describes.

    Raises:
        AlertSyntaxError: if it cannot be read.
        ConfigError: if lark is not installed.
    """
    condition, span = _parsed(text)
    if span is not None:
        fail(text, text.rindex("for"), "a condition ends here; 'for' is a field of its own, for_points or for_seconds")
    return condition


def parse_rule_text(text: str) -> dict[str, Any]:
    """Return the fields of `AlertRule` that *text* gives: `CONDITION [for N | for DURATION] [=> LEVEL[: MESSAGE]]`."""
    arrow = next((found.start(1) for found in _ARROW.finditer(text) if found[1]), None)
    head = text if arrow is None else text[:arrow]
    action = {} if arrow is None else _action(text, arrow)
    fields: dict[str, Any] = {}
    _, span = _parsed(head, text)
    if span is not None:
        place = head.rindex("for")
        head, fields = head[:place], dict([span])
    fields["when"] = _BLANKS.sub(lambda found: found[0] if found[0][0] == "`" else " ", head).strip()
    return fields | action


def _action(text: str, arrow: int) -> dict[str, str]:
    """Return what stands behind the arrow."""
    level, colon, message = text[arrow + 2 :].partition(":")
    word = level.strip()
    place = arrow + 2 + len(level) - len(level.lstrip())
    if word not in _LEVELS:
        import difflib

        near = difflib.get_close_matches(word.lower(), _LEVELS, 1)
        hint = f"did you mean {near[0]}?" if near else "the comparison is >="
        fail(text, place, "after => comes a level: info, warning or error, then a colon and a message", hint)
    if colon and not message.strip():
        fail(text, len(text), "after the colon comes a message")
    return {"level": word} | ({"message": " ".join(message.split())} if colon else {})


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration such as "90s", "1h30m" or "45"; None if it is none."""
    if re.fullmatch(r"\s*(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+\s*", text):
        found = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
        return sum(float(number) * _UNITS[unit] for number, unit in found)
    return float(text) if re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", text) else None


def fail(text: str, place: int, problem: str, hint: str = "") -> NoReturn:
    """Raise the error that points at the character *place* of *text*."""
    shown, caret = "".join(char if char.isprintable() else " " for char in text), min(place, len(text))
    if len(shown) > _MAX_SHOWN:
        begin = max(0, min(caret - 60, len(shown) - 100))
        shown, caret = f"...{shown[begin : begin + 100]}...", caret - begin + 3
    raise AlertSyntaxError(
        f"alert rule, column {min(place, len(text)) + 1}: {problem}{f'; {hint}' if hint else ''}\n"
        f"  {shown}\n  {' ' * caret}^"
    )


@functools.lru_cache(maxsize=1024)
def _parsed(text: str, whole: str | None = None) -> tuple[Condition, tuple[str, float] | None]:
    """Return the condition of *text*, and what `for` gives, as the name of a field and its value."""
    whole = text if whole is None else whole
    if len(text) > _MAX_TEXT:
        fail(whole, _MAX_TEXT, f"a condition has {_MAX_TEXT} characters at most")
    if not text.strip():
        fail(whole, 0, "a condition is missing, such as loss > 5")
    from trackway.alerts._build import build

    return build(_parser(), text, whole)


@functools.cache
def _parser() -> Any:
    try:
        import lark
    except ImportError as error:
        raise ConfigError(
            'alert rules need the package lark, which is not installed: pip install "trackway[alerts]"'
        ) from error
    return lark.Lark(_GRAMMAR, parser="lalr", maybe_placeholders=False)


def expected_words(terminals: set[str]) -> str:
    """Return what may stand somewhere, as text."""
    words = [word for terminal, word in _WORDS.items() if terminal in terminals]
    if "FOR" in terminals and "AND" in terminals:  # a condition is complete: what may follow, most useful first
        words = [word for word in words if word not in _ARITHMETIC]
    return ", ".join(words[:-1]) + (" or " if len(words) > 1 else "") + words[-1] if words else "nothing"


def hint_for(rest: str) -> str:
    """Return what may help where *rest* begins with a character that is not part of the language."""
    if rest.startswith("=>"):
        return "what is to happen stands in fields of its own, such as level; the comparison is >="
    return _HINTS.get(rest[:1], "")
