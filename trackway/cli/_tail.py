"""`trackway tail`."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import click

from trackway.cli._options import as_json, dir_option, examples, find, metrics_option, run_argument
from trackway.cli._output import flat, say, to_json
from trackway.store import StoredRun
from trackway.store._history import history_of
from trackway.store._layout import is_url
from trackway.store._query import Names, Query, make_query
from trackway.store._safe_text import safe, shown
from trackway.store._scan import attempt_of, parse_row

if TYPE_CHECKING:
    from trackway.cli._arrivals import Arrivals

__all__ = ["command"]

_LOOKS = 4  # at the rows for one at run.json
_BLOCK = 1 << 20
_MAX_LINE = 1 << 26
_OVER = frozenset({"finished", "failed", "interrupted"})
_MAY_GO_ON = frozenset({"preempted", "crashed"})


@click.command(epilog=examples("trackway tail digits-3 --metrics 'train/*'", "trackway tail digits-3 --follow"))
@run_argument()
@dir_option
@click.option("-n", "count", type=click.IntRange(0), default=10, show_default=True, help="Begin with this many rows.")
@metrics_option()
@click.option("--follow/--no-follow", "-f/-F", default=None, help="Wait for rows always, or never; see above.")
@as_json
def command(
    *, text: str, folder: str | None, count: int, metrics: tuple[str, ...], follow: bool | None, as_json: bool
) -> None:
    """Print the last rows of RUN, and new ones as they come.

    It ends when the run is finished, failed or interrupted. A run that was preempted or crashed is waited for, as it
    may be started again. With --follow it waits for that in any case, until Ctrl+C; with --no-follow it never waits.
    Rows on an object store come about a second after they are there. --json prints one object per line.
    """
    run = find(text, folder)
    file = _rows_of(run)
    names = Names(metrics) if metrics else None
    for row in file.begin(_query(count, metrics)):
        _print(row, as_json=as_json)
    watch = _Watch(run.place, file.pause)
    while follow is not False:
        over = watch.is_over(always=bool(follow))  # asked first: what was written before the end is printed below
        for row in file.new():
            _print_new(row, names, watch, as_json=as_json)
        if over:
            say(f"run {watch.run_id} is {watch.state}")
            break
        time.sleep(file.pause)


def _rows_of(run: StoredRun) -> _Rows | Arrivals:
    place = run._rows  # noqa: SLF001 - tail reads below the level of histories
    if isinstance(place, Path):
        return _Rows(place)
    from trackway.cli._arrivals import Arrivals

    return Arrivals(place)


def _query(count: int, metrics: tuple[str, ...]) -> Any:
    return make_query(
        count,
        step_range=None,
        metrics=list(metrics) or None,
        output="rows",
        include_meta=True,
        fill_missing=False,
        dropna=False,
        ranks="primary",
    )


def _print_new(row: dict[str, Any], names: Names | None, watch: _Watch, *, as_json: bool) -> None:
    watch.note(row)
    part = row if names is None else names.of(row)
    if part is not None:
        _print({key: value for key, value in part.items() if key != "_patch"}, as_json=as_json)


def _print(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(row))
        return
    values = [f"{safe(name)}={shown(value, 80)}" for name, value in flat(row).items() if name[:1] != "_"]
    click.echo(f"step {row['_step']}: {' '.join(values)}")


@final
class _Rows:
    """The lines that are appended to a file of rows."""

    pause: float = 0.25
    """Seconds between two looks at the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""
        self._file: tuple[int, int] | None = None  # device and inode

    def begin(self, query: Query) -> Any:
        """Return what *query* asks of the rows that are there; `new` goes on behind them."""
        size = self.skip_to_end()
        return history_of(self.path, query, size=size)

    def skip_to_end(self) -> int:
        """Go behind the last whole line; return the number of bytes before."""
        fd = self._open()
        if fd < 0:
            return 0
        try:
            end = os.fstat(fd).st_size
            while end > 0:
                begin = max(0, end - _BLOCK)
                last = os.pread(fd, end - begin, begin).rfind(b"\n")
                if last >= 0:
                    self._offset = begin + last + 1
                    break
                end = begin
        finally:
            os.close(fd)
        return self._offset

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the lines that were completed since."""
        fd = self._open()
        if fd < 0:
            return
        try:
            while block := os.pread(fd, _BLOCK, self._offset + len(self._rest)):
                *lines, self._rest = (self._rest + block).split(b"\n")
                for line in lines:
                    self._offset += len(line) + 1
                    row = parse_row(line)
                    if row is not None:
                        yield row
                if len(self._rest) > _MAX_LINE:
                    raise OSError(f"a line of more than {_MAX_LINE >> 20} MiB")
            self._rest = b""  # read again with its end: until then a writer may take it back
        finally:
            os.close(fd)

    def _open(self) -> int:
        """Open the file, from its beginning if it is another one by now; return -1 where there is none."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return -1
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise OSError(f"{self.path.name} is no regular file")
        file = (status.st_dev, status.st_ino)
        if file != self._file or status.st_size < self._offset:
            if self._file is not None:
                say("the file of rows was replaced; its rows follow")
            self._file, self._offset, self._rest = file, 0, b""
        return fd


@final
class _Watch:
    """What `run.json` says, looked at once in a while."""

    def __init__(self, place: str, pause: float) -> None:
        """Look at the run in *place*, whose rows are looked at every *pause* seconds."""
        self._place = place
        self._rest = _LOOKS * pause
        self._next = 0.0
        self._attempt = 0
        self._told = ""
        self.run_id = place.rpartition("/")[2]
        self.state = "unknown"
        self._look()

    def _look(self) -> None:
        self._next = time.monotonic() + self._rest
        try:
            run = StoredRun(self._place)
        except OSError:
            if not is_url(self._place):
                raise
            return  # a store that is away is asked again
        self.run_id, self.state = run.id, run.state
        self._attempt = max(self._attempt, 1, len(run.attempts))

    def is_over(self, *, always: bool) -> bool:
        """Whether no more rows are to be waited for."""
        if time.monotonic() >= self._next:
            self._look()
        if always:
            return False
        if self.state in _MAY_GO_ON and self._told != self.state:
            say(f"run {self.run_id} is {self.state}; waiting for it to be started again, Ctrl+C ends")
        self._told = self.state
        return self.state in _OVER or self.state == "unknown"

    def note(self, row: dict[str, Any]) -> None:
        """Say when *row* begins another attempt."""
        attempt = attempt_of(row)
        if attempt > self._attempt:
            self._attempt = attempt
            say(f"attempt {attempt} begins at step {row['_step']}")
