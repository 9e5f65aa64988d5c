"""`trackway backends`."""

from __future__ import annotations

import importlib.util
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from trackway.cli._options import as_json
from trackway.cli._output import print_json, say, table

__all__ = ["command"]

_NEEDS = {
    "tensorboard": ("tensorboardX", "tensorboard"),
    "trackio": ("trackio", "trackio"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
    "prometheus": ("prometheus_client", "prometheus"),
}
"""The library that a built-in type needs, and the extra that brings it."""


@click.command()
@click.option("--capabilities", "-c", is_flag=True, help="Log each kind of value, and tell what becomes of it.")
@as_json
def command(*, capabilities: bool, as_json: bool) -> None:
    """List the tracker types that `type:` can name: whether they can be used, and what to install if not.

    --capabilities adds a table of what those that keep everything on this machine do with each kind of value.
    """
    lines = list(_types())
    kinds = _capabilities([line["type"] for line in lines if line["state"] == "installed"]) if capabilities else {}
    if as_json:
        print_json({"backends": lines, "capabilities": kinds} if capabilities else lines)
        return
    table(
        ("type", "state", "from", "to get it"), [(s["type"], s["state"], s["from"], s["install"] or "") for s in lines]
    )
    if kinds:
        click.echo("")
        names = next(iter(kinds.values()))
        table(("value", *names), [(kind, *found.values()) for kind, found in kinds.items()])


def _types() -> Iterator[dict[str, Any]]:
    from trackway.config import TrackerConfig
    from trackway.config._discovery import sources

    known = TrackerConfig.get_known_choices()
    for name, offers in sorted(sources().items()):
        library, extra = _NEEDS.get(name, ("", ""))
        built_in = offers[0].origin == "built in"
        line = {
            "type": name,
            "state": "installed",
            "from": "trackway" if built_in else offers[0].origin,
            "install": None,
        }
        if name not in known:
            line["state"] = "broken"
        elif built_in and library and importlib.util.find_spec(library) is None:
            line.update(state="missing", install=f'pip install "trackway[{extra}]"')
        yield line


def _capabilities(types: list[str]) -> dict[str, dict[str, str]]:
    """Return what becomes of each kind of value at each type that is local and here."""
    from trackway.testing import capabilities

    found = {name: capabilities(make) for name, make in _makers().items() if name in types}
    kinds = next(iter(found.values()))
    say("native: kept as it is; converted: kept in another form; dropped: not kept, and counted")
    return {kind: {name: column[kind] for name, column in found.items()} for kind in kinds}


def _makers() -> dict[str, Callable[[Path], Any]]:
    from trackway.backends.console import ConsoleTracker
    from trackway.backends.hook import HookTracker
    from trackway.backends.json_logger import JsonLoggerTracker
    from trackway.backends.tensorboard import TensorboardConfig
    from trackway.store import LocalTracker

    return {
        "local": LocalTracker,
        "tensorboard": lambda folder: TensorboardConfig(str(folder)).init("run"),
        "json_logger": lambda _: JsonLoggerTracker(_silent()),
        "console": lambda _: ConsoleTracker(io.StringIO()),
        "hook": lambda _: HookTracker(lambda _event, _payload: None),
    }


def _silent() -> logging.Logger:
    logger = logging.Logger("silent", logging.INFO)  # noqa: LOG001 - outside the hierarchy, nobody sees its lines
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    return logger
