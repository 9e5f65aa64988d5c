"""The names of `trackway.events._stream`, for whoever imports them from here."""

from __future__ import annotations

from trackway.events._stream import ConsoleStream, StreamName

__all__ = ["ConsoleStream", "StreamName"]
