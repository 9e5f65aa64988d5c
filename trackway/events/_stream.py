"""Writing whole lines to a terminal on which a progress bar may be drawn."""

from __future__ import annotations

import sys
from typing import Any, Literal, TextIO, final

from trackway._locks import new_lock

__all__ = ["ConsoleStream", "StreamName"]

StreamName = Literal["stdout", "stderr"]


@final
class ConsoleStream:
    """One stream, looked up at each line where it is given by name. Thread-safe.

    A bar of tqdm is cleared for the line and drawn again; a live display of rich gets the line from its console.
    Neither library is imported.
    """

    def __init__(self, stream: TextIO | StreamName) -> None:
        self._stream = stream
        self._lock = new_lock()

    def write_line(self, line: str) -> None:
        """Write *line* and a newline.

        Raises:
            Exception: whatever the stream raises; there may also be none.
        """
        with self._lock:
            stream = self._now()
            if stream is None:
                raise ValueError(f"sys.{self._stream} is None")
            console = _live_console(stream) if isinstance(self._stream, str) else None
            if console is not None:
                _print(console, line)
            elif (tqdm := _active_tqdm()) is not None:
                tqdm.write(_encodable(line, stream), file=stream)
                stream.flush()
            else:
                stream.write(_encodable(line, stream) + "\n")
                stream.flush()

    def flush(self) -> None:
        """Flush the stream, if there is one; raises what it raises."""
        stream = self._now()
        if stream is not None:
            stream.flush()

    def _now(self) -> TextIO | None:
        if not isinstance(self._stream, str):
            return self._stream
        stream: TextIO | None = sys.stdout if self._stream == "stdout" else sys.stderr
        return stream


def _encodable(line: str, stream: TextIO) -> str:
    """*line* with characters that the stream's encoding lacks written as escapes."""
    encoding = getattr(stream, "encoding", None)  # a file-like object need not have one
    if not isinstance(encoding, str):
        return line
    try:
        line.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return line.encode("ascii", "backslashreplace").decode("ascii")
    return line


def _active_tqdm() -> Any:
    """The tqdm class if a bar of it is being drawn."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)  # None also while another thread imports it
    return tqdm if tqdm is not None and len(getattr(tqdm, "_instances", ())) else None


def _live_console(stream: TextIO) -> Any:
    """The rich console that is drawing a live display where *stream* goes, as far as that can be told.

    A display replaces standard output by a proxy that knows its console. Without redirection only the console shared
    by the whole process can be found.
    """
    if "rich.live" not in sys.modules:
        return None
    proxied = getattr(stream, "_FileProxy__console", None)
    if proxied is not None:
        return proxied
    shared = getattr(sys.modules.get("rich"), "_console", None)
    return shared if shared is not None and _is_live(shared) else None


def _is_live(console: Any) -> bool:
    return bool(getattr(console, "_live_stack", None) or getattr(console, "_live", None))  # rich 14.1, and before


def _print(console: Any, line: str) -> None:
    """Print *line* as it is: no markup, no colours, no line breaks at the edge."""
    from rich.text import Text

    console.print(Text(line), soft_wrap=True, highlight=False)
