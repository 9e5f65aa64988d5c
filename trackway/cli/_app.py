"""The commands, each found when it is called."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, final

import click

import trackway
from trackway.errors import AlertSyntaxError

__all__ = ["run"]

_COMMANDS = {
    "runs": ("_runs", "List the runs in a folder: state, last step, metrics."),
    "show": ("_show", "Show all that is known of a run."),
    "history": ("_history", "Print the rows of a run, or write them to a file."),
    "tail": ("_tail", "Print new rows of a run as they come."),
    "plot": ("_plot", "Plot metrics of one or more runs, in the terminal or to a file."),
    "compare": ("_compare", "Show in what the configurations and results of runs differ."),
    "best": ("_best", "Rank runs by their best value of a metric."),
    "export": ("_export", "Write rows, configuration and summary of a run to a folder."),
    "replay": ("_replay", "Deliver runs to other trackers, such as W&B, after the event."),
    "trace": ("_trace", "Write the spans of a run as a timeline for Perfetto."),
    "rules": ("_rules", "Explain alert rules, and try them on runs."),
    "backends": ("_backends", "List the tracker types: installed or missing, and what they keep."),
}
"""Each command's module, and its help in one line, so that listing them imports none."""

_COMPLETE = "_TRACKWAY_COMPLETE"
_EXAMPLES = """\b
The best of some runs, its curve, and its rows for a spreadsheet:
  trackway best --metric val/loss
  trackway plot RUN --metrics val/loss
  trackway export RUN
"""


@final
class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        _hear_warnings(ctx)
        command = importlib.import_module(f"trackway.cli.{_COMMANDS[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, 1)
            if near:
                raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None
            raise


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"trackway {trackway.__version__}")
        ctx.exit()


@click.command(
    cls=_Commands, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def _group() -> None:
    """Look at runs of trackway.

    RUN is a run directory or its URL, a file of rows such as metrics.jsonl, or the id of a run in the folder --dir,
    which is $TRACKWAY_DIR or "runs" by default; of an id, four characters that no other has are enough. Exit
    codes: 0 done, 1 not found or failed, 2 wrong usage.
    """


def run(arguments: Sequence[str] | None) -> int:
    """Run the command that *arguments* name and return the exit code; mistakes are said in a line or two."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character must not end the command
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    instruction = os.environ.get(_COMPLETE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(_group, {}, "trackway", _COMPLETE, instruction)
    colour = False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
    try:
        # not `main`, which has other ideas about broken pipes and Ctrl+C
        with _group.make_context("trackway", words, color=colour) as ctx:
            _group.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _tell(error)
    except click.Abort:
        raise KeyboardInterrupt from None
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _say(f"{error.strerror or error}{where}")
    except (ValueError, trackway.TrackwayError) as error:
        return _say_lines(str(error)) if isinstance(error, AlertSyntaxError) else _say(str(error))
    return 0


def _tell(error: click.ClickException) -> int:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
            return error.exit_code
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"Try '{error.ctx.command_path} --help'.", err=True)
    _say(error.format_message())
    return error.exit_code


def _say(message: str) -> int:
    from trackway.cli._output import say

    say(f"error: {message}", limit=1000)
    return 1


def _say_lines(message: str) -> int:
    """Say what has a mark below the place that it is about."""
    from trackway.store._safe_text import safe

    first, *others = message.splitlines() or [""]
    code = _say(first)
    for line in others:
        click.echo(safe(line, 1000), err=True)
    return code


def _hear_warnings(ctx: click.Context) -> None:
    """Have what the library says about damaged files on standard error, harmless, until the command ends."""
    import logging

    from trackway.cli._output import Messages

    logger = logging.getLogger("trackway")
    handler, propagated = Messages(), logger.propagate

    def restore() -> None:
        logger.removeHandler(handler)
        logger.propagate = propagated

    if logger.propagate:  # not for each of the times that click looks a command up
        logger.addHandler(handler)
        logger.propagate = False
        ctx.find_root().call_on_close(restore)
