"""`trackway replay`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import click

from trackway.cli._options import as_json, dir_option, find, run_argument
from trackway.cli._output import print_json, say, table
from trackway.store._safe_text import safe

__all__ = ["command"]

_NAMES = ("rows", "events", "artifacts", "skipped", "failed")


@click.command()
@run_argument(several=True)
@dir_option
@click.option(
    "--to",
    "targets",
    multiple=True,
    required=True,
    metavar="TARGET",
    help="Where to: a tracker as in YAML, such as '{type: wandb, project: p}', a list of such, or a type alone; may "
    "be repeated.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@click.option("--dry-run", is_flag=True, help="Say what would be delivered, and write nothing.")
@click.option("--progress/--no-progress", default=None, help="Show how far it is  [default: in a terminal].")
@as_json
def command(
    *,
    texts: tuple[str, ...],
    folder: str | None,
    targets: tuple[str, ...],
    follow: bool,
    dry_run: bool,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Deliver RUN... to other trackers: rows, hyper-parameters, summary, artifacts, media, events, how the run ended.

    What a target has got is noted in the run directory: a further replay delivers what is new, or what was left when
    an earlier one failed or was killed, and nothing twice.
    """
    if follow and len(texts) > 1:
        raise click.UsageError("--follow takes one RUN")
    to = _targets(targets)
    runs = [find(text, folder) for text in texts]
    reports, failed = [], False
    aside = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with aside, _lines_of_json(), _shown(progress) as on_progress:  # a target may print
        for run in runs:
            report, error = _replayed(run, to, follow=follow, dry_run=dry_run, on_progress=on_progress)
            failed = failed or bool(error)
            if report is not None:
                reports.append(report)
            if error:
                say(f"error: {error}", limit=1000)
    _print(reports, as_json=as_json)
    if failed:
        raise click.exceptions.Exit(1)


@contextlib.contextmanager
def _lines_of_json() -> Iterator[None]:
    """Have the lines of `type: json_logger` on standard error, where of the library's messages only warnings come."""
    import logging

    logger = logging.getLogger("trackway.json_logger")
    handler, propagated = logging.StreamHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


def _targets(texts: tuple[str, ...]) -> list[Any]:
    """Return what the texts mean as YAML; each may be one target or a list of them."""
    import yaml

    found: list[Any] = []
    for text in texts:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            reason = str(error).partition("\n")[0]
            raise click.BadParameter(
                f"{text!r} is no YAML ({reason}); give one such as '{{type: wandb, project: p}}'", param_hint="--to"
            ) from error
        found += value if isinstance(value, list) else [value]
    return found


def _replayed(run: Any, to: list[Any], **options: Any) -> tuple[Any, str]:
    """Return the report, if there is one, and what went wrong."""
    from trackway.replay import ReplayError, replay

    try:
        return replay(run, to, **options), ""
    except ReplayError as error:
        return error.report, str(error)


def _print(reports: list[Any], *, as_json: bool) -> None:
    if as_json:
        print_json([{"run": report.run_id, "state": report.state, "targets": [_plain(t) for t in report.targets]}
                    for report in reports])  # fmt: skip
        return
    rows = [
        (report.run_id, target.target, *(getattr(target, name) for name in _NAMES), "yes" if target.complete else "no")
        for report in reports
        for target in report.targets
    ]
    if rows:
        table(("run", "target", *_NAMES, "complete"), rows, keep=4)


def _plain(target: Any) -> dict[str, Any]:
    return asdict(target)


@contextlib.contextmanager
def _shown(wanted: bool | None) -> Iterator[Callable[[Any], None] | None]:
    """Yield what shows the progress, on standard error; None where nobody looks."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield None
        return
    columns = ("{task.description}", BarColumn(), "{task.percentage:>3.0f}%", TimeRemainingColumn())
    text = TextColumn("{task.fields[told]}", markup=False)
    with Progress(
        TextColumn("{task.description}", markup=False), *columns[1:], text, console=Console(stderr=True)
    ) as bars:
        tasks: dict[tuple[str, str], tuple[Any, float]] = {}

        def show(progress: Any) -> None:
            key = (progress.run_id, progress.target)
            if key not in tasks:
                name = f"{safe(progress.run_id, 40)} to {safe(progress.target, 20)}"
                tasks[key] = (bars.add_task(name, total=None, told=""), time.monotonic())
            task, begun = tasks[key]
            pace = progress.rows / max(time.monotonic() - begun, 1e-3)
            told = f"{progress.rows:,} rows" + (f", {pace:,.0f}/s" if progress.rows else "")
            bars.update(task, completed=progress.done, total=max(progress.total, 1), told=told)

        yield show
