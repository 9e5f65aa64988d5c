"""`trackway runs`."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import click

from trackway.cli._columns import columns_of_config
from trackway.cli._options import (
    Condition,
    as_json,
    condition_option,
    each,
    examples,
    fetched,
    folder_argument,
    matching,
    metrics_option,
    names_in,
    no_runs,
    the_folder,
)
from trackway.cli._output import date, duration, flat, is_number, print_json, say, table

__all__ = ["command"]

_BY_DEFAULT = 3


@click.command(
    epilog=examples("trackway runs --sort val/loss -n 5", "trackway runs --where 'lr>=0.1' --state finished")
)
@folder_argument
@metrics_option("Metrics to show; globs are allowed.  [default: the three that most runs have]")
@names_in(
    "--config",
    "-c",
    text="Values of the configuration to show, such as lr,model/width.  [default: up to three that differ]",
)
@condition_option
@click.option("--state", multiple=True, help="Only runs in this state; may be repeated.")
@click.option("--sort", default="started", metavar="NAME", help="id, state, step, started, a metric or a value shown.")
@click.option("--reverse", "-r", is_flag=True, help="Sort the other way round.")
@click.option("--limit", "-n", type=click.IntRange(0), help="Show this many runs at most.")
@as_json
def command(
    *,
    folder: str | None,
    option: str | None,
    metrics: tuple[str, ...],
    config: tuple[str, ...],
    where: tuple[Condition, ...],
    state: tuple[str, ...],
    sort: str,
    reverse: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """List the runs in DIR: state, last step, and the last values of metrics.

    DIR is a folder or a URL such as s3://bucket/runs; $TRACKWAY_DIR, or "runs", by default. Only small files and the
    end of the rows are read.
    """
    folder = the_folder(folder, option)
    found = matching([run for run in fetched(folder) if not state or run.state in state], where)
    summaries = [flat(run.summary) for run in found]
    config = columns_of_config(config, found)
    columns = _chosen(summaries, metrics, config)
    lines = each(lambda run: _line(run, columns, config), found)
    lines = _sorted(lines, sort, reverse=reverse)[:limit]
    if as_json:
        print_json([_described(line, columns, config) for line in lines])
        return
    if not lines:
        say(no_runs(folder, fitting=bool(where or state)))
        return
    rows = [
        (line["id"], line["state"], line["step"], *_cells(line, columns, config), date(line["started"]), line["took"])
        for line in lines
    ]
    table(("run", "state", "step", *config, *columns, "started", "took"), rows, keep=3)


def _cells(line: dict[str, Any], columns: list[str], config: tuple[str, ...]) -> list[Any]:
    return [*map(line["config"].get, config), *map(line["metrics"].get, columns)]


def _chosen(summaries: list[dict[str, Any]], metrics: tuple[str, ...], config: tuple[str, ...]) -> list[str]:
    """Return the names of the metrics to show; by default not those that stand there as configuration."""
    counts = Counter(name for values in summaries for name in values)
    if metrics:
        from trackway.store._query import Names

        chosen = Names(metrics)
        exact = [name for name in metrics if name in chosen.exact]
        return list(dict.fromkeys([*exact, *sorted(name for name in counts if name in chosen)]))
    numbers = Counter(name for values in summaries for name, value in values.items() if is_number(value))
    return [name for name, _ in numbers.most_common() if name not in config][:_BY_DEFAULT]


def _line(run: Any, columns: list[str], config: tuple[str, ...]) -> dict[str, Any]:
    values, settings = flat(run.summary), flat(run.config) if config else {}
    started = run.attempts[0].get("start") if run.attempts else None
    ended = run.attempts[-1].get("end") if run.attempts else None
    return {
        "id": run.id,
        "path": run.place,
        "state": run.state,
        "step": run.last_step,
        "started": started,
        "took": duration(started, run.heartbeat if ended is None else ended),
        "config": {name: settings.get(name, settings.get(name.replace(".", "/"))) for name in config},
        "metrics": {name: values.get(name) for name in columns},
        "summary": values,
    }


def _described(line: dict[str, Any], columns: list[str], config: tuple[str, ...]) -> dict[str, Any]:
    shown = {key: line[key] for key in ("id", "path", "state", "step", "started")}
    if config:
        shown["config"] = line["config"]
    return {**shown, "metrics": {name: line["metrics"][name] for name in columns}}


def _sorted(lines: list[dict[str, Any]], name: str, *, reverse: bool) -> list[dict[str, Any]]:
    """Sort by *name*; lines without a value come last in either direction.

    Raises:
        click.BadParameter: if no line has it.
    """
    keyed = [(_value(line, name), line) for line in lines]
    if lines and not any(key is not None for key, _ in keyed) and name not in {"step", "started"}:
        raise click.BadParameter(
            f"no run has {name!r}; give id, state, step, started, or a metric", param_hint="--sort"
        )
    numbers = [pair for pair in keyed if isinstance(pair[0], int | float) and not math.isnan(pair[0])]
    texts = [pair for pair in keyed if isinstance(pair[0], str)]
    rest = [line for key, line in keyed if not isinstance(key, str | int | float) or key != key]  # noqa: PLR0124 - NaN
    ordered = [
        *sorted(numbers, key=lambda p: p[0], reverse=reverse),
        *sorted(texts, key=lambda p: p[0], reverse=reverse),
    ]
    return [line for _, line in ordered] + rest


def _value(line: dict[str, Any], name: str) -> Any:
    if name in {"id", "state", "step", "started"}:
        return line[name]
    return line["config"].get(name, line["summary"].get(name))
