"""Plots as files, without any display."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

from trackway.cli._output import named, needed
from trackway.cli._series import Panel
from trackway.store._safe_text import safe

__all__ = ["save"]

_COLUMNS = 3
_WIDE, _TALL = 4.8, 3.2  # inches of one plot
_SETTINGS = {"text.usetex": False, "svg.hashsalt": "trackway", "axes.unicode_minus": False}


def save(panels: list[Panel], path: Path, *, log: bool, axis: str) -> None:
    """Draw *panels* side by side into the file *path*, whose ending says the format; it is there once it is complete.

    Args:
        panels: What to plot, at least one.
        path: The file.
        log: Whether the y axes are logarithmic.
        axis: Name of the x axis.
    """
    matplotlib = needed("matplotlib", "a picture")
    figures = needed("matplotlib.figure", "a picture")
    columns = min(_COLUMNS, math.ceil(math.sqrt(len(panels))))
    lines = math.ceil(len(panels) / columns)
    with matplotlib.rc_context(_SETTINGS):
        figure = figures.Figure(figsize=(_WIDE * columns, _TALL * lines + 0.3), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False).flatten()
        for place, panel in zip(grid, panels, strict=False):
            _draw(place, panel, log=log, axis=axis)
        for place in grid[len(panels) :]:
            place.set_axis_off()
        _legend(figure, panels)
        with named(path):
            _write(figure, path)


def _draw(place: Any, panel: Panel, *, log: bool, axis: str) -> None:
    for curve in panel.curves:
        marker = "o" if len(curve.xs) == 1 else None
        place.plot(
            curve.xs,
            curve.ys,
            label=_label(curve.label),
            marker=marker,
            linewidth=1.4,
            color=_colour(panel, curve.label),
        )
    place.set_title(safe(panel.metric, 60), fontsize=10, parse_math=False)
    place.set_xlabel(axis, fontsize=9)
    place.tick_params(labelsize=8)
    place.grid(visible=True, alpha=0.3)
    if log:
        place.set_yscale("log")


def _label(label: str) -> str:
    """A label that begins with an underscore would be left out of the legend."""
    return f" {label}" if label[:1] == "_" else label


def _colour(panel: Panel, label: str) -> str:
    return f"C{[curve.label for curve in panel.curves].index(label) % 10}"


def _legend(figure: Any, panels: list[Panel]) -> None:
    """One legend for all: that of the plot with the most runs."""
    fullest = max(range(len(panels)), key=lambda at: len(panels[at].curves))
    handles, labels = figure.axes[fullest].get_legend_handles_labels()
    columns = min(4, len(labels))
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # an id may have dollars in it


def _write(figure: Any, path: Path) -> None:
    form = path.suffix[1:].lower()
    fixed = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(fd, "wb") as file:
            figure.savefig(file, format=form, dpi=110, metadata=fixed)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
