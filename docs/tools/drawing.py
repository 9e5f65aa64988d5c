# ruff: noqa: INP001 - a tool, run by path
"""The drawing of how a metric gets out of compiled code.

python docs/tools/drawing.py            prints it
python docs/tools/drawing.py --write    puts it into docs/images/jit.svg
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "images" / "jit.svg"

_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 910 325" role="img" aria-label="{label}">
<style>
text {{ font: 15px sans-serif; fill: #1b2a2a }}
.title {{ font-weight: bold }}
.code {{ font-family: monospace; font-size: 14px; white-space: pre }}
.note {{ font-size: 13px; fill: #4a5c5c }}
.box {{ fill: #e3f1ef; stroke: #00796b; stroke-width: 1.5 }}
.part {{ fill: #fff; stroke: #00796b }}
.path {{ fill: none; stroke: #00796b; stroke-width: 2; marker-end: url(#head) }}
.other {{ stroke: #9a6a00; stroke-dasharray: 6 4 }}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0 8 4 0 8z" fill="context-stroke"/></marker></defs>
<rect width="910" height="325" rx="8" fill="#fff"/>
"""
_LABEL = "The metrics of a compiled function are further outputs of it; their rows wait in a queue for the tracker."


def _box(x: int, y: int, width: int, height: int, style: str = "box") -> str:
    return f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'


def _text(x: int, y: int, text: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x}" y="{y}">{escape(text)}</text>'


def _path(points: str, style: str = "") -> str:
    return f'<path class="path {style}" d="M{points}"/>'


def _function() -> list[str]:
    """What is traced."""
    lines = ["for layer in scan:", "  h = layer(h)", '  log({"rms": ...})', "loss = ...", 'log({"loss": loss})']
    return [
        _text(20, 34, "your function, traced", "title"),
        _box(20, 46, 220, 150),
        *(_text(34, 74 + 26 * line, text, "code") for line, text in enumerate(lines)),
    ]


def _program() -> list[str]:
    """What it is compiled to."""
    return [
        _path("240 121 H296"),
        _text(300, 34, "compiled program", "title"),
        _box(300, 46, 230, 150),
        _text(314, 74, "each loop reduces its"),
        _text(314, 94, "metrics, and returns them"),
        _box(314, 112, 202, 28, "part"),
        _text(324, 131, "result"),
        _box(314, 152, 202, 28, "part"),
        _text(324, 171, "metrics: loss, rms"),
    ]


def _host() -> list[str]:
    """What happens to its outputs."""
    rows = [_box(590 + 60 * place, 152, 54, 28, "part") for place in range(3)]
    names = [_text(601 + 60 * place, 171, f"row {8 - place}", "note") for place in range(3)]
    return [
        _text(590, 34, "host", "title"),
        _path("516 126 H584"),
        _text(590, 131, "back to the caller, at once"),
        _path("516 166 H584"),
        *rows,
        *names,
        _path("764 166 H800"),
        _box(806, 146, 84, 40),
        _text(821, 171, "tracker"),
        _text(590, 202, "rows wait until they are there,", "note"),
        _text(590, 220, "in order, eight at most", "note"),
    ]


def _callback() -> list[str]:
    """The other way."""
    return [
        _path("415 196 V266 H848 V192", "other"),
        _text(430, 288, "plain jax.jit, where nothing captures: a host callback for each log,", "note"),
        _text(430, 306, "after its loops are reduced", "note"),
    ]


def svg() -> str:
    """Return the drawing."""
    parts = [*_function(), *_program(), *_host(), *_callback()]
    return _HEAD.format(label=escape(_LABEL)) + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        FILE.write_text(svg(), encoding="utf-8")
    else:
        sys.stdout.write(svg())
