"""Rows of a run on an object store, as they arrive there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

from trackway.cli._output import say
from trackway.store._history import ask
from trackway.store._query import Query
from trackway.store._remote_read import source_of
from trackway.store._scan import Source, parse_row

__all__ = ["Arrivals"]

_BLOCK = 1 << 23


@final
class Arrivals:
    """The lines of the segments of a run at a URL; a store that is away for a while is asked again."""

    pause: float = 1.0
    """Seconds between two looks, each of which is two requests."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._offset = 0
        self._away = False

    def begin(self, query: Query) -> Any:
        """Return what *query* asks of the rows that are there; `new` goes on behind them.

        Raises:
            OSError: if the store cannot be asked.
        """
        source = source_of(self._url, missing_ok=True)
        self._offset = _end_of_lines(source)
        return ask(source, query)

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the lines that came since."""
        try:
            source = source_of(self._url, missing_ok=True)
            if source.size < self._offset:
                say("the rows were replaced; the new ones follow")
                self._offset = 0
            while lines := self._read(source):
                yield from (row for row in map(parse_row, lines) if row is not None)
        except OSError as error:
            if not self._away:
                say(f"warning: {self._url} cannot be read, and is tried again: {error}", limit=1000)
            self._away = True
        else:
            self._away = False

    def _read(self, source: Source) -> list[bytes]:
        """Return the next lines, as many as fit a block, or one that is longer."""
        length = _BLOCK
        while (begin := self._offset) < source.size:
            data = source.read(begin, min(begin + length, source.size))
            whole = data.rfind(b"\n") + 1
            if whole:
                self._offset += whole
                return data[: whole - 1].split(b"\n")
            if begin + length >= source.size:
                break
            length *= 2
        return []


def _end_of_lines(source: Source) -> int:
    """Return the offset behind the last whole line; only in a copied file another one may follow."""
    end = source.size
    while end > 0:
        begin = max(0, end - _BLOCK)
        last = source.read(begin, end).rfind(b"\n")
        if last >= 0:
            return begin + last + 1
        end = begin
    return 0
