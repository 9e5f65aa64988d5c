"""`trackway best`."""

from __future__ import annotations

from typing import Any

import click

from trackway.cli._options import Condition, as_json, condition_option, matching, names_in
from trackway.cli._output import flat, print_json, say, table
from trackway.store._best import MODES, best_row, best_step
from trackway.store._runs import folder_of_runs, runs

__all__ = ["command"]


@click.command()
@click.argument("folder", required=False, metavar="[DIR]")
@click.option("--metric", required=True, metavar="NAME", help="The metric that decides.")
@click.option("--mode", type=click.Choice(MODES), default="min", show_default=True, help="Which of its values is best.")
@names_in("--show", "-s", text="Metrics to show at the step at which it was best.")
@names_in("--config", "-c", text="Values of the configuration to show.")
@condition_option
@click.option("--limit", "-n", type=click.IntRange(1), help="Show this many runs at most.")
@as_json
def command(
    *,
    folder: str | None,
    metric: str,
    mode: str,
    show: tuple[str, ...],
    config: tuple[str, ...],
    where: tuple[Condition, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """Rank the runs in DIR by their best value of a metric, and show others at the step where that was.

    NaN and infinities are never best; of several best steps of a run the first counts.
    """
    found = matching(runs(folder), where)
    ranked = sorted(_candidates(found, metric, mode, show, config), key=lambda line: line["order"])
    if not ranked:
        names = sorted({name for run in found for name in flat(run.summary)})
        hint = f"; there are {', '.join(names[:20])}" if names else ""
        raise click.ClickException(f"no run in {folder_of_runs(folder)} has a finite value of {metric!r}{hint}")
    lines = ranked[:limit]
    if as_json:
        print_json([{key: value for key, value in line.items() if key != "order"} for line in lines])
        return
    headers = ("run", "state", metric, "step", *show, *config)
    cells = [
        (line["id"], line["state"], line["value"], line["step"], *line["show"].values(), *line["config"].values())
        for line in lines
    ]
    table(headers, cells, keep=4, hint="--show and --config")
    for name in show:
        if all(line["show"][name] is None for line in lines):
            say(f"{name} was not logged at these steps")
    if len(ranked) < len(found):
        say(f"{len(found) - len(ranked)} runs have no finite value of {metric}")


def _candidates(found: list[Any], metric: str, mode: str, show: tuple[str, ...], config: tuple[str, ...]) -> list[Any]:
    lines = []
    for run in found:
        try:
            step = best_step(run, metric, mode)
            row = best_row(run, step) if step is not None else {}
        except OSError as error:
            say(f"warning: {run.path.name}: its rows cannot be read: {error.strerror or error}")
            continue
        if step is None or metric not in row:
            continue
        settings = flat(run.config) if config else {}
        lines.append(
            {
                "id": run.id,
                "path": str(run.path),
                "state": run.state,
                "step": step,
                "value": row[metric],
                "show": {name: row.get(name) for name in show},
                "config": {name: settings.get(name, settings.get(name.replace(".", "/"))) for name in config},
                "order": row[metric] if mode == "min" else -row[metric],
            }
        )
    return lines
