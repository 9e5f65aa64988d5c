"""Where the rows of a Trackio run come to lie: this machine's database, or a server.

What this library knows of Trackio's inner structure stands here and in `_trackio_start`. Trackio's own queue is not
used: it drops what it cannot write with a warning, stamps rows with the time of writing, and never ends as long as a
server is away.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

__all__ = ["Alert", "Database", "Entry", "Place", "Rewind", "Server", "place_of"]

CARRIER_STEP = -1
"""The step of the empty row that a run of hyper-parameters alone has, for Trackio keeps no run without a row."""


@final
@dataclass(frozen=True)
class Entry:
    """One row.

    Attributes:
        step: Its step.
        metrics: Its values, as JSON.
        time: When it was logged, ISO text.
        log_id: What tells it from all other rows of the project; of two with the same, Trackio keeps one.
        files: The media that belong to it.
    """

    step: int
    metrics: Mapping[str, Any]
    time: str
    log_id: str
    files: tuple[Path, ...] = ()


@final
@dataclass(frozen=True)
class Alert:
    """One alert."""

    title: str
    text: str
    level: str
    step: int
    time: str
    alert_id: str


@final
@dataclass(frozen=True)
class Rewind:
    """Rows from *step* on, of those that came before this, are superseded."""

    step: int


class Place(ABC):
    """Takes batches of rows of *run*, each as a whole or not at all. For one thread, save for `last_step`."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self._config_known = False

    @abstractmethod
    def rows(self, entries: Sequence[Entry], config: Mapping[str, Any] | None) -> None:
        """Keep *entries*, and *config* as the run's whole configuration if it is given."""

    @abstractmethod
    def alerts(self, alerts: Sequence[Alert]) -> None:
        """Keep alerts."""

    @abstractmethod
    def last_step(self) -> int | None:
        """Return the last step that is there, None where there is no row; raises if that cannot be found out."""

    @abstractmethod
    def known_config(self) -> dict[str, Any]:
        """Return the configuration that is there."""

    def rewind(self, step: int) -> None:
        """Put the rows from *step* on aside, if that is possible here."""

    def keep(self, entries: Sequence[Entry]) -> bool:  # noqa: ARG002
        """Keep rows that could not be delivered for a later process; return whether they are."""
        return False

    def merged_config(self) -> dict[str, Any]:
        """Return the run's configuration, over that which an earlier process has left."""
        if not self._config_known:
            known = self.known_config()
            created = known.get("_Created")
            for name, value in known.items():
                self.run.config.setdefault(name, value)
            if created:
                self.run.config["_Created"] = created
            self._config_known = True
        return dict(self.run.config)

    def _identity(self) -> dict[str, Any]:
        return {"project": self.run.project, "run": self.run.name, "run_id": self.run.id}


@final
class Database(Place):
    """The database in Trackio's folder on this machine."""

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        self._storage: Any = importlib.import_module("trackio.sqlite_storage").SQLiteStorage

    def rows(self, entries: Sequence[Entry], config: Mapping[str, Any] | None) -> None:
        """Write them in one transaction, each with its own time."""
        if self.run._storage_mode == "jsonl":  # noqa: SLF001 - a network file system
            self._fragment(entries, config)
            return
        self._storage.bulk_log(
            **self._identity(),
            metrics_list=[dict(entry.metrics) for entry in entries],
            steps=[entry.step for entry in entries],
            timestamps=[entry.time for entry in entries],
            log_ids=[entry.log_id for entry in entries],
            config=config,
        )

    def _fragment(self, entries: Sequence[Entry], config: Mapping[str, Any] | None) -> None:
        fragments: Any = importlib.import_module("trackio.fragments")
        common = {**self._identity(), "config": config}
        records = [
            fragments.metric_record(
                {**common, "metrics": e.metrics, "step": e.step, "timestamp": e.time, "log_id": e.log_id}
            )
            for e in entries
        ]
        self.run._fragment_writer.write_local(records)  # noqa: SLF001

    def alerts(self, alerts: Sequence[Alert]) -> None:
        """Write them."""
        self._storage.bulk_alert(
            **self._identity(),
            titles=[alert.title for alert in alerts],
            texts=[alert.text for alert in alerts],
            levels=[alert.level for alert in alerts],
            steps=[alert.step for alert in alerts],
            timestamps=[alert.time for alert in alerts],
            alert_ids=[alert.alert_id for alert in alerts],
        )

    def last_step(self) -> int | None:
        """Return the highest one."""
        step: int | None = self._storage.get_max_step_for_run(self.run.project, self.run.name, run_id=self.run.id)
        return None if step == CARRIER_STEP else step

    def known_config(self) -> dict[str, Any]:
        """Return the configuration that is there."""
        return self._storage.get_run_config(self.run.project, self.run.name, run_id=self.run.id) or {}

    def rewind(self, step: int) -> None:
        """Make the superseded rows a run of their own, `<name> (superseded <n>)`, so that the run has one curve."""
        path = self._storage.get_project_db_path(self.run.project)
        if not path.exists():
            return
        with self._storage._get_process_lock(self.run.project), self._connection(path) as connection:  # noqa: SLF001
            mine = (self.run.id, step)
            found = connection.execute("SELECT 1 FROM metrics WHERE run_id = ? AND step >= ? LIMIT 1", mine)
            if found.fetchone() is None:
                return
            held = "SELECT 1 FROM metrics WHERE run_id = ? LIMIT 1"
            number = next(n for n in itertools.count(1) if not connection.execute(held, (self._aside(n),)).fetchone())
            name = f"{self.run.name} (superseded {number})"
            # without their log_id: rows that are the same again belong to the run as well
            connection.execute(
                "UPDATE metrics SET run_id = ?, run_name = ?, log_id = NULL WHERE run_id = ? AND step >= ?",
                (self._aside(number), name, *mine),
            )
            connection.execute(
                "INSERT OR REPLACE INTO configs (run_id, run_name, config, created_at) "
                "SELECT ?, ?, config, created_at FROM configs WHERE run_id = ?",
                (self._aside(number), name, self.run.id),
            )

    def _aside(self, number: int) -> str:
        return f"{self.run.id}~{number}"

    @contextlib.contextmanager
    def _connection(self, path: Path) -> Iterator[Any]:
        with self._storage._get_connection(path) as connection:  # noqa: SLF001
            yield connection


@final
class Server(Place):
    """A self-hosted server or a Hugging Face Space, by HTTP."""

    def __init__(self, run: Any, predict: Callable[..., Any], token: Callable[[], str | None]) -> None:
        """Talk to the server by *predict*, which takes `api_name` and the arguments of that endpoint."""
        super().__init__(run)
        self._predict = predict
        self._token = token
        self._storage: Any = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
        self._owed = True  # rows that an earlier process kept may be there

    def rows(self, entries: Sequence[Entry], config: Mapping[str, Any] | None) -> None:
        """Upload the media, then send the rows; before all others those that an earlier process has kept."""
        self._send_kept()
        self._upload(entries)
        self._send("/bulk_log", logs=self._logs(entries, config))
        for entry in entries:
            for file in entry.files:
                with contextlib.suppress(OSError):
                    file.unlink()

    def _logs(self, entries: Sequence[Entry], config: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        serialize = importlib.import_module("trackio.utils").serialize_values
        common = {**self._identity(), "config": serialize(config) if config else None}
        return [{**common, "metrics": serialize(dict(e.metrics)), "step": e.step, "log_id": e.log_id} for e in entries]

    def _upload(self, entries: Sequence[Entry]) -> None:
        files = [(entry.step, file) for entry in entries for file in entry.files if file.exists()]
        if files:
            handle_file = importlib.import_module("gradio_client").handle_file
            common = {**self._identity(), "relative_path": None}
            self._send(
                "/bulk_upload_media",
                uploads=[{**common, "step": step, "uploaded_file": handle_file(str(file))} for step, file in files],
            )

    def _send(self, api_name: str, **arguments: Any) -> Any:
        return self._predict(api_name=api_name, hf_token=self._token(), **arguments)

    def _send_kept(self) -> None:
        """Send what Trackio has kept of this run; of other runs it may be for other servers."""
        if not self._owed:
            return
        project = self.run.project
        uploads = _of_run(self._storage.get_pending_uploads(project), "uploads", self.run.id)
        if uploads is not None:
            importlib.import_module("trackio.pending_uploads").replay_pending_uploads(
                uploads, project, predict=self._predict, hf_token=self._token(), warn_missing=lambda *_: None
            )
        kept = _of_run(self._storage.get_pending_logs(project), "logs", self.run.id)
        if kept is not None:
            serialize = importlib.import_module("trackio.utils").serialize_values
            self._send("/bulk_log", logs=serialize(kept["logs"]))
            self._storage.clear_pending_logs(project, kept["ids"])
        self._owed = False

    def alerts(self, alerts: Sequence[Alert]) -> None:
        """Send them."""
        common = self._identity()
        told = [
            {
                **common,
                "title": alert.title,
                "text": alert.text,
                "level": alert.level,
                "step": alert.step,
                "timestamp": alert.time,
                "alert_id": alert.alert_id,
            }
            for alert in alerts
        ]
        self._send("/bulk_alert", alerts=told)

    def last_step(self) -> int | None:
        """Return that of the row which came last: an attempt that went over steps again may not be as far yet."""
        summary = self._summary()
        if not summary.get("num_logs"):
            return None
        run_id = self.run.id.replace("'", "''")
        query = f"SELECT step FROM metrics WHERE run_id = '{run_id}' ORDER BY id DESC LIMIT 1"  # noqa: S608 - quoted
        try:
            step = self._predict(api_name="/query_project", project=self.run.project, query=query)["rows"][0]["step"]
        except Exception:  # an older server
            step = summary.get("last_step")
        return None if step is None or step == CARRIER_STEP else int(step)

    def known_config(self) -> dict[str, Any]:
        """Return the configuration that is there."""
        return self._summary().get("config") or {}

    def _summary(self) -> dict[str, Any]:
        found = self._predict(api_name="/get_run_summary", project=self.run.project, run_id=self.run.id)
        return found if isinstance(found, dict) else {}

    def keep(self, entries: Sequence[Entry]) -> bool:
        """Leave them in the database of this machine, marked as Trackio marks rows that are to be sent."""
        key = self.run._remote_storage_key  # noqa: SLF001
        self._storage.bulk_log(
            **self._identity(),
            metrics_list=[dict(entry.metrics) for entry in entries],
            steps=[entry.step for entry in entries],
            timestamps=[entry.time for entry in entries],
            log_ids=[entry.log_id for entry in entries],
            config=dict(self.run.config),
            space_id=key,
        )
        for entry in entries:
            for file in entry.files:
                self._storage.add_pending_upload(
                    project=self.run.project,
                    space_id=key,
                    run_id=self.run.id,
                    run_name=self.run.name,
                    step=entry.step,
                    file_path=str(file),
                    relative_path=None,
                )
        return True


def _of_run(pending: dict[str, Any] | None, kind: str, run_id: str) -> dict[str, Any] | None:
    """Return the part of *pending*, as Trackio's storage gives it, that is of one run; None if there is none."""
    if not pending:
        return None
    mine = [(item, at) for item, at in zip(pending[kind], pending["ids"], strict=True) if item["run_id"] == run_id]
    return {**pending, kind: [item for item, _ in mine], "ids": [at for _, at in mine]} if mine else None


def place_of(run: Any) -> Place:
    """Return where the rows of the Trackio run *run* come to lie."""
    if run._is_local:  # noqa: SLF001
        return Database(run)

    def predict(**arguments: Any) -> Any:
        client = run._client  # noqa: SLF001 - made by a thread of Trackio's, as soon as the server answers
        if client is None:
            raise ConnectionError(f"the Trackio server at {run.url} has not answered yet")
        return client.predict(**arguments)

    return Server(run, predict, run._hf_token_for_remote)  # noqa: SLF001
