"""`trackway show`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import click

from trackway.cli._options import as_json, dir_option, examples, find, run_argument
from trackway.cli._output import date, duration, flat, in_colour, print_json
from trackway.store._safe_text import safe, shown

__all__ = ["command"]

_LONG = 300
_MAX_ROWS = 200
_KIB = 1024


@click.command(epilog=examples("trackway show digits-3", "trackway show s3://bucket/runs/digits-3"))
@run_argument()
@dir_option
@as_json
def command(*, text: str, folder: str | None, as_json: bool) -> None:
    """Show all that is known of RUN: state, attempts, configuration, summary, artifacts."""
    run = find(text, folder)
    if as_json:
        print_json(_described(run))
        return
    for title, pairs in _parts(run):
        if title:
            click.echo("")
            click.echo(click.style(title, bold=True) if in_colour() else title)
        _print(pairs, indent="  " if title else "")


def _described(run: Any) -> dict[str, Any]:
    return {
        "id": run.id,
        "path": run.place,
        "state": run.state,
        "error": run.error,
        "step": run.last_step,
        "heartbeat": run.heartbeat,
        "attempts": run.attempts,
        "artifacts": run.artifacts,
        "config": run.config,
        "summary": run.summary,
    }


def _parts(run: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    yield "", list(_head(run))
    if len(run.attempts) > 1:
        yield "attempts", [_attempt(entry, last=entry is run.attempts[-1]) for entry in run.attempts]
    for title, values in (("config", flat(run.config)), ("summary", flat(run.summary))):
        if values:
            yield title, [(name, shown(value, _LONG)) for name, value in values.items()]
    if run.artifacts:
        yield "artifacts", [_artifact(entry) for entry in run.artifacts]


def _head(run: Any) -> Iterator[tuple[str, str]]:
    last = run.attempts[-1] if run.attempts else {}
    first = run.attempts[0] if run.attempts else {}
    yield "run", run.id
    yield "path", run.place
    yield "state", run.state
    if run.error:
        yield "error", ": ".join(str(run.error[key]) for key in ("type", "message") if key in run.error)
    yield "last step", "-" if run.last_step is None else str(run.last_step)
    if first:
        end = last.get("end") if run.state != "running" else None
        yield "started", date(first.get("start"))
        yield "took", duration(first.get("start"), run.heartbeat if end is None else end)
        yield "host", str(last.get("host", ""))
        yield "command", _command(last.get("command"))
        yield "git", str(last.get("git") or "")


def _command(words: Any) -> str:
    return shlex.join(str(word) for word in words) if isinstance(words, list) else ""


def _attempt(entry: dict[str, Any], *, last: bool) -> tuple[str, str]:
    state, first = str(entry.get("state", "")), entry.get("first_step")
    said = [
        "crashed" if state == "running" and not last else state,
        "without a row" if first is None else f"from step {first}",
        f"{date(entry.get('start'))}",
        duration(entry.get("start"), entry.get("end")),
        f"on {entry.get('host')}",
    ]
    return str(entry.get("number", "")), ", ".join(part for part in said if part)


def _artifact(entry: dict[str, Any]) -> tuple[str, str]:
    said = [str(entry.get("type") or ""), _size(entry.get("size")), str(entry.get("path") or "")]
    return str(entry.get("name", "")), "  ".join(part for part in said if part)


def _size(size: Any) -> str:
    if isinstance(size, bool) or not isinstance(size, int):
        return ""
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < _KIB:
            return f"{amount:.3g} {unit}" if unit != "B" else f"{size} B"
        amount /= _KIB
    return f"{amount:.3g} GiB" if amount < _KIB else f"{amount / _KIB:.4g} TiB"


def _print(pairs: list[tuple[str, str]], *, indent: str) -> None:
    lines = [(safe(name, 60), safe(text, _LONG)) for name, text in pairs[:_MAX_ROWS] if text]
    wide = max((len(name) for name, _ in lines), default=0)
    for name, text in lines:
        click.echo(f"{indent}{name:{wide}}  {text}")
    if len(pairs) > _MAX_ROWS:
        click.echo(f"{indent}... {len(pairs) - _MAX_ROWS} more; --json has them all")
