# ruff: noqa: INP001 - a tool, run by path
"""The table of what each backend does with each kind of value.

python docs/tools/capabilities.py            prints it
python docs/tools/capabilities.py --write    puts it into docs/values.md
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path

import sections

from trackway.backends.console import ConsoleTracker
from trackway.backends.hook import HookTracker
from trackway.backends.json_logger import JsonLoggerTracker
from trackway.backends.local import LocalTracker
from trackway.backends.tensorboard import TensorboardConfig
from trackway.backends.trackio import TrackioConfig
from trackway.backends.wandb import WandbConfig
from trackway.testing import capability_table
from trackway.tracker import Tracker

PAGE = "values.md"
MAKERS: dict[str, Callable[[Path], Tracker]] = {
    "local": LocalTracker,
    "tensorboard": lambda folder: TensorboardConfig(str(folder)).init("run"),
    "wandb": lambda folder: WandbConfig(mode="offline", save_code=False, dir=str(folder)).init("run"),
    "trackio": lambda folder: TrackioConfig(f"capabilities-{folder.name}").init("run"),
    "json_logger": lambda _folder: JsonLoggerTracker(_silent_logger()),
    "console": lambda _folder: ConsoleTracker(io.StringIO()),
    "hook": lambda _folder: HookTracker(lambda _event, _payload: None),
}


def _silent_logger() -> logging.Logger:
    logger = logging.Logger("silent", logging.INFO)  # noqa: LOG001 - outside the hierarchy, so that nobody sees its lines
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    return logger


def bodies() -> dict[str, str]:
    """Return the generated section of the page."""
    return {"capabilities": capability_table(MAKERS) + "\n"}


if __name__ == "__main__":
    sections.main(PAGE, bodies())
