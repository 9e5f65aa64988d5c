"""The history of a run: its rows, put together from the lines of its files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trackway import _notices
from trackway.store._assembly import Irregular, Row, Tail, read_all
from trackway.store._chunks import read_columns
from trackway.store._columns import columns_of
from trackway.store._frames import check_installed, to_frame
from trackway.store._index import Index, Misleading, index_path, load_index, mistrust
from trackway.store._layout import is_url, metrics_name
from trackway.store._query import META, Query, drop_incomplete, fill, make_query
from trackway.store._scan import Source
from trackway.values import encode

__all__ = ["ask", "history_of", "open_rows", "read_history", "remote_history"]

_MAX_TAIL = 20_000  # rows; more of them are sooner had by reading the whole file
_RANK = re.compile(r"metrics\.rank([1-9][0-9]{0,8})\.jsonl")


def read_history(
    path: str | os.PathLike[str],
    n: int | None = None,
    *,
    step_range: tuple[int | None, int | None] | None = None,
    metrics: str | Iterable[str] | None = None,
    output: str = "rows",
    include_meta: bool = True,
    fill_missing: bool = False,
    dropna: bool = False,
    ranks: str = "primary",
) -> Any:
    """Return the rows of a run on disk, also while it is written: one for each step, in the order of the steps.

    The lines of one step are put together: names at every depth are merged, a later value wins, the time is that of
    the first. Where an attempt went back to an earlier step, what earlier attempts wrote from there on is left out.
    Damaged lines are skipped, and how many they were is said on the `trackway` logger; a torn last line is skipped
    without a word. The file is read as it was when the call began, without any lock.

    Args:
        path: A run directory, or one file of rows such as `metrics.jsonl`; also the fsspec URL of one.
        n: How many rows: those of the steps that were written to last, which are the highest unless rows came late.
            With *step_range*, those of the highest steps. None and -1 mean all, 0 none.
        step_range: The first step, and the one after the last; None leaves an end open.
        metrics: A name, or names, of metrics as they are when nested names are joined by `/`; globs such as
            `train/*` match across `/`. Rows without any of them are left out and do not count for *n*.
        output: "rows", a list of dicts, nested as logged; "numpy", a dict of arrays; "pandas", "polars" or "arrow", a
            data frame or table. In all but "rows" the names are joined by `/`, and a missing number is NaN (null in
            Polars and Arrow). Arrays of numbers are bool, int64 or float64, all others hold objects.
        include_meta: Whether the rows have `_step`, `_time`, `_attempt` (in rows: where it is not 1) and, with
            all ranks, `_rank`.
        fill_missing: Give every row all names, None where it had none; also names of *metrics* that no row has.
        dropna: Then leave out rows that lack one of the names, or in which it is None or NaN. The names are those in
            *metrics* and those that any chosen row has. Rows left out do count for *n*.
        ranks: "primary" for the one file; "all" adds those of all other processes, each with its last *n* rows,
            ordered by step, then rank.

    Raises:
        FileNotFoundError: if there is no such run.
        OSError: if it cannot be read.
        ValueError: if an argument is none of those allowed.
        ConfigError: if the library for *output*, or for the URL, is not installed.
    """
    query = make_query(
        n,
        step_range=step_range,
        metrics=metrics,
        output=output,
        include_meta=include_meta,
        fill_missing=fill_missing,
        dropna=dropna,
        ranks=ranks,
    )
    if is_url(path):
        return remote_history(str(path), query)
    file = Path(path)
    if file.is_dir():  # of someone else perhaps: no link in it is followed
        missing_ok = query.all_ranks and any(_RANK.fullmatch(other.name) for other in file.iterdir())
        return ask(Source(file / metrics_name(0), follow=False, missing_ok=missing_ok), query)
    return ask(Source(file), query)


def remote_history(url: str, query: Query, *, missing_ok: bool = False) -> Any:
    """Return what `read_history` says of the run at *url*; raises as it does, or takes missing rows for none."""
    from trackway.store._remote_read import source_of

    return ask(source_of(url, missing_ok=missing_ok, others_ok=query.all_ranks), query)


def open_rows(place: Path | str) -> Source:
    """Open the file of rows *place*, or the rows of the run at the URL *place*; where there are none, it is empty."""
    if isinstance(place, Path):
        return Source(place, follow=False, missing_ok=True)
    from trackway.store._remote_read import source_of

    return source_of(place, missing_ok=True)


def history_of(
    path: Path,
    query: Query,
    *,
    size: int | None = None,
    waiting: Iterable[bytes] = (),
    open_row: Mapping[str, Any] | None = None,
    index: Index | None = None,
    others: Callable[[], Mapping[int, Callable[[], Source]]] | None = None,
) -> Any:
    """Return what `read_history` will say of a run once its writer has written everything.

    Args:
        path: The file of rows, which is not followed if it is a link, and may be missing.
        query: What is asked, see `make_query`.
        size: Size of the file at the moment at which *waiting* was taken; None for all that there is.
        waiting: What the writer has yet to append, in order; the first piece may be the rest of a line.
        open_row: A row that is not committed, with `_step`, `_time`, and `_attempt` where it is not 1; None to leave
            it out.
        index: What the writer knows of the file; None to look for the index on disk.
        others: Finds the rows of all processes, where they do not lie beside the file.

    Raises:
        OSError: if the file cannot be read.
        ConfigError: if the library for the output is not installed.
    """
    lines = list(waiting)
    if open_row is not None:
        lines.append(_open_line(open_row))
    return ask(Source(path, size=size, extra=lines, follow=False, missing_ok=True, others=others), query, index)


def _open_line(row: Mapping[str, Any]) -> bytes:
    """The line of a row that is not committed: a patch, for it may be one, and is read in the same way if not."""
    reserved = {name: row[name] for name in ("_step", "_time", "_attempt") if name in row}
    values = {name: value for name, value in row.items() if name[:1] != "_"}
    return encode({**reserved, "_patch": True, **values}) + b"\n"


def ask(source: Source, query: Query, index: Index | None = None) -> Any:
    """Return what `read_history` says of the rows in *source*, and close that; raises as `history_of` does."""
    with source:
        return _answer(source, query, index)


def _answer(source: Source, query: Query, index: Index | None) -> Any:
    check_installed(query.output)
    simple = query.limit is None and query.low is None and query.high is None
    if query.output != "rows" and simple and not query.dropna and not query.fill_missing and not query.all_ranks:
        columns = read_columns(source, query.names)
        if columns is not None:
            _say_damaged(source)
            return to_frame(columns, query.output, include_meta=query.include_meta)
        source.damaged = 0
    rows = _with_other_ranks(source, query) if query.all_ranks else _select(source, query, index)
    if query.fill_missing:
        fill(rows, query.names)
    if query.dropna:
        rows = drop_incomplete(rows, query.names)
    if query.output != "rows":
        return to_frame(columns_of(rows), query.output, include_meta=query.include_meta)
    if not query.include_meta:
        for row in rows:
            for key in META:
                row.pop(key, None)
    return rows


def _with_other_ranks(source: Source, query: Query) -> list[Row]:
    own = _RANK.fullmatch(source.path.name)
    number = int(own[1]) if own else 0
    ranks = {number: _select(source, query)}
    others = _in_directory(source) if source.others is None else source.others()
    for rank, opened in sorted(others.items()):
        if rank != number:
            try:
                with opened() as other:
                    ranks[rank] = _select(other, query)
            except FileNotFoundError:  # that of rank 0, which may start last
                continue
            except OSError as error:
                name = metrics_name(rank)
                _notices.logger.warning("%s cannot be read: %s", ascii(name), error.strerror or error)
    rows = [_ranked(row, rank) for rank, part in sorted(ranks.items()) for row in part]
    return sorted(rows, key=lambda row: row["_step"])  # stable: of one step, by rank


def _in_directory(source: Source) -> Mapping[int, Callable[[], Source]]:
    names = [file.name for file in source.path.parent.iterdir()]
    ranks = {int(match[1]) for match in map(_RANK.fullmatch, names) if match}
    paths = {rank: source.path.with_name(metrics_name(rank)) for rank in {0, *ranks}}
    return {rank: partial(Source, path, follow=False) for rank, path in paths.items()}


def _ranked(row: Row, rank: int) -> Row:
    meta: Row = {key: row[key] for key in ("_step", "_time", "_attempt") if key in row}
    return {**meta, "_rank": rank, **row}


def _select(source: Source, query: Query, index: Index | None = None) -> list[Row]:
    """Return the rows that *query* asks for, in the order of their steps."""
    rows = _from_end(source, query, index)
    if rows is None:
        source.damaged = 0
        rows = _from_beginning(source, query)
    _say_damaged(source)
    return rows


def _say_damaged(source: Source) -> None:
    if source.damaged:
        _notices.logger.warning("%s: %d damaged lines were skipped", ascii(source.shown), source.damaged)


def _from_beginning(source: Source, query: Query) -> list[Row]:
    assembly = read_all(source)
    if query.low is None and query.high is None:
        if query.limit is None:
            rows = assembly.rows()
            return rows if query.names is None else [part for part in map(query.view, rows) if part is not None]
        latest = assembly.latest()
    else:
        latest = (row for row in reversed(assembly.rows()) if row["_step"] in query)
    chosen: list[Row] = []
    for row in latest:
        if query.limit is not None and len(chosen) >= query.limit:
            break
        part = query.view(row)
        if part is not None:
            chosen.append(part)
    return sorted(chosen, key=lambda row: row["_step"])


def _from_end(source: Source, query: Query, index: Index | None) -> list[Row] | None:
    """Read from the end of the file as far as needed; None where reading from the beginning is better."""
    path = index_path(source.path)
    index = load_index(path, source.present_size) if index is None and source.stored is None else index
    if query.low is None if query.limit is None else query.limit > _MAX_TAIL:
        return None
    tail = Tail(query.view, query.limit, query.low, query.high)
    try:
        for offset, lines in source.backwards() if not tail.done else ():
            tail.add(lines)
            if not tail.done and tail.stuck and index is not None:
                index = _look_up(source, tail, index, path, offset)
            if tail.done:
                break
            if query.limit is None and tail.gathered > _MAX_TAIL:
                return None
    except Irregular:
        return None
    return tail.rows()


def _look_up(source: Source, tail: Tail, index: Index, path: Path, offset: int) -> Index | None:
    """Have *index* tell the lines of the pending steps; return it, or None where it is no good."""
    try:
        for step in list(tail.pending):
            lines = index.lines_of(source, step, offset)
            if lines is None:
                return index
            tail.complete(step, lines)
    except Misleading:
        mistrust(path)
        return None
    return index
