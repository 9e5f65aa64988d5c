"""`trackway compare`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from trackway.cli._options import as_json, dir_option, examples, find, metrics_option, run_argument
from trackway.cli._output import flat, in_colour, print_json, table, to_json

__all__ = ["command"]

_MISSING = object()


@click.command(
    epilog=examples("trackway compare digits-3 digits-2", "trackway compare runs/digits-* --metrics 'val/*'")
)
@run_argument(several=True)
@dir_option
@metrics_option("Results to compare; globs are allowed.  [default: all]")
@click.option("--all", "-a", "everything", is_flag=True, help="Show also what is the same in all runs.")
@as_json
def command(
    *, texts: tuple[str, ...], folder: str | None, metrics: tuple[str, ...], everything: bool, as_json: bool
) -> None:
    """Show in what the configurations and the results of RUNs differ, one line for each name."""
    found = [find(text, folder) for text in texts]
    if len(found) == 1:
        raise click.UsageError("compare takes two runs or more")
    names = _labels(found)
    about = [{"state": run.state, "last step": run.last_step} for run in found]
    parts = {
        "run": _differing(about, everything=True),
        "config": _differing([flat(run.config) for run in found], everything=everything),
        "results": _differing([flat(run.summary) for run in found], everything=everything, wanted=_wanted(metrics)),
    }
    if as_json:
        described = {part: [_plain(names, name, values) for name, values in lines] for part, lines in parts.items()}
        print_json({"runs": names, **described})
        return
    for part, lines in parts.items():
        if part != "run":
            click.echo("")
            click.echo(click.style(part, bold=True) if in_colour() else part)
        if lines:
            table(("", *names), [(name, *_cells(values)) for name, values in lines], keep=2, hint="fewer runs")
        else:
            click.echo("the same in all runs" if part == "config" else "no differences")


def _labels(found: list[Any]) -> list[str]:
    """Return a name for each run: its id, or its path where two have the same."""
    ids = [run.id for run in found]
    return [run.id if ids.count(run.id) == 1 else run.place for run in found]


def _wanted(metrics: tuple[str, ...]) -> Callable[[str], bool]:
    if not metrics:
        return lambda _: True
    from trackway.store._query import Names

    chosen = Names(metrics)
    return lambda name: name in chosen


def _differing(
    trees: list[dict[str, Any]], *, everything: bool, wanted: Callable[[str], bool] = lambda _: True
) -> list[tuple[str, list[Any]]]:
    names = dict.fromkeys(name for tree in trees for name in tree if wanted(name))
    lines = [(name, [tree.get(name, _MISSING) for tree in trees]) for name in names]
    return [(name, values) for name, values in lines if everything or len(set(map(_key, values))) > 1]


def _key(value: Any) -> str:
    return "" if value is _MISSING else to_json(value)


def _cells(values: list[Any]) -> list[Any]:
    return [None if value is _MISSING else "None" if value is None else value for value in values]


def _plain(names: list[str], name: str, values: list[Any]) -> dict[str, Any]:
    given = {run: value for run, value in zip(names, values, strict=True) if value is not _MISSING}
    return {"name": name, "values": given}
