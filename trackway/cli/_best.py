"""`trackway best`."""

from __future__ import annotations

import re
from typing import Any

import click

from trackway.cli._columns import columns_of_config, metrics_in
from trackway.cli._options import (
    Condition,
    as_json,
    condition_option,
    each,
    examples,
    fetched,
    folder_argument,
    matching,
    names_in,
    no_runs,
    the_folder,
)
from trackway.cli._output import flat, print_json, say, table
from trackway.store._best import MODES, best_row, best_step

__all__ = ["command"]

_DEFAULT = "max for names such as accuracy or reward, else min"
_MORE_IS_BETTER = frozenset(
    {"acc", "accuracy", "auc", "auroc", "bleu", "dice", "f1", "iou", "map", "precision", "psnr", "r2", "recall"}
    | {"return", "reward", "rouge", "score", "ssim", "win"}
)
_LESS_IS_BETTER = frozenset({"loss", "error", "err"})


@click.command(
    epilog=examples(
        "trackway best --metric val/loss", "trackway best --metric test/accuracy --mode max --show val/loss -n 3"
    )
)
@folder_argument
@click.option("--metric", "-m", metavar="NAME", help="The metric that decides.  [required]")
@click.option("--mode", type=click.Choice(MODES), help=f"Which of its values is best.  [default: {_DEFAULT}]")
@names_in("--show", "-s", text="Metrics to show at the step at which it was best.")
@names_in("--config", "-c", text="Values of the configuration to show.  [default: up to three that differ]")
@condition_option
@click.option("--limit", "-n", type=click.IntRange(1), help="Show this many runs at most.")
@as_json
def command(
    *,
    folder: str | None,
    option: str | None,
    metric: str | None,
    mode: str | None,
    show: tuple[str, ...],
    config: tuple[str, ...],
    where: tuple[Condition, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """Rank the runs in DIR by their best value of a metric, and show others at the step where that was.

    NaN and infinities are never best; of several best steps of a run the first counts. DIR is a folder or a URL;
    $TRACKWAY_DIR, or "runs", by default.
    """
    folder = the_folder(folder, option)
    found = matching(fetched(folder), where)
    if metric is None:
        raise click.UsageError(f"Missing option '--metric'{_metrics_of(found)}")
    mode = mode or _usual_mode(metric)
    config = columns_of_config(config, found)
    candidates = each(lambda run: _candidate(run, metric, mode, show, config), found)
    ranked = sorted((line for line in candidates if line is not None), key=lambda line: line["order"])
    if not ranked:
        if not found:
            raise click.ClickException(no_runs(folder, fitting=bool(where)))
        raise click.ClickException(f"no run has a finite value of {metric!r}{_metrics_of(found)}")
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


def _metrics_of(found: list[Any]) -> str:
    """Say which metrics there are."""
    names = metrics_in(found)
    return f"; there are {', '.join(names[:20])}" if names else ""


def _usual_mode(metric: str) -> str:
    """Return the mode that suits the name of *metric*, and say so where it is not the first one."""
    words = re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", metric).lower())
    if _MORE_IS_BETTER.isdisjoint(words) or not _LESS_IS_BETTER.isdisjoint(words):
        return MODES[0]
    say(f"the greatest value of {metric} counts as the best one; --mode min takes the least")
    return MODES[1]


def _candidate(
    run: Any, metric: str, mode: str, show: tuple[str, ...], config: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return the line of *run*; None where it has no finite value of the metric, or its rows cannot be read."""
    try:
        step = best_step(run, metric, mode)
        row = best_row(run, step) if step is not None else {}
    except OSError as error:
        say(f"warning: {run.place}: its rows cannot be read: {error.strerror or error}")
        return None
    if step is None or metric not in row:
        return None
    settings = flat(run.config) if config else {}
    return {
        "id": run.id,
        "path": run.place,
        "state": run.state,
        "step": step,
        "value": row[metric],
        "show": {name: row.get(name) for name in show},
        "config": {name: settings.get(name, settings.get(name.replace(".", "/"))) for name in config},
        "order": row[metric] if mode == "min" else -row[metric],
    }
