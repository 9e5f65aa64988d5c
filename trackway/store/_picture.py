"""A run as a piece of HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from trackway.store._curves import Curves, curves_of
from trackway.store._safe_text import safe, shown
from trackway.store._summary import leaves

__all__ = ["picture_of"]

_MAX_NAMES = 20
_WIDTH, _HEIGHT = 160, 28
_COLOURS = {"running": "#1565c0", "finished": "#2e7d32", "failed": "#c62828", "crashed": "#c62828"}
_OTHER_COLOUR = "#ef6c00"


def picture_of(
    run_id: str, state: str, summary: Mapping[str, Any], rows: list[dict[str, Any]], *, error: str = ""
) -> str:
    """Return the run as HTML: its state, its summary, and a curve for each metric of which *rows* has two numbers.

    There is no script in it, nothing is loaded from elsewhere, and every name and text is escaped. At most 20
    metrics are shown, those with curves first.

    Args:
        run_id: The run's id.
        state: "running", "finished", ...
        summary: The last value of every metric.
        rows: Rows with `_step`, in the order of their steps; a sample of them is enough.
        error: Why the run failed.
    """
    curves = curves_of(rows)
    flat = {"/".join(path): value for path, value in leaves(summary)}
    names = sorted({**dict.fromkeys(curves), **flat}, key=lambda name: (len(curves.get(name, ())) < 2, name))  # noqa: PLR2004
    lines = [_line(name, flat.get(name), curves) for name in names[:_MAX_NAMES]]
    if len(names) > _MAX_NAMES:
        lines.append(f'<tr><td colspan="3">… {len(names) - _MAX_NAMES} more</td></tr>')
    last = f", step {rows[-1]['_step']}" if rows else ""
    colour = _COLOURS.get(state, _OTHER_COLOUR)
    head = f'<b>{_text(run_id)}</b> <span style="color:{colour}">{_text(state)}</span>{last}'
    failure = f"<div>{_text(error, 300)}</div>" if error else ""
    return f'<div class="trackway-run">{head}{failure}<table>{"".join(lines)}</table></div>'


def _text(value: Any, limit: int = 80) -> str:
    return html.escape(safe(value, limit))


def _line(name: str, value: Any, curves: Curves) -> str:
    points = curves.get(name, [])
    if value is None and points:
        value = points[-1][1]
    cells = (_text(name), html.escape(shown(value, 80)), _curve(points))
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


def _curve(points: list[tuple[int, float]]) -> str:
    if len(points) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    first, last = points[0][0], points[-1][0]
    low, high = min(value for _, value in points), max(value for _, value in points)
    wide, tall = (last - first) or 1, (high - low) or 1.0
    spots = " ".join(
        f"{(step - first) / wide * (_WIDTH - 4) + 2:.1f},{(_HEIGHT - 4) * (high - value) / tall + 2:.1f}"
        for step, value in points
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img"><polyline points="{spots}" fill="none" '
        'stroke="#00796b" stroke-width="1.5"/></svg>'
    )
