"""`trackway history`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from trackway.cli._options import as_json, dir_option, examples, find, metrics_option, run_argument
from trackway.cli._output import flat, needed, table
from trackway.cli._rowfiles import columns_of, write_csv, write_json, write_parquet

__all__ = ["command", "step_range"]

FORMATS = ("table", "json", "csv", "parquet")


def step_range(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[Any, Any] | None:
    """Return the two ends of `a:b`, of which either may be left out.

    Raises:
        click.BadParameter: if it is something else.
    """
    if value is None:
        return None
    begin, colon, end = value.partition(":")
    with contextlib.suppress(ValueError):
        if colon:
            return int(begin) if begin.strip() else None, int(end) if end.strip() else None
    raise click.BadParameter(f"{value!r} is no range; give the first step and the one after the last, such as 100:200")


@click.command(
    epilog=examples("trackway history digits-3 --metrics 'val/*' -n 10", "trackway history digits-3 -n -1 -o rows.csv")
)
@run_argument()
@dir_option
@click.option("-n", "count", type=click.IntRange(-1), default=50, show_default=True, help="How many rows; -1 for all.")
@metrics_option()
@click.option("--step-range", callback=step_range, metavar="A:B", help="Steps from A on, and below B.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="[default: table, or what -o ends with]")
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="Write to this file.")
@click.option("--ranks", type=click.Choice(("primary", "all")), default="primary", help="Rows of which processes.")
@as_json
def command(
    *,
    text: str,
    folder: str | None,
    count: int,
    metrics: tuple[str, ...],
    step_range: tuple[Any, Any] | None,
    form: str | None,
    output: str | None,
    ranks: str,
    as_json: bool,
) -> None:
    """Print the rows of RUN, by default the last 50, in the order of their steps."""
    form = _form(form, output, as_json=as_json)
    run = find(text, folder)
    asked = {"step_range": step_range, "metrics": list(metrics) or None, "ranks": ranks}
    if form == "parquet":
        needed("pyarrow.parquet", "parquet", "frames")
        assert output is not None
        write_parquet(run.history(count, output="arrow", **asked), Path(output))
        return
    rows = run.history(count, **asked)
    if form == "table":
        _print(rows)
        return
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(Path(output).open("w", encoding="utf-8")) if output else sys.stdout
        if form == "csv":
            write_csv(rows, file, harmless=output is None)
        else:
            write_json(rows, file)


def _form(form: str | None, output: str | None, *, as_json: bool) -> str:
    """Return the format that the options mean."""
    if as_json and form not in {None, "json"}:
        raise click.UsageError(f"--json and --format {form} exclude one another")
    if as_json:
        return "json"
    if form is None and output:
        form = Path(output).suffix[1:]
        if form not in FORMATS[1:]:
            raise click.UsageError(
                f"{output!r} does not say which format it is to have; add --format json, csv or parquet"
            )
    if form == "parquet" and not output:
        raise click.UsageError("parquet is no text; give a file with -o")
    if form == "table" and output:
        raise click.UsageError("a table is for the terminal; give --format json, csv or parquet for a file")
    return form or "table"


def _print(rows: list[dict[str, Any]]) -> None:
    lines = [flat(row) for row in rows]
    names = [name for name in columns_of(lines) if name != "_time"]
    heads = [
        "time" if name == "_time" else name.removeprefix("_") if name in {"_step", "_attempt", "_rank"} else name
        for name in names
    ]
    cells = [[line.get(name, 1 if name == "_attempt" else None) for name in names] for line in lines]
    if lines:
        table(heads, cells)
    else:
        click.echo("no rows", err=True)
