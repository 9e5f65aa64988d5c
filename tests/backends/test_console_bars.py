"""Lines of the console beside progress bars, on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
from fcntl import ioctl

import pytest


def _terminal(program, width=100):
    """Run *program* on a terminal of its own and return the bytes it received."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"TERM": "xterm", "COLUMNS": str(width)},
    )  # fmt: skip
    os.close(slave)
    received = b""
    while True:
        try:
            block = os.read(master, 1 << 16)
        except OSError:  # the terminal is closed on the other side
            break
        if not block:
            break
        received += block
    os.close(master)
    assert process.wait(20) == 0, received.decode(errors="replace")
    return received.decode()


def _screen(received):
    """The lines that stay on the screen, as a terminal shows them: cursor up, line erase and carriage return."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]", received):
        if token == "\n":
            row += 1
            lines.extend([""] * (row + 1 - len(lines)))
        elif token == "\r":
            column = 0
        elif token[0] == "\x1b":
            count = int(re.sub(r"\D", "", token) or 1)
            if token[-1] == "A":
                row = max(0, row - count)
            elif token[-1] == "K":
                lines[row] = "" if token == "\x1b[2K" else lines[row][:column]
        else:
            lines[row] = lines[row][:column].ljust(column) + token + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


_ROWS = [f"step={n} loss=0.5 name=value{n}" for n in range(5)]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("module", ["tqdm", "tqdm.auto"])
def test_tqdm_bar_and_lines_stay_whole(module, stream):
    """Under a bar of tqdm every row is a line of its own, and the bar stands below them."""
    screen = _screen(
        _terminal(f"""
            from {module} import tqdm
            from trackway.backends.console import ConsoleTracker
            tracker = ConsoleTracker({stream!r})
            for n in tqdm(range(5), mininterval=0, desc="training"):
                tracker.log({{"loss": 0.5, "name": f"value{{n}}"}}, step=n)
        """)
    )
    assert screen[:-1] == _ROWS
    assert re.match(r"training: 100%\|.*\| 5/5 ", screen[-1])


@pytest.mark.parametrize("options", ["", "redirect_stdout=False", "console=Console()"])
def test_rich_bar_and_lines_stay_whole(options):
    """Under a live display of rich, with and without its own redirection, likewise."""
    screen = _screen(
        _terminal(f"""
            from rich import get_console
            from rich.console import Console
            from rich.progress import Progress
            from trackway.backends.console import ConsoleTracker
            tracker = ConsoleTracker()
            with Progress({options}) as progress:
                task = progress.add_task("training", total=5)
                for n in range(5):
                    tracker.log({{"loss": 0.5, "name": f"value{{n}}"}}, step=n)
                    progress.advance(task)
        """)
    )
    assert screen[:-1] == _ROWS
    assert re.match(r"training .* 100%", screen[-1])


def test_rich_does_not_interpret_or_break_lines():
    """Square brackets are no markup for rich, and a long row is not broken at its width."""
    screen = _screen(
        _terminal(
            """
            from rich.progress import Progress
            from trackway.backends.console import ConsoleTracker
            tracker = ConsoleTracker()
            with Progress() as progress:
                progress.add_task("training", total=1)
                tracker.log({"[bold]x": "[red]y[/red]", **{f"metric{n}": n for n in range(10)}}, step=0)
            """,
            width=60,
        )
    )
    row = 'step=0 [bold]x="[red]y[/red]" ' + " ".join(f"metric{n}={n}" for n in range(10))
    assert screen[0] == row


def test_no_bar_library_is_imported():
    """Printing alone imports neither tqdm nor rich."""
    program = """
        import sys
        from trackway.backends.console import ConsoleTracker
        ConsoleTracker().log({"loss": 0.5}, step=0)
        assert not {"tqdm", "rich"} & set(sys.modules)
    """
    assert "step=0 loss=0.5" in _terminal(program)
