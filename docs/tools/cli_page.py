# ruff: noqa: INP001 - a tool, run by path
"""What the page on the command line shows: commands on ten runs, and their output.

python docs/tools/cli_page.py            prints the parts
python docs/tools/cli_page.py --write    puts them into the page, and draws its picture
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

import sections

import trackway
from trackway.cli import main as program

PAGE = "cli.md"
PICTURE = "cli-plot.png"
COMMANDS = {
    "help": ["trackway --help"],
    "first": ["trackway runs", "trackway best", "trackway best --metric val/loss"],
    "first-plot": [
        "trackway plot digits-3 digits-2 --metrics val/loss --height 14",
        "trackway plot digits-3 digits-2 --metrics val/loss -o best.png",
    ],
    "first-export": ["trackway export digits-3"],
    "runs": ["trackway runs --metrics val/loss,test/accuracy --config lr --sort val/loss -n 4"],
    "where": ["trackway runs --where 'lr>=0.1' --where model/width=64"],
    "show": ["trackway show digits-3"],
    "history": ["trackway history digits-3 -n 3", "trackway history digits-3 --metrics 'val/*' --step-range 80:120"],
    "tail": ["trackway tail digits-3 -n 2 --metrics train/loss"],
    "plot": ["trackway plot digits-3 --metrics '*loss' --log --height 12"],
    "picture": [f"trackway plot digits-3 digits-2 digits-5 --metrics '*loss' --log --smooth 0.5 -o {PICTURE}"],
    "compare": ["trackway compare digits-3 digits-2"],
    "best": ["trackway best --metric val/loss --mode min --show test/accuracy,train/loss --config lr -n 3"],
    "export": ["trackway export digits-3 --format csv -o digits-3"],
    "backends": ["trackway backends"],
    "mistake": ["trackway show digits-33"],
}
_RATES = (3.0, 1.0, 0.5, 0.25, 0.1, 0.05, 0.03, 0.01, 0.005, 0.003)
_EVERY = 20
_START = 1_785_830_400.0
_HOME = "~/digits"


def make_runs(folder: Path) -> None:
    """Write ten runs to *folder*: the same ones each time, but for the times of their rows."""
    for number, rate in enumerate(_RATES):
        settings = {"lr": rate, "model": {"name": "mlp", "width": 64 if number % 2 else 32}}
        with trackway.start(dir=str(folder), run_id=f"digits-{number}", config=settings, trackers=[]):
            for step in range(200):
                trackway.log(_train(step, rate), step=step)
                if step % _EVERY == _EVERY - 1:
                    trackway.log(_validation(step, rate), step=step)
        _settle(folder / f"digits-{number}" / "run.json", number)


def _train(step: int, rate: float) -> dict[str, float]:
    noise = 0.02 * math.sin(7.3 * step * step)
    return {"train/loss": round(2.3 * math.exp(-step * min(rate, 1 / rate) / 10) + 0.05 * rate + 0.04 + noise, 4)}


def _validation(step: int, rate: float) -> dict[str, float]:
    loss = 2.3 * math.exp(-step * min(rate, 1 / rate) / 12) + 0.1 * rate + 0.09 + (step * rate) ** 2 / 3e5
    return {"val/loss": round(loss, 4), "test/accuracy": round(0.99 - loss / 3, 4)}


def _settle(manifest: Path, number: int) -> None:
    """Give the run times and places that are the same each time."""
    content = json.loads(manifest.read_text())
    begin = _START + 900 * number
    content["heartbeat"] = begin + 600 + number
    content["attempts"][0] |= {
        "start": begin,
        "end": begin + 600 + number,
        "host": "node-7",
        "command": ["train.py", "--lr", str(_RATES[number])],
        "git": "3f2c1ab",
    }
    manifest.write_text(json.dumps(content))


def bodies(folder: Path) -> dict[str, str]:
    """Return the generated sections; *folder* is an empty one to work in, and gets the picture."""
    with _place(folder):
        make_runs(folder / "runs")
        return {name: "".join(map(_block, commands)) for name, commands in COMMANDS.items()}


@contextlib.contextmanager
def _place(folder: Path):  # type: ignore[no-untyped-def] # noqa: ANN202 - a context manager
    """Work in *folder*, in a terminal of 80 columns, in UTC."""
    known, here = dict(os.environ), Path.cwd()
    os.environ.update(COLUMNS="80", TZ="UTC")
    os.environ.pop("TRACKWAY_DIR", None)
    time.tzset()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(known)
        time.tzset()


def _block(command: str) -> str:
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        program(shlex.split(command)[1:])
    output.flush()
    text = output.buffer.getvalue().decode().replace(str(Path.cwd()), _HOME)  # type: ignore[attr-defined]
    return f"```console\n$ {command}\n{text}```\n\n"


def write() -> None:
    """Put everything into the page, and the picture beside the others."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        sections.write(sections.DOCS / PAGE, bodies(folder))
        (sections.DOCS / "images" / PICTURE).write_bytes((folder / PICTURE).read_bytes())


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    else:
        with tempfile.TemporaryDirectory() as scratch_folder:
            sys.stdout.write("\n".join(bodies(Path(scratch_folder).resolve()).values()))
