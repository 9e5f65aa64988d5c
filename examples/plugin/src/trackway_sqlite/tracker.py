"""The tracker: five methods, and a name."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final

from trackway.tracker import Ledger, Lifecycle, Report, StepCounter, Tracker
from trackway.values import Audio, Html, Image, Row, Table, Text, decode, encode, flatten, normalise, resolve

_TABLES = """
CREATE TABLE IF NOT EXISTS metrics (run TEXT, step INTEGER, name TEXT, value);
CREATE TABLE IF NOT EXISTS facts (run TEXT, kind TEXT, name TEXT, value, PRIMARY KEY (run, kind, name));
"""
_MEDIA = (Audio, Html, Image, Table, Text)
_MAX_INTEGER = 2**63


@final
class SqliteTracker(Tracker):
    """Keeps metrics, hyper-parameters, summary and the content of artifacts in an SQLite database.

    Finite numbers are numbers in the database; everything else is JSON text. Of images and other media only the
    description is kept, which is counted. Thread-safe.
    """

    name: str = "sqlite"

    def __init__(self, path: str | os.PathLike[str], run: str) -> None:
        self.run = run
        self._ledger = Ledger(self.name)  # counts what happens to the values
        self._life = Lifecycle(self._ledger)  # refuses calls after finish and in forked children
        self._steps = StepCounter()  # steps for rows that have none
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.executescript(_TABLES)

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None, commit: bool | None = None) -> None:  # noqa: ARG002
        """Insert one database row for each metric."""
        if not self._life.accepts("log"):
            return
        number = self._steps.take(step)
        row = self._plain(metrics)
        self._ledger.accept()
        values = [(self.run, number, _text(name), value) for name, value in self._values(row)]
        self._write("INSERT INTO metrics VALUES (?, ?, ?, ?)", values)
        self._ledger.deliver()

    def log_hyperparameters(self, hparams: Mapping[str, Any]) -> None:
        """Keep the latest value of each hyper-parameter."""
        if self._life.accepts("log_hyperparameters"):
            self._state("hparam", self._values(self._plain(hparams)))

    def log_summary(self, metrics: Mapping[str, Any]) -> None:
        """Keep the latest value of each summary metric."""
        if self._life.accepts("log_summary"):
            self._state("summary", self._values(self._plain(metrics)))

    def log_artifact(
        self,
        artifact_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002, ARG002
    ) -> None:
        """Keep the bytes of a file, or of each file in a folder."""
        source = Path(artifact_path)
        if not self._life.accepts("log_artifact"):
            return
        if not source.exists():
            self._ledger.drop(str(source), "no such file or folder")
            return
        files = [source] if source.is_file() else [path for path in sorted(source.rglob("*")) if path.is_file()]
        top = name or source.name
        names = [top if path == source else f"{top}/{path.relative_to(source).as_posix()}" for path in files]
        self._state("artifact", ((one, path.read_bytes()) for one, path in zip(names, files, strict=True)))

    def finish(self) -> None:
        """Close the database."""
        if self._life.end():
            with self._lock:
                self._database.close()

    def report(self) -> Report:
        """Return the counts; the capability table asks for them."""
        return self._ledger.report()

    def _plain(self, payload: Mapping[str, Any]) -> Row:
        """Plain Python values, all of them on the host. Both functions do nothing if that is done already."""
        row = resolve(normalise(payload))
        self._ledger.count_downgrades(row)
        return row

    def _values(self, row: Row) -> Iterable[tuple[str, Any]]:
        for name, value in flatten(row).items():
            if isinstance(value, _MEDIA):
                self._ledger.convert(name, f"{type(value).__name__} kept as its description only")
            yield name, _cell(value)

    def _state(self, kind: str, values: Iterable[tuple[str, Any]]) -> None:
        rows = [(self.run, kind, _text(name), value) for name, value in values]
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)", rows)

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        with self._lock, self._database:
            self._database.executemany(statement, rows)


def read_metrics(path: str | os.PathLike[str], run: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of *run* as `(step, {name: value})`, in the order of their steps."""
    database = sqlite3.connect(path)
    try:
        rows: dict[int, dict[str, Any]] = {}
        found = database.execute("SELECT step, name, value FROM metrics WHERE run = ? ORDER BY step, rowid", (run,))
        for step, name, value in found:
            rows.setdefault(step, {})[name] = decode(value.encode())["v"] if isinstance(value, str) else value
    finally:
        database.close()
    return list(rows.items())


def _cell(value: Any) -> Any:
    """SQLite has no NaN, no infinity and no integer beyond 64 bits; trackway's JSON text has them."""
    if type(value) is int and -_MAX_INTEGER <= value < _MAX_INTEGER:
        return value
    if type(value) is float and abs(value) < float("inf"):
        return value
    return encode({"v": value}).decode()


def _text(name: str) -> str:
    """SQLite takes no lone surrogates."""
    return name.encode("utf-8", "backslashreplace").decode()
