"""What an alert says to a person."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trackway.alerts._rule import Alert
from trackway.values import redacted_text

__all__ = ["completed", "on_one_line", "safe"]

_TITLE, _TEXT, _LINE = 200, 2000, 1000


def safe(value: Any, limit: int = _LINE, keep: str = "") -> str:
    r"""Return *value* as a text of *limit* characters at most, whose control characters are escapes such as `\x1b`.

    What comes from metrics may be anything; a terminal or a chat is to show it, not to obey it. Characters of *keep*
    stay.
    """
    text = redacted_text(str(value))
    text = text if len(text) <= limit else f"{text[: limit - 1]}…"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text)


def completed(alert: Alert, run_id: str, held_back: int = 0) -> Alert:
    """Return *alert* as it is told: harmless to show, and with the run, and with what was not told, in its text."""
    lines = [alert.text] if alert.text else []
    if run_id:
        lines.append(f"run: {run_id}")
    if held_back:
        lines.append(f"earlier alerts of this rule, held back by the rate limit: {held_back}")
    return replace(alert, title=safe(alert.title, _TITLE), text=safe("\n".join(lines), _TEXT, keep="\n"))


def on_one_line(alert: Alert) -> str:
    """Return title and text in one line; a title with which the text begins, as conditions are, once."""
    text = "; ".join(alert.text.splitlines())
    return text if text.startswith(alert.title) else f"{alert.title}: {text}" if text else alert.title
