"""Plots made of characters."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from trackway.cli._output import in_colour, needed
from trackway.cli._series import Curve, Panel
from trackway.store._safe_text import safe

__all__ = ["draw", "ticks"]

_COLOURS = ("blue", "orange", "green", "red", "magenta", "cyan", "gray")
_ECHO = ("blue", "yellow", "green", "red", "magenta", "cyan", "white")
_MARKS = "•x+o#@%"
_ASCII_MARKS = ".x+o#@%"
_FRAME = str.maketrans("┌┐└┘─│┤┬├┴┼", "++++-|+++++")


def draw(panel: Panel, width: int, height: int, *, log: bool, axis: str) -> None:
    """Print the plot of *panel*.

    Curves are told apart by colour; without colours, or in a terminal that has ASCII only, by the characters that
    they are made of.

    Args:
        panel: What to plot.
        width: Columns.
        height: Lines.
        log: Whether the y axis is logarithmic.
        axis: Name of the x axis.
    """
    plotext = needed("plotext", "a plot in the terminal")
    figure = plotext.figure
    colour, ascii_only = in_colour(), _is_ascii_only()
    plotext.terminal.limit(width=False, height=False)  # a plot may be asked for that is larger than the terminal
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    alone = len(panel.curves) == 1
    for number, curve in enumerate(panel.curves):
        mark = "braille" if (alone or colour) and not ascii_only else _marks()[number % len(_MARKS)]
        _add(plotext, curve, mark, _COLOURS[number % len(_COLOURS)] if colour else None, log=log)
    _scale(figure, panel, width, height, log=log)
    figure.label(axis, "x")
    figure.legend(active=False)
    text = str(figure.build().string(colorless=not colour))
    click.echo(_head(panel, alone=alone, colour=colour))
    click.echo("\n".join(line.rstrip() for line in (text.translate(_FRAME) if ascii_only else text).splitlines()))


def _is_ascii_only() -> bool:
    try:
        "•⠿".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def _marks() -> str:
    return _ASCII_MARKS if _is_ascii_only() else _MARKS


def _add(plotext: Any, curve: Curve, mark: str, colour: str | None, *, log: bool) -> None:
    figure = plotext.figure
    ys = [math.log10(value) for value in curve.ys.tolist()] if log else curve.ys.tolist()
    signal = figure.signal(curve.xs.tolist(), ys, marker=plotext.marker(mark, colour) if colour else mark)
    figure.draw(signal.lines() if len(ys) > 1 else signal)


def _scale(figure: Any, panel: Panel, width: int, height: int, *, log: bool) -> None:
    """Set ticks at round numbers; the figure is in powers of ten where *log*."""
    low = min(float(curve.ys.min()) for curve in panel.curves)
    high = max(float(curve.ys.max()) for curve in panel.curves)
    first = min(float(curve.xs.min()) for curve in panel.curves)
    last = max(float(curve.xs.max()) for curve in panel.curves)
    if log:
        low, high = math.log10(low), math.log10(high)
    for axis, begin, end, count in (("y", low, high, height // 3), ("x", first, last, width // 12)):
        spots = ticks(begin, end, max(2, count))
        powers = log and axis == "y"
        figure.ruler(axis).ticks(spots, [f"{10**spot:.3g}" if powers else f"{spot:.10g}" for spot in spots])
        if end > begin:
            figure.ruler(axis).lim(begin, end)  # else the ticks are the limits, too


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about *count* round numbers from *low* to *high*; a single one where these are equal."""
    if not high > low or not math.isfinite(high - low):
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if last - first > 10 * count:  # rounding has eaten the differences
        return [low, high]
    digits = max(0, 2 - math.floor(math.log10(step)))  # 0.1 * 3 is to be 0.3
    return [round(number * step, digits) for number in range(first, last + 1)] or [low]


def _head(panel: Panel, *, alone: bool, colour: bool) -> str:
    if alone:
        return f"{safe(panel.metric)}  {panel.curves[0].label}"
    parts = []
    for number, curve in enumerate(panel.curves):
        mark = "━" if colour and not _is_ascii_only() else _marks()[number % len(_MARKS)]
        part = f"{mark} {curve.label}"
        parts.append(click.style(part, fg=_ECHO[number % len(_ECHO)]) if colour else part)
    return f"{safe(panel.metric)}  {'  '.join(parts)}"
