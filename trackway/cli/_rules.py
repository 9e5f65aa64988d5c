"""`trackway rules`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from trackway.cli._options import as_json, dir_option, examples, find
from trackway.cli._output import date, flat, print_json, say, table
from trackway.store._safe_text import safe

__all__ = ["command"]

_MAX_SHOWN = 50
_MAX_NAMES = 20


@click.group(
    "rules",
    epilog=examples(
        "trackway rules explain 'zscore(train/loss[50]) > 4 for 3 => error: loss spike'",
        "trackway rules test 'train/loss > 5' 'isnan(train/loss)' --run digits-3",
    ),
)
def command() -> None:
    """Explain alert rules, and try them on runs.

    A rule is a text such as 'mean(train/loss[50]) > 3 for 10m => error: loss is high', in quotes for the shell.
    """


@command.command()
@click.argument("rules", nargs=-1, required=True, metavar="RULE...")
@as_json
def explain(*, rules: tuple[str, ...], as_json: bool) -> None:
    """Say what each RULE reads, and when it fires."""
    from trackway.alerts import parse_rule
    from trackway.alerts._explain import explain as explained

    parsed = [(text, explained(parse_rule(text))) for text in rules]
    if as_json:
        print_json([{"rule": text, **topics} for text, topics in parsed])
        return
    for number, (text, topics) in enumerate(parsed):
        if number:
            click.echo("")
        click.echo(click.style(safe(text, 1000), bold=True))
        for name, value in _topics(topics):
            click.echo(f"  {name:<9} {safe(value, 1000)}")


def _topics(topics: dict[str, Any]) -> list[tuple[str, str]]:
    values = [("where" if number == 0 else "", text) for number, text in enumerate(topics["values"])]
    return [
        ("reads", ", ".join(topics["metrics"]) or "no metric"),
        ("holds", f"when {topics['meaning']}"),
        *values,
        ("looks", topics["looks"]),
        ("fires", topics["fires"]),
        ("alert", f"{topics['level']}: {topics['title']}"),
        ("channels", topics["channels"]),
    ]


@command.command()
@click.argument("rules", nargs=-1, required=True, metavar="RULE...")
@click.option("--run", "text", required=True, metavar="RUN", help="The run whose rows are gone through.")
@dir_option
@click.option("--limit", "-n", type=click.IntRange(1), default=_MAX_SHOWN, show_default=True, help="Show this many.")
@as_json
def test(*, rules: tuple[str, ...], text: str, folder: str | None, limit: int, as_json: bool) -> None:
    """Go through the rows of a run, and show where each RULE would have fired.

    --json prints all of it. The exit code is 0 whether or not a rule fires.
    """
    from trackway.alerts import parse_rule, replay_rules

    parsed = [parse_rule(rule) for rule in rules]  # before the run is read: a mistake is said at once
    run = find(text, folder)
    rows = _committed(run)
    alerts = list(replay_rules(parsed, rows))
    if as_json:
        print_json([_entry(alert) for alert in alerts])
        return
    if alerts:
        table(("step", "time", "state", "level", "rule", "values"), [_line(alert) for alert in alerts[:limit]], keep=5)
    if len(alerts) > limit:
        say(f"{len(alerts) - limit} more alerts; show them with --limit, or --json")
    _say_silent(parsed, alerts, rows)


def _committed(run: Any) -> list[dict[str, Any]]:
    """Return the rows of *run* as the rules of a live run see them: each for itself, in the order of commits.

    A history puts the rows of one step together. What a later attempt took the place of is left out here, too.
    """
    from trackway.store._history import open_rows
    from trackway.store._stored_rows import attempts_in, is_superseded, lines_of, rows_of

    with open_rows(run._rows) as source:  # noqa: SLF001 - below the level of histories
        begun = attempts_in(source)
        rows = [(place, row) for place, _, row in rows_of(source)]
        lines = sum(1 for _ in lines_of(source))
    if lines > len(rows):
        say(f"{lines - len(rows)} lines of rows are damaged and left out")
    return [row for place, row in rows if not is_superseded(place, begun)]


def _entry(alert: Any) -> dict[str, Any]:
    return {
        "rule": alert.rule.when,
        "name": alert.name,
        "title": alert.title,
        "level": alert.level,
        "state": alert.state,
        "step": alert.step,
        "time": alert.time,
        "values": dict(alert.values),
    }


def _line(alert: Any) -> tuple[Any, ...]:
    values = ", ".join(f"{name} = {_shown(value)}" for name, value in alert.values.items())
    return (alert.step, date(alert.time), alert.state, alert.level, alert.name, values)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "unknown" if value is None else str(value).lower()


def _say_silent(rules: list[Any], alerts: list[Any], rows: list[Any]) -> None:
    """Say which rules did not fire in any of the *rows*, and what of them is not there."""
    import difflib

    from trackway.alerts._explain import explain as explained

    fired = Counter(alert.rule for alert in alerts)
    for rule in rules:
        if not fired[rule]:
            say(f"{rule.when}: does not fire in {len(rows)} rows")
    known = {name for row in rows for name in flat(row) if not name.startswith("_")}
    for name in dict.fromkeys(name for rule in rules for name in explained(rule)["metrics"]):
        if name not in known and name.replace(".", "/") not in known:
            near = difflib.get_close_matches(name, known, 3)
            names = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(known)[:_MAX_NAMES])}"
            say(f"the run has no metric {name!r}; {names}", limit=1000)
