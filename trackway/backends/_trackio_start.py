"""Starting a Trackio run beside others of the process, and ending it in bounded time."""

from __future__ import annotations

import contextvars
import importlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from trackway import _notices
from trackway.errors import ConfigError

__all__ = ["Target", "end", "media_folder", "start", "target_of", "where_to_look"]

_TIMEOUT = 10.0


@final
class Target(NamedTuple):
    """Where a run is to be kept: a Space, a server by URL and token, or, with none of these, this machine."""

    space_id: str | None = None
    dataset_id: str | None = None
    server: str | None = None
    token: str | None = None


def target_of(*, space_id: str | None, dataset_id: str | None, server_url: str | None, offline: bool) -> Target:
    """Return where to keep a run; where nothing is configured `TRACKIO_SPACE_ID` and `TRACKIO_SERVER_URL` say it.

    Raises:
        ConfigError: for fields that exclude each other, and a server without a write token.
    """
    if space_id and server_url:
        raise ConfigError("trackio: space_id and server_url are two places for one run; give one of them")
    if dataset_id and not space_id:
        raise ConfigError(f"trackio.dataset_id: {dataset_id!r} is the data set of a Space; give space_id with it")
    if not space_id and not server_url:
        space_id = os.environ.get("TRACKIO_SPACE_ID") or None
        server_url = None if space_id else os.environ.get("TRACKIO_SERVER_URL") or None
    if offline and (space_id or server_url):
        _notices.logger.warning(
            "trackio: OFFLINE, so the run is kept on this machine and not sent to %s; upload it later with "
            "`trackio sync`",
            f"the Space {space_id}" if space_id else "the server",
        )
        return Target()
    if server_url is None:
        return Target(space_id, dataset_id)
    if not server_url.startswith(("http://", "https://")):
        raise ConfigError(f"trackio.server_url must begin with http:// or https://, got {server_url!r}")
    base, token = importlib.import_module("trackio.utils").parse_trackio_server_url(server_url)
    token = token or os.environ.get("TRACKIO_WRITE_TOKEN")
    if not token:
        raise ConfigError(
            "trackio.server_url: the server takes rows with a write token only; add `?write_token=...`, as "
            "`trackio show` prints it, or set TRACKIO_WRITE_TOKEN"
        )
    return Target(server=base, token=token)


def start(
    target: Target, *, project: str, name: str | None, run_id: str | None, resume: str, config: Mapping[str, Any]
) -> Any:
    """Return a started `trackio.Run`. Other runs of the process go on, and the current one stays the current one.

    Its id is *run_id*, so that whoever continues the run finds it, whether or not the server answers; if there is a
    run of that name from elsewhere, and *resume* allows it, it is that one's.

    Raises:
        ConfigError: if the project's name is not allowed, or there is no run for `resume: must`.
    """
    storage = _storage()
    try:
        storage.validate_project_name(project)
    except ValueError as error:
        raise ConfigError(f"trackio.project: {error}") from error
    if target.space_id is not None:
        return _on_space(target, project=project, name=name, run_id=run_id, resume=resume, config=config)
    client = None if target.server is None else _Client(target.server, target.token)
    found = _found(client, project, name, run_id, resume)
    if found is None and resume == "must":
        raise ConfigError(f"trackio.resume: must, but project {project!r} has no run {name or run_id!r}")
    if resume == "never":
        found = run_id if run_id is not None and client is None and not _exists(storage, project, run_id) else None
        run_id = uuid.uuid4().hex
    run = _run_class()(
        url=target.server,
        project=project,
        client=client,
        name=name,
        run_id=found or run_id,
        server_base_url=target.server,
        write_token=target.token,
        existing_runs=None if client is None else [],
        config={},
    )
    run.config.update(config)
    return run


def _found(client: _Client | None, project: str, name: str | None, run_id: str | None, resume: str) -> str | None:
    """Return the id of the run to be continued, None where there is none."""
    if resume == "never":
        return None
    if resume == "auto" and (client is not None or name != run_id):  # several runs may share a name that was given
        return None
    if client is None:
        storage = _storage()
        if run_id is not None and _exists(storage, project, run_id):
            return run_id
        record = None if name is None else storage.get_latest_run_record_by_name(project, name)
        return None if record is None else str(record["id"])
    try:
        records = client.predict(api_name="/get_runs_for_project", project=project)
    except Exception as error:
        if resume == "must":
            raise ConfigError(f"trackio.resume: must, but the server cannot be asked for runs: {error}") from error
        return None
    found = [record for record in records if record.get("id") == run_id] or sorted(
        (record for record in records if record.get("name") == name), key=lambda record: record.get("created_at") or ""
    )
    return str(found[-1]["id"]) if found else None


def _storage() -> Any:
    return importlib.import_module("trackio.sqlite_storage").SQLiteStorage


def _exists(storage: Any, project: str, run_id: str) -> bool:
    return storage.get_max_step_for_run(project, run_id=run_id) is not None


def _run_class() -> type[Any]:
    base: Any = importlib.import_module("trackio").Run

    class Run(base):  # type: ignore[misc]
        """Trackio's run, which asks no service for the name of the user."""

        def _get_username(self) -> None:
            """Return nobody."""

    return Run


def _on_space(
    target: Target, *, project: str, name: str | None, run_id: str | None, resume: str, config: Mapping[str, Any]
) -> Any:
    """Return a run on a Space, which `trackio.init` makes and prepares.

    In a context of its own it sees no current run, which it would finish, and leaves none.
    """
    trackio: Any = importlib.import_module("trackio")
    before = trackio.config
    try:
        run = contextvars.Context().run(
            trackio.init,
            project=project,
            name=name,
            space_id=target.space_id,
            dataset_id=target.dataset_id,
            config={},
            resume="never" if resume == "auto" else resume,
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    finally:
        trackio.config = before
    if resume == "auto" and run_id is not None:
        run.id = run_id  # by which a later process finds it, also where the Space does not answer then
    run.config.update(config)
    return run


@final
class _Client:
    """A client of a self-hosted server that connects when it is first needed and waits for no answer for long."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url, token
        self._client: Any = None
        self._lock = threading.Lock()

    def predict(self, **arguments: Any) -> Any:
        """Call an endpoint.

        Raises:
            ConnectionError: if the server is away, or answers too late.
            RuntimeError: if it refuses.
        """
        httpx: Any = importlib.import_module("httpx")
        try:
            with self._lock:
                if self._client is None:
                    self._client = self._connected(httpx)
            return self._client.predict(**arguments)
        except httpx.TransportError as error:
            raise ConnectionError(f"the Trackio server at {self._url} is out of reach: {error}") from error
        except httpx.HTTPStatusError as error:  # which does not say why
            answer = error.response.text[:500]
            raise RuntimeError(
                f"the Trackio server at {self._url} refuses {arguments['api_name']}: {answer}"
            ) from error

    def _connected(self, httpx: Any) -> Any:
        httpx.get(self._url, timeout=_TIMEOUT)  # where there is none, Trackio's own way to find out takes long
        remote: Any = importlib.import_module("trackio.remote_client")
        return remote.RemoteClient(
            self._url, hf_token=None, write_token=self._token, httpx_kwargs={"timeout": _TIMEOUT}, verbose=False
        )


def where_to_look(run: Any) -> str:
    """Return what a person does to see the run; without the write token."""
    if run._is_local:  # noqa: SLF001
        return f'`trackio show --project "{run.project}"`'
    return str(run.url)


def media_folder(run: Any) -> Callable[[int], tuple[Path, Path]]:
    """Return what gives the folder for the media of a step of *run*, and the folder that paths are relative to."""
    utils: Any = importlib.import_module("trackio.utils")
    media: Any = importlib.import_module("trackio.media")

    def folder(step: int) -> tuple[Path, Path]:
        return media.get_project_media_path(project=run.project, run=run.name, step=step), utils.MEDIA_DIR

    return folder


def end(run: Any, seconds: float) -> None:
    """End the threads of *run* within *seconds*: its own `finish` waits for a server as long as that is away."""
    deadline = time.monotonic() + seconds
    for monitor in (run._gpu_monitor, run._cpu_monitor):  # noqa: SLF001
        if monitor is not None:
            monitor.stop()
    run._stop_flag.set()  # noqa: SLF001
    thread = run._local_sender_thread or run._client_thread  # noqa: SLF001
    if thread is not None:
        thread.join(max(1.0, 0.5 * (deadline - time.monotonic())))
        if thread.is_alive():
            run._client = None  # noqa: SLF001 - on which it keeps what it has and ends
            thread.join(max(1.0, deadline - time.monotonic()))
    current = importlib.import_module("trackio.context_vars").current_run
    if current.get() is run:
        current.set(None)
