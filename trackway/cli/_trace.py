"""`trackway trace`."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import click

from trackway.cli._options import as_json, dir_option, find, metrics_option, run_argument
from trackway.cli._output import flat, named, print_json, say
from trackway.events._trace import SpanFile, Timed, counter_events, read_spans, trace_events
from trackway.store._layout import SPANS, is_url, lines_name, safe_name
from trackway.store._remote import Remote
from trackway.store._remote_read import RemoteRun
from trackway.store._safe_text import safe

__all__ = ["command"]

_NAME = re.compile(r"spans(?:\.rank(\d{1,9}))?(?:\.jsonl)?")  # without the end: a folder on an object store


@final
class _File(NamedTuple):
    """The spans of one process: its rank, the name of the file, and how to read it."""

    rank: int
    name: str
    read: Callable[[], SpanFile]


@final
class _Process(NamedTuple):
    number: int
    rank: int
    spans: list[Timed]


@click.command()
@run_argument()
@dir_option
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False), help="File to write  [default: <run>-trace.json]; .gz packs it."
)
@metrics_option("Metrics to add as curves; globs are allowed, such as 'train/*'.")
@as_json
def command(*, text: str, folder: str | None, output: str | None, metrics: tuple[str, ...], as_json: bool) -> None:
    """Write the spans of RUN as a timeline, to be opened with https://ui.perfetto.dev or chrome://tracing.

    The spans of every process and thread have a track of their own. What ended before the run is read is in it, also
    while the run goes on.
    """
    run = find(text, folder)
    processes, damaged = _processes(run)
    rows = [flat(row) for row in run.history(None, metrics=list(metrics))] if metrics else []
    if not processes and not rows:
        raise click.ClickException(
            f"run {run.id!r} has no spans; measure parts of the program with `with trackway.span('data'):`"
        )
    if metrics and not rows:
        raise click.ClickException(f"run {run.id!r} has no rows with numbers that match {', '.join(metrics)}")
    if damaged:
        say(f"{damaged} lines are damaged and left out")
    target = Path(output or f"{safe_name(run.id)}-trace.json")
    begin = _begin(processes, rows)
    with named(target):
        count = _write(target, _head(run.id, begin), _events(run.id, processes, rows, begin))
    spans = sum(len(process.spans) for process in processes)
    if as_json:
        print_json({"file": str(target), "spans": spans, "events": count, "damaged": damaged})
    else:
        click.echo(f"{spans} spans are in {safe(str(target), 300)}; open it with https://ui.perfetto.dev")


def _processes(run: Any) -> tuple[list[_Process], int]:
    """Return the processes that wrote spans, in order of their rank, and the number of damaged lines."""
    found: list[_Process] = []
    damaged = 0
    taken: set[int] = set()
    for rank, name, read in _remote_files(run.place) if is_url(run.place) else _files(run):
        try:
            content = read()
        except OSError as error:
            say(f"{name} cannot be read and is left out: {error.strerror or error}")
            continue
        damaged += content.damaged
        for pid, spans in content.processes.items():
            number = next(number for number in (pid, *range(1, len(taken) + 2)) if number not in taken)
            taken.add(number)  # processes of two machines may have one number
            found.append(_Process(number, rank, spans))
    return found, damaged


def _files(run: Any) -> list[_File]:
    folder = run.path if run.path.is_dir() else run.path.parent
    return sorted(
        _File(int(match[1] or 0), path.name, partial(read_spans, path))
        for path in folder.iterdir()
        if (match := _NAME.fullmatch(path.name)) and path.suffix == ".jsonl"
    )


def _remote_files(url: str) -> list[_File]:
    """Return the same of a run on an object store, where a file is a folder of segments, or was copied as it was."""
    ranks = {int(match[1] or 0) for match in map(_NAME.fullmatch, Remote(url).children()) if match}
    return [_File(rank, lines_name(SPANS, rank), partial(_fetched, url, rank)) for rank in sorted(ranks)]


def _fetched(url: str, rank: int) -> SpanFile:
    source = RemoteRun(url).source(rank, kind=SPANS)
    with tempfile.TemporaryDirectory(prefix="trackway-") as folder:
        path = Path(folder) / lines_name(SPANS, rank)
        with path.open("wb") as file:
            file.writelines(source.blocks())
        return read_spans(path)


def _begin(processes: list[_Process], rows: list[dict[str, Any]]) -> float:
    starts = [span.start for process in processes for span in process.spans]
    times = [row["_time"] for row in rows if isinstance(row.get("_time"), int | float)]
    return min((*starts, *times), default=0.0)


def _events(
    run_id: str, processes: list[_Process], rows: list[dict[str, Any]], begin: float
) -> Iterator[dict[str, Any]]:
    several = len({process.rank for process in processes}) > 1
    for process in processes:
        title = f"{run_id} rank {process.rank}" if several else run_id
        yield from trace_events(process.spans, process=process.number, title=title, begin=begin)
    yield from counter_events(rows, process=processes[0].number if processes else 1, begin=begin)


def _head(run_id: str, begin: float) -> str:
    about = {"run": run_id, "begin": begin}
    return f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [\n'


def _write(path: Path, head: str, events: Iterable[dict[str, Any]]) -> int:
    """Write the trace, whole or not at all; return the number of events."""
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.tmp")
    count = 0
    try:
        with temporary.open("wb") as raw, _packed(raw, path) as file:
            file.write(head.encode())
            for event in events:
                file.write(((",\n" if count else "") + json.dumps(event, allow_nan=False)).encode())
                count += 1
            file.write(b"\n]}\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _packed(file: BinaryIO, path: Path) -> AbstractContextManager[Any]:
    if path.suffix.lower() != ".gz":
        return contextlib.nullcontext(file)
    return gzip.GzipFile(path.stem, "wb", fileobj=file, mtime=0)
