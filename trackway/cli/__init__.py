"""The command line, `trackway`: runs in a terminal.

It reads run directories; `replay` alone writes into them, how far it came. Every name and text that comes from a run is
made harmless before it is shown. `trackway --help` lists the commands; a command is imported when it is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for not found or failed, 2 for wrong usage.

    130 is for Ctrl+C, and 141 for an output that nobody reads any more.

    Args:
        arguments: What stands behind the program's name; None takes it from `sys.argv`.
    """
    try:
        try:
            from trackway.cli._app import run
        except ModuleNotFoundError as error:
            if error.name != "click":
                raise
            sys.stderr.write('trackway: the command line needs click; pip install "trackway[cli]"\n')
            return 1
        code = run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # what is left in the buffer must not fail again when the program ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    return code
