"""`trackway plot`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from trackway.cli._columns import metrics_in
from trackway.cli._options import as_json, dir_option, examples, find, metrics_option, run_argument
from trackway.cli._output import print_json, say
from trackway.cli._series import Panel, panels_of
from trackway.store._safe_text import safe

__all__ = ["command"]

_MAX_PANELS = 12
_SUFFIXES = (".png", ".svg", ".pdf")


def _weight(_ctx: click.Context, _parameter: click.Parameter, value: float) -> float:
    if not 0 <= value < 1:
        raise click.BadParameter(f"{value:g} is not from 0 (as logged) to below 1 (very smooth)")
    return value


@click.command(
    epilog=examples(
        "trackway plot digits-3 digits-2 --metrics val/loss",
        "trackway plot runs/digits-* --metrics '*loss' --log -o losses.png",
    )
)
@run_argument(several=True)
@dir_option
@metrics_option("Metrics to plot; globs are allowed, such as 'train/*'.  [default: all numbers]")
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="Write a .png, .svg or .pdf file.")
@click.option("--smooth", type=float, default=0.0, callback=_weight, help="Weight of a moving average, such as 0.6.")
@click.option("--log", is_flag=True, help="Values on a logarithmic axis.")
@click.option("--x", "axis", type=click.Choice(("step", "time")), default="step", show_default=True, help="The x axis.")
@click.option("--width", type=click.IntRange(30, 400), help="Columns of a plot in the terminal.")
@click.option("--height", type=click.IntRange(8, 200), default=16, show_default=True, help="Lines of each plot.")
@as_json
def command(
    *,
    texts: tuple[str, ...],
    folder: str | None,
    metrics: tuple[str, ...],
    output: str | None,
    smooth: float,
    log: bool,
    axis: str,
    width: int | None,
    height: int,
    as_json: bool,
) -> None:
    """Plot metrics of one or more RUNs, one plot for each metric, all runs in it.

    With -o it is a picture; otherwise it is drawn in the terminal. --json prints the points instead.
    """
    if output and Path(output).suffix.lower() not in _SUFFIXES:
        raise click.UsageError(f"{output!r}: a picture ends with {', '.join(_SUFFIXES)}; give {f'{output}.png'!r}, say")
    found = _labelled([find(text, folder) for text in texts])
    panels = panels_of(found, metrics, smooth=smooth, log=log, by_time=axis == "time")
    if not panels:
        raise click.ClickException(_nothing(found, metrics))
    if as_json:
        print_json([_described(panel) for panel in panels])
        return
    _tell(panels, log=log)
    label = "step" if axis == "step" else "seconds"
    if output:
        from trackway.cli._picture_file import save

        save(panels[:_MAX_PANELS], Path(output), log=log, axis=label)
        number = len(panels[:_MAX_PANELS])
        click.echo(
            f"{number} plots are in {safe(output, 300)}" if number > 1 else f"the plot is in {safe(output, 300)}"
        )
        return
    from trackway.cli._terminal_plot import draw

    for panel in panels[:_MAX_PANELS]:
        draw(panel, width or min(shutil.get_terminal_size().columns, 120), height, log=log, axis=label)


def _nothing(found: list[tuple[str, Any]], metrics: tuple[str, ...]) -> str:
    wanted = f" that match {', '.join(metrics)}" if metrics else ""
    names = metrics_in([run for _, run in found])
    hint = f"; there are {', '.join(names[:20])}" if names else ""
    return f"there are no numbers{wanted} in {', '.join(label for label, _ in found)}{hint}"


def _labelled(found: list[Any]) -> list[tuple[str, Any]]:
    ids = [run.id for run in found]
    return [(safe(run.id if ids.count(run.id) == 1 else run.place, 60), run) for run in found]


def _described(panel: Panel) -> dict[str, Any]:
    curves = [{"run": curve.label, "x": curve.xs.tolist(), "y": curve.ys.tolist()} for curve in panel.curves]
    return {"metric": panel.metric, "curves": curves}


def _tell(panels: list[Panel], *, log: bool) -> None:
    """Say what the plots do not show."""
    for panel in panels[:_MAX_PANELS]:
        if panel.dropped:
            why = "not finite, or not positive" if log else "not finite"
            say(f"{panel.metric}: {panel.dropped} values are {why}, and left out")
    if len(panels) > _MAX_PANELS:
        rest = ", ".join(panel.metric for panel in panels[_MAX_PANELS : _MAX_PANELS + 10])
        say(f"{len(panels) - _MAX_PANELS} more metrics are not plotted ({rest}, ...); choose with --metrics")
